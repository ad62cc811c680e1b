"""The standardised noise of a location-scale likelihood, alone and smoothed by a Gaussian."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from onesigma.prediction.solvers import CRPS_LEVELS, crps_by_quadrature, solve_quantile
from onesigma.prediction.special import ndtri

# (E ℓ, ∂E ℓ/∂μ, ∂E ℓ/∂τ²)
Expectation = tuple[Tensor, Tensor, Tensor]


class Noise(ABC):
    """e ~ exp(-ℓ(e))/Z₀, and X = e + τ n with n ~ N(0, 1): what y = f + σ e needs in units of σ.

    `newton_steps` is how many CDF calls a quantile takes; 3 reach 1e-12 for log-concave noise.
    In the methods x is a value of X and tau is τ = s/σ > 0, tensors of one shape.
    """

    newton_steps: ClassVar[int] = 3

    @property
    @abstractmethod
    def log_normaliser(self) -> Tensor | float:
        """Log Z₀."""

    @property
    @abstractmethod
    def mean(self) -> Tensor | float:
        """E e."""

    @property
    @abstractmethod
    def variance(self) -> Tensor | float:
        """Var e, the paper's w."""

    @abstractmethod
    def loss(self, u: Tensor) -> Tensor:
        """ℓ(u)."""

    @abstractmethod
    def expected_loss(self, mu: Tensor, tau2: Tensor) -> Expectation:
        """E ℓ(u) for u ~ N(μ, τ²) and its derivatives by μ and τ²."""

    @abstractmethod
    def noise_quantile(self, u: Tensor) -> Tensor:
        """The u-quantile of e, or a value near it: the start of `quantile` for small τ."""

    @abstractmethod
    def log_mgf(self, t: Tensor) -> Tensor:
        """Log E exp(t e) for t ≥ 0, infinite where the moment does not exist."""

    @abstractmethod
    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """The log-density of X."""

    @abstractmethod
    def log_tails(self, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """(log P(X ≤ x), log P(X > x))."""

    def tails(self, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """(P(X ≤ x), P(X > x))."""
        lower, upper = self.log_tails(x, tau)
        return lower.exp(), upper.exp()

    def cdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """P(X ≤ x)."""
        return self.tails(x, tau)[0]

    def quantile(self, u: Tensor, tau: Tensor) -> Tensor:
        """The x with P(X ≤ x) = u, by Newton steps on the logarithm of the smaller tail."""
        start = self._rough_quantile(u, tau)
        # P(e + τn ≤ Q_e(u/2) + Q_τn(u/2)) ≤ u: a bracket for every law
        lower = self.noise_quantile(u / 2) + tau * ndtri(u / 2)
        upper = self.noise_quantile((1 + u) / 2) + tau * ndtri((1 + u) / 2)
        return solve_quantile(
            lambda x: (*self.log_tails(x, tau), self.log_pdf(x, tau)),
            u, start, lower, upper, self.newton_steps,
        )  # fmt: skip

    def crps(self, x: Tensor, tau: Tensor) -> Tensor:
        """E|X - x| - ½ E|X - X'|, here by quadrature over the CDF (relative error about 1e-5)."""
        return crps_by_quadrature(
            lambda t: self.log_tails(t, tau),
            [self.quantile(torch.full_like(tau, u), tau) for u in CRPS_LEVELS],
            x,
        )

    def alone(self) -> Noise:
        """The noise for τ = 0, whatever τ is given, if that is cheaper; else itself."""
        return self

    def exponential_crps(self, x: Tensor, tau: Tensor, rate: Tensor) -> Tensor | None:
        """The CRPS of exp(rate · X) at exp(rate · x) where it has a closed form."""
        return None

    def _rough_quantile(self, u: Tensor, tau: Tensor) -> Tensor:
        # deviations of e and τn at the same level, added as variances when they agree in sign:
        # exact for τ → 0, τ → ∞ and Gaussian noise
        own, smooth = self.noise_quantile(u) - self.mean, tau * ndtri(u)
        together = torch.sign(smooth) * torch.hypot(own, smooth)
        return self.mean + torch.where(own * smooth > 0, together, own + smooth)


class SymmetricNoise(Noise):
    """A noise whose law is even, so that one tail says all."""

    @property
    def mean(self) -> float:
        """0."""
        return 0.0

    @abstractmethod
    def log_tail(self, a: Tensor, tau: Tensor) -> Tensor:
        """Log P(X ≤ -a) for a ≥ 0."""

    def log_tails(self, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """(log P(X ≤ x), log P(X > x))."""
        tail = self.log_tail(x.abs(), tau)
        rest = torch.log1p(-tail.exp().clamp(max=0.5))
        return torch.where(x < 0, tail, rest), torch.where(x < 0, rest, tail)

    def tails(self, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """(P(X ≤ x), P(X > x))."""
        tail, left = self.log_tail(x.abs(), tau).exp(), x < 0
        rest = 1 - tail
        return torch.where(left, tail, rest), torch.where(left, rest, tail)
