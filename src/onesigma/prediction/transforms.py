"""Target transforms: between the unit of the target y and the space z in which the model works."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Constant = float | Float[Tensor, "#c 1 1"]


@dataclass(frozen=True, eq=False)
class Transform(ABC):
    """z = (g(y) - shift)/scale with g increasing: monotone, so quantiles and CDFs map exactly.

    Attributes:
        shift: in the unit of g(y), one number or one per output.
        scale: positive, one number or one per output.
    """

    shift: Constant = 0.0
    scale: Constant = 1.0

    def __post_init__(self) -> None:
        if not bool((torch.as_tensor(self.scale) > 0).all()):
            raise ValueError(
                f"{type(self).__name__} got scale={self.scale}; it wants a positive scale: "
                "an uncertainty in the unit is the model's times this scale."
            )

    @abstractmethod
    def to_model(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Z of a target y."""

    @abstractmethod
    def to_unit(self, z: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Y of a model value z."""

    @abstractmethod
    def log_abs_det(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Log |dz/dy|, what a log-density in z gains in y."""

    def constants(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """(shift, scale) as tensors of the dtype and device of `like`."""
        return (
            torch.as_tensor(self.shift, dtype=like.dtype, device=like.device),
            torch.as_tensor(self.scale, dtype=like.dtype, device=like.device),
        )


class Affine(Transform):
    """z = (y - shift)/scale."""

    def to_model(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(y - shift)/scale."""
        shift, scale = self.constants(y)
        return (y - shift) / scale

    def to_unit(self, z: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Shift + scale · z."""
        shift, scale = self.constants(z)
        return shift + scale * z

    def log_abs_det(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """-log scale."""
        return -self.constants(y)[1].log().expand_as(y)


@dataclass(frozen=True, eq=False)
class Log(Transform):
    """z = (log(y + offset) - shift)/scale, for targets above -offset.

    Attributes:
        offset: not negative, in the unit of y: 0 makes relative errors equal, a large one is
            nearly affine.
    """

    offset: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.offset < math.inf:
            raise ValueError(
                f"Log got offset={self.offset}; it wants a number of at least 0 in the target's "
                "unit, which is added before the logarithm."
            )

    def to_model(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(log(y + offset) - shift)/scale; NaN below -offset: the default mask drops the pixel."""
        shift, scale = self.constants(y)
        return ((y + self.offset).log() - shift) / scale

    def to_unit(self, z: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """exp(shift + scale · z) - offset."""
        shift, scale = self.constants(z)
        return (shift + scale * z).exp() - self.offset

    def log_abs_det(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """-log(scale · (y + offset))."""
        return -(self.constants(y)[1] * (y + self.offset)).log()
