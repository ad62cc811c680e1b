"""What a standardised loss is made of: kinks, reach, and whether exp(-loss) is a noise at all."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from onesigma.prediction.special import gauss_legendre

Loss = Callable[[Tensor], Tensor]

NODES = 20
# exp(-ℓ) is followed until u³ exp(-ℓ(u)) has fallen by exp(-60)
_DEPTH = 60.0
_MAX_REACH = 1e15


def check_signature(loss: Loss) -> None:
    """Refuse a loss of (y, f): only a function of the standardised residual is location-scale."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # built-in functions may have no signature
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in parameters if p.kind in kinds and p.default is p.empty]
    if len(needed) > 1:
        raise ValueError(
            f"from_loss got a loss of {needed}; it wants a function of one tensor, the "
            "standardised residual u = (y - f)/σ. A loss of (y, f) that is not a function of y - f "
            "has a normaliser that depends on f: it is not a location-scale likelihood."
        )


def evaluate(loss: Loss, u: Tensor) -> Tensor:
    """ℓ(u), with the shape of its argument or an error."""
    value = loss(u)
    if not isinstance(value, Tensor) or value.shape != u.shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"The loss returned {got} for residuals of shape {tuple(u.shape)}; it wants one value "
            "per residual: no reduction."
        )
    return value


def slope(loss: Loss, u: Tensor) -> Tensor:
    """ℓ'(u) by autograd."""
    with torch.enable_grad():
        u = u.detach().requires_grad_()
        value = evaluate(loss, u)
        if not value.requires_grad:
            return torch.zeros_like(u)
        return torch.autograd.grad(value.sum(), u)[0]


def curvature(loss: Loss, u: Tensor) -> Tensor:
    """ℓ''(u) by autograd, 0 at kinks."""
    with torch.enable_grad():
        u = u.detach().requires_grad_()
        value = evaluate(loss, u)
        first = torch.autograd.grad(value.sum(), u, create_graph=True)[0]
        if not first.requires_grad:
            return torch.zeros_like(u)
        return torch.autograd.grad(first.sum(), u, allow_unused=True, materialize_grads=True)[0]


def shape_of(loss: Loss, lowest: float) -> Loss:
    """Maps u (m,) to the rows ℓ - min ℓ and ℓ'': what quadrature has to resolve."""
    return lambda u: torch.stack([evaluate(loss, u) - lowest, curvature(loss, u)])


def check_growth(loss: Loss) -> None:
    """Refuse losses whose exp(-ℓ) has no finite normaliser or no finite variance."""
    for side in (-1.0, 1.0):
        far = side * torch.tensor([1e9, 1e12], dtype=torch.float64)
        values = evaluate(loss, far)
        if values.isnan().any() or (values == -torch.inf).any():
            raise ValueError(
                f"The loss is {values.tolist()} at u = {far.tolist()}; it wants numbers."
            )
        if values[0] == torch.inf:
            continue
        # ℓ ≈ a log|u| at the end: density |u|⁻ᵃ
        power = float(values[1] - values[0]) / math.log(1e3)
        _refuse_slow_growth(power, "u → ∞" if side > 0 else "u → -∞")


def _refuse_slow_growth(power: float, where: str) -> None:
    if power < 1e-3:
        raise ValueError(
            f"The loss stays bounded (or falls) for {where}: exp(-loss) has no finite normaliser, "
            "so it is no likelihood. Use a loss that grows at least like 4 log|u|, such as 'huber'."
        )
    if power <= 1 + 1e-6:
        raise ValueError(
            f"The loss grows like {power:.3g} log|u| for {where}: exp(-loss) has no finite "
            "normaliser. Use a loss that grows faster than 3 log|u|."
        )
    if power <= 3 + 1e-6:
        moment = "mean" if power <= 2 + 1e-6 else "variance"
        raise ValueError(
            f"The loss grows like {power:.3g} log|u| for {where}, as Cauchy's does: the noise has "
            f"no finite {moment}. Use a loss that grows faster than 3 log|u|."
        )


def reach(loss: Loss) -> tuple[float, float]:
    """(left, right) beyond which exp(-ℓ) carries neither mass nor second moment."""
    sizes = torch.logspace(-6, math.log10(_MAX_REACH), 400, dtype=torch.float64)
    both = torch.stack([evaluate(loss, -sizes), evaluate(loss, sizes)])
    lowest = torch.minimum(both.min(), evaluate(loss, torch.zeros_like(sizes[:1])).min())
    if not lowest.isfinite():
        raise ValueError(f"The loss is {float(lowest)} near 0; it wants finite values.")
    ends = []
    for values in both:
        small = values - lowest - 3 * sizes.log().clamp(min=0) > _DEPTH
        # the first size after which it stays small
        last = (~small).nonzero()
        index = int(last[-1]) + 1 if len(last) else 0
        if index >= len(sizes):
            raise ValueError(
                "The second moment of exp(-loss) converges too slowly to be computed; use a loss "
                "that grows faster than about 4 log|u|."
            )
        ends.append(float(sizes[index]))
    return -ends[0], ends[1]


