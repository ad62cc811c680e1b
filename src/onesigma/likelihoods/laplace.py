"""Laplace noise: ℓ(u) = |u|."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onesigma.likelihoods.regression import RegressionLikelihood
from onesigma.prediction.noise import Expectation, Noise, SymmetricNoise
from onesigma.prediction.special import log_phi, log_tilted_ndtr, mills

_SQRT_HALF = math.sqrt(0.5)
_PHI_0 = 1 / math.sqrt(2 * math.pi)


class LaplaceNoise(SymmetricNoise):
    """e ~ exp(-|e|)/2; smoothed by a Gaussian it is a sum of tilted Φ's."""

    @property
    def log_normaliser(self) -> float:
        """Log 2."""
        return math.log(2)

    @property
    def variance(self) -> float:
        """2."""
        return 2.0

    def loss(self, u: Tensor) -> Tensor:
        """|u|."""
        return u.abs()

    def expected_loss(self, mu: Tensor, tau2: Tensor) -> Expectation:
        """The folded normal mean 2τφ(a) + μ erf(a/√2), a = μ/τ."""
        value, sign, density, _ = folded_normal(mu, tau2)
        return value, sign, density

    def noise_quantile(self, u: Tensor) -> Tensor:
        """±log(2 min(u, 1 - u))."""
        size = (2 * torch.minimum(u, 1 - u)).clamp(min=torch.finfo(u.dtype).tiny).log()
        return torch.where(u < 0.5, size, -size)

    def log_mgf(self, t: Tensor) -> Tensor:
        """-log(1 - t²), infinite from t = 1."""
        return torch.where(t < 1, -torch.log1p(-t.clamp(max=1).square()), torch.inf)

    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """Log ½[T(τ, z) + T(τ, -z)], z = x/τ."""
        z = x / tau
        return torch.logsumexp(log_tilted_ndtr(tau, torch.stack([z, -z])), 0) - math.log(2)

    def log_tail(self, a: Tensor, tau: Tensor) -> Tensor:
        """Log of φ(z)[R(z) - ½R(τ + z)] + ½T(τ, z), z = a/τ: all summands positive."""
        z = a / tau
        smooth = log_phi(z) + (mills(z) - 0.5 * mills(tau + z)).log()
        return torch.logaddexp(smooth, log_tilted_ndtr(tau, z) - math.log(2))

    def crps(self, x: Tensor, tau: Tensor) -> Tensor:
        """E|X - x| - ½E|X - X'| in closed form.

        E|X - x| = E[|d| + exp(-|d|)], d ~ N(x, τ²); E|X - X'| = E[|d| + ½(3 + |d|)exp(-|d|)],
        d ~ N(0, 2τ²), because e - e' has density ¼(1 + |d|)exp(-|d|).
        """
        distance = folded_normal(x, tau.square())[0] + 2 * self.log_pdf(x, tau).exp()
        k = math.sqrt(2) * tau
        # E exp(-|d|) = 2φ(0)R(k) =: M; E|d| = 2φ(0)k; E|d|exp(-|d|) = 2φ(0)k - k²M
        m = 2 * _PHI_0 * mills(k)
        # k(k + 1)/k... written so that nothing overflows for large k: k²M = k·(kM)
        spread = 3 * _PHI_0 * k + 0.5 * (3 * m - k * (k * m))
        return distance - 0.5 * spread

    def alone(self) -> Noise:
        """The exponentials themselves."""
        return BareLaplaceNoise()


class BareLaplaceNoise(LaplaceNoise):
    """Laplace noise that nothing smooths: τ is taken as 0."""

    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """-|x| - log 2."""
        return -x.abs() - math.log(2)

    def log_tail(self, a: Tensor, tau: Tensor) -> Tensor:
        """-a - log 2."""
        return -a - math.log(2)

    def quantile(self, u: Tensor, tau: Tensor) -> Tensor:
        """That of the noise."""
        return self.noise_quantile(u)

    def crps(self, x: Tensor, tau: Tensor) -> Tensor:
        """|x| + exp(-|x|) - ¾."""
        return x.abs() + (-x.abs()).exp() - 0.75


class Laplace(RegressionLikelihood):
    """p(y | f) = exp(-|y - f|/σ)/2σ, of variance 2σ²."""

    def training_noise(
        self, residual: Tensor, variance: Tensor, log_scale: Tensor, mask: Tensor
    ) -> Noise:
        """Laplace."""
        return LaplaceNoise()

    def predictive_noise(self) -> Noise:
        """Laplace."""
        return LaplaceNoise()


def folded_normal(mu: Tensor, tau2: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """E|u| for u ~ N(μ, τ²), ∂μ = erf(a/√2), ∂τ² = φ(a)/τ, and τ."""
    tau = tau2.sqrt()
    a = mu / tau
    sign = torch.erf(a * _SQRT_HALF)
    phi = (a.square() * -0.5).exp() * _PHI_0
    value = torch.addcmul(mu * sign, tau, phi, value=2)
    return value, sign, phi / tau, tau
