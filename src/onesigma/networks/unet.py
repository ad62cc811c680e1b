"""A small U-Net (Ronneberger et al., 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onesigma.networks.backbone import Backbone, initialise


class UNet(Backbone):
    """Two convolutions at each resolution, down and up, with skips between equal resolutions.

    Args:
        widths: channels at each resolution, from fine to coarse.
        dropout: probability after every pair of convolutions, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
        in_channels: of the images.
    """

    def __init__(
        self,
        widths: Sequence[int] = (16, 32, 64, 128),
        dropout: float = 0.0,
        classes: int | None = None,
        in_channels: int = 3,
    ) -> None:
        super().__init__(2 ** (len(widths) - 1), widths[0], classes)
        self.first = _double(in_channels, widths[0], dropout)
        self.down = nn.ModuleList(
            nn.Sequential(nn.MaxPool2d(2), _double(fine, coarse, dropout))
            for fine, coarse in pairwise(widths)
        )
        self.unpool = nn.ModuleList(
            nn.ConvTranspose2d(coarse, fine, 2, stride=2)
            for coarse, fine in pairwise(reversed(widths))
        )
        self.up = nn.ModuleList(_double(2 * fine, fine, dropout) for fine in widths[-2::-1])
        initialise(self)

    def features(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n f h w"]:
        """The maps at the finest resolution."""
        skips = [self.first(images)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for unpool, up in zip(self.unpool, self.up, strict=True):
            x = up(torch.cat([unpool(x), skips.pop()], 1))
        return x


def unet_small(dropout: float = 0.0, classes: int | None = None) -> UNet:
    """A small U-Net that trains on a laptop: 1.9 M parameters.

    Args:
        dropout: probability after every pair of convolutions, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """
    return UNet((16, 32, 64, 128, 256), dropout=dropout, classes=classes)


def _double(channels: int, width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        *_conv(channels, width),
        *_conv(width, width),
        *([nn.Dropout(dropout)] if dropout > 0 else []),
    )


def _conv(channels: int, width: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
