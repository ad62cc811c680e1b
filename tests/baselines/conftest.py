from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn


class Tiny(nn.Module):
    """Four features that see one pixel each."""

    out_channels = 4

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(dropout))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


@pytest.fixture
def backbone() -> Tiny:
    torch.manual_seed(1)
    return Tiny()


@pytest.fixture
def dropping() -> Tiny:
    torch.manual_seed(2)
    return Tiny(dropout=0.5)


@pytest.fixture
def images(generator: torch.Generator) -> Tensor:
    return torch.rand(3, 3, 4, 5, generator=generator)


@pytest.fixture
def depths(generator: torch.Generator) -> Tensor:
    target = 3 * torch.rand(3, 2, 4, 5, generator=generator)
    target[1, :, 2, 3] = torch.nan
    return target


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    target = torch.randint(6, (3, 4, 5), generator=generator)
    target[0, :2] = 255
    return target
