"""The sampled twin of the closed forms: antithetic draws, one pair in memory at a time.

Gradients are those of the expectation (Bonnet, Price), not of the draws: ∂/∂m E LSE = E p and
∂/∂v E LSE = ½ E p(1 - p), each averaged over the same draws, with far less noise in the variance.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def sampled_log_sum_exp(
    mean: Float[Tensor, "n c h w"],
    variance: Float[Tensor, "n c h w"],
    pairs: int = 5,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "n h w"]:
    """E log Σ_k exp f_k from draws m ± √v ε, without bias in value and gradients.

    Args:
        mean: m.
        variance: v.
        pairs: how many ε; each gives two draws.
        generator: source of randomness.
    """
    return _SampledLogSumExp.apply(mean, variance, pairs, generator)


@torch.no_grad()
def sampled_law(
    mean: Float[Tensor, "n c h w"],
    variance: Float[Tensor, "n c h w"],
    pairs: int = 25,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n h w"], Float[Tensor, "n h w"]]:
    """E p, H(E p) and H(E p) - E H(p) of p = softmax(f) from draws m ± √v ε.

    Args:
        mean: m.
        variance: v.
        pairs: how many ε; each gives two draws.
        generator: source of randomness.
    """
    probs, aleatoric = torch.zeros_like(mean), torch.zeros_like(mean[:, 0])
    for logits in _draws(mean, variance, pairs, generator):
        logs = logits.log_softmax(1)
        p = logs.exp()
        probs += p
        aleatoric -= (p * logs).sum(1)
    probs, aleatoric = probs / (2 * pairs), aleatoric / (2 * pairs)
    entropy = torch.special.entr(probs).sum(1)
    return probs, entropy, (entropy - aleatoric).clamp_min(0)


class _SampledLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, variance: Tensor, pairs: int, generator: torch.Generator | None
    ) -> Tensor:
        value = torch.zeros_like(mean[:, 0])
        by_mean, by_variance = torch.zeros_like(mean), torch.zeros_like(mean)
        for logits in _draws(mean, variance, pairs, generator):
            lse = logits.logsumexp(1)
            p = logits.sub_(lse[:, None]).exp_()
            value += lse
            by_mean += p
            # p - p²
            by_variance += p.addcmul_(p, p, value=-1)
        ctx.save_for_backward(by_mean.div_(2 * pairs), by_variance.div_(4 * pairs))
        return value / (2 * pairs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_mean, by_variance = ctx.saved_tensors
        grad = grads[0][:, None]
        return grad * by_mean, grad * by_variance, None, None


def _draws(mean: Tensor, variance: Tensor, pairs: int, generator: torch.Generator | None) -> Any:
    if pairs < 1:
        raise ValueError(f"Sampling got pairs={pairs}; it wants at least one pair of draws.")
    std = variance.sqrt()
    for _ in range(pairs):
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
        noise.mul_(std)
        yield mean + noise
        yield mean - noise
