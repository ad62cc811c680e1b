"""Where a pixel lies in its image: its row, and how far it is from the middle column.

On images that a network has not seen, errors depend on it in a way that they do not on those it
knows by heart: a floor is near wherever it is, what is above it may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

COORDINATES = 2


@dataclass(frozen=True)
class _Part:
    """Of an image with so many rows and columns, the part that begins at a row and a column."""

    rows: int
    columns: int
    top: int
    left: int


_SEEN: ContextVar[_Part | None] = ContextVar("part of an image", default=None)


@contextmanager
def part_of(image: Float[Tensor, "n k h w"], top: int, left: int) -> Iterator[None]:
    """What passes meanwhile is a part of this image, cut out at a row and a column."""
    token = _SEEN.set(_Part(image.shape[2], image.shape[3], top, left))
    try:
        yield
    finally:
        _SEEN.reset(token)


def positions(maps: Float[Tensor, "n f h w"]) -> Float[Tensor, "1 2 h w"]:
    """The row from -1, top, to 1, bottom, and the distance from the middle column, 0 to 1.

    A mirror image has the same; an image at another size too, up to half a pixel.
    """
    h, w = maps.shape[2:]
    part = _SEEN.get() or _Part(h, w, 0, 0)
    rows = _centres(part.top, h, part.rows, maps)
    columns = _centres(part.left, w, part.columns, maps).abs()
    return torch.stack([rows[:, None].expand(h, w), columns.expand(h, w)])[None]


def _centres(start: int, count: int, whole: int, like: Tensor) -> Float[Tensor, "p"]:
    numbers = torch.arange(start, start + count, dtype=like.dtype, device=like.device)
    return (2 * numbers + 1) / whole - 1
