"""Any standardised loss as a likelihood: p(y | f) = exp(-ℓ((y - f)/σ))/(σ Z₀)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from onesigma.likelihoods import loss_analysis
from onesigma.likelihoods.loss_analysis import NODES, Loss, pairs
from onesigma.likelihoods.regression import RegressionLikelihood
from onesigma.prediction.noise import Expectation, Noise
from onesigma.prediction.special import gauss_legendre, log_phi, ndtr

# the Gaussian is followed this many standard deviations: 2e-9 of its mass is left out
_WINDOW = 6.0
# the bracket of the most probable noise shrinks at most so often
_HALVINGS = 40
_TABLE = 8192


class NoiseConstants(NamedTuple):
    """Log Z₀, E e, Var e, t* below which exp(t e) has a mean (the slope of ℓ at infinity), mode."""

    log_normaliser: float
    mean: float
    variance: float
    steepest: float
    mode: float


@dataclass(frozen=True, eq=False)
class GibbsNoise(Noise):
    """e ~ exp(-ℓ(e))/Z₀ for a loss given as a function; integrals are split at its knots.

    Attributes:
        function: ℓ.
        constants: found by quadrature.
        kinks: where ℓ' jumps.
        loss_knots: between them NODES nodes resolve ℓ.
        knots: between them NODES nodes resolve exp(-ℓ); the outer ones are its reach.
        table: rows e, log P(noise ≤ e), log P(noise > e).
    """

    # losses need not be convex, nor their tails log-concave
    newton_steps: ClassVar[int] = 6

    function: Loss
    constants: NoiseConstants
    kinks: tuple[float, ...]
    loss_knots: tuple[float, ...]
    knots: tuple[float, ...]
    table: Tensor

    @property
    def log_normaliser(self) -> float:
        """Log Z₀."""
        return self.constants.log_normaliser

    @property
    def mean(self) -> float:
        """E e."""
        return self.constants.mean

    @property
    def variance(self) -> float:
        """Var e."""
        return self.constants.variance

    def loss(self, u: Tensor) -> Tensor:
        """ℓ(u)."""
        return loss_analysis.evaluate(self.function, u)

    def expected_loss(self, mu: Tensor, tau2: Tensor) -> Expectation:
        """E ℓ, E ℓ' and E[ℓ' n]/2τ by Gauss-Legendre split at the knots, in float64."""
        centre, tau = mu.double(), tau2.double().sqrt()
        value, by_mu, by_tau = (torch.zeros_like(centre) for _ in range(3))
        at_centre = loss_analysis.slope(self.function, centre)
        for offset, weight in _pieces(centre, tau, self.loss_knots):
            n = offset / tau
            weight = weight * log_phi(n).exp() / tau
            u = centre + offset
            value += (weight * self.loss(u)).sum(0)
            slope = loss_analysis.slope(self.function, u)
            by_mu += (weight * slope).sum(0)
            # E n = 0: without ℓ'(μ) the quadrature error would be divided by τ below
            by_tau += (weight * (slope - at_centre) * n).sum(0)
        return value.to(mu), by_mu.to(mu), (by_tau / (2 * tau)).to(mu)

    def noise_quantile(self, u: Tensor) -> Tensor:
        """From the table of the noise's CDF, linear in its logarithm between entries."""
        e, lower, upper = self.table.to(u)
        low = _interpolate(u.log(), lower, e)
        high = -_interpolate((1 - u).clamp(min=1e-30).log(), upper.flip(0), -e.flip(0))
        return torch.where(u < 0.5, low, high)

    def log_mgf(self, t: Tensor) -> Tensor:
        """Log of the integral of exp(te - ℓ(e)), its tail continued with the last slope."""
        total = torch.full_like(t, -torch.inf)
        for a, b in pairs(self.knots):
            e, weight = loss_analysis.nodes(a, b)
            log_weight = (weight.log() - self.loss(e)).to(t).reshape(-1, *[1] * t.ndim)
            part = torch.logsumexp(log_weight + t * e.to(t).reshape(log_weight.shape), 0)
            total = torch.logaddexp(total, part)
        end = torch.tensor([self.knots[-1]], dtype=torch.float64)
        fall = float(loss_analysis.slope(self.function, end)) - t
        tail = t * end.to(t) - float(self.loss(end)) - fall.clamp(min=1e-9).log()
        total = torch.where(fall > 0, torch.logaddexp(total, tail), total)
        return torch.where(t < self.constants.steepest, total - self.log_normaliser, torch.inf)

    def log_pdf(self, x: Tensor, tau: Tensor) -> Tensor:
        """Log of E exp(-ℓ(x - τn))/Z₀, over e* ± 6τ."""
        total, shift = torch.full_like(x, -torch.inf), self._shift(x, tau)
        for offset, weight in _pieces(x - shift, tau, self.knots):
            gap = offset - shift
            log_weight = (weight / tau).clamp(min=torch.finfo(x.dtype).tiny).log()
            value = log_weight + log_phi(gap / tau) - self.loss(x + gap)
            total = torch.logaddexp(total, torch.logsumexp(value, 0))
        return total - self.log_normaliser

    def log_tails(self, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
        """P(X ≤ x) = P(e ≤ a)Φ((x - a)/τ) + ∫ p(e) Φ((x - e)/τ) de from a = e* - 6τ to e* + 6τ.

        P(X > x) is its mirror image.
        """
        e, lower, upper = self.table.to(x)
        shift = self._shift(x, tau)
        left, right = -shift - _WINDOW * tau, -shift + _WINDOW * tau
        below = _interpolate(x + left, e, lower).exp() * ndtr(-left / tau)
        above = _interpolate(x + right, e, upper).exp() * ndtr(right / tau)
        for offset, weight in _pieces(x - shift, tau, self.knots):
            gap = offset - shift
            mass = weight * (-self.loss(x + gap) - self.log_normaliser).exp()
            below = below + (mass * ndtr(-gap / tau)).sum(0)
            above = above + (mass * ndtr(gap / tau)).sum(0)
        tiny = torch.finfo(x.dtype).tiny
        return below.clamp(tiny, 1).log(), above.clamp(tiny, 1).log()

    @torch.no_grad()
    def _shift(self, x: Tensor, tau: Tensor) -> Tensor:
        """From x back to e*, the most probable noise given x: least h = ℓ(e) + (x - e)²/2τ².

        By bisection from x to the mode of the noise. Where h has two minima, the lower one.
        """
        whole = torch.where(x.isfinite(), x - self.constants.mode, 0.0)
        side, step = whole.sign(), tau / 16

        def h(shift: Tensor) -> Tensor:
            return self.loss(x - side * shift) + 0.5 * (shift / tau).square()

        low, high = torch.zeros_like(x), whole.abs()
        for _ in range(_halvings(high / step)):
            middle = 0.5 * (low + high)
            # h(middle + step) - h(middle), the squares by hand: they keep their digits
            change = self.loss(x - side * (middle + step)) - self.loss(x - side * middle)
            change = change + step / tau * ((middle + 0.5 * step) / tau)
            rises = change > 0
            low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
        shifts = torch.stack([low, torch.zeros_like(x), whole.abs()])
        best = torch.stack([h(shift) for shift in shifts]).argmin(0, keepdim=True)
        return side * shifts.gather(0, best)[0]


class Gibbs(RegressionLikelihood):
    """The likelihood of a loss; made by `from_loss`.

    Args:
        noise: the analysed loss.
        name: shown in the repr.
    """

    def __init__(self, noise: GibbsNoise, name: str) -> None:
        super().__init__()
        self.noise, self.name = noise, name

    def extra_repr(self) -> str:
        """The loss and what its noise is like."""
        noise = self.noise
        return (
            f"{self.name}, noise mean {noise.mean:.4g} σ, variance {noise.variance:.4g} σ², "
            f"kinks {[round(k, 6) for k in noise.kinks]}"
        )

    def training_noise(
        self, residual: Tensor, variance: Tensor, log_scale: Tensor, mask: Tensor
    ) -> Noise:
        """The noise of the loss."""
        return self.noise

    def predictive_noise(self) -> Noise:
        """The noise of the loss."""
        return self.noise


def _huber(u: Tensor, width: float) -> Tensor:
    size = u.abs()
    return torch.where(size < width, 0.5 * u.square(), width * (size - 0.5 * width))


def _log_cosh(u: Tensor, width: float) -> Tensor:
    # width² log cosh(u/width) = width² (|v| + log(1 + exp(-2|v|)) - log 2), v = u/width
    v = u / width
    return width * width * (v + nn.functional.softplus(-2 * v) - math.log(2))


def _charbonnier(u: Tensor, width: float) -> Tensor:
    # √(u² + w²) - w = u²/(√(u² + w²) + w)
    return u.square() / (torch.sqrt(u.square() + width * width) + width)


_NAMED = {"huber": _huber, "log_cosh": _log_cosh, "charbonnier": _charbonnier}


def from_loss(loss: Loss | str, width: float = 1.0) -> Gibbs:
    """The likelihood exp(-ℓ(u))/Z₀, u = (y - f)/σ, of any standardised loss.

    Kinks, normaliser, mean and variance are found by quadrature, once. Expected losses, CDFs and
    quantiles are accurate to 1e-4 relative or better. A loss that is not even in u shifts the
    predictive mean by σ E e; a warning says by how much.

    Args:
        loss: a differentiable function of a tensor of standardised residuals to a tensor of the
            same shape, or "huber", "log_cosh", "charbonnier".
        width: where the named losses turn from quadratic to linear, in units of σ.

    Raises:
        ValueError: if exp(-ℓ) has no finite normaliser, mean or variance, or ℓ is a function of
            (y, f), and why.
    """
    if isinstance(loss, str):
        if loss not in _NAMED:
            raise ValueError(f"from_loss got {loss!r}; by name it knows {sorted(_NAMED)}.")
        # not a local function, so that the likelihood can be pickled
        return Gibbs(_analyse(partial(_NAMED[loss], width=width)), f"{loss}, width {width:g}")
    loss_analysis.check_signature(loss)
    noise = _analyse(loss)
    if abs(noise.mean) > 1e-6 * math.sqrt(noise.variance):
        warnings.warn(
            f"The loss is not even: its noise has mean {noise.mean:.4g} σ, so predictive means are "
            f"shifted from f by {noise.mean:+.4g} σ.",
            stacklevel=2,
        )
    return Gibbs(noise, str(getattr(loss, "__name__", type(loss).__name__)))


def _analyse(loss: Loss) -> GibbsNoise:
    loss_analysis.check_growth(loss)
    left, right = loss_analysis.reach(loss)
    kinks = loss_analysis.find_jumps(lambda u: loss_analysis.slope(loss, u), left, right)
    bends = loss_analysis.find_jumps(lambda u: loss_analysis.curvature(loss, u), left, right)
    inner = sorted({*kinks, *bends})
    ends = [left, *(k for k in inner if left < k < right), right]
    lowest = float(loss(torch.linspace(left, right, 10001, dtype=torch.float64)).min())

    def moments(u: Tensor) -> Tensor:
        density = (lowest - loss(u)).exp()
        return torch.stack([density, u * density, u.square() * density])

    seeds = loss_analysis.hidden_features(moments, ends)
    knots = loss_analysis.refine(moments, sorted({*ends, *seeds}), 1e-11)
    # the curvature shows features far smaller than the reach
    shape = loss_analysis.shape_of(loss, lowest)
    seeds = loss_analysis.hidden_features(shape, ends)
    loss_knots = loss_analysis.refine(shape, sorted({*ends, *seeds}), 1e-7)
    z, first, second = _integrate(moments, knots)
    mean = first / z
    table = _cdf_table(lambda u: moments(u)[0] / z, knots)
    return GibbsNoise(
        function=loss,
        constants=NoiseConstants(
            log_normaliser=math.log(z) - lowest,
            mean=0.0 if abs(mean) < 1e-10 * math.sqrt(second / z) else mean,
            variance=second / z - mean * mean,
            steepest=_final_slope(loss, right),
            mode=float(table[0][loss(table[0]).argmin()]),
        ),
        kinks=tuple(kinks),
        loss_knots=tuple(loss_knots[1:-1]),
        knots=tuple(knots),
        table=table,
    )


def _halvings(steps: Tensor) -> int:
    """How often to halve brackets of so many steps until they are narrower than one."""
    if torch.compiler.is_compiling():
        return _HALVINGS
    most = float(steps.amax()) if steps.numel() else 0.0
    return min(math.ceil(math.log2(1 + most)), _HALVINGS)


def _integrate(function: Loss, knots: list[float]) -> tuple[float, ...]:
    total = torch.zeros(3, dtype=torch.float64)
    for a, b in pairs(knots):
        u, weight = loss_analysis.nodes(a, b)
        total += (function(u) * weight).sum(-1)
    return tuple(total.tolist())


def _final_slope(loss: Loss, right: float) -> float:
    far = torch.tensor([right, 2 * right, 1e3 * right], dtype=torch.float64)
    near, next_, end = loss_analysis.slope(loss, far).tolist()
    # ℓ' still growing (or overflowing): every exponential moment exists
    if next_ > 1.01 * near or not math.isfinite(next_):
        return math.inf
    return max(end if math.isfinite(end) else next_, 0.0)


def _cdf_table(density: Loss, knots: list[float]) -> Tensor:
    """Rows e, log P(≤ e), log P(> e); each interval between knots is cut in _TABLE steps."""
    steps = [torch.linspace(a, b, _TABLE + 1, dtype=torch.float64)[:-1] for a, b in pairs(knots)]
    grid = torch.cat([*steps, torch.tensor(knots[-1:], dtype=torch.float64)])
    mass = torch.zeros_like(grid[1:])
    for node, weight in gauss_legendre(4):
        mass += weight * grid.diff() * density(grid[:-1] + node * grid.diff())
    nothing = mass.new_zeros(1)
    lower = torch.cat([nothing, mass.cumsum(0)])
    upper = torch.cat([mass.flip(0).cumsum(0).flip(0), nothing])
    return torch.stack([grid, lower.clamp(min=1e-300).log(), upper.clamp(min=1e-300).log()])


def _interpolate(x: Tensor, grid: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation, constant beyond the ends."""
    right = torch.searchsorted(grid.contiguous(), x.contiguous()).clamp(1, len(grid) - 1)
    a, b = grid[right - 1], grid[right]
    share = ((x - a) / (b - a).clamp(min=1e-30)).clamp(0, 1)
    return torch.lerp(values[right - 1], values[right], share)


def _pieces(
    centre: Tensor, tau: Tensor, knots: tuple[float, ...]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Nodes as offsets from the centre, and weights, on centre ± 6τ cut at the knots.

    A leading axis holds the NODES nodes of a piece; offsets keep their digits when τ is tiny.
    """
    table = torch.tensor(gauss_legendre(NODES), dtype=centre.dtype, device=centre.device)
    node, weight = table.reshape(NODES, 2, *[1] * centre.ndim).unbind(1)
    edge = _WINDOW * tau
    left = -edge
    for knot in (*knots, math.inf):
        right = torch.minimum(torch.maximum(knot - centre, -edge), edge)
        length = right - left
        yield left + length * node, length * weight
        left = right
