"""Expectations of nonlinearities over pairs of Gaussians, stable at correlation one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, combinations
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from onesigma.kernels.spans import Parts, Spans


def relu_expectation(
    covariances: Spans, out: Tensor | None = None, scale: float = 1.0, shift: float = 0.0
) -> Tensor:
    """E relu(z_i) relu(z_j), the arc-cosine kernel of degree one with its ½; scaled and shifted.

    Args:
        covariances: packed, of n (n + 1) / 2 pairs; no gradient passes.
        out: memory for the result, spans as those of the covariances, or just theirs; new if None.
        scale: a factor, at no cost.
        shift: a term, at no cost.
    """
    spans, desk = covariances, covariances.desk
    out = spans.empty(spans.pairs) if out is None else out
    tiny = 1e-36
    constants = out.new_tensor([0.0, shift, tiny, shift - scale * tiny])
    own, cross, parts = _parts(spans.images, spans.together)
    # without the bookkeeping that operations in place have even where no gradient is kept
    with torch.inference_mode():
        zero, offset, least, rest = constants.unbind()
        reads = zip(spans.readers(parts), spans.runs(out, parts), strict=True)
        for deviation, (read, half) in zip(spans.runs(desk.deviation, own), reads, strict=False):
            # E relu(z)² = K / 2
            variance = read(half)
            torch.sqrt(variance, out=deviation)
            torch.add(offset, variance, alpha=0.5 * scale, out=half)
        deviations = spans.rows(desk.deviation, spans.images)
        each = deviations.unbind()
        work = {count: _work(spans, count) for count in {count for _, _, count in cross}}
        for (i, j, count), (read, sine) in zip(cross, reads, strict=True):
            rho, angle, product, beside = work[count]
            covariance = read(rho)
            # √(K_ii K_jj) / 2π, above 0 to divide by
            others = each[j] if count == 1 else deviations[j : j + count]
            torch.addcmul(least, each[i], others, value=0.5 / math.pi, out=beside)
            # −ρ = −K_ij / √(K_ii K_jj)
            torch.addcdiv(zero, covariance, product, value=-0.5 / math.pi, out=rho).clamp_(-1, 1)
            # E = √(K_ii K_jj) (sin θ + ρ θ) / 2π, θ = acos(−ρ); ∂E/∂θ = 0 forgives its rounding
            torch.acos(rho, out=angle)
            torch.sin(angle, out=sine).addcmul_(rho, angle, value=-1)
            # with what was added above taken away: 0 where a variance is
            torch.addcmul(rest, sine, product, value=scale, out=sine)
    return spans.maps(out)


@cache
def _parts(images: int, most: int) -> tuple[Parts, list[tuple[int, int, int]], Parts]:
    """At most so many maps at once: variances, (i, j > i, count), and all of them as packed."""
    own = _pieces(0, images, most)
    cross = [(i, j, n) for i in range(images) for j, n in _pieces(i + 1, images, most)]
    counts = [count for _, count in own] + [count for _, _, count in cross]
    return own, cross, list(zip(accumulate(counts, initial=0), counts, strict=False))


def _pieces(start: int, stop: int, most: int) -> list[tuple[int, int]]:
    return [(at, min(most, stop - at)) for at in range(start, stop, most)]


def _work(spans: Spans, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Runs for ρ, θ and √(K_ii K_jj), and the last as spans beside each other."""
    desk = spans.desk
    runs = (spans.runs(m, [(0, count)])[0] for m in (desk.rho, desk.spare, desk.product))
    rho, angle, product = runs
    return rho, angle, product, product if count == 1 else spans.rows(desk.product, count)


class ReLUExpectation(torch.autograd.Function):
    """`relu_expectation` with its gradient.

    It is written by hand because √(1 − ρ²) and asin ρ each have an infinite one at ρ = 1 though
    their sum has not. Where a variance is 0 the gradient to it is set to 0.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, images: int) -> Tensor:
        """Packed covariances in, packed covariances out."""
        ctx.save_for_backward(maps)
        ctx.images = images
        return relu_expectation(Spans(maps, images))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """∂E/∂K_ij = (π/2 + asin ρ) / 2π,  ∂E/∂K_ii = √(1 − ρ²) √(K_jj / K_ii) / 4π."""
        (maps,) = ctx.saved_tensors
        n = ctx.images
        deviation, inverse = _deviation(maps[:n])
        out = grad * 0.5
        rho, sine = torch.empty_like(maps[0]), torch.empty_like(maps[0])
        for i, j, pair in _pairs(n):
            _correlation(maps[pair], inverse[i], inverse[j], out=rho)
            _sine(rho, out=sine)
            pull = sine.mul_(grad[pair]).mul_(0.25 / math.pi)
            out[i] += pull * deviation[j] * inverse[i]
            out[j] += pull * deviation[i] * inverse[j]
            slope = rho.asin_().add_(math.pi / 2).mul_(0.5 / math.pi)
            torch.mul(grad[pair], slope, out=out[pair])
        return out, None


def _pairs(images: int) -> Iterator[tuple[int, int, int]]:
    """(i, j, where the pair is packed), one by one: a map and its temporaries stay in the cache."""
    pairs = combinations(range(images), 2)
    return ((i, j, place) for place, (i, j) in enumerate(pairs, start=images))


def _deviation(variance: Tensor) -> tuple[Tensor, Tensor]:
    """√K_ii and its inverse, 0 where the variance is 0."""
    deviation = variance.sqrt()
    return deviation, deviation.reciprocal().nan_to_num_(posinf=0.0)


def _correlation(cross: Tensor, first: Tensor, second: Tensor, out: Tensor) -> None:
    # ρ = K_ij / √(K_ii K_jj)
    torch.mul(cross, first, out=out).mul_(second).clamp_(-1, 1)


def _sine(rho: Tensor, out: Tensor) -> None:
    # √(1 − ρ²) = √((1 − ρ) + (1 − ρ) ρ), where 1 − ρ is exact near 1
    torch.sub(rho.new_ones(()), rho, out=out).addcmul_(out, rho).sqrt_()


def erf_expectation(maps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """E erf(z_i) erf(z_j) for packed covariances.

    2/π asin(2 K_ij / √((1 + 2 K_ii)(1 + 2 K_jj))), written with atan2 because asin has an infinite
    slope where its argument rounds to one.
    """
    n = len(maps) - len(rows)
    i = torch.cat([torch.arange(n, device=maps.device), rows])
    j = torch.cat([torch.arange(n, device=maps.device), columns])
    first, second = maps[i], maps[j]
    determinant = first * second - maps.square()
    # below 0 by rounding only: lift the value, keep the gradient
    determinant = determinant + (determinant.clamp_min(0) - determinant).detach()
    # tan = 2 K_ij / √(1 + 2 K_ii + 2 K_jj + 4 (K_ii K_jj − K_ij²))
    adjacent = (1 + 2 * first + 2 * second + 4 * determinant).sqrt()
    return torch.atan2(2 * maps, adjacent) * (2 / math.pi)
