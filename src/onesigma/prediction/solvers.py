"""Quantiles from CDFs by a bracketed Newton method, and the CRPS by quadrature."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from onesigma.prediction.special import gauss_legendre

# levels at which the CRPS integral is split; beyond the outer ones the CDF counts as 0 or 1
CRPS_LEVELS = (1e-6, 1e-3, 0.05, 0.3, 0.7, 0.95, 1 - 1e-3, 1 - 1e-6)


def solve_quantile(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    level: Tensor,
    start: Tensor,
    lower: Tensor,
    upper: Tensor,
    steps: int,
    stop: bool = False,
) -> Tensor:
    """The x with log-tail(x) = log level, elementwise.

    Newton on the logarithm of the smaller tail, which is concave for log-concave laws and linear
    for exponential tails; a step that leaves the bracket becomes a bisection.

    Args:
        evaluate: x -> (log P(X ≤ x), log P(X > x), log density).
        level: probabilities in (0, 1).
        start: first guess.
        lower: values at or below the quantile.
        upper: values at or above the quantile.
        steps: how many times `evaluate` is called.
        stop: earlier, when every tail is right to 1e-4; needs to look at the values.
    """
    low = level < 0.5
    goal = torch.where(low, level, 1 - level).log()
    x = torch.minimum(torch.maximum(start, lower), upper)
    for _ in range(steps):
        log_cdf, log_survival, log_pdf = evaluate(x)
        tail = torch.where(low, log_cdf, log_survival)
        # g = ±(log tail - log level) increases with x; dg/dx = density/tail
        gap = torch.where(low, tail - goal, goal - tail)
        lower, upper = torch.where(gap <= 0, x, lower), torch.where(gap >= 0, x, upper)
        newton = x - gap * (tail - log_pdf).exp()
        inside = (newton >= lower) & (newton <= upper)
        # one more step squares the error of a Newton step
        right = (gap.abs() <= 1e-4) | (upper - lower <= 8 * torch.finfo(x.dtype).eps * x.abs())
        x = torch.where(inside, newton, 0.5 * (lower + upper))
        if stop and bool(right.all()):
            break
    return x


def crps_by_quadrature(
    log_tails: Callable[[Tensor], tuple[Tensor, Tensor]],
    knots: Sequence[Tensor],
    y: Tensor,
    nodes: int = 8,
) -> Tensor:
    """∫ (F(t) - 1[t ≥ y])² dt, Gauss-Legendre between knots, each piece split at y.

    Args:
        log_tails: t -> (log P(Y ≤ t), log P(Y > t)), for t with a leading axis of nodes.
        knots: ascending; the law has hardly any mass beyond the outer ones.
        y: where.
        nodes: per half piece.
    """
    # outside the outer knots the integrand is 1 towards y and 0 away from it
    table = torch.tensor(gauss_legendre(nodes), dtype=y.dtype, device=y.device)
    node, weight = table.reshape(nodes, 2, *[1] * y.ndim).unbind(1)
    total = (knots[0] - y).clamp(min=0) + (y - knots[-1]).clamp(min=0)
    for left, right in pairwise(knots):
        middle = torch.minimum(torch.maximum(y, left), right)
        below = log_tails(left + (middle - left) * node)[0]
        above = log_tails(middle + (right - middle) * node)[1]
        total = total + (middle - left) * (weight * (2 * below).exp()).sum(0)
        total = total + (right - middle) * (weight * (2 * above).exp()).sum(0)
    return total


def one_by_one(
    log_tails: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The same function for arguments with a leading axis, one entry of it after the other."""

    def stacked(values: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = zip(*(log_tails(value) for value in values), strict=True)
        return torch.stack(lower), torch.stack(upper)

    return stacked
