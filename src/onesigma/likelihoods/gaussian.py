"""Gaussian noise: ℓ(u) = u²/2."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onesigma.likelihoods.regression import RegressionLikelihood
from onesigma.prediction.noise import Expectation, Noise, SymmetricNoise
from onesigma.prediction.special import LOG_SQRT_2PI, log_ndtr, log_phi, ndtr, ndtri


class GaussianNoise(SymmetricNoise):
    """e ~ N(0, 1), so that X = e + τ n ~ N(0, 1 + τ²)."""

    @property
    def log_normaliser(self) -> float:
        """Log √2π."""
        return LOG_SQRT_2PI

    @property
    def variance(self) -> float:
        """1."""
        return 1.0

    def loss(self, u: Tensor) -> Tensor:
        """u²/2."""
        return 0.5 * u.square()

    def expected_loss(self, mu: Tensor, tau2: Tensor) -> Expectation:
        """½(μ² + τ²)."""
        return 0.5 * (mu.square() + tau2), mu, torch.full_like(tau2, 0.5)

    def noise_quantile(self, u: Tensor) -> Tensor:
        """Φ⁻¹(u)."""
        return ndtri(u)

    def log_mgf(self, t: Tensor) -> Tensor:
        """t²/2."""
        return 0.5 * t.square()

    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """Log N(x; 0, 1 + τ²)."""
        width = _width(tau)
        return log_phi(x / width) - width.log()

    def log_tail(self, a: Tensor, tau: Tensor) -> Tensor:
        """Log Φ(-a/√(1 + τ²))."""
        return log_ndtr(-a / _width(tau))

    def quantile(self, u: Tensor, tau: Tensor) -> Tensor:
        """√(1 + τ²) Φ⁻¹(u)."""
        return _width(tau) * ndtri(u)

    def crps(self, x: Tensor, tau: Tensor) -> Tensor:
        """√(1 + τ²) [z(2Φ(z) - 1) + 2φ(z) - 1/√π], z = x/√(1 + τ²)."""
        width = _width(tau)
        z = x / width
        return width * (z * (2 * ndtr(z) - 1) + 2 * log_phi(z).exp() - 1 / math.sqrt(math.pi))

    def exponential_crps(self, x: Tensor, tau: Tensor, rate: Tensor) -> Tensor:
        """The log-normal y(2Φ(z) - 1) - 2exp(b²/2)[Φ(z - b) + Φ(b/√2) - 1], b = rate·√(1 + τ²)."""
        width = _width(tau)
        z, b = x / width, rate * width
        # Φ(z - b) + Φ(b/√2) - 1 = Φ(z - b) - Φ(-b/√2)
        inner = ndtr(z - b) - ndtr(-b / math.sqrt(2))
        return (rate * x).exp() * (2 * ndtr(z) - 1) - 2 * (0.5 * b.square()).exp() * inner


class Gaussian(RegressionLikelihood):
    """p(y | f) = N(y; f, σ²)."""

    def training_noise(
        self, residual: Tensor, variance: Tensor, log_scale: Tensor, mask: Tensor
    ) -> Noise:
        """Gaussian."""
        return GaussianNoise()

    def predictive_noise(self) -> Noise:
        """Gaussian."""
        return GaussianNoise()


def _width(tau: Tensor) -> Tensor:
    return torch.hypot(tau, torch.ones_like(tau))
