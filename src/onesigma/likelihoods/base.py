"""What every likelihood offers, and how pixels without a target are kept out of the arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    target: Float[Tensor, "n c h w"],
    valid: Bool[Tensor, "n h w"] | None,
    outputs: Sequence[int] | None = None,
) -> tuple[Float[Tensor, "n c h w"], Bool[Tensor, "n h w"]]:
    """Targets with 0 where they are invalid, and the mask (default: all outputs finite).

    Overwriting before any arithmetic keeps NaN and 1e9 out of values and gradients alike. A pixel
    declared valid whose target is not finite is an error.

    Args:
        target: values.
        valid: pixels that have one.
        outputs: shape of what is compared with them; anything (n, c, h, w) when left out.
    """
    _check_target(target, target.shape if outputs is None else outputs)
    check_valid(valid, (len(target), *target.shape[2:]))
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
    target: Int[Tensor, "n h w"],
    classes: int,
    valid: Bool[Tensor, "n h w"] | None,
    outputs: Sequence[int] | None = None,
) -> tuple[Int[Tensor, "n h w"], Bool[Tensor, "n h w"]]:
    """Labels with 0 where they are invalid, and the mask (default: labels in [0, classes)).

    Args:
        target: labels.
        classes: how many there are.
        valid: pixels that have one.
        outputs: shape (n, c, h, w) of what is compared with them; that of any when left out.
    """
    _check_labels(target, outputs)
    check_valid(valid, target.shape)
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


def check_log_scale(log_scale: Tensor, outputs: Sequence[int]) -> None:
    """Raise unless log σ broadcasts to the outputs, (n, c, h, w)."""
    pairs = zip(reversed(log_scale.shape), reversed(outputs), strict=False)
    if log_scale.ndim > len(outputs) or not all(own in (1, wide) for own, wide in pairs):
        raise ValueError(
            f"log_scale has the shape {tuple(log_scale.shape)} and the field {tuple(outputs)}; it "
            f"wants (n, c or 1, h, w).{_forgotten_cut(outputs[0], len(log_scale))}"
        )


def _check_target(target: Tensor, outputs: Sequence[int]) -> None:
    if target.ndim != 4 or tuple(target.shape) != tuple(outputs):
        raise ValueError(
            f"The target has the shape {tuple(target.shape)} and the outputs {tuple(outputs)}; it "
            "wants a value for each output, (n, c, h, w); target[:, None] where c = 1 was left "
            f"out.{_forgotten_cut(len(target), outputs[0])}"
        )


def _check_labels(target: Tensor, outputs: Sequence[int] | None) -> None:
    whole = not (target.is_floating_point() or target.is_complex())
    wanted = tuple(target.shape) if outputs is None else (outputs[0], *outputs[2:])
    if target.ndim != 3 or tuple(target.shape) != wanted or not whole:
        found = "" if outputs is None else f" and the outputs {tuple(outputs)}"
        raise ValueError(
            f"The labels have the shape {tuple(target.shape)}, the type {target.dtype}{found}; it "
            "wants whole numbers (n, h, w), one class for each pixel: target[:, 0] for "
            "(n, 1, h, w), target.argmax(1) for one-hot."
            f"{'' if outputs is None else _forgotten_cut(len(target), outputs[0])}"
        )


def check_valid(valid: Tensor | None, wanted: Sequence[int]) -> None:
    """Raise unless these are booleans of this shape, (n, h, w)."""
    if valid is not None and (tuple(valid.shape) != tuple(wanted) or valid.dtype != torch.bool):
        raise ValueError(
            f"valid has the shape {tuple(valid.shape)} and the type {valid.dtype}; it wants "
            f"booleans (n, h, w), here {tuple(wanted)}: one for each pixel, none for each output."
        )


def _forgotten_cut(labelled: int, given: int) -> str:
    if given <= labelled:
        return ""
    return f" If {given} counts context images too, cut them off: q[:n] and log_scale[:n]."
