"""Softmax of Gaussian logits without sampling: one-dimensional integrals over the Gumbel maximum.

With independent logits f_k ~ N(m_k, v_k) and Gumbel noise g_k, k* = argmax (f_k + g_k) has the law
E softmax(f) and M = max (f_k + g_k) has the distribution function ∏ F_k(t), F_k(t) =
E exp(-e^{-(t - f_k)}). With Λ_k = -log F_k, rates R_k = F_k'/F_k and S = ∏ F_k:

    E p_k = ∫ S R_k dt,  E p_k(1 - p_k) = ∫ S R_k (Σ_j R_j - R_k) dt,  E LSE = ∫ t S Σ_k R_k dt - γ
    E H(p) = E g_k* - γ = ∫ S Σ_k R_k c_k dt,   c_k(t) = E[g_k | f_k + g_k = t] - γ

log Λ and c are smooth in (t - m, v), exactly linear in t at v = 0 and a fixed curve in t/√v as
v → ∞, so that one polynomial fit, made once, serves every variance: inference is elementwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

EULER = 0.5772156649015329
# Degrees of the fit in the position ξ (that of c is one less) and in the variance.
_DEGREE, _VARIANCE_DEGREE = 6, 10
# v where z = 1 - (1 + v/a)^(-1/2) bends, and where the linear part -x of log Λ gives way.
_BEND, _LINEAR = 1.5, 4.0


def gradients(
    mean: Float[Tensor, "c p"],
    variance: Float[Tensor, "c p"],
    extent: Float[Tensor, "3 p"],
    nodes: int,
) -> tuple[Float[Tensor, " p"], Float[Tensor, "c p"], Float[Tensor, "c p"]]:
    """E LSE with its gradients E p and ½ E p(1 - p) with respect to means and variances."""
    top = mean.amax(0)
    mean = mean - top
    times, log_weights = _nodes(extent, top, nodes)
    factor = _Factor.of(mean, variance)
    probs, curve, lse = torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(top)
    for t, log_weight in zip(times, log_weights, strict=True):
        cumulative, rate = factor.at(t)
        density = _density(cumulative, log_weight)
        total = rate.sum(0)
        probs.addcmul_(rate, density)
        lse.addcmul_(t * density, total)
        torch.sub(total, rate, out=cumulative)
        curve.addcmul_(cumulative.mul_(rate), density)
    mass = probs.sum(0)
    # at least that of the means, by Jensen; the quadrature errs a little to either side
    lse = torch.maximum(lse / mass - EULER, mean.exp().sum(0).log())
    return lse + top, probs.div_(mass), curve.div_(2 * mass)


def prediction(
    mean: Float[Tensor, "c p"],
    variance: Float[Tensor, "c p"],
    extent: Float[Tensor, "3 p"],
    nodes: int,
) -> tuple[Float[Tensor, "c p"], Float[Tensor, " p"]]:
    """E p and E H(p)."""
    top = mean.amax(0)
    mean = mean - top
    times, log_weights = _nodes(extent, top, nodes)
    factor = _Factor.of(mean, variance, with_noise=True)
    probs, entropy = torch.zeros_like(mean), torch.zeros_like(mean[0])
    for t, log_weight in zip(times, log_weights, strict=True):
        cumulative, rate = factor.at(t)
        density = _density(cumulative, log_weight)
        probs.addcmul_(rate, density)
        entropy.addcmul_(factor.expected_noise(out=cumulative).mul_(rate).sum(0), density)
    mass = probs.sum(0)
    return probs.div_(mass), (entropy / mass).clamp_min(0)


@dataclass(frozen=True, eq=False)
class _Factor:
    """One class of one pixel: ξ = scale · t + shift, and its polynomials in ξ ∈ [-1, 1].

    Positions and values are written again for every node: memory that is already there is fast.
    """

    scale: Tensor
    fall: Tensor
    shift: Tensor
    hazard: tuple[Tensor, ...]
    noise: tuple[Tensor, ...]
    work: tuple[Tensor, ...]

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, with_noise: bool = False) -> _Factor:
        z, middle, width, linear = _shape(variance)
        coefficients = _evaluate(z, with_noise)
        hazard, noise = coefficients[: _DEGREE + 1], coefficients[_DEGREE + 1 :]
        # log Λ = z Q(ξ, z) - linear · x
        hazard[0].addcmul_(linear, middle, value=-1)
        hazard[1].addcmul_(linear, width, value=-1)
        if with_noise:
            # c = (1 - z) (z N(ξ, z) + (1 - z)(x - γ))
            y = 1 - z
            noise[0].addcmul_(y, middle - EULER)
            noise[1].addcmul_(y, width)
            noise.mul_(y)
        scale = width.reciprocal()
        shift = middle.add_(mean).mul_(scale).neg_()
        work = z.new_empty(3, *z.shape).unbind()
        return cls(scale, -scale, shift, hazard.unbind(), noise.unbind(), work)

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Λ and R = -Λ · d log Λ / dt at a position of each pixel, until the next call."""
        position, value, slope = self.work
        torch.addcmul(self.shift, self.scale, t, out=position).clamp_(-1, 1)
        # Horner for log Λ and its derivative together
        *lower, third, second, first = self.hazard
        torch.addcmul(second, first, position, out=value)
        torch.addcmul(value, first, position, out=slope)
        torch.addcmul(third, value, position, out=value)
        for coefficient in reversed(lower):
            torch.addcmul(value, slope, position, out=slope)
            torch.addcmul(coefficient, value, position, out=value)
        return value.exp_(), slope.mul_(value).mul_(self.fall)

    def expected_noise(self, out: Tensor) -> Tensor:
        """The polynomial c at the last position."""
        *lower, second, first = self.noise
        torch.addcmul(second, first, self.work[0], out=out)
        for coefficient in reversed(lower):
            torch.addcmul(coefficient, out, self.work[0], out=out)
        return out


