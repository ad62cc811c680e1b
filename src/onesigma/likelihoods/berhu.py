"""Reverse Huber noise: linear near 0, quadratic beyond a threshold."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.likelihoods.laplace import folded_normal
from onesigma.likelihoods.regression import MAX_LOG_SCALE, RegressionLikelihood
from onesigma.prediction.noise import Expectation, Noise, SymmetricNoise
from onesigma.prediction.regression import MIN_VARIANCE_RATIO
from onesigma.prediction.special import (
    log_ndtr,
    log_phi,
    mills,
    ndtr,
    ndtri,
    owens_t,
)

_SQRT_HALF = math.sqrt(0.5)
_PHI_0 = 1 / math.sqrt(2 * math.pi)
_MIN_THRESHOLD, _MAX_THRESHOLD = 1e-6, 1e6


class BerHuNoise(SymmetricNoise):
    """e ~ exp(-ℓ_c(e))/Z₀(c), ℓ_c(u) = |u| + (|u| - c)₊²/2c: Laplace inside, N(0, c) tails outside.

    Args:
        threshold: c, a scalar.
    """

    def __init__(self, threshold: Float[Tensor, ""]) -> None:
        self.threshold = threshold

    @property
    def _masses(self) -> tuple[Tensor, Tensor, Tensor]:
        # in float64, where 1 - exp(-c) - c exp(-c) does not cancel for c ≥ 1e-6
        c = self.threshold.double()
        inside = -torch.expm1(-c)
        # exp(-c/2) √(2πc) Φ(-√c) = √c exp(-c) R(√c)
        return c, inside, c.sqrt() * (-c).exp() * mills(c.sqrt())

    @property
    def log_normaliser(self) -> Tensor:
        """Log of Z₀ = 2[1 - exp(-c) + exp(-c/2) √(2πc) Φ(-√c)]."""
        _, inside, outside = self._masses
        return (2 * (inside + outside)).log()

    @property
    def variance(self) -> Tensor:
        """w(c) = [4(1 - (1 + c)exp(-c)) + 2c exp(-c/2) √(2πc) Φ(-√c)]/Z₀, between c and 2."""
        c, inside, outside = self._masses
        return (2 * (inside - c * (-c).exp()) + c * outside) / (inside + outside)

    def loss(self, u: Tensor) -> Tensor:
        """|u| + (|u| - c)₊²/2c."""
        size, c = u.abs(), self.threshold.to(u)
        return size + (size - c).clamp(min=0).square() / (2 * c)

    def expected_loss(self, mu: Tensor, tau2: Tensor) -> Expectation:
        """E|u| + [G(|μ| - c) + G(-|μ| - c)]/2c, G(d) = E(X)₊² for X ~ N(d, τ²)."""
        c = self.threshold.to(mu)
        value, sign, density, tau = folded_normal(mu, tau2)
        size = mu.abs()
        d1, d2 = size - c, -size - c
        t1 = d1 / tau
        p1 = torch.erfc(t1 * -_SQRT_HALF).mul_(0.5)
        p2 = torch.erfc(d2 / tau * -_SQRT_HALF).mul_(0.5)
        f1 = (t1.square() * -0.5).exp() * _PHI_0
        # φ₂ = φ₁ exp(-2|μ|c/τ²)
        fall = torch.expm1((-2 * c) * size / tau2)
        both = p1 + p2
        # G(d) = (d² + τ²)Φ(d/τ) + dτφ(d/τ)
        g = (d1.square() + tau2) * p1 + (d2.square() + tau2) * p2
        g = g + tau * f1 * (d1 + d2 * (1 + fall))
        # ∂μ = erf + (|μ|/c)(Φ₁ + Φ₂) - (Φ₁ - Φ₂) + (τ/c)(φ₁ - φ₂), odd in μ
        slope = size / c * both - (p1 - p2) - tau / c * f1 * fall
        return (
            value + g.clamp_(min=0) / (2 * c),
            sign + torch.copysign(slope, mu),
            density + both / (2 * c),
        )

    def noise_quantile(self, u: Tensor) -> Tensor:
        """Inverse of the piecewise CDF: logarithm inside, Φ⁻¹ outside."""
        c = self.threshold.to(u)
        z, outside = self.log_normaliser.exp().to(u), self._masses[2].to(u)
        # mass up to -a: tails √(2πc) exp(-c/2) Φ(-a/√c), inside exp(-a) - exp(-c)
        mass = torch.minimum(u, 1 - u) * z
        near = -((mass - outside) + (-c).exp()).clamp(min=1e-30).log()
        far = -c.sqrt() * ndtri((mass * (0.5 * c).exp() / (2 * math.pi * c).sqrt()).clamp(max=0.5))
        size = torch.where(mass < outside, far, near)
        return torch.where(u < 0.5, -size, size)

    def log_mgf(self, t: Tensor) -> Tensor:
        """Log of [c g(c(1 - t)) + c g(c(1 + t)) + exp(-c/2 + ct²/2) √(2πc) (Φ₊ + Φ₋)]/Z₀.

        g(x) = (1 - exp(-x))/x and Φ± = Φ(√c(±t - 1)); finite for every t.
        """
        c, root = self.threshold.to(t), self.threshold.to(t).sqrt()
        inside = c * (_mean_decay(c * (1 - t)) + _mean_decay(c * (1 + t)))
        tails = torch.logaddexp(log_ndtr(root * (t - 1)), log_ndtr(-root * (t + 1)))
        outside = tails + 0.5 * c * (t.square() - 1) + 0.5 * (2 * math.pi * c).log()
        return torch.logaddexp(inside.log(), outside) - self.log_normaliser

    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """Log of [A(x) + A(-x) + N(x; 0, c + τ²) √(2πc) exp(-c/2) (Φ₊ + Φ₋)]/Z₀."""
        c, both = self.threshold.to(x), torch.stack([x, -x])
        inside = torch.logsumexp(log_inside(both, tau, c), 0)
        total = torch.hypot(tau, c.sqrt())
        # e | X = x ~ N(x c/(c + τ²), c τ²/(c + τ²)) is beyond ±c: Φ(√(c/(c + τ²))(±x - c - τ²)/τ)
        # with x - c formed first, so that the pieces meet at x = c also for τ = 1e-6
        beyond = torch.logsumexp(log_ndtr(c.sqrt() / total * ((both - c) / tau - tau)), 0)
        outside = (
            beyond + log_phi(x / total) - total.log() + 0.5 * (2 * math.pi * c).log() - 0.5 * c
        )
        return torch.logaddexp(inside, outside) - self.log_normaliser.to(x)

    def log_tail(self, a: Tensor, tau: Tensor) -> Tensor:
        """Log of P(X ≤ -a) = [inside + √(2πc) exp(-c/2) P(|E| > c, V ≤ -a)]/Z₀, by Owen's T."""
        if a.dtype != torch.float64:
            # beyond four deviations nothing is left of these differences in float32
            return self.log_tail(a.double(), tau.double()).to(a.dtype)
        c, x = self.threshold.to(a), -a
        # ∫_{-c}^{c} exp(-|e|) Φ((x - e)/τ) de by parts
        centre, right, left = ndtr(torch.stack([x, x + c, x - c]) / tau)
        more, less = log_inside(torch.stack([a, x]), tau, c).exp()
        inside = 2 * centre - (-c).exp() * (right + left) + (more - less)
        outside = (2 * math.pi * c).sqrt() * (-0.5 * c).exp() * _both_tails(a, tau, c)
        mass = (inside + outside).clamp(min=torch.finfo(a.dtype).tiny)
        return (mass.log() - self.log_normaliser.to(a)).clamp(max=-math.log(2))


