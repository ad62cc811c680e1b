"""Expectations of softmax and log-sum-exp over images, chunk by chunk of pixels.

Accuracy (float32, against dense quadrature, 2 to 40 classes, variances 1e-3 to 1e3 equal or mixed
within a pixel): probabilities to 1e-3 in total variation, mutual information to 5e-3 nats, and to a
few per cent of itself below variances of 0.05 and where one class is nearly sure (`series`). Small
probabilities of variances up to some 3 are right to 2 %, of larger ones to their order. Variances
above 1e3 tend to the argmax of Gaussians, without loss when they are equal; where a pixel mixes
variances over more orders of magnitude than that, the steps grow coarse and accuracy fades.
Variances above 1e19 are read as 1e19. Training takes fewer nodes: gradients to 1e-3, and to 5e-3
where very unequal variances meet, E LSE to 1e-2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.likelihoods import gumbel, series
from onesigma.precision import at_least_single


class Nodes(NamedTuple):
    """How finely to integrate: `few` nodes where steps of `step` features do, else `many`."""

    few: int
    many: int
    step: float


TRAINING_NODES, PREDICTION_NODES = Nodes(11, 20, 1.6), Nodes(13, 24, 1.35)
# Values in one chunk: enough to hide the cost of a call, few enough for the caches.
_CHUNK = 64_000


def expected_log_sum_exp(
    mean: Float[Tensor, "n c h w"], variance: Float[Tensor, "n c h w"]
) -> Float[Tensor, "n h w"]:
    """E log Σ_k exp f_k, f_k ~ N(m_k, v_k), keeping only its two gradients for the backward pass.

    Args:
        mean: m.
        variance: v.
    """
    mean, variance = at_least_single(mean), at_least_single(variance).clamp_max(1e19)
    return _ExpectedLogSumExp.apply(mean, variance)


@torch.no_grad()
def softmax_law(
    mean: Float[Tensor, "n c h w"], variance: Float[Tensor, "n c h w"]
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n h w"], Float[Tensor, "n h w"]]:
    """E p, H(E p) and H(E p) - E H(p) of p = softmax(f), f_k ~ N(m_k, v_k).

    Args:
        mean: m.
        variance: v.
    """
    mean, variance = at_least_single(mean), at_least_single(variance).clamp_max(1e19)
    probs, entropy, information = _over_pixels(_pixel_law, mean, variance, PREDICTION_NODES)
    return probs, entropy, information


def _pixel_law(
    mean: Tensor, variance: Tensor, extent: Tensor, nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    probs, aleatoric = gumbel.prediction(mean, variance, extent, nodes)
    others = series.Others(mean, variance)
    probs = torch.minimum(probs, others.bounds())
    probs = probs / probs.sum(0)
    entropy = torch.special.entr(probs).sum(0)
    information = (entropy - aleatoric).clamp_min(0)
    # hardly any doubt: small probabilities are lost to the nodes, and entropies to their difference
    doubt = others.doubt()
    sure, known = others.law(doubt < -2), (doubt + 4).clamp(0, 1)
    probs, entropy = sure.probs.lerp(probs, known), sure.entropy.lerp(entropy, known)
    information = sure.information.lerp(information, (doubt + 3).clamp(0, 1))
    # hardly any variance: the same
    largest = variance.amax(0)
    if torch.compiler.is_compiling() or bool((largest < 0.25).any()):
        near, small = series.small_variance(mean, variance.clamp_max(1))
        probs = near.lerp(probs, (largest * 100).clamp_max(1))
        entropy = torch.special.entr(probs).sum(0)
        information = small.lerp(information, ((largest - 0.05) * 5).clamp(0, 1))
    return probs, entropy, information


class _ExpectedLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, variance: Tensor) -> Tensor:
        value, *gradients = _over_pixels(gumbel.gradients, mean, variance, TRAINING_NODES)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        # ∂E LSE/∂m = E p, ∂E LSE/∂v = ½ E p(1 - p)
        by_mean, by_variance = ctx.saved_tensors
        return grads[0][:, None] * by_mean, grads[0][:, None] * by_variance


Law = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, ...]]


def _over_pixels(law: Law, mean: Tensor, variance: Tensor, nodes: Nodes) -> tuple[Tensor, ...]:
    """Apply a law of (c, pixels) to images: few nodes everywhere, then many where few do not do."""
    n, _, *size = mean.shape
    if n > 1 and mean[0].numel() >= _CHUNK and not torch.compiler.is_compiling():
        # one image after the other: with classes in front of pixels already, nothing is copied
        images = zip(mean.split(1), variance.split(1), strict=True)
        each = [_over_pixels(law, *image, nodes) for image in images]
        return tuple(torch.cat(parts) for parts in zip(*each, strict=True))
    flat = mean.movedim(1, 0).flatten(1), variance.movedim(1, 0).flatten(1)
    if torch.compiler.is_compiling():
        parts = law(*flat, gumbel.span(*flat), nodes.many)
    else:
        extent = torch.cat([gumbel.span(m, v) for m, v in _chunks(*flat)], -1)
        hard = (extent[1] > nodes.few * nodes.step * extent[2]).nonzero().squeeze(1)
        mostly_hard = 2 * len(hard) > extent.shape[1]
        parts = _in_chunks(law, (*flat, extent), nodes.many if mostly_hard else nodes.few)
        if len(hard) and not mostly_hard:
            fine = _in_chunks(law, [x[:, hard] for x in (*flat, extent)], nodes.many)
            for part, better in zip(parts, fine, strict=True):
                part[..., hard] = better
    return tuple(part.unflatten(-1, (n, *size)).movedim(-3, 0) for part in parts)


def _in_chunks(law: Law, pixels: Sequence[Tensor], nodes: int) -> tuple[Tensor, ...]:
    parts = [law(mean, variance, extent, nodes) for mean, variance, extent in _chunks(*pixels)]
    return tuple(torch.cat(pieces, -1) for pieces in zip(*parts, strict=True))


def _chunks(*pixels: Tensor) -> Iterator[tuple[Tensor, ...]]:
    count = 1 + pixels[0].numel() // _CHUNK
    return zip(*(x.chunk(count, 1) for x in pixels), strict=True)