def _density(cumulative: Tensor, log_weight: Tensor) -> Tensor:
    # S · weight, S = exp(-Σ Λ); the bound keeps slow subnormal numbers out of the sums
    total = cumulative.sum(0)
    return torch.sub(log_weight, total, out=total).clamp_min_(-40.0).exp_()


def _shape(variance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Position z ∈ [0, 1), centre and half width of the range of x, slope of the linear part."""
    ratio = variance / _BEND
    root = (1 + ratio).sqrt_()
    z = ratio.div_(root.addcmul_(root, root))
    low, high = _reach(variance, 2.5, 4.0), _reach(variance, 17.0, 4.7)
    # (1 + (v/b)²)^(-1/4)
    linear = (variance / _LINEAR).square_().add_(1).sqrt_().rsqrt_()
    return z, (high - low).mul_(0.5), high.add_(low).mul_(0.5), linear


def _reach(variance: Tensor, gumbel: float, normal: float) -> Tensor:
    # quantiles of f + g: `gumbel` units at v = 0, `normal` standard deviations at large v
    return (variance * normal**2 + gumbel**2).sqrt_()


def _nodes(extent: Tensor, top: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Positions and log-weights: geometric from below, fine where narrow classes still matter.

    Every class has begun to rise at the lower end (it is the largest of the lower ends), so at a
    distance x above it only classes with √v of the order of x are still changing.
    """
    low, length, finest = extent
    # (e^ζ - 1)/ζ = length / (count · first step), solved to a few per cent
    ratio = length / (count * 0.8 * finest)
    zeta = (1.31 * torch.log1p(1.6 * (ratio - 1).clamp_min(0))).clamp_min(1e-3)
    tau = (torch.arange(count, dtype=low.dtype, device=low.device)[:, None] + 0.5) / count
    unit = length / torch.expm1(zeta)
    exponent = zeta * tau
    # t = low + unit (e^(ζτ) - 1), dt/dτ = unit ζ e^(ζτ)
    log_weights = exponent + torch.log(unit * zeta / count)
    return exponent.expm1_().mul_(unit).add_(low - top), log_weights


def span(mean: Float[Tensor, "c p"], variance: Float[Tensor, "c p"]) -> Float[Tensor, "3 p"]:
    """Lower end and length of the range of t of each pixel, and the size of its finest feature."""
    extra = math.log(mean.shape[0])
    low = (mean - _reach(variance, 2.5, 3.9)).amax(0)
    high = (mean + _reach(variance, 10.0 + extra, math.sqrt(3.8**2 + 2 * extra))).amax(0)
    active = mean + _reach(variance, 9.0, 3.9) > low
    finest = torch.where(active, variance, math.inf).amin(0)
    return torch.stack([low, high - low, (1 + 0.6 * finest).sqrt()])


def _evaluate(z: Tensor, with_noise: bool) -> Tensor:
    """The ξ-coefficients at these variances, z · Σ_e a_e T_e(2z - 1), ordered like `fitted`.

    Terms two and three of every four have the opposite sign, so that one operation makes each.
    """
    basis = z.new_empty(_VARIANCE_DEGREE + 1, *z.shape)
    terms = basis.unbind()
    terms[0].copy_(z)
    twice = 4 * z - 2
    torch.mul(z, twice, out=terms[1]).mul_(0.5)
    for e in range(2, _VARIANCE_DEGREE + 1):
        # T_e = 2(2z - 1) T_{e-1} - T_{e-2}
        sign = 1 if e % 2 else -1
        torch.addcmul(terms[e - 2], twice, terms[e - 1], value=sign, out=terms[e])
    table = _constant(z.dtype, z.device)[: None if with_noise else _DEGREE + 1]
    return (table @ basis.flatten(1)).view(-1, *z.shape)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant(dtype: torch.dtype, device: torch.device) -> Tensor:
    return fitted(dtype, device)


@lru_cache(maxsize=8)
def fitted(dtype: torch.dtype, device: torch.device) -> Float[Tensor, "d e"]:
    """The fit: coefficients of the powers of ξ in log Λ, then in c, with the signs of the terms."""
    return _fit().to(dtype=dtype, device=device)


@lru_cache(maxsize=1)
def _fit() -> Tensor:
    with torch.no_grad(), torch.device("cpu"):
        fit = _least_squares()
        fit[:, 2::4] *= -1  # the signs of the terms in `_evaluate`
        fit[:, 3::4] *= -1
        return fit


def _least_squares(variances: int = 48, positions: int = 96) -> Tensor:
    """Weighted least squares of log Λ and c over a grid of variances and positions."""
    angle = torch.linspace(0, math.pi, variances, dtype=torch.float64)
    z = (1 - angle.cos())[:, None] / 2 * 0.995 + 1e-4
    variance = _BEND * ((1 - z) ** -2 - 1)
    _, middle, width, linear = _shape(variance)
    xi = ((torch.arange(positions, dtype=torch.float64) + 0.5) * math.pi / positions).cos()
    x = middle + width * xi
    cumulative, rate, noise = _exact(x, variance.sqrt())
    # the error of F_k(t)^K, K ≤ 40 equal classes, is at most (e · matter) times that of log Λ
    equal = (1 / cumulative).clamp(1, 40) * cumulative
    matter = equal * torch.exp(1 - equal)
    weight = (matter + 0.02 * ((cumulative > 1e-9) & (cumulative < 20))) / (z + 0.1)
    hazard = _solve(xi, z, _DEGREE, cumulative.log() + linear * x, weight)
    weight = (rate * matter / cumulative * width + 1e-3) * (1 - z) / (z + 0.1)
    noise = _solve(xi, z, _DEGREE - 1, noise / (1 - z) - (1 - z) * (x - EULER), weight)
    return torch.cat([hazard, noise])


def _solve(xi: Tensor, z: Tensor, degree: int, target: Tensor, weight: Tensor) -> Tensor:
    """Coefficients a_de of Σ a_de ξ^d z T_e(2z - 1) nearest to the target."""
    basis = (
        _chebyshev(xi, degree).T[:, :, None]
        * (z * _chebyshev(2 * z[:, 0] - 1, _VARIANCE_DEGREE).T)[:, None, None]
    )
    rows = (basis * weight[..., None, None]).flatten(2).flatten(0, 1)
    solution = torch.linalg.lstsq(rows, (target * weight).flatten()[:, None]).solution
    return _monomials(degree).T @ solution.view(degree + 1, -1)


def _chebyshev(x: Tensor, degree: int) -> Tensor:
    return torch.stack([torch.cos(k * x.clamp(-1, 1).acos()) for k in range(degree + 1)])


def _monomials(degree: int) -> Tensor:
    """Row k holds the monomial coefficients of the Chebyshev polynomial T_k."""
    rows = torch.eye(degree + 1, dtype=torch.float64)
    for k in range(2, degree + 1):
        # T_k = 2x T_{k-1} - T_{k-2}
        rows[k] = 2 * rows[k - 1].roll(1) - rows[k - 2]
    return rows


def _exact(x: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Λ, R and c by fine trapezoids, over the Gaussian if it is narrow, else over the Gumbel."""
    narrow = (std < 0.8)[:, 0]
    parts = [_over_gaussian(x[narrow], std[narrow]), _over_gumbel(x[~narrow], std[~narrow])]
    survival, density, moment = (torch.cat(pair) for pair in zip(*parts, strict=True))
    return survival, density / torch.exp(-survival), moment / density - EULER


def _over_gaussian(x: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    step = 0.125
    node = torch.arange(-9, 9 + step, step, dtype=torch.float64)
    weight = step * torch.exp(-node.square() / 2) / math.sqrt(2 * math.pi)
    u = x[..., None] - std[..., None] * node
    tail = torch.exp(-u)
    density = weight * torch.exp(-u - tail)
    # 1 - F = E(1 - exp(-e^{-u})) keeps the digits of a small Λ = -log F
    cumulative = -torch.log1p((weight * torch.expm1(-tail)).sum(-1))
    return cumulative, density.sum(-1), (density * u).sum(-1)


def _over_gumbel(x: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    step = 0.2
    node = torch.arange(-4.6, 44, step, dtype=torch.float64)
    weight = step * torch.exp(-node - torch.exp(-node))
    u = (x[..., None] - node) / std[..., None]
    density = weight * torch.exp(-u.square() / 2) / (std[..., None] * math.sqrt(2 * math.pi))
    cumulative = -torch.log1p(-(weight * torch.special.ndtr(-u)).sum(-1))
    return cumulative, density.sum(-1), (density * node).sum(-1)
