"""What every likelihood offers, and how pixels without a target are kept out of the arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from onesigma.field import GaussianField


class Likelihood(nn.Module, ABC):
    """p(y | f): per-pixel log-densities, their expectation under q, and the predictive law.

    A likelihood is a module because some keep a value for prediction (`BerHu`'s threshold).
    """

    @abstractmethod
    def log_prob(
        self,
        target: Tensor,
        f: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """Log p(y | f), summed over outputs, exactly 0 where not valid."""

    @abstractmethod
    def expected_log_prob(
        self,
        target: Tensor,
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """E_q log p(y | f), summed over outputs, exactly 0 where not valid."""

    def start_epoch(self) -> None:
        """Training begins its next pass over the data."""

    @abstractmethod
    def predict(self, q: GaussianField, log_scale: Float[Tensor, "n #c h w"] | None = None) -> Any:
        """The predictive law ∫ p(y | f) q(f) df of every pixel."""


def mask_regression(
    target: Float[Tensor, "n c h w"], valid: Bool[Tensor, "n h w"] | None
) -> tuple[Float[Tensor, "n c h w"], Bool[Tensor, "n h w"]]:
    """Targets with 0 where they are invalid, and the mask (default: all outputs finite).

    Overwriting before any arithmetic keeps NaN and 1e9 out of values and gradients alike. A pixel
    declared valid whose target is not finite is an error.
    """
    finite = target.isfinite().all(1)
    mask = finite if valid is None else valid
    if valid is not None and bool((valid & ~finite).any()):
        n, h, w = (valid & ~finite).nonzero()[0].tolist()
        raise ValueError(
            f"The target of image {n} at pixel ({h}, {w}) is {target[n, :, h, w].tolist()} but the "
            "pixel is marked valid; clear it in `valid`, or leave `valid` out for all finite ones."
        )
    return torch.where(mask[:, None], target, torch.zeros_like(target)), mask


def mask_labels(
    target: Int[Tensor, "n h w"], classes: int, valid: Bool[Tensor, "n h w"] | None
) -> tuple[Int[Tensor, "n h w"], Bool[Tensor, "n h w"]]:
    """Labels with 0 where they are invalid, and the mask (default: labels in [0, classes))."""
    known = (target >= 0) & (target < classes)
    mask = known if valid is None else valid
    if valid is not None and bool((valid & ~known).any()):
        n, h, w = (valid & ~known).nonzero()[0].tolist()
        raise ValueError(
            f"The label of image {n} at pixel ({h}, {w}) is {int(target[n, h, w])} but the pixel "
            f"is marked valid; labels go from 0 to {classes - 1}. Clear it in `valid`, or leave "
            "`valid` out to use labels in range."
        )
    return torch.where(mask, target, torch.zeros_like(target)).long(), mask
