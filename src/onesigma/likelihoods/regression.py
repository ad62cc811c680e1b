"""What location-scale likelihoods share: y = f + σ e with a standardised noise e."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood, check_log_scale, mask_regression
from onesigma.precision import at_least_single
from onesigma.prediction.noise import Noise
from onesigma.prediction.regression import MIN_VARIANCE_RATIO, LocationScalePrediction

# |log σ| beyond which σ² leaves float32; larger values are treated as this one
MAX_LOG_SCALE = 40.0


class RegressionLikelihood(Likelihood):
    """p(y | f) = exp(-ℓ((y - f)/σ))/(σ Z₀), normalised, so that likelihoods compare.

    A subclass says which noise: one for training, which may look at the batch, one for prediction.
    Half precision is computed in float32. An epistemic variance below 1e-12 σ² counts as that.
    """

    @abstractmethod
    def training_noise(
        self,
        residual: Float[Tensor, "n c h w"],
        variance: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n c h w"],
        mask: Bool[Tensor, "n h w"],
    ) -> Noise:
        """The noise under which this batch is scored."""

    @abstractmethod
    def predictive_noise(self) -> Noise:
        """The noise of predictions."""

    def log_prob(
        self,
        target: Float[Tensor, "n c h w"],
        f: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """-ℓ((y - f)/σ) - log σ - log Z₀, summed over outputs, exactly 0 where not valid."""
        scale = _required(log_scale, self, f.shape).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)
        y, mask = mask_regression(at_least_single(target), valid, f.shape)
        residual = y - at_least_single(f)
        scale = scale.expand_as(residual)
        with torch.no_grad():
            noise = self.training_noise(residual, torch.zeros_like(residual), scale, mask)
        value = noise.loss(residual * (-scale).exp()) + scale + noise.log_normaliser
        return _reduce(-value, mask)

    def expected_log_prob(
        self,
        target: Float[Tensor, "n c h w"],
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """-E_q ℓ((y - f)/σ) - log σ - log Z₀, summed over outputs, exactly 0 where not valid."""
        scale = _required(log_scale, self, q.mean.shape)
        y, mask = mask_regression(at_least_single(target), valid, q.mean.shape)
        mean, variance = at_least_single(q.mean), at_least_single(q.variance)
        scale = scale.expand_as(mean)
        with torch.no_grad():
            noise = self.training_noise(y - mean, variance, scale, mask)
        value: Tensor = _ExpectedLogProb.apply(y, mean, variance, scale, noise)
        return _reduce(value, mask)

    def predict(
        self, q: GaussianField, log_scale: Float[Tensor, "n #c h w"] | None = None
    ) -> LocationScalePrediction:
        """∫ p(y | f) q(f) df: the noise convolved with a Gaussian."""
        log_scale = _required(log_scale, self, q.mean.shape).clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)
        mean = at_least_single(q.mean)
        scale = log_scale.exp().expand_as(mean)
        return LocationScalePrediction(
            mean, at_least_single(q.variance), scale, self.predictive_noise()
        )


class _ExpectedLogProb(torch.autograd.Function):
    """The value with its gradients computed beside it: nothing of the formula is differentiated.

    Autograd through the closed forms gives NaN for τ → 0; the derivatives themselves are finite.
    """

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, mean: Tensor, variance: Tensor, log_scale: Tensor, noise: Noise
    ) -> Tensor:
        log_scale = log_scale.clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)
        inverse = (-log_scale).exp()
        mu, ratio = (y - mean) * inverse, variance * inverse.square()
        tau2 = ratio.clamp(min=MIN_VARIANCE_RATIO)
        value, by_mu, by_tau2 = noise.expected_loss(mu, tau2)
        by_tau2 = by_tau2 * (ratio >= MIN_VARIANCE_RATIO)
        # μ = (y - m)/σ, τ² = v/σ²: ∂m = ∂μ/σ, ∂v = -∂τ²/σ², ∂log σ = μ∂μ + 2τ²∂τ² - 1
        by_log_scale = torch.addcmul(mu * by_mu, tau2, by_tau2, value=2).sub_(1)
        ctx.save_for_backward(by_mu * inverse, -by_tau2 * inverse.square(), by_log_scale)
        return -(value + log_scale + noise.log_normaliser)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_mean, by_variance, by_log_scale = ctx.saved_tensors
        y, mean, variance, log_scale, _ = ctx.needs_input_grad
        return (
            -grad * by_mean if y else None,
            grad * by_mean if mean else None,
            grad * by_variance if variance else None,
            grad * by_log_scale if log_scale else None,
            None,
        )


def _required(log_scale: Tensor | None, likelihood: Likelihood, outputs: Sequence[int]) -> Tensor:
    if log_scale is None:
        raise ValueError(
            f"{type(likelihood).__name__} got log_scale=None; a regression likelihood wants log σ "
            'of shape "n #c h w". A constant scale is torch.full((n, 1, h, w), math.log(sigma)).'
        )
    check_log_scale(log_scale, outputs)
    return at_least_single(log_scale)


def _reduce(value: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, value.sum(1), 0.0)
