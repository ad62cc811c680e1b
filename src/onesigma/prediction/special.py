"""Special functions from elementary operations only, so that predictions export.

Exporters know exp, log and arithmetic; of erfcx, log_ndtr, ndtri and Owen's T they know little.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)

# (1 + x) R(x) as a polynomial in t = (x - 3)/(x + 3), x in [0, ∞): truncated Chebyshev series of
# the function computed with 60 digits; 3e-8 relative (float32) and 1e-15 (float64).
_MILLS_32 = (
    1.2183612096, -0.24195667802, -0.041190449786, 0.1132084236, -0.056961752261,
    0.0029152712018, 0.0074865398571, -0.00091000794495, -0.0011881586367, 8.3780457327e-5,
    0.00014969346967, 2.1434298922e-6,
)  # fmt: skip
_MILLS_64 = (
    1.218361194840413242, -0.2419567006119498974, -0.04118936864643441462, 0.1132090834068857385,
    -0.05697462393079340779, 0.002909673573656035486, 0.007543117691984655762,
    -0.0008890714926959747222, -0.001302593498922376757, 0.00004362431232118119376,
    0.0002607032649116547359, 0.00004372757352018743675, -0.00004562935872285501264,
    -0.00002320104789039916085, 3.109898916602745924e-6, 6.886892135301529299e-6,
    1.964358405593969285e-6, -1.086420839578660359e-6, -1.036843401638330396e-6,
    -6.837202500092373201e-8, 2.648273624218123614e-7, 7.610067152084914633e-8,
    -3.560450319534514029e-8, -1.257153950315557696e-8, 1.658533795491215999e-9,
)  # fmt: skip


def mills(x: Tensor) -> Tensor:
    """The Mills ratio R(x) = Φ(-x)/φ(x) for x ≥ 0."""
    coefficients = _MILLS_64 if x.dtype == torch.float64 else _MILLS_32
    t = 1 - 6 / (x + 3)
    total = torch.full_like(t, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * t + coefficient
    return total / (1 + x)


def log_phi(x: Tensor) -> Tensor:
    """Log φ(x), the standard normal density."""
    return -0.5 * x.square() - LOG_SQRT_2PI


def ndtr(x: Tensor) -> Tensor:
    """Φ(x), relatively accurate in the lower tail."""
    # Φ(-|x|) = φ(x) R(|x|)
    tail = log_phi(x).exp() * mills(x.abs())
    return torch.where(x < 0, tail, 1 - tail)


def log_ndtr(x: Tensor) -> Tensor:
    """Log Φ(x), finite for every finite float."""
    density, ratio = log_phi(x), mills(x.abs())
    upper = torch.log1p(-(density.exp() * ratio).clamp(max=0.5))
    return torch.where(x < 0, density + ratio.log(), upper)


def log_tilted_ndtr(k: Tensor, t: Tensor) -> Tensor:
    """Log T(k, t), T(k, t) = exp(k²/2 - k t) Φ(t - k), without overflow or cancellation.

    Laplace noise smoothed by a Gaussian is made of these.
    """
    gap = t - k
    ratio = mills(gap.abs())
    # t ≤ k: T = φ(t) R(k - t)
    below = log_phi(t) + ratio.log()
    # t > k: the definition, Φ in [½, 1]
    above = k * (0.5 * k - t) + torch.log1p(-(log_phi(gap).exp() * ratio).clamp(max=0.5))
    return torch.where(gap <= 0, below, above)


def ndtri(u: Tensor) -> Tensor:
    """Φ⁻¹(u): a rational start and three Newton steps on log Φ of the smaller tail."""
    tail = torch.minimum(u, 1 - u).clamp(min=torch.finfo(u.dtype).tiny)
    goal = tail.log()
    # x ≈ r - (a₀ + a₁ r)/(1 + b₁ r + b₂ r²), r = √(-2 log u): absolute error below 3e-3
    r = (-2 * goal).sqrt()
    x = (2.30753 + 0.27061 * r) / (1 + 0.99229 * r + 0.04481 * r.square()) - r
    for _ in range(3):
        # d log Φ/dx = 1/R(-x) for x ≤ 0
        ratio = mills((-x).clamp(min=0))
        x = x - (log_phi(x) + ratio.log() - goal) * ratio
    return torch.where(u < 0.5, x, -x)


@cache
def gauss_legendre(num: int) -> tuple[tuple[float, float], ...]:
    """(node, weight) pairs on [0, 1]: Newton iterations on the Legendre recursion."""
    pairs = []
    for i in range(num):
        x = math.cos(math.pi * (i + 0.75) / (num + 0.5))
        for _ in range(100):
            value, slope = _legendre(num, x)
            step = value / slope
            x -= step
            if abs(step) < 1e-15:
                break
        slope = _legendre(num, x)[1]
        # w = 2/((1 - x²) P'²), halved for an interval of length 1
        pairs.append((0.5 * (1 - x), 1 / ((1 - x * x) * slope * slope)))
    return tuple(pairs)


def _legendre(num: int, x: float) -> tuple[float, float]:
    before, value = 1.0, x
    for n in range(2, num + 1):
        # n Pₙ = (2n - 1) x Pₙ₋₁ - (n - 1) Pₙ₋₂
        before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
    return value, num * (x * value - before) / (x * x - 1)


def owens_t(h: Tensor, a: Tensor) -> Tensor:
    """Owen's T(h, a) = 1/2π ∫₀ᵃ exp(-½h²(1 + x²))/(1 + x²) dx: 16 nodes, reflection for |a| > 1."""
    h, size = h.abs(), a.abs()
    small = size <= 1
    inner_h = torch.where(small, h, h * size)
    direct = _owens_t_small(inner_h, torch.where(small, size, 1 / size.clamp(min=1)))
    # T(h, a) = ½[Φ(-h) + Φ(-ah)] - Φ(-h) Φ(-ah) - T(ah, 1/a): the lower-tail form
    p, q = ndtr(-h), ndtr(-h * size)
    value = torch.where(small, direct, 0.5 * (p + q) - p * q - direct)
    return torch.where(a < 0, -value, value)


def _owens_t_small(h: Tensor, a: Tensor) -> Tensor:
    # one axis of nodes instead of a loop keeps an exported graph small
    table = torch.tensor(gauss_legendre(16), dtype=h.dtype, device=h.device)
    node, weight = table.reshape(16, 2, *[1] * h.ndim).unbind(1)
    q = 1 + (a * node).square()
    total = (weight * (-0.5 * h.square() * q).exp() / q).sum(0)
    return total * a / (2 * math.pi)
