"""What every baseline offers: a loss to train with and the core's predictions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.prediction import RegressionPrediction
from onesigma.prediction.categorical import LabelPrediction
from onesigma.views import View, whole

Prediction = RegressionPrediction | LabelPrediction


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts: a baseline, an ensemble, a loaded run."""

    def predict(self, images: Float[Tensor, "n k h w"]) -> Prediction:
        """The predictive law of every pixel."""


class Baseline(nn.Module, ABC):
    """A network with a loss and a predictive law, in the space the model works in."""

    @abstractmethod
    def loss(
        self,
        images: Float[Tensor, "n k h w"],
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """What training minimises, averaged over valid pixels.

        Args:
            images: RGB in [0, 1].
            target: values "n c h w" or integer labels "n h w".
            valid: pixels with a target; default: finite targets, labels in range.
        """

    @abstractmethod
    def marginals(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[GaussianField, Float[Tensor, "n s h w"]]:
        """The network's outputs, certain, and log σ, 0 for a network that has none."""

    @abstractmethod
    def law(self, f: GaussianField, log_scale: Float[Tensor, "n s h w"]) -> Prediction:
        """The predictive law of such outputs."""

    def predict(self, images: Float[Tensor, "n k h w"], view: View = whole) -> Prediction:
        """The predictive law of every pixel.

        Args:
            images: RGB in [0, 1].
            view: how the network sees them: whole, resized or in tiles.
        """
        return self.law(*view(self.marginals, images))


def certain(mean: Float[Tensor, "n c h w"]) -> GaussianField:
    """A field without epistemic uncertainty: f = mean."""
    return GaussianField(mean, MarginalCovariance(torch.zeros_like(mean)))


def average(values: Float[Tensor, "n h w"], valid: Bool[Tensor, "n h w"]) -> Float[Tensor, ""]:
    """Mean over valid pixels of values that are 0 elsewhere; 0 if there is no valid pixel."""
    return values.sum() / valid.sum().clamp(min=1)


def pixel_head(backbone: nn.Module, outputs: int, scales: int = 0) -> nn.Conv2d:
    """A 1 × 1 convolution to outputs and log σ, these starting at σ = 1 everywhere."""
    channels = getattr(backbone, "out_channels", None)
    if not isinstance(channels, int):
        raise TypeError(
            f"The backbone {type(backbone).__name__} has out_channels={channels!r}; it wants an "
            "integer attribute `out_channels`, the number of features that it returns."
        )
    head = nn.Conv2d(channels, outputs + scales, 1)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter[outputs:] = 0
    return head
