"""How far an image lies from the training images, as every layer of its network sees it.

What is odd about an image may be forgotten at the network's end, where the heads of the posterior
read. Every batch normalisation remembers mean μ and variance s² of its channels over the training
images; with m and v those of one image,

    shift = mean over channels of (m - μ)² / s²,
    contrast = mean of ½ log v / s²,    stretch = mean of its square

say how far it is from them. A small network turns the three, of all layers, into one number that is
added to log D. It is best learned when all else has been: the divergence at context images also
teaches the features, and would no longer if it were paid so easily. The noise of an image may be a
bent line of their means over layers: so few numbers that nothing is learned by heart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.nn.modules.batchnorm import _BatchNorm

# distances below this count as none
SMALL = 0.01
# log σ of an image lies within this of 0
MOST_LOG_SCALE = 1.5
# about the mean and deviation over altered training images of contrast, log stretch and log shift:
# a line through numbers of one size is found in few steps
USUAL, SPREAD = (-0.2, -2.0, -1.5), (0.2, 1.0, 1.5)
# how sharply it bends
BEND = 12.0
# what the bent line of 0 is
START_BEND = math.log(2) / BEND


class OneNumber(nn.Module):
    """One number for an image from statistics of it, by one hidden layer; 0 at the start.

    Args:
        statistics: how many.
        width: of the hidden layer.
    """

    def __init__(self, statistics: int, width: int = 32) -> None:
        super().__init__()
        self.hidden = nn.Linear(statistics, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    @property
    def silent(self) -> bool:
        """Whether it says 0 of every image and is not to learn anything else yet."""
        return _silent(self.out.weight, self.out.bias)

    def number(self, statistics: Float[Tensor, "n d"]) -> Float[Tensor, "n 1 1 1"]:
        """For every pixel of an image the same."""
        return self.out(self.hidden(statistics).relu())[:, :, None, None]


class Familiarity(OneNumber):
    """One number for an image from its distances at every batch normalisation; 0 at the start.

    The distances carry no gradient: they are read, they do not shape the features.

    Args:
        network: whose layers are watched; it is not kept.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__(3 * _layers(network))

    def forward(self, distances: Float[Tensor, "n l 3"]) -> Float[Tensor, "n 1 1 1"]:
        """From the contrasts and the logarithms of the others."""
        return self.number(_logarithms(distances).flatten(1).to(self.hidden.weight.dtype))


class ImageScale(nn.Module):
    """Log σ of an image by its distances averaged over layers; 0 at the start.

    Flat where images are familiar, a line beyond: one line for all would be too sure of those most
    like the training images.

    Args:
        network: whose layers are watched; it is not kept.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        _layers(network)
        self.slopes = nn.Parameter(torch.zeros(3))
        self.start = nn.Parameter(torch.zeros(()))
        self.least = nn.Parameter(torch.tensor(-START_BEND))

    @property
    def silent(self) -> bool:
        """Whether it says 0 of every image and is not to learn anything else yet."""
        return _silent(self.slopes, self.start, self.least + START_BEND)

    def forward(self, distances: Float[Tensor, "n l 3"]) -> Float[Tensor, "n 1 1 1"]:
        """Log σ = r tanh(l / r), l = c + softplus(k (a + b · z)) / k, z the standardised means."""
        seen = _logarithms(distances).mean(1).to(self.slopes.dtype)
        usual, spread = seen.new_tensor(USUAL), seen.new_tensor(SPREAD)
        line = self.start + (seen - usual) / spread @ self.slopes
        bent = self.least + softplus(line, BEND)
        return (MOST_LOG_SCALE * torch.tanh(bent / MOST_LOG_SCALE))[:, None, None, None]


def _silent(*parameters: Tensor) -> bool:
    return not any(p.requires_grad or bool(p.any()) for p in parameters)


def _layers(network: nn.Module) -> int:
    """How many layers can be watched, at least one."""
    layers = len(remembering(network))
    if not layers:
        raise ValueError(
            f"{type(network).__name__} has no batch normalisation with running statistics; "
            'layer_distances and scale "image" read how far an image is from them. In a recipe set '
            "posterior.layer_distances: false, and for labels posterior.scale: null, "
            "likelihood.options.scale: none and method.noise_epochs: 0; whole_image reads the "
            "features alone."
        )
    return layers


def _logarithms(distances: Float[Tensor, "n l 3"]) -> Float[Tensor, "n l 3"]:
    """Contrasts as they are, the others from log SMALL up."""
    return torch.cat([distances[..., :1], (distances[..., 1:] + SMALL).log()], -1)


def remembering(network: nn.Module) -> list[_BatchNorm]:
    """The layers that know the statistics of the training images."""
    layers = [layer for layer in network.modules() if isinstance(layer, _BatchNorm)]
    return [layer for layer in layers if layer.running_mean is not None]


class Distances:
    """Contrast, stretch and shift of every image of one pass, filled while `watching`.

    Args:
        layers: that are watched.
    """

    def __init__(self, layers: Sequence[_BatchNorm]) -> None:
        self.layers = layers
        self.met: dict[int, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def stacked(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n l 3"]:
        """Of all layers; 0 at those the pass did not meet."""
        stacked = torch.zeros(len(images), len(self.layers), 3, device=images.device)
        if self.met:
            met = [self.layers[number] for number in self.met]
            stacked[:, list(self.met)] = distances(met, list(self.met.values()))
        return stacked


@contextmanager
def watching(network: nn.Module) -> Iterator[Distances]:
    """Note the distances of the images that pass through the network meanwhile."""
    layers = remembering(network)
    found = Distances(layers)

    def look(number: int, maps: Tensor) -> None:
        if maps.ndim == 4:
            found.met[number] = moments(maps)

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, number=number: look(number, inputs[0]))
        for number, layer in enumerate(layers)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def moments(maps: Float[Tensor, "n c h w"]) -> tuple[Float[Tensor, "n c"], Float[Tensor, "n c"]]:
    """E x and E x² over the pixels of every channel: far faster than torch.var."""
    values, pixels = maps.detach().float(), maps.shape[2] * maps.shape[3]
    return values.sum((2, 3)) / pixels, values.square().sum((2, 3)) / pixels


def distances(
    layers: Sequence[_BatchNorm], seen: Sequence[tuple[Tensor, Tensor]]
) -> Float[Tensor, "n l 3"]:
    """Contrast, stretch and shift of every image against what the layers remember.

    All channels of all layers at once, since a pass meets many small ones.

    Args:
        layers: whose inputs were seen.
        seen: the `moments` of these.
    """
    mean, square = (torch.cat(parts, 1) for parts in zip(*seen, strict=True))
    channels = torch.tensor([part.shape[1] for part, _ in seen], device=mean.device)
    small = mean.new_tensor([layer.eps for layer in layers]).repeat_interleave(channels)
    remembered = torch.cat([layer.running_mean for layer in layers]).to(mean)  # type: ignore[misc]
    known = torch.cat([layer.running_var for layer in layers]).to(mean) + small  # type: ignore[misc]
    shift = (mean - remembered).square() / known
    # E x² - (E x)² is far more exact than is needed
    variance = (square - mean.square()).clamp_min(0)
    contrast = 0.5 * ((variance + small) / known).log()
    each = torch.stack([contrast, contrast.square(), shift], -1)
    owner = torch.arange(len(layers), device=mean.device).repeat_interleave(channels)
    sums = each.new_zeros(len(mean), len(layers), 3).index_add_(1, owner, each)
    return sums / channels[:, None]
