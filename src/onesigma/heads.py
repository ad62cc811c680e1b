"""From features to covariance and noise: 1 × 1 convolutions, L + 3C channels with the mean's.

What is odd about an image need not show in every pixel, so D may also see the image as a whole, and
how far it is from the training images at every layer of the network; log σ may be that of a
neighbourhood, and see where in the image it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from onesigma.familiarity import OneNumber
from onesigma.position import COORDINATES, positions

Scale = Literal["output", "shared", "image", "none"]
Size = tuple[int, int]

LOG_DIAGONAL_BOUNDS = (-14.0, 10.0)


@dataclass(frozen=True)
class HeadOptions:
    """How features become a posterior.

    Attributes:
        scale: log σ per output ("output", the paper), one per pixel ("shared"), one per image that
            is learned from how far it is from the training images ("image", see `ImageScale`), or 0
            ("none").
        shared_factors: one set of factors g for all outputs, which stay independent of each other:
            L + 3C channels instead of LC + 3C.
        stride: compute the factors on features averaged over stride × stride pixels of the image,
            and up-sample them bilinearly.
        whole_image: multiply D by a factor that is learned from the statistics of the image's
            features, at their own resolution, so that an odd image can be unsure everywhere; in
            tiled prediction each tile is an image.
        layer_distances: multiply D by a factor that is learned from how far the image is from the
            training images at every batch normalisation, see `familiarity`: the network's end may
            have forgotten what is odd about it.
        scale_window: average log σ over so many pixels in either direction, an odd number. On few
            images the noise of a single pixel is learned by heart.
        scale_position: add to log σ what is learned from where in its image a pixel lies, see
            `position`. It shows in errors on images that the mean does not know by heart. A tile
            knows where it lies, a random crop of training does not: learn the noise on whole ones.
        mean: of q at the start of training, one number or one for every output.
        variance: of q at the start of training; small, so that the mean learns at once.
        log_scale: log σ at the start of training.
        log_scale_bounds: log σ is bent smoothly into this range.
    """

    scale: Scale = "output"
    shared_factors: bool = True
    stride: int = 1
    whole_image: bool = False
    layer_distances: bool = False
    scale_window: int = 1
    scale_position: bool = False
    mean: float | Sequence[float] = 0.0
    variance: float = 0.1
    log_scale: float = 0.0
    log_scale_bounds: tuple[float, float] = (-6.0, 3.0)

    def __post_init__(self) -> None:
        if self.scale not in ("output", "shared", "image", "none"):
            raise ValueError(f'scale is "output", "shared", "image" or "none", got {self.scale!r}.')
        low, high = self.log_scale_bounds
        if not low < self.log_scale < high:
            raise ValueError(
                f"log_scale={self.log_scale} must lie inside log_scale_bounds=({low}, {high})."
            )
        if not 2e-5 <= self.variance <= 4e4 or self.stride < 1:
            raise ValueError(
                f"variance must be from 2e-5 to 4e4 and stride at least 1, got {self.variance} and "
                f"{self.stride}."
            )
        if self.scale_window < 1 or self.scale_window % 2 == 0:
            raise ValueError(f"scale_window is an odd number of pixels, got {self.scale_window}.")
        if self.scale_position and self.scale in ("image", "none"):
            raise ValueError(
                f'scale_position is added to log σ of pixels, but scale is "{self.scale}"; it '
                'wants "output" or "shared".'
            )


class WholeImage(OneNumber):
    """One number for an image from mean and deviation of each of its features; 0 at the start.

    Args:
        features: channels that come in.
    """

    def __init__(self, features: int) -> None:
        super().__init__(2 * features)

    def forward(self, features: Float[Tensor, "n f h w"]) -> Float[Tensor, "n 1 1 1"]:
        """From the statistics over all pixels."""
        mean = features.mean((2, 3), keepdim=True)
        # several times faster than torch.var_mean
        variance = (features - mean).square().mean((2, 3))
        # the root has no gradient at 0, where features are constant: a black image
        return self.number(torch.cat([mean[..., 0, 0], (variance + 1e-6).sqrt()], 1))


class Position(nn.Module):
    """What is added to each output for where a pixel lies, linear in its coordinates; 0 at first.

    Args:
        outputs: how many.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.zeros(outputs, COORDINATES))

    def forward(self, maps: Float[Tensor, "n f h w"]) -> Float[Tensor, "1 s h w"]:
        """For every pixel of these maps, whatever their values."""
        return functional.conv2d(positions(maps), self.slopes[:, :, None, None])


