"""Expectations of nonlinearities over pairs of Gaussians, stable at correlation one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_CACHED_PIXELS = 2**17  # of the maps at work at once: they and their temporaries stay in the cache


class ReLUExpectation(torch.autograd.Function):
    """E relu(z_i) relu(z_j), the arc-cosine kernel of degree one with its factor 1/2.

    The gradient is written by hand because √(1 − ρ²) and asin ρ each have an infinite one at ρ = 1
    though their sum has not. Where a variance is 0 the gradient to it is set to 0.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, images: int) -> Tensor:
        """Packed covariances in, packed covariances out."""
        ctx.save_for_backward(maps)
        ctx.images = images
        out = torch.empty_like(maps)
        # E relu(z)² = K / 2
        torch.mul(maps[:images], 0.5, out=out[:images])
        deviation = maps[:images].sqrt()
        most = max(1, _CACHED_PIXELS // maps[0].numel())
        work = maps.new_empty(3, min(most, images), *maps.shape[1:])
        zero, least = maps.new_tensor([0.0, 1e-36])
        for i, others, pairs in _row_pieces(images, most):
            product, rho, sine = work[:, : pairs.stop - pairs.start]
            # √(K_ii K_jj) / 2π, above 0 to divide by
            torch.addcmul(least, deviation[i], deviation[others], value=0.5 / math.pi, out=product)
            # −ρ = −K_ij / √(K_ii K_jj)
            torch.addcdiv(zero, maps[pairs], product, value=-0.5 / math.pi, out=rho).clamp_(-1, 1)
            # E = √(K_ii K_jj) (sin θ + ρ θ) / 2π, θ = acos(−ρ); ∂E/∂θ = 0 forgives its rounding
            angle = torch.acos(rho, out=out[pairs])
            torch.sin(angle, out=sine).addcmul_(rho, angle, value=-1)
            torch.addcmul(-least, sine, product, out=out[pairs])  # exactly 0 where a variance is
        return out

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


def _row_pieces(images: int, most: int) -> Iterator[tuple[int, slice, slice]]:
    """(i, at most so many j > i, where their pairs are packed)."""
    place = images
    for i in range(images - 1):
        for start in range(i + 1, images, most):
            others = slice(start, min(start + most, images))
            yield i, others, slice(place, place + others.stop - start)
            place += others.stop - start


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
