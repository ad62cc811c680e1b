"""How a network sees images when it predicts: whole, at another size, or in tiles."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField

Marginals = Callable[[Tensor], tuple[GaussianField, Tensor]]
View = Callable[[Marginals, Tensor], tuple[GaussianField, Tensor]]


def whole(marginals: Marginals, images: Tensor) -> tuple[GaussianField, Tensor]:
    """Images as they are.

    Args:
        marginals: images to mean, variance and log σ.
        images: RGB in [0, 1].
    """
    return marginals(images)


def resized(
    size: tuple[int, int], marginals: Marginals, images: Tensor
) -> tuple[GaussianField, Tensor]:
    """Images at one size; mean, variance and log σ are brought back to the images' own.

    The maps are interpolated bilinearly before they become a predictive law, so that a blend of two
    sure pixels is not two half-sure labels.

    Args:
        size: rows and columns.
        marginals: images to mean, variance and log σ.
        images: RGB in [0, 1], of any size.
    """
    own = (int(images.shape[2]), int(images.shape[3]))
    if own == size:
        return marginals(images)
    small = functional.interpolate(
        images, size, mode="bilinear", align_corners=False, antialias=True
    )
    field, log_scale = marginals(small.clamp(0, 1))
    mean, variance, log_scale = (
        functional.interpolate(maps, own, mode="bilinear", align_corners=False)
        for maps in (field.mean, field.variance, log_scale)
    )
    return GaussianField(mean, MarginalCovariance(variance)), log_scale
