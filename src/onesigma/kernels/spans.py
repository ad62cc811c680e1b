"""Maps as runs of memory: what is done to all pixels alike is fastest on one long row.

A map of h rows of w pixels, `pitch` apart, is a span of (h − 1) · pitch + w numbers. A valid
convolution leaves the pitch as it is and shortens the rows, so that the span has gaps between
them. In the gaps stand sums over windows that wrap around a row's end: covariances of the same
odd window for all pairs of images, hence harmless to compute with, and never looked at. Several
maps, `stride` apart, are one run in the same way, with anything between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

_CACHED_PIXELS = 40_000  # of the maps at work at once: they and their temporaries stay in the cache

Parts = Sequence[tuple[int, int]]  # first map, number of maps
Read = Callable[[Tensor], Tensor]  # takes a run that it may use, returns covariances


@dataclass(frozen=True)
class Desk:
    """Memory to compute with: of n maps, and three times of those that are read together."""

    deviation: Tensor
    rho: Tensor
    product: Tensor
    spare: Tensor


class Spans:
    """Packed covariances, to be read some maps at a time.

    Args:
        maps: (pairs, h, w).
        images: n.
        desk: of spans with the same stride; new if None.
    """

    def __init__(self, maps: Tensor, images: int, desk: Desk | None = None) -> None:
        self.pairs, self.height, self.width = maps.shape
        if not _is_apart(maps):
            maps = maps.contiguous()
        self.images = images
        # torch lets the stride of a single row or map be anything
        self.pitch = max(maps.stride(1), self.width)
        self.length = (self.height - 1) * self.pitch + self.width
        self.stride = max(maps.stride(0), self.length)
        self.together = min(self.pairs, max(1, _CACHED_PIXELS // self.stride))
        self.memory = maps.as_strided(((self.pairs - 1) * self.stride + self.length,), (1,))
        self.desk = Desk(*map(self.empty, (images, *[self.together] * 3))) if desk is None else desk

    def readers(self, parts: Parts) -> Iterable[Read]:
        """What reads the covariances part by part, in order."""
        return (partial(_same, run) for run in self.runs(self.memory, parts))

    def runs(self, memory: Tensor, parts: Parts, start: int = 0, more: int = 0) -> Sequence[Tensor]:
        """The parts of a memory that is laid out like this one.

        Args:
            memory: in one dimension.
            parts: first map and number of maps, at most `together`.
            start: where the first map begins.
            more: numbers beyond the last span of a part.
        """
        size, stride = self.length + more, self.stride
        if self.together == 1:  # faster than slice by slice
            offset = start + int(memory.storage_offset())
            return memory.as_strided((len(parts), size), (stride, 1), offset).unbind()
        ends = ((start + first * stride, (count - 1) * stride + size) for first, count in parts)
        return [memory[at : at + length] for at, length in ends]

    def rows(self, memory: Tensor, count: int) -> Tensor:
        """The first spans of a memory, one beside the other."""
        return memory.as_strided((count, self.length), (self.stride, 1))

    def empty(self, count: int) -> Tensor:
        """Memory for so many spans."""
        return self.memory.new_empty(count * self.stride)

    def maps(self, memory: Tensor) -> Tensor:
        """All spans in a memory as (pairs, h, w)."""
        return memory.as_strided(
            (self.pairs, self.height, self.width), (self.stride, self.pitch, 1)
        )


class BoxSums(Spans):
    """Σ_t K(q + t) over the windows that fit; scaled and shifted.

    Args:
        maps: (pairs, h, w); no gradient passes.
        images: n.
        size: of the window.
        dilation: step between its taps.
        affine: a factor and a term for the sum.
        desk: as in `Spans`.
    """

    def __init__(
        self,
        maps: Tensor,
        images: int,
        size: tuple[int, int],
        dilation: int,
        affine: tuple[float, float] | None = None,
        desk: Desk | None = None,
    ) -> None:
        super().__init__(maps, images, desk)
        self.affine = None if affine is None else (affine[0], maps.new_tensor(affine[1]))
        self.along = [dilation * t for t in range(size[1])]
        self.down = [dilation * t * self.pitch for t in range(size[0])]
        self.height -= dilation * (size[0] - 1)
        self.width -= dilation * (size[1] - 1)
        self.length -= self.down[-1] + self.along[-1]

    def readers(self, parts: Parts) -> Iterable[Read]:
        """Sums along the rows, then down the columns."""
        high = self.down[-1]
        work = {}
        for count in {count for _, count in parts}:
            (total,) = self.runs(self.desk.spare, [(0, count)], more=high)
            down = [self.runs(self.desk.spare, [(0, count)], t)[0] for t in self.down]
            work[count] = total, down
        taps = (self.runs(self.memory, parts, t, high) for t in self.along)
        for (_, count), *along in zip(parts, *taps, strict=True):
            yield partial(self._sum_twice, along, *work[count])

    def _sum_twice(
        self, along: Sequence[Tensor], total: Tensor, down: Sequence[Tensor], out: Tensor
    ) -> Tensor:
        _sum(along, total)
        _sum(down, out)
        if self.affine is None:
            return out
        scale, shift = self.affine
        return torch.add(shift, out, alpha=scale, out=out)


def _is_apart(maps: Tensor) -> bool:
    """Pixels in a row without gaps, rows and maps one after the other."""
    _, height, width = maps.shape
    stride, pitch, step = maps.stride()
    return step == 1 and pitch >= width and stride >= (height - 1) * pitch + width


def _same(run: Tensor, out: Tensor) -> Tensor:
    return run


def _sum(runs: Sequence[Tensor], out: Tensor) -> None:
    if len(runs) == 1:
        out.copy_(runs[0])
        return
    torch.add(runs[0], runs[1], out=out)
    for run in runs[2:]:
        out.add_(run)