class CovarianceHeads(nn.Module):
    """1 × 1 convolutions from features to factors g, diagonal D and log σ.

    Features may be coarser than what is asked for: with a `size`, rows and columns, the heads run
    on them as they are, and what they give is up-sampled before it is bent, squared or averaged.

    Args:
        features: channels that come in.
        outputs: C.
        rank: L.
        min_diagonal: added to D, so that equal images stay distinguishable.
        options: see `HeadOptions`.
    """

    def __init__(
        self, features: int, outputs: int, rank: int, min_diagonal: float, options: HeadOptions
    ) -> None:
        super().__init__()
        if rank < 1 or min_diagonal <= 0:
            raise ValueError(
                f"rank must be at least 1 and min_diagonal positive, got {rank} and {min_diagonal}."
            )
        self.rank, self.min_diagonal, self.options = rank, min_diagonal, options
        self.channels = 1 if options.shared_factors else outputs
        self.outputs = outputs
        self.factor = nn.Conv2d(features, rank * self.channels, 1)
        self.log_diagonal = nn.Conv2d(features, outputs, 1)
        self.whole_image = WholeImage(features) if options.whole_image else None
        scales = {"output": outputs, "shared": 1}.get(options.scale, 0)
        self.log_scale = nn.Conv2d(features, scales, 1) if scales else None
        self.scale_position = Position(scales) if options.scale_position else None
        self._start_near_the_prior()

    def _start_near_the_prior(self) -> None:
        """Half of the variance in D, half in g, whose biases make images covary like a constant."""
        half = self.options.variance / 2
        with torch.no_grad():
            for head in (self.factor, self.log_diagonal, self.log_scale):
                if head is not None:
                    head.weight.mul_(0.1)
            self.factor.bias.normal_(0.0, math.sqrt(half))  # type: ignore[union-attr]
            start = math.log(max(half - self.min_diagonal, 0.1 * half))
            self.log_diagonal.bias.fill_(unbend(start, LOG_DIAGONAL_BOUNDS))  # type: ignore[union-attr]
            if self.log_scale is not None:
                start = unbend(self.options.log_scale, self.options.log_scale_bounds)
                self.log_scale.bias.fill_(start)  # type: ignore[union-attr]

    def diagonal(
        self,
        features: Float[Tensor, "n f a b"],
        unfamiliar: Float[Tensor, "n 1 1 1"] | None = None,
        size: Size | None = None,
    ) -> Float[Tensor, "n c h w"]:
        """D = min_diagonal + exp(bounded head), the head of the pixel plus those of the image."""
        head = _enlarged(self.log_diagonal(features), size)
        if unfamiliar is not None:
            head = head + unfamiliar
        if self.whole_image is not None:
            head = head + self.whole_image(features)
        return self.min_diagonal + bend(head, LOG_DIAGONAL_BOUNDS).exp()

    def scale(
        self,
        features: Float[Tensor, "n f a b"],
        of_image: Float[Tensor, "n 1 1 1"] | None = None,
        size: Size | None = None,
    ) -> Float[Tensor, "n s h w"]:
        """Log σ, bounded; with one channel that of the image, or zeros when there is none."""
        if self.log_scale is None:
            number = features.new_zeros(len(features), 1, 1, 1) if of_image is None else of_image
            return number.expand(-1, -1, *(size or _size(features)))
        head = window_mean(_enlarged(self.log_scale(features), size), self.options.scale_window)
        if self.scale_position is not None:
            head = head + self.scale_position(head)
        return bend(head, self.options.log_scale_bounds)

    def factors(
        self, features: Float[Tensor, "n f a b"], size: Size | None = None
    ) -> Float[Tensor, "n r #c h w"]:
        """G / √L of all ranks."""
        size = size or _size(features)
        flat = _enlarged(self.factor(self._coarse(features, size)), size)
        return flat.reshape(-1, self.rank, self.channels, *size) / math.sqrt(self.rank)

    def factor_variance(
        self, features: Float[Tensor, "n f a b"], size: Size | None = None
    ) -> Float[Tensor, "n #c h w"]:
        """(1/L) Σ_k g_k², one rank in memory at a time."""
        size = size or _size(features)
        coarse, total = self._coarse(features, size), None
        weights, biases = self.factor.weight, self.factor.bias
        for k in range(self.rank):
            own = slice(k * self.channels, (k + 1) * self.channels)
            g = functional.conv2d(coarse, weights[own], None if biases is None else biases[own])
            g = _enlarged(g, size)
            total = g * g if total is None else torch.addcmul(total, g, g)
        assert total is not None
        return total / self.rank

    def _coarse(self, features: Tensor, size: Size) -> Tensor:
        # of features that are coarse themselves, fewer make stride × stride pixels
        step = self.options.stride * features.shape[2] // size[0]
        return functional.avg_pool2d(features, step, ceil_mode=True) if step > 1 else features


def _size(maps: Tensor) -> Size:
    return maps.shape[2], maps.shape[3]


def _enlarged(maps: Tensor, size: Size | None) -> Tensor:
    """At this size, bilinearly; a 1 × 1 convolution before is the same as one after."""
    if size is None or _size(maps) == size:
        return maps
    return functional.interpolate(maps, size, mode="bilinear", align_corners=False)


def window_mean(maps: Float[Tensor, "n s h w"], window: int) -> Float[Tensor, "n s h w"]:
    """Mean over the window × window pixels around each, as far as they lie in the image."""
    for size in ((window, 1), (1, window)) if window > 1 else ():
        half = (size[0] // 2, size[1] // 2)
        maps = functional.avg_pool2d(maps, size, 1, half, count_include_pad=False)
    return maps


def bend(x: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Into the bounds, smoothly: m + r tanh((x - m) / r), the identity around the middle m."""
    low, high = bounds
    middle, radius = (low + high) / 2, (high - low) / 2
    return middle + radius * torch.tanh((x - middle) / radius)


def unbend(y: float, bounds: tuple[float, float]) -> float:
    """The x that `bend` takes to y."""
    low, high = bounds
    middle, radius = (low + high) / 2, (high - low) / 2
    return middle + radius * math.atanh((y - middle) / radius)
