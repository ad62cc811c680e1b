"""Losses of deterministic networks, each with the predictive law that it implies."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from onesigma.baselines.base import Prediction, average, certain
from onesigma.likelihoods.base import mask_labels, mask_regression
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction import CategoricalPrediction


class PixelLoss(nn.Module, ABC):
    """A loss of what a network puts out, and the law of y that goes with it."""

    @abstractmethod
    def forward(
        self,
        output: Float[Tensor, "n d h w"],
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss, summed over outputs, averaged over valid pixels."""

    @abstractmethod
    def predict(self, output: Float[Tensor, "n d h w"]) -> Prediction:
        """The predictive law of every pixel."""


class RecentMean(nn.Module):
    """The mean of a number over roughly the last 1 / (1 - decay) training batches.

    Args:
        decay: weight of a batch relative to the next.
    """

    value: Tensor
    weight: Tensor

    def __init__(self, decay: float = 0.99) -> None:
        super().__init__()
        self.decay = decay
        self.register_buffer("value", torch.ones(()))
        self.register_buffer("weight", torch.zeros(()))

    @torch.no_grad()
    def update(self, number: Float[Tensor, ""]) -> None:
        """Take in the number of one batch."""
        self.weight.mul_(self.decay).add_(1)
        self.value.add_((number - self.value) / self.weight)


class L1Loss(PixelLoss):
    """|y - f|; the law is Laplace with σ the mean absolute residual of training."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = RecentMean()

    def forward(
        self,
        output: Float[Tensor, "n c h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """Σ_c |y - f|, averaged over valid pixels."""
        residual, valid = _absolute_residual(output, target, valid)
        loss = average(residual.sum(1), valid)
        if self.training and bool(valid.any()):
            # σ = mean |y - f| maximises the Laplace likelihood
            self.scale.update(loss / output.shape[1])
        return loss

    def predict(self, output: Float[Tensor, "n c h w"]) -> Prediction:
        """Laplace(f, σ)."""
        log_scale = self.scale.value.clamp(min=TINY).log()
        return Laplace().predict(certain(output), log_scale.expand_as(output))


class ReverseHuberLoss(PixelLoss):
    """berHu: |r| up to t, (r² + t²) / 2t beyond, t a fifth of the batch's largest |r|.

    The law is p(r) ∝ exp(-berHu_t(r) / σ) with the mean threshold t of training and σ the
    maximum-likelihood value for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mean_loss = RecentMean()
        self.threshold = RecentMean()

    def forward(
        self,
        output: Float[Tensor, "n c h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """Σ_c berHu_t(y - f), averaged over valid pixels."""
        residual, valid = _absolute_residual(output, target, valid)
        threshold = (residual.detach().max() / 5).clamp(min=TINY)
        beyond = (residual.square() + threshold**2) / (2 * threshold)
        loss = average(torch.where(residual > threshold, beyond, residual).sum(1), valid)
        if self.training and bool(valid.any()):
            self.mean_loss.update(loss / output.shape[1])
            self.threshold.update(threshold)
        return loss

    def predict(self, output: Float[Tensor, "n c h w"]) -> Prediction:
        """BerHu(f, σ), its threshold t / σ in units of σ."""
        threshold = self.threshold.value.item()
        scale = berhu_scale(self.mean_loss.value.item(), threshold)
        log_scale = torch.full_like(output, math.log(scale))
        return BerHu(threshold=threshold / scale).predict(certain(output), log_scale)


class SoftmaxLoss(PixelLoss):
    """Cross-entropy of f, or with `scaled` of f / σ² (the paper's Boltzmann likelihood).

    Args:
        scaled: the output is f and log σ, one scale per class and pixel.
    """

    def __init__(self, scaled: bool) -> None:
        super().__init__()
        self.scaled = scaled

    def logits(self, output: Float[Tensor, "n d h w"]) -> Float[Tensor, "n c h w"]:
        """F, or f / σ²."""
        if not self.scaled:
            return output
        f, log_scale = output.chunk(2, 1)
        return f * (-2 * log_scale).exp()

    def forward(
        self,
        output: Float[Tensor, "n d h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """-log softmax(logits)_y, averaged over valid pixels."""
        logits = self.logits(output)
        target, valid = mask_labels(target, logits.shape[1], valid, logits.shape)
        return average(functional.cross_entropy(logits, target, reduction="none") * valid, valid)

    def predict(self, output: Float[Tensor, "n d h w"]) -> Prediction:
        """softmax(logits)."""
        return CategoricalPrediction.from_logits(self.logits(output))


TINY = 1e-6  # smallest scale, in the unit of the model: a training set fitted exactly


def berhu_scale(mean_loss: float, threshold: float) -> float:
    """The σ that maximises the likelihood of residuals r with this mean of berHu_t(r).

    log L(σ) = -E berHu_t(r) / σ - log Z(σ), Z(σ) = ∫ exp(-berHu_t(r) / σ) dr, between E berHu for
    t → ∞ (Laplace) and 2 E berHu for t → 0 (Gaussian).

    Args:
        mean_loss: E berHu_t(r).
        threshold: t.
    """
    mean_loss, threshold = max(mean_loss, TINY), max(threshold, TINY)

    def negative(scale: float) -> float:
        a = threshold / scale
        # Z / 2 = σ (1 - e⁻ᵃ) + e^(-a/2) √(2πtσ) Q(√a), a = t / σ
        tail = math.sqrt(2 * math.pi * threshold * scale) * math.erfc(math.sqrt(a / 2)) / 2
        return mean_loss / scale + math.log(-scale * math.expm1(-a) + math.exp(-a / 2) * tail)

    low, high = mean_loss, 2 * mean_loss
    for _ in range(60):  # ternary search: log L is unimodal in σ
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if negative(first) < negative(second) else (first, high)
    return (low + high) / 2


def _absolute_residual(
    output: Tensor, target: Tensor, valid: Tensor | None
) -> tuple[Float[Tensor, "n c h w"], Bool[Tensor, "n h w"]]:
    target, valid = mask_regression(target, valid, output.shape)
    return torch.where(valid[:, None], (target - output).abs(), 0.0), valid