class BerHu(RegressionLikelihood):
    """p(y | f) = exp(-ℓ_c((y - f)/σ))/(σ Z₀(c)), of variance w(c)σ².

    With threshold=None every training batch sets c = 1/5 of its largest expected standardised
    residual E|y - f|/σ over valid pixels, without gradient. Predictions, and everything in eval
    mode, use a kept value:

    - keep="quantile": 1/5 of the 0.9999-quantile of these residuals, averaged over batches with
      weight `momentum` on the past. The default, because it hardly depends on the number of
      pixels, no single bad pixel sets it, and it forgets the untrained network by itself.
    - keep="maximum": the largest c since `start_epoch()` was called, the paper's rule. It grows
      with image size and with the length of the epoch.

    Args:
        threshold: c, or None to set it from the data.
        rule: "standardised", or "raw" for the paper's c = ⅕ max E|y - f|, in the unit of y though
            applied to (y - f)/σ.
        keep: "quantile" or "maximum".
        momentum: of the running average.
    """

    kept: Tensor
    batches: Tensor

    def __init__(
        self,
        threshold: float | None = None,
        rule: str = "standardised",
        keep: str = "quantile",
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        if threshold is not None and not 0 < threshold < math.inf:
            raise ValueError(
                f"BerHu got threshold={threshold}; it wants a positive number, or None to set it "
                "from the residuals of each training batch."
            )
        if rule not in ("standardised", "raw") or keep not in ("quantile", "maximum"):
            raise ValueError(
                f"BerHu got rule={rule!r}, keep={keep!r}; it wants rule 'standardised' or 'raw', "
                "keep 'quantile' or 'maximum'."
            )
        self.fixed = threshold is not None
        self.rule, self.keep, self.momentum = rule, keep, momentum
        value = min(max(threshold or 0.0, _MIN_THRESHOLD), _MAX_THRESHOLD) if self.fixed else 0.0
        self.register_buffer("kept", torch.tensor(value))
        self.register_buffer("batches", torch.tensor(0))

    def extra_repr(self) -> str:
        """The rule in force."""
        return f"threshold={float(self.kept):.4g}" if self.fixed else f"{self.rule}, {self.keep}"

    def start_epoch(self) -> None:
        """Forget the batches seen so far once the next one is seen (keep="maximum")."""
        self.batches.zero_()

    def training_noise(
        self, residual: Tensor, variance: Tensor, log_scale: Tensor, mask: Tensor
    ) -> Noise:
        """The batch's own threshold in training mode, the kept one otherwise."""
        if self.fixed or not self.training:
            return self.predictive_noise()
        sizes = self._expected_sizes(residual, variance, log_scale)
        sizes = sizes.movedim(1, -1)[mask].flatten()
        if sizes.numel() == 0:
            return BerHuNoise(torch.ones_like(self.kept))
        threshold = _fifth(sizes.max())
        self._update(sizes, threshold)
        return BerHuNoise(threshold)

    def predictive_noise(self) -> Noise:
        """Noise with the fixed or kept threshold."""
        if not torch.compiler.is_compiling() and not float(self.kept) > 0:
            raise ValueError(
                "BerHu(threshold=None) has no threshold yet: it is kept from training batches. "
                "Score a batch with expected_log_prob in training mode, load a state_dict, or "
                "give a number, BerHu(threshold=0.7)."
            )
        return BerHuNoise(self.kept)

    def _expected_sizes(self, residual: Tensor, variance: Tensor, log_scale: Tensor) -> Tensor:
        if self.rule == "raw":
            tiny = torch.finfo(variance.dtype).tiny
            return folded_normal(residual, variance.clamp(min=tiny))[0]
        inverse = (-log_scale.clamp(-MAX_LOG_SCALE, MAX_LOG_SCALE)).exp()
        ratio = (variance * inverse.square()).clamp(min=MIN_VARIANCE_RATIO)
        return folded_normal(residual * inverse, ratio)[0]

    def _update(self, sizes: Tensor, threshold: Tensor) -> None:
        first = self.batches.eq(0)
        if self.keep == "maximum":
            new = torch.where(first, threshold, torch.maximum(self.kept, threshold))
        else:
            # of m residuals the ⌈m/10⁴⌉-th largest
            high = _fifth(sizes.topk(-(-sizes.numel() // 10_000)).values[-1])
            new = torch.where(self.kept > 0, torch.lerp(high, self.kept, self.momentum), high)
        self.kept.copy_(new)
        self.batches.add_(1)


def log_inside(x: Tensor, tau: Tensor, c: Tensor) -> Tensor:
    """Log of A(x) = ∫₀ᶜ exp(-e) N(x - e; 0, τ²) de = T(τ, x/τ)[1 - Φ(β)/Φ(α)].

    α = x/τ - τ, β = α - c/τ. The ratio is formed so that neither tail cancels.
    """
    t, gap = x / tau, c / tau
    alpha, beta = t - tau, (x - c) / tau - tau
    r_alpha, r_beta = mills(alpha.abs()), mills(beta.abs())
    # log Φ on either side of 0
    upper = torch.log1p(-(log_phi(alpha).exp() * r_alpha).clamp(max=0.5))
    high = torch.log1p(-(log_phi(beta).exp() * r_beta).clamp(max=0.5))
    high = torch.where(beta > 0, high, log_phi(beta) + r_beta.log()) - upper
    # both negative: Φ(β)/Φ(α) = exp(δ(α - δ/2)) R(-β)/R(-α), δ = c/τ
    low = gap * (alpha - 0.5 * gap) + (r_beta / r_alpha).log()
    ratio = torch.where(alpha <= 0, low, high).clamp(max=-torch.finfo(x.dtype).tiny)
    # T(τ, t) as in log_tilted_ndtr
    tilted = torch.where(alpha <= 0, log_phi(t) + r_alpha.log(), tau * (0.5 * tau - t) + upper)
    return tilted + (-torch.expm1(ratio)).log()


def _both_tails(a: Tensor, tau: Tensor, c: Tensor) -> Tensor:
    """P(|E| > c, V ≤ -a) for E ~ N(0, c), V = E + τn: two bivariate normal probabilities."""
    root, a = c.sqrt(), a.clamp(min=1e-12)
    p, q = root.expand_as(a), a / torch.hypot(tau, root)
    # Φ₂(-p, -q; ρ) = ½[Φ(-p) + Φ(-q)] - T(p, (q/p - ρ)/√(1 - ρ²)) - T(q, (p/q - ρ)/√(1 - ρ²))
    # with ρ = ±√(c/(c + τ²)), p = √c, q = a/√(c + τ²), and a ∓ c formed first
    near, far = (a - c) / tau, (a + c) / tau
    first = owens_t(p, torch.stack([near, far]) / root).sum(0)
    second = owens_t(q, root * torch.stack([tau - near, tau + far]) / a).sum(0)
    return ndtr(-p) + ndtr(-q) - first - second


def _mean_decay(x: Tensor) -> Tensor:
    """(1 - exp(-x))/x, 1 at 0."""
    safe = torch.where(x.abs() < 1e-6, torch.ones_like(x), x)
    return torch.where(x.abs() < 1e-6, 1 - 0.5 * x, -torch.expm1(-safe) / safe)


def _fifth(size: Tensor) -> Tensor:
    return (0.2 * size).clamp(_MIN_THRESHOLD, _MAX_THRESHOLD)
