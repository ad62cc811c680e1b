"""Proper scores of any predictive law: negative log-likelihood and CRPS."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from onesigma.likelihoods.base import mask_labels
from onesigma.metrics.counting import PixelMean, fill_invalid, output_pixels, target_mask


@runtime_checkable
class LabelLaw(Protocol):
    """What the metrics ask of a predicted label: every `CategoricalPrediction` has it."""

    @property
    def probs(self) -> Tensor:
        """Probabilities of the classes."""

    def log_prob(self, target: Tensor, /) -> Tensor:
        """Log-probability of the label, per pixel."""


@runtime_checkable
class ValueLaw(Protocol):
    """What the metrics ask of a predicted number: every `RegressionPrediction` has it."""

    @property
    def mean(self) -> Tensor:
        """E y."""

    @property
    def median(self) -> Tensor:
        """The ½-quantile."""

    @property
    def variance(self) -> Tensor:
        """V y."""

    def log_prob(self, target: Tensor, /) -> Tensor:
        """Log-density at y."""

    def cdf(self, target: Tensor, /) -> Tensor:
        """P(Y ≤ y)."""

    def crps(self, target: Tensor, /) -> Tensor:
        """∫ (P(Y ≤ t) − 1[y ≤ t])² dt."""

    def interval(self, level: float, /) -> tuple[Tensor, Tensor]:
        """Central interval that holds y with this probability."""


class NLL(PixelMean):
    """Mean −log p(y) of the predictive law, in nats per pixel and output, in the target's unit.

    Nothing is clipped: one pixel of probability 0 makes it infinite, and that is the truth.
    """

    def update(
        self,
        prediction: Any,
        target: Float[Tensor, "n c h w"] | Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            prediction: a `ValueLaw` for values, a `LabelLaw` for labels.
            target: values "n c h w" or integer labels "n h w".
            valid: pixels to count, default finite values or labels in range.
        """
        log_prob = output_log_prob if target.is_floating_point() else label_log_prob
        self.add(self.count(-log_prob(prediction, target, valid)))


class CRPS(PixelMean):
    """Mean continuous ranked probability score, in the unit of the target."""

    def update(
        self,
        prediction: ValueLaw,
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        mask = target_mask(target, valid)
        filled = fill_invalid(target, mask, prediction.mean)
        self.add(self.count(*output_pixels(mask, prediction.crps(filled))))


def label_log_prob(
    prediction: LabelLaw,
    target: Int[Tensor, "n h w"],
    valid: Bool[Tensor, "n h w"] | None,
) -> Float[Tensor, "p"]:
    """Log-probabilities of the valid pixels, flat."""
    labels, mask = mask_labels(target, prediction.probs.shape[1], valid, prediction.probs.shape)
    return prediction.log_prob(labels)[mask]


def output_log_prob(
    prediction: ValueLaw,
    target: Float[Tensor, "n c h w"],
    valid: Bool[Tensor, "n h w"] | None,
) -> Float[Tensor, "p"]:
    """Log-densities of all outputs of the valid pixels, flat."""
    mask = target_mask(target, valid)
    filled = fill_invalid(target, mask, prediction.mean)
    return output_pixels(mask, prediction.log_prob(filled))[0]
