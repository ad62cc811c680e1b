"""What every network of this room does around its own layers: normalise, pad, crop, classify."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Normalise(nn.Module):
    """Images in [0, 1] to the range a network likes: (x - mean) / std.

    Args:
        mean: one value for all channels, or one each.
        std: one value for all channels, or one each.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: float | Sequence[float] = 0.5, std: float | Sequence[float] = 0.25
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(mean, dtype=torch.float32).reshape(-1, 1, 1))
        self.register_buffer("std", torch.as_tensor(std, dtype=torch.float32).reshape(-1, 1, 1))

    def forward(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n k h w"]:
        """(x - mean) / std."""
        return (images - self.mean) / self.std


class Backbone(nn.Module, ABC):
    """A network from images to features of the same size, whatever that size is.

    Images whose sides are not multiples of `stride` are padded below and on the right by repeating
    the border, and the features are cut back: pixel (i, j) of the features belongs to pixel (i, j)
    of the image.

    Args:
        stride: the sides that `features` can take are multiples of this.
        out_channels: of `features`.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """

    def __init__(self, stride: int, out_channels: int, classes: int | None = None) -> None:
        super().__init__()
        self.stride = stride
        self.out_channels = out_channels if classes is None else classes
        self.normalise = Normalise()
        self.classifier = nn.Identity() if classes is None else nn.Conv2d(out_channels, classes, 1)

    @abstractmethod
    def features(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n f h w"]:
        """Features of normalised images whose sides are multiples of `stride`."""

    def forward(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n f h w"]:
        """Features (or, with `classes`, outputs) at the resolution of the images."""
        h, w = images.shape[2:]
        below, right = -h % self.stride, -w % self.stride
        padded = functional.pad(self.normalise(images), (0, right, 0, below), mode="replicate")
        # Channels last is a third faster on CPUs; heads and densities want pixels contiguous.
        features = self.features(padded.contiguous(memory_format=torch.channels_last))
        return self.classifier(features[..., :h, :w].contiguous())


def initialise(network: nn.Module) -> None:
    """He et al.'s uniform weights and zero biases, for every convolution."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
