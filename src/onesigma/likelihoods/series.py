"""Softmax of Gaussian logits by series, where a quadrature has no digits left.

Two limits have small numbers whose ratios still matter: hardly any variance, and hardly any doubt.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# the mean of the most probable class relative to itself: so low that it counts nowhere
_NOWHERE = -1e4


class Law(NamedTuple):
    """E p, H(E p) and H(E p) - E H(p)."""

    probs: Float[Tensor, "c p"]
    entropy: Float[Tensor, " p"]
    information: Float[Tensor, " p"]


def small_variance(
    mean: Float[Tensor, "c p"], variance: Float[Tensor, "c p"]
) -> tuple[Float[Tensor, "c p"], Float[Tensor, " p"]]:
    """E p to first and the mutual information to second order in v, accurate relative to itself.

    MI = Σ v_k (E₂ₖ - ½ ∫₀¹ E₂ₖ(τv) dτ) - KL(E p ‖ p) with E₂ = E p(1 - p), expanded around v = 0:
    MI ≈ ½ Σ v_k p_k(1 - p_k) + ¾ Σ v_k ε_k - ½ Σ δ_k²/p_k, ε and δ the first orders of E₂ and E p.
    """
    p = mean.softmax(0)
    vp = variance * p
    # δ_k/p_k = ½ (v_k(1 - 2p_k) - Σ_l v_l p_l(1 - 2p_l))
    bend = 0.5 * (variance - 2 * vp - (vp - 2 * vp * p).sum(0))
    # ε_k = δ_k - ½ p_k² (Σ_l v_l(6p_l² - 2p_l) + 4v_k(1 - 2p_k))
    square = 0.5 * p * p * ((6 * vp * p - 2 * vp).sum(0) + 4 * (variance - 2 * vp))
    first = 0.5 * (vp - vp * p).sum(0)
    second = 0.75 * (variance * (p * bend - square)).sum(0) - 0.5 * (p * bend * bend).sum(0)
    return p + p * bend, (first + second).clamp_min(0)


class Others:
    """The classes besides the most probable one, by d_k = f_k - f_top ~ N(δ_k, v_k + v_top).

    With S = Σ exp d_k, p_k = exp d_k / (1 + S) and H(p) = log(1 + S) - Σ p_k d_k.

    Args:
        mean: of the logits.
        variance: of the logits.
    """

    def __init__(self, mean: Float[Tensor, "c p"], variance: Float[Tensor, "c p"]) -> None:
        self.top = mean.argmax(0, keepdim=True)
        self.delta = (mean - mean.gather(0, self.top)).scatter(0, self.top, _NOWHERE)
        self.own, self.shared = variance, variance.gather(0, self.top)

    def bounds(self) -> Float[Tensor, "c p"]:
        """E p_k ≤ E exp d_k = exp(δ_k + ½(v_k + v_top)), and 1 for the most probable class."""
        return (self.delta + 0.5 * (self.own + self.shared)).exp().scatter(0, self.top, 1.0)

    def doubt(self) -> Float[Tensor, " p"]:
        """Log Σ exp(δ_k + 7/4 (v_k + v_top)): the series errs by some exp(2 doubt), relative."""
        reach = self.delta + 1.75 * (self.own + self.shared)
        return reach.scatter(0, self.top, _NOWHERE).logsumexp(0)

    def law(self, where: Bool[Tensor, " p"]) -> Law:
        """To second order in exp d, for little doubt; elsewhere as if there were none.

        With b_k = E exp d_k, B_k = b_k exp ½v_top, C_k = E exp 2d_k and
        E_k = E S exp d_k = B_k ΣB - B_k² + C_k,

            E p_k ≈ b_k - E_k
            E H ≈ Σ [b_k - ½E_k - E d_k exp d_k + E d_k S exp d_k].
        """
        delta = torch.where(where, self.delta, _NOWHERE)
        own, shared = self.own * where, self.shared * where
        once = (delta + 0.5 * (own + shared)).exp()
        half = (delta + 0.5 * own + shared).exp()
        twice = (2 * (delta + own + shared)).exp()
        pairs = half * half.sum(0) - half.square()
        p = once - (pairs + twice)
        # tilted by exp d_k, by exp(d_k + d_l) and by exp 2d_k, d_k has these means
        linear = once * (delta + own + shared)
        square = pairs * (delta + own + 2 * shared) + twice * (delta + 2 * own + 2 * shared)
        aleatoric = (once - 0.5 * (pairs + twice) - linear + square).sum(0)
        rest = p.sum(0)
        # the entropy of the most probable class from what it lacks, which keeps its digits
        entropy = torch.special.entr(p).sum(0) - (1 - rest) * torch.log1p(-rest)
        probs = p.scatter(0, self.top, (1 - rest)[None])
        return Law(probs, entropy, (entropy - aleatoric).clamp_min(0))
