"""Every s-th row and column from a random offset: sums over pixels, unbiased, for less time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.field import GaussianField

_Maps = TypeVar("_Maps", Tensor, GaussianField)


@dataclass(frozen=True)
class PixelGrid:
    """Which pixels stand for all.

    Attributes:
        size: rows and columns of all.
        stride: s.
        top: the first row.
        left: the first column.
    """

    size: tuple[int, int]
    stride: int
    top: int = 0
    left: int = 0

    @classmethod
    def random(
        cls, size: tuple[int, int], stride: int, generator: torch.Generator | None = None
    ) -> PixelGrid:
        """From one of the s² offsets.

        Args:
            size: rows and columns.
            stride: s.
            generator: source of the offset; nothing is drawn for a stride of 1.
        """
        if not 1 <= stride <= min(size):
            raise ValueError(
                f"A grid got the stride {stride} for maps of {size} pixels; it wants one of at "
                "least 1 that is no larger."
            )
        if stride == 1:
            return cls(size, 1)
        device = None if generator is None else generator.device
        top, left = torch.randint(stride, (2,), generator=generator, device=device).tolist()
        return cls(size, stride, top, left)

    def of(self, maps: _Maps) -> _Maps:
        """What lies on the grid, pixels last."""
        if self.stride == 1:
            return maps
        rows, cols = slice(self.top, None, self.stride), slice(self.left, None, self.stride)
        return maps.at(rows, cols) if isinstance(maps, GaussianField) else maps[..., rows, cols]

    def spread(self, values: Float[Tensor, "*n a b"]) -> Float[Tensor, "*n h w"]:
        """s² times the values of the grid at its pixels, 0 elsewhere: their sum is unbiased."""
        if self.stride == 1:
            return values
        maps = values.new_zeros(*values.shape[:-2], *self.size)
        self.of(maps).copy_(self.stride**2 * values)
        return maps
