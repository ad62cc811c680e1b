"""Labels: softmax of logits f / σ², the paper's Boltzmann likelihood, with exact expectations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood, check_log_scale, mask_labels
from onesigma.likelihoods.expectation import expected_log_sum_exp, softmax_law
from onesigma.likelihoods.sampling import sampled_log_sum_exp
from onesigma.precision import at_least_single
from onesigma.prediction.categorical import CategoricalPrediction

Scale = Literal["class", "shared", "none"]
# Scales below e^-10 are read as e^-10, so that no logit overflows.
_LEAST_LOG_SCALE = -10.0


class Boltzmann(Likelihood):
    """p(y = k | f) = softmax(f / σ²)_k for independent Gaussian logits, in closed form.

    Weights and smoothing mean what they mean in `torch.nn.functional.cross_entropy`: per pixel the
    log-probability becomes Σ_k a_k log p_k, a_k = (1 - ε) w_y 1[k = y] + ε w_k / c.

    Args:
        scale: one σ for each class ("class", the paper), one for each pixel ("shared"), or "none",
            so that the label must go through f.
        class_weights: w, one for each class.
        label_smoothing: ε.
        pairs: draw this many antithetic pairs instead of the closed form in `expected_log_prob`.
        generator: source of randomness of these draws.
    """

    class_weights: Tensor | None

    def __init__(
        self,
        scale: Scale = "none",
        class_weights: Sequence[float] | Tensor | None = None,
        label_smoothing: float = 0.0,
        pairs: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_scale(scale)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; it wants a number in [0, 1].")
        self.scale = scale
        self.label_smoothing = label_smoothing
        self.pairs, self.generator = pairs, generator
        weights = None if class_weights is None else torch.as_tensor(class_weights).float()
        self.register_buffer("class_weights", weights, persistent=False)

    def log_prob(
        self,
        target: Int[Tensor, "n h w"],
        f: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """Σ_k a_k log softmax(f / σ²)_k, exactly 0 where not valid.

        Args:
            target: labels in [0, c).
            f: the function values.
            log_scale: log σ.
            valid: pixels with a label; by default those whose label is in range.
        """
        warn_if_unread(self, self.scale, log_scale)
        logits, _ = rescaled(f, torch.zeros_like(f), self.scale, log_scale)
        return self._score(target, logits, logits.logsumexp(1), valid)

    def expected_log_prob(
        self,
        target: Int[Tensor, "n h w"],
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """Σ_k a_k (m_k / σ_k² - E LSE), exactly 0 where not valid.

        Args:
            target: labels in [0, c).
            q: the variational field; only its marginals matter.
            log_scale: log σ.
            valid: pixels with a label; by default those whose label is in range.
        """
        warn_if_unread(self, self.scale, log_scale)
        mean, variance = rescaled(q.mean, q.variance, self.scale, log_scale)
        if self.pairs is None:
            lse = expected_log_sum_exp(mean, variance)
        else:
            lse = sampled_log_sum_exp(mean, variance, self.pairs, self.generator)
        return self._score(target, mean, lse, valid)

    def predict(
        self, q: GaussianField, log_scale: Float[Tensor, "n #c h w"] | None = None
    ) -> CategoricalPrediction:
        """∫ softmax(f / σ²) q(f) df and the parts of its entropy, without sampling.

        Args:
            q: the field of the logits.
            log_scale: log σ.
        """
        return CategoricalPrediction(
            *softmax_law(*rescaled(q.mean, q.variance, self.scale, log_scale))
        )

    def _score(self, target: Tensor, mean: Tensor, lse: Tensor, valid: Tensor | None) -> Tensor:
        label, mask = mask_labels(target, mean.shape[1], valid, mean.shape)
        chosen = mean.gather(1, label[:, None])[:, 0] - lse
        if self.class_weights is not None:
            chosen = chosen * self._weights(mean)[label]
        if self.label_smoothing:
            weights = self._weights(mean)[None, :, None, None]
            spread = (weights * (mean - lse[:, None])).mean(1)
            chosen = torch.lerp(chosen, spread, self.label_smoothing)
        return torch.where(mask, chosen, torch.zeros_like(chosen))

    def _weights(self, mean: Tensor) -> Tensor:
        classes = mean.shape[1]
        if self.class_weights is None:
            return mean.new_ones(classes)
        if len(self.class_weights) != classes:
            raise ValueError(
                f"Boltzmann has {len(self.class_weights)} class weights but the field has "
                f"{classes} classes; give one weight for each class."
            )
        return self.class_weights.to(mean)


def rescaled(
    mean: Float[Tensor, "n c h w"],
    variance: Float[Tensor, "n c h w"],
    scale: str,
    log_scale: Float[Tensor, "n #c h w"] | None,
) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
    """Mean m/σ² and variance v/σ⁴ of the logits f/σ², half precision raised to single.

    Args:
        mean: m.
        variance: v.
        scale: "class", "shared" or "none" (then `log_scale` is not looked at).
        log_scale: log σ.
    """
    mean, variance = at_least_single(mean), at_least_single(variance)
    if scale == "none":
        return mean, variance
    channels = mean.shape[1] if scale == "class" else 1
    if log_scale is None or log_scale.shape[1] != channels:
        came = "none" if log_scale is None else f"one with {log_scale.shape[1]} channels"
        raise ValueError(
            f'scale="{scale}" wants a log_scale with {channels} channels, got {came}; '
            'give it, or choose scale="class", "shared" or "none" to match the network.'
        )
    check_log_scale(log_scale, mean.shape)
    precision = torch.exp(-2 * log_scale.to(mean.dtype).clamp_min(_LEAST_LOG_SCALE))
    return mean * precision, variance * precision.square()


def warn_if_unread(likelihood: Likelihood, scale: str, log_scale: Tensor | None) -> None:
    """Say that a scale is learned which nothing reads."""
    learned = log_scale is not None and log_scale.requires_grad
    if scale == "none" and likelihood.training and learned:
        name = type(likelihood).__name__
        warnings.warn(
            f'The network learns log σ, but {name} with scale="none" does not read it: its '
            "weights get no gradient, which DistributedDataParallel refuses. Build the network "
            f'with HeadOptions(scale="none"), or read it with {name}(scale="class").',
            stacklevel=3,
        )


def check_scale(scale: str) -> None:
    """Raise unless this is one of the three kinds of scale."""
    if scale not in ("class", "shared", "none"):
        raise ValueError(f'scale is {scale!r}; it wants "class", "shared" or "none".')
