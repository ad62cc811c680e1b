"""FC-DenseNet, the one hundred layers tiramisu (Jégou et al., 2017), and a small one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from onesigma.networks.backbone import Backbone, initialise


class DenseLayer(nn.Sequential):
    """Batch normalisation, ReLU, 3 × 3 convolution to `growth` new maps, dropout."""

    def __init__(self, channels: int, growth: int, dropout: float, kernel: int = 3) -> None:
        super().__init__(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, growth, kernel, padding=kernel // 2),
            *([nn.Dropout(dropout)] if dropout > 0 else []),
        )


class DenseBlock(nn.Module):
    """Layers that each read all maps before them.

    Args:
        channels: of the input.
        layers: how many.
        growth: new maps of each layer.
        dropout: probability, 0 for none.
    """

    def __init__(self, channels: int, layers: int, growth: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DenseLayer(channels + i * growth, growth, dropout) for i in range(layers)
        )
        self.new_channels = layers * growth

    def forward(self, x: Float[Tensor, "n k h w"]) -> Float[Tensor, "n g h w"]:
        """The new maps alone."""
        maps = [x]
        for layer in self.layers:
            maps.append(layer(torch.cat(maps, 1)))
        return torch.cat(maps[1:], 1)


class FCDenseNet(Backbone):
    """Dense blocks down, one at the bottom, dense blocks up, with skips between equal resolutions.

    Going down a block's input is kept beside its new maps; going up only new maps are up-sampled,
    so that the width does not explode.

    Args:
        layers: of the dense blocks going down, from fine to coarse; going up, the reverse.
        bottleneck: layers of the block at the bottom.
        growth: new maps of each layer.
        first: maps of the first convolution.
        dropout: probability in every dense layer and down-transition, 0 for none.
        stem: 1 works at full resolution; 2 folds 2 × 2 pixels into channels first and up-samples
            `first` combinations of the last maps at the end: a quarter of the time.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
        in_channels: of the images.
    """

    def __init__(
        self,
        layers: Sequence[int],
        bottleneck: int,
        growth: int,
        first: int = 48,
        dropout: float = 0.0,
        stem: int = 1,
        classes: int | None = None,
        in_channels: int = 3,
    ) -> None:
        down, up = _widths(layers, bottleneck, growth, first)
        last = up[-1] + layers[0] * growth
        super().__init__(stem * 2 ** len(layers), last if stem == 1 else first, classes)
        self.stem = stem
        self.first = nn.Conv2d(in_channels * stem**2, first, 3, padding=1)
        self.down = nn.ModuleList(
            DenseBlock(width, n, growth, dropout)
            for width, n in zip([first, *down], layers, strict=False)
        )
        self.pool = nn.ModuleList(_transition_down(width, dropout) for width in down)
        self.bottleneck = DenseBlock(down[-1], bottleneck, growth, dropout)
        coarser = [bottleneck, *layers[:0:-1]]
        self.unpool = nn.ModuleList(
            nn.ConvTranspose2d(n * growth, n * growth, 3, stride=2, padding=1, output_padding=1)
            for n in coarser
        )
        self.up = nn.ModuleList(
            DenseBlock(width, n, growth, dropout)
            for width, n in zip(up, reversed(layers), strict=True)
        )
        self.last = nn.Identity() if stem == 1 else _upsample(last, first, stem)
        initialise(self)

    def features(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n f h w"]:
        """All maps of the last block, or combinations of them at full resolution."""
        x = self.first(functional.pixel_unshuffle(images, self.stem))
        skips = []
        for block, pool in zip(self.down, self.pool, strict=True):
            x = torch.cat([x, block(x)], 1)
            skips.append(x)
            x = pool(x)
        new = self.bottleneck(x)
        for unpool, block in zip(self.unpool, self.up, strict=True):
            x = torch.cat([unpool(new), skips.pop()], 1)
            new = block(x)
        return self.last(torch.cat([x, new], 1))


def fc_densenet56(dropout: float = 0.2, classes: int | None = None) -> FCDenseNet:
    """FC-DenseNet 56: 1.4 M parameters.

    Args:
        dropout: probability in every dense layer and down-transition, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """
    return FCDenseNet([4] * 5, 4, growth=12, dropout=dropout, classes=classes)


def fc_densenet67(dropout: float = 0.2, classes: int | None = None) -> FCDenseNet:
    """FC-DenseNet 67: 3.5 M parameters.

    Args:
        dropout: probability in every dense layer and down-transition, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """
    return FCDenseNet([5] * 5, 5, growth=16, dropout=dropout, classes=classes)


def fc_densenet103(dropout: float = 0.2, classes: int | None = None) -> FCDenseNet:
    """FC-DenseNet 103, the network of the paper: 9.3 M parameters.

    Args:
        dropout: probability in every dense layer and down-transition, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """
    return FCDenseNet([4, 5, 7, 10, 12], 15, growth=16, dropout=dropout, classes=classes)


def fc_densenet_small(dropout: float = 0.0, classes: int | None = None) -> FCDenseNet:
    """A small FC-DenseNet at half resolution that trains on a laptop: 0.9 M parameters.

    Args:
        dropout: probability in every dense layer and down-transition, 0 for none.
        classes: adds a 1 × 1 convolution to this many outputs, for use without another head.
    """
    return FCDenseNet([2, 2, 3, 4], 4, 16, first=32, dropout=dropout, stem=2, classes=classes)


def _widths(
    layers: Sequence[int], bottleneck: int, growth: int, first: int
) -> tuple[list[int], list[int]]:
    """Channels at the end of each block going down, and at the start of each going up."""
    down = [first + growth * sum(layers[: i + 1]) for i in range(len(layers))]
    coarser = [bottleneck, *layers[:0:-1]]
    up = [n * growth + skip for n, skip in zip(coarser, reversed(down), strict=True)]
    return down, up


def _transition_down(channels: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(DenseLayer(channels, channels, dropout, kernel=1), nn.MaxPool2d(2))


def _upsample(channels: int, width: int, factor: int) -> nn.Sequential:
    upsample = nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=False)
    return nn.Sequential(DenseLayer(channels, width, dropout=0.0, kernel=1), upsample)
