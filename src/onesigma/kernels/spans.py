"""Maps as runs of memory: what is done to all pixels alike is fastest on one long row.

A map of h rows of w pixels, `pitch` apart, is a span of (h − 1) · pitch + w numbers. A valid
convolution leaves the pitch as it is and shortens the rows, so that the span has gaps between
them. In the gaps stand sums over windows that wrap around a row's end: covariances of the same
odd window for all pairs of images, hence harmless to compute with, and never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

_CACHED_PIXELS = 40_000  # of the maps at work at once: they and their temporaries stay in the cache

Read = Callable[[Tensor], Tensor]  # takes memory that it may use, returns covariances


class Spans:
    """Packed covariances, to be read some maps at a time.

    Args:
        maps: (pairs, h, w).
    """

    def __init__(self, maps: Tensor) -> None:
        pairs, self.height, self.width = maps.shape
        if maps.stride(2) != 1 or maps.stride(1) < self.width:
            maps = maps.contiguous()
        self.pitch = maps.stride(1)
        self.rows = maps.as_strided((pairs, self.length), (maps.stride(0), 1))
        self.together = min(pairs, max(1, _CACHED_PIXELS // self.length))
        self.spare = self.empty(self.together)  # free to use between two reads

    @property
    def length(self) -> int:
        """Of one span."""
        return (self.height - 1) * self.pitch + self.width

    def readers(self, sizes: Sequence[int]) -> Iterable[Read]:
        """What reads the maps in parts of so many (at most `together`), one after the other."""
        return (partial(_same, part) for part in self.rows.split_with_sizes(sizes))

    def empty(self, count: int) -> Tensor:
        """Memory for so many spans, each at the beginning of a cache line."""
        return self.rows.new_empty(count, -(-self.length // 16) * 16)[:, : self.length]

    def maps(self, rows: Tensor) -> Tensor:
        """Spans of this length as (pairs, h, w)."""
        size = (rows.shape[0], self.height, self.width)
        return rows.as_strided(size, (rows.stride(0), self.pitch, 1))


class BoxSums(Spans):
    """Σ_t K(q + t) over the windows that fit.

    Args:
        maps: (pairs, h, w); no gradient passes.
        size: of the window.
        dilation: step between its taps.
    """

    def __init__(self, maps: Tensor, size: tuple[int, int], dilation: int) -> None:
        super().__init__(maps)
        self.down, self.along = ([dilation * t for t in range(taps)] for taps in size)
        self.height -= self.down[-1]
        self.width -= self.along[-1]

    @property
    def place(self) -> Tensor:
        """The memory that is read from, for results: a part that was read is not read again."""
        return self.rows[:, : self.length]

    def readers(self, sizes: Sequence[int]) -> Iterable[Read]:
        """Sums along the rows, then down the columns."""
        length, pitch = self.length, self.pitch
        long = length + self.down[-1] * pitch
        work = {}
        for count in set(sizes):
            total = self.spare[:count, :long]
            work[count] = total, [total[:, t * pitch : t * pitch + length] for t in self.down]
        taps = (self.rows[:, t : t + long].split_with_sizes(sizes) for t in self.along)
        for count, *along in zip(sizes, *taps, strict=True):
            total, down = work[count]
            yield partial(_sum_twice, along, total, down)


def _same(part: Tensor, out: Tensor) -> Tensor:
    return part


def _sum_twice(along: list[Tensor], total: Tensor, down: list[Tensor], out: Tensor) -> Tensor:
    _sum(along, total)
    return _sum(down, out)


def _sum(taps: list[Tensor], out: Tensor) -> Tensor:
    if len(taps) == 1:
        return out.copy_(taps[0])
    torch.add(taps[0], taps[1], out=out)
    for tap in taps[2:]:
        out.add_(tap)
    return out
