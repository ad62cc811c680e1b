"""Prediction of large images in overlapping tiles, under a memory limit.

    m(x) = Σ_t w_t(x) m_t(x),  v(x) = Σ_t w_t(x) v_t(x),  log σ(x) = Σ_t w_t(x) log σ_t(x)

Mean, variance and log-scale of the tiles t are averaged linearly with weights that sum to 1; the
law of the labels or depths is computed once, afterwards, from the blended maps. A tile is trusted
where it is far from its own cut edges: in an overlap of o pixels the outer 3/8 o on either side
count for nothing, and over the o/4 in the middle the weight passes linearly from one tile to the
next. So a convolutional network that looks no further than 3/8 o is reproduced exactly, and any
other up to what it sees beyond that.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.position import part_of
from onesigma.views import Marginals

Span = tuple[int, int]

BLENDED_SHARE = 0.25
_MEGABYTE = 2**20
_PROBE = 128


@torch.no_grad()
def predict_tiled(
    marginals: Marginals,
    images: Float[Tensor, "n k h w"],
    tile: tuple[int, int] | None = None,
    overlap: int = 64,
    stride: int = 32,
    memory_mb: float = 1024.0,
    bytes_per_pixel: float | None = None,
    multiple: int = 1,
) -> tuple[GaussianField, Float[Tensor, "n s h w"]]:
    """Marginals of images of any size; never more than one tile of one image in the network.

    An image that fits into one tile is predicted whole, as if there were no tiles. The memory
    limit is for the network's pass; the results at full size, 2c + s maps, come on top.

    Args:
        marginals: images to (field with marginal covariance, log σ), e.g. `model.marginals`.
        images: RGB in [0, 1].
        tile: rows and columns, multiples of `stride`; chosen from `memory_mb` when left out.
        overlap: of neighbouring tiles, at least; at most half a tile.
        stride: a multiple of the step of the network's coarsest map: tiles start at its multiples,
            so that pooling falls on the same pixels as in the whole image.
        memory_mb: largest memory for one pass of the network, in MB of 2²⁰ bytes.
        bytes_per_pixel: that a pass needs; measured on a small piece of the image when left out.
        multiple: sides are padded to multiples of this by repeating the border, and the results
            cut back, for networks that do not do so themselves; a divisor of `stride`.
    """
    _check(marginals, images, tile)
    h, w = images.shape[2:]
    padded = functional.pad(images, (0, -w % multiple, 0, -h % multiple), mode="replicate")
    size = (padded.shape[2], padded.shape[3])
    if tile is None:
        tile = _affordable_tile(marginals, padded, overlap, stride, memory_mb, bytes_per_pixel)
    rows, columns = (
        tile_spans(length, side, overlap, stride) for length, side in zip(size, tile, strict=True)
    )
    maps = [_blended(marginals, image[None], rows, columns, overlap) for image in padded]
    mean, variance, log_scale = (
        torch.cat(parts)[..., :h, :w].contiguous() for parts in zip(*maps, strict=True)
    )
    return GaussianField(mean, MarginalCovariance(variance)), log_scale


def _check(marginals: Marginals, images: Tensor, tile: object) -> None:
    if images.ndim != 4:
        raise ValueError(
            f"predict_tiled got images of shape {tuple(images.shape)}; it wants (n, k, h, w). Of "
            "a single image take image[None]."
        )
    if tile is not None and not (isinstance(tile, Sequence) and len(tile) == 2):
        raise ValueError(
            f"predict_tiled got tile={tile!r}; it wants rows and columns, such as tile=(256, 256)."
        )
    owner = getattr(marginals, "__self__", marginals)
    if isinstance(owner, nn.Module) and owner.training:
        raise ValueError(
            f"predict_tiled got a {type(owner).__name__} in training mode, in which every tile "
            "would be normalised by itself and change the running statistics; call .eval() first."
        )


def tile_spans(length: int, tile: int, overlap: int, stride: int) -> list[Span]:
    """(start, end) of tiles along one axis: equal, but for the last, which may be smaller.

    Args:
        length: of the axis.
        tile: of one tile; the whole axis is one tile where it fits.
        overlap: least overlap of neighbours.
        stride: starts are multiples of this.
    """
    if length <= tile:
        return [(0, length)]
    if tile % stride or not 0 <= overlap <= tile // 2 or (tile - overlap) < stride:
        raise ValueError(
            f"Tiles of {tile} pixels with an overlap of {overlap} and a stride of {stride} do not "
            f"work; tiles are multiples of the stride, at least {2 * overlap} (twice the overlap)."
        )
    step = (tile - overlap) // stride * stride
    # the first multiple of the stride from which one tile reaches the end
    last = -(-(length - tile) // stride) * stride
    return [(start, min(start + tile, length)) for start in [*range(0, last, step), last]]


def bytes_per_pixel(marginals: Marginals, images: Float[Tensor, "n k h w"]) -> float:
    """Peak of the memory that one pass allocates, in bytes per pixel of the images.

    Counts the tensors that are alive at the same time, the images themselves not; work space
    inside a single operation is not seen.
    """
    with torch.no_grad(), _PeakMemory() as memory:
        marginals(images)
    return memory.peak / (len(images) * images.shape[2] * images.shape[3])


def _affordable_tile(
    marginals: Marginals,
    images: Tensor,
    overlap: int,
    stride: int,
    memory_mb: float,
    per_pixel: float | None,
) -> tuple[int, int]:
    h, w = images.shape[2:]
    if h * w <= _PROBE**2:
        return h, w
    if per_pixel is None:
        probe = -(-_PROBE // stride) * stride
        per_pixel = bytes_per_pixel(marginals, images[:1, :, :probe, :probe])
    pixels = int(memory_mb * _MEGABYTE / per_pixel)
    rows, columns = _largest_tile(pixels, h, w, stride)
    least = (min(h, max(2 * overlap, stride)), min(w, max(2 * overlap, stride)))
    if rows < least[0] or columns < least[1]:
        raise ValueError(
            f"memory_mb={memory_mb} allows {pixels} pixels at {per_pixel:.0f} bytes each; tiles "
            f"with an overlap of {overlap} want {least[0]}×{least[1]}. Allow at least "
            f"{math.ceil(least[0] * least[1] * per_pixel / _MEGABYTE)} MB, or lower overlap."
        )
    return rows, columns


def _largest_tile(pixels: int, height: int, width: int, stride: int) -> tuple[int, int]:
    """Square, unless the image is narrower than that: then the other side gains."""

    def within(limit: int) -> int:
        return max(limit // stride * stride, stride)

    rows = min(height, within(math.isqrt(pixels)))
    columns = min(width, within(pixels // rows))
    rows = min(height, within(pixels // columns))
    return (rows, columns) if rows * columns <= pixels else (0, 0)


def _blended(
    marginals: Marginals, image: Tensor, rows: Sequence[Span], columns: Sequence[Span], overlap: int
) -> list[Tensor]:
    """Mean, variance and log σ of one image."""
    height, width = rows[-1][1], columns[-1][1]
    totals: list[Tensor] = []
    for row, down in zip(rows, _weights(rows, overlap, image), strict=True):
        for column, across in zip(columns, _weights(columns, overlap, image), strict=True):
            place = (..., slice(*row), slice(*column))
            with part_of(image, row[0], column[0]):
                field, log_scale = marginals(image[place])
            maps = (field.mean, field.covariance.variance, log_scale)
            totals = totals or [m.new_zeros(1, m.shape[1], height, width) for m in maps]
            weight = down[:, None] * across
            for total, value in zip(totals, maps, strict=True):
                total[place] += weight.to(value) * value
    return totals


def _weights(spans: Sequence[Span], overlap: int, like: Tensor) -> list[Tensor]:
    """Of each tile along one axis: 1 inside, 0 near cut edges, together 1 at every pixel."""
    width = max(1.0, BLENDED_SHARE * overlap)
    cuts = [(left[1] + right[0]) / 2 for left, right in pairwise(spans)]
    weights = []
    for start, end in spans:
        centre = torch.arange(start, end, device=like.device) + 0.5
        weight = torch.ones_like(centre)
        for cut in cuts:
            # from 0 to 1 over the pixels around a cut
            rise = ((centre - cut) / width + 0.5).clamp(0, 1)
            weight = weight * (rise if cut < (start + end) / 2 else 1 - rise)
        weights.append(weight)
    return weights


class _PeakMemory(TorchDispatchMode):
    """Counts the bytes of the storages that operations make and that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = {id(s) for s in map(_storage, tree_leaves((args, kwargs))) if s is not None}
        out = func(*args, **(kwargs or {}))
        for storage in map(_storage, tree_leaves(out)):
            if storage is not None and id(storage) not in given and storage not in self._known:
                self._track(storage)
        return out

    def _track(self, storage: Any) -> None:
        size = storage.nbytes()
        self._known.add(storage)
        weakref.finalize(storage, self._release, size)
        self.alive += size
        self.peak = max(self.peak, self.alive)

    def _release(self, size: int) -> None:
        self.alive -= size


def _storage(value: object) -> Any:
    return value.untyped_storage() if isinstance(value, Tensor) else None
