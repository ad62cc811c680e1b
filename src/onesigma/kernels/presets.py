"""Ready kernels: the paper's two, and two that see more of an image."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from onesigma.kernels.compose import DenseConcat, Sequential
from onesigma.kernels.inputs import ImageLayer, LocalContrast, Standardise
from onesigma.kernels.layers import (
    ChannelNorm,
    Conv,
    Erf,
    Layer,
    ReLU,
)
from onesigma.kernels.resize import BilinearUpsampleApproximation, NearestUpsample

Upsample = Literal["nearest", "bilinear"]

_WEIGHT, _BIAS = 0.2, 0.08


def paper_kernel(height: int, width: int, upsample: Upsample = "nearest") -> Sequential:
    """The prior network of the paper: K → 0.08 + 0.2 Σ K, ReLU, fifteen times, nearly constant.

    Ten valid 3×3 convolutions with ReLU; four times a resize to 20, 40, 60, 80 % of the output
    size (rounded down), a valid 3×3 convolution and ReLU; a resize to the full size and a 1×1
    convolution. Its output variance has the fixed point 0.16 and its image-image correlations are
    0.995 on street photographs (median): it hardly sees the image.

    Args:
        height: of images and output, at least 21.
        width: likewise.
        upsample: "nearest" is exact; "bilinear" is the published behaviour, an approximation.
    """
    layers: list[Layer] = []
    for _ in range(10):
        layers += [_convolution(), ReLU()]
    for size in _sizes(height, width):
        layers += [_resize(upsample)(*size), _convolution(), ReLU()]
    layers += [_resize(upsample)(height, width), Conv(1, _WEIGHT, _BIAS)]
    return Sequential(*layers)


def dense_paper_kernel(height: int, width: int, upsample: Upsample = "nearest") -> Sequential:
    """The paper's prior, densely connected as its text says: every layer sees all before it.

    The chain of `paper_kernel`, but each 3×3 convolution and ReLU adds its channels to those of all
    earlier layers, equally many each (the l-th has share 1/l). Valid convolutions shrink the maps,
    so older channels are cropped around their centre. The three channels of the image vanish beside
    many features and are not carried on. Same sizes and same fixed point as `paper_kernel`.

    Args:
        height: of images and output, at least 21.
        width: likewise.
        upsample: "nearest" is exact; "bilinear" is the published behaviour, an approximation.
    """
    layers: list[Layer] = [_convolution(), ReLU()]
    for depth in range(2, 11):
        layers += [DenseConcat(_convolution(), ReLU(), share=1 / depth)]
    for depth, size in enumerate(_sizes(height, width), start=11):
        layers += [_resize(upsample)(*size)]
        layers += [DenseConcat(_convolution(), ReLU(), share=1 / depth)]
    layers += [_resize(upsample)(height, width), Conv(1, _WEIGHT, _BIAS)]
    return Sequential(*layers)


def scene_kernel(variance: float = 1.0) -> Sequential:
    """Compares the layout of scenes: light and colour within a window of 63 pixels.

    Images are centred, so that two photographs are not alike just because both are bright; five
    dilated 3×3 convolutions with erf, which is odd and keeps unrelated windows uncorrelated. The
    median image-image correlation on street photographs is 0.4 (paper_kernel: 0.995), and 0.7
    between neighbouring frames. Any image size; the output has the size of the images.

    Args:
        variance: the prior variance, the same at every pixel of every image.
    """
    return _dilated(Standardise(0.4, 0.3), variance)


def texture_kernel(variance: float = 1.0) -> Sequential:
    """Compares edges and texture: `scene_kernel` on local contrast instead of colour.

    Brightness and slow shading are divided out, so that different scenes are nearly unrelated: the
    median image-image correlation on street photographs is 0.13, and 0.37 between neighbouring
    frames. Any image size; the output has the size of the images.

    Args:
        variance: the prior variance, the same at every pixel of every image.
    """
    return _dilated(LocalContrast(61), variance)


def _dilated(view: ImageLayer, variance: float) -> Sequential:
    layers: list[Layer] = [view]
    for dilation in (1, 2, 4, 8, 16):
        # the small bias keeps a variance where an image is flat
        layers += [Conv(3, 2 / 9, 0.01, padding=dilation, dilation=dilation), Erf()]
    # ChannelNorm makes K = 1, so E erf² = 2/π asin(2/3) everywhere, also near the padded border
    unit = 2 / math.pi * math.asin(2 / 3)
    return Sequential(*layers[:-1], ChannelNorm(), Erf(), Conv(1, variance / unit))


def _convolution() -> Conv:
    return Conv(3, _WEIGHT, _BIAS)


def _sizes(height: int, width: int) -> list[tuple[int, int]]:
    if min(height, width) < 21:
        raise ValueError(
            f"The paper's kernel got {height}×{width} pixels; ten valid 3×3 convolutions want at "
            "least 21×21: enlarge the images or take a padded kernel such as scene_kernel()."
        )
    return [(height * part // 100, width * part // 100) for part in (20, 40, 60, 80)]


def _resize(upsample: Upsample) -> Callable[[int, int], Layer]:
    kinds: dict[str, Callable[[int, int], Layer]] = {
        "nearest": NearestUpsample,
        "bilinear": BilinearUpsampleApproximation,
    }
    if upsample not in kinds:
        raise ValueError(f'upsample got {upsample!r}; it wants "nearest" or "bilinear".')
    return kinds[upsample]