def find_jumps(function: Loss, left: float, right: float, cells: int = 1500) -> list[float]:
    """Where a function jumps: each cell of a grid is halved towards its larger difference."""
    points = _log_grid(left, right, cells)
    a, b = points[:-1], points[1:]
    fa, fb = function(a), function(b)
    for _ in range(70):
        middle = 0.5 * (a + b)
        fm = function(middle)
        first = (fm - fa).abs() > (fb - fm).abs()
        a, fa = torch.where(first, a, middle), torch.where(first, fa, fm)
        b, fb = torch.where(first, middle, b), torch.where(first, fm, fb)
    jumps = (fb - fa).abs() > 1e-6 * (1 + torch.maximum(fa.abs(), fb.abs()))
    return _distinct((0.5 * (a + b))[jumps].tolist())


def _distinct(points: list[float]) -> list[float]:
    kept: list[float] = []
    for point in sorted(points):
        point = 0.0 if abs(point) < 1e-12 else point
        if not kept or point - kept[-1] > 1e-9 * (1 + abs(point)):
            kept.append(point)
    return kept


def refine(
    function: Callable[[Tensor], Tensor], knots: list[float], tolerance: float
) -> list[float]:
    """Halve intervals until NODES Gauss-Legendre nodes integrate the function on each of them.

    Args:
        function: u (m,) -> values (k, m).
        knots: the interval ends to start from.
        tolerance: relative to the integral of |function| over the interval, or over all of them
            when that is larger by 1e6.
    """
    floor = 1e-6 * torch.stack([_integral(function, a, b, True) for a, b in pairs(knots)]).sum(0)
    todo, done = pairs(knots), [knots[0]]
    while todo:
        a, b = todo.pop(0)
        middle = 0.5 * (a + b)
        halves = _integral(function, a, middle) + _integral(function, middle, b)
        error = (halves - _integral(function, a, b)).abs()
        floor = torch.maximum(floor, 1e-6 * _integral(function, a, b, True))
        scale = torch.maximum(_integral(function, a, b, True), floor)
        if bool((error <= tolerance * scale).all()) or b - a < 1e-9 * (1 + abs(a)):
            done.append(b)
        else:
            todo[:0] = [(a, middle), (middle, b)]
    return done


def hidden_features(function: Callable[[Tensor], Tensor], ends: list[float]) -> list[float]:
    """Deciles of the integrals of |function| that Gauss-Legendre on whole intervals does not see.

    A bend of width 0.01 in a noise that reaches to 7000 falls between all nodes.

    Args:
        function: u (m,) -> values (k, m).
        ends: the intervals.
    """
    grid = _log_grid(ends[0], ends[-1], 3000)
    middle, width = 0.5 * (grid[1:] + grid[:-1]), grid.diff()
    share = (function(middle).abs() * width).cumsum(-1)
    seen = torch.stack([_integral(function, a, b, True) for a, b in pairs(ends)]).sum(0)
    points = []
    for row, integral in zip(share, seen, strict=True):
        if abs(float(integral - row[-1])) > 0.02 * float(row[-1]):
            levels = row[-1] * torch.arange(0.1, 1.0, 0.2, dtype=torch.float64)
            points += middle[torch.searchsorted(row, levels)].tolist()
    return points + _decades(points, ends)


def _decades(points: list[float], ends: list[float]) -> list[float]:
    """Powers of ten between the outermost points and the ends, where a tail falls slowly."""
    powers = [10.0**k for k in range(-12, 16)] if points else []
    right = [p for p in powers if points and max(points) < p < ends[-1]]
    left = [-p for p in powers if points and ends[0] < -p < min(points)]
    return left + right


def _log_grid(left: float, right: float, count: int) -> Tensor:
    # dense near 0, where losses have their features
    size = torch.logspace(-12, 0, count, dtype=torch.float64)
    return torch.cat([left * size.flip(0), right * size])


def pairs(knots: Sequence[float]) -> list[tuple[float, float]]:
    """The intervals between neighbouring knots."""
    return list(pairwise(knots))


def nodes(a: float, b: float) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes and weights on [a, b] in float64."""
    table = torch.tensor(gauss_legendre(NODES), dtype=torch.float64)
    return a + (b - a) * table[:, 0], (b - a) * table[:, 1]


def _integral(
    function: Callable[[Tensor], Tensor], a: float, b: float, absolute: bool = False
) -> Tensor:
    u, weights = nodes(a, b)
    values = function(u)
    return ((values.abs() if absolute else values) * weights).sum(-1)
