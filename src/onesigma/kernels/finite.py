"""The parts of finite random networks that torch.nn does not have."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Apply(nn.Module):
    """A function as a module.

    Args:
        function: applied to the activations.
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """function(z)."""
        return self.function(z)


class Sum(nn.Module):
    """z + branch(z).

    Args:
        branch: keeps the shape.
    """

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, z: Tensor) -> Tensor:
        """The sum."""
        out: Tensor = z + self.branch(z)
        return out


class Concat(nn.Module):
    """[z, branch(z)] along channels, z cropped around its centre to the size of branch(z).

    Args:
        branch: may shrink the map by its border.
    """

    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, z: Tensor) -> Tensor:
        """[z, branch(z)]."""
        new = self.branch(z)
        return torch.cat([centre_crop(z, new.shape[-2], new.shape[-1]), new], 1)


def centre_crop(maps: Tensor, height: int, width: int) -> Tensor:
    """The central height × width pixels of (..., h, w)."""
    top, left = (maps.shape[-2] - height) // 2, (maps.shape[-1] - width) // 2
    return maps[..., top : top + height, left : left + width]


def channel_norm(z: Tensor, epsilon: float) -> Tensor:
    """The quotient z / √(mean over channels of z² + ε)."""
    return z * (z.square().mean(1, keepdim=True) + epsilon).rsqrt()


def random_convolution(
    convolution: nn.Conv2d, weight: float, bias: float, generator: torch.Generator | None
) -> nn.Conv2d:
    """Fill a convolution with N(0, weight) weights and N(0, bias) biases."""
    with torch.no_grad():
        convolution.weight.normal_(0, math.sqrt(weight), generator=generator)
        if convolution.bias is not None:
            convolution.bias.normal_(0, math.sqrt(bias), generator=generator)
    return convolution
