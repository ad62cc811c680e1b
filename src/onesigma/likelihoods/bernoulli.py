"""Yes/no labels, one or many for each pixel: a softmax against a logit that is always 0."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus

from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood, check_valid
from onesigma.likelihoods.boltzmann import Scale, check_scale, rescaled, warn_if_unread
from onesigma.likelihoods.expectation import expected_log_sum_exp, softmax_law
from onesigma.prediction.categorical import BernoulliPrediction


class Bernoulli(Likelihood):
    """p(y_c = 1 | f) = sigmoid(f_c / σ²) for every output, binary (c = 1) or multi-label.

    An output whose target is neither 0 nor 1 is left out, whatever stands there.

    Args:
        scale: "none" (plain logits), one σ for each output ("class") or for each pixel ("shared").
        pos_weight: weights of the positive outputs, as in `binary_cross_entropy_with_logits`.
    """

    pos_weight: Tensor | None

    def __init__(
        self, scale: Scale = "none", pos_weight: Sequence[float] | Tensor | None = None
    ) -> None:
        super().__init__()
        check_scale(scale)
        self.scale = scale
        weight = None if pos_weight is None else torch.as_tensor(pos_weight).float()
        self.register_buffer("pos_weight", weight, persistent=False)

    def log_prob(
        self,
        target: Tensor,
        f: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """Σ_c log p(y_c | f_c), exactly 0 where not valid.

        Args:
            target: 0 and 1 of any type, shaped like f.
            f: the function values.
            log_scale: log σ.
            valid: pixels that count; within them outputs with a target of 0 or 1 do.
        """
        warn_if_unread(self, self.scale, log_scale)
        logits, _ = rescaled(f, torch.zeros_like(f), self.scale, log_scale)
        return self._score(target, logits, softplus(logits), valid)

    def expected_log_prob(
        self,
        target: Tensor,
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None = None,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, "n h w"]:
        """Σ_c (y_c m_c - E log(1 + exp f_c)), exactly 0 where not valid.

        Args:
            target: 0 and 1 of any type, shaped like the field.
            q: the variational field; only its marginals matter.
            log_scale: log σ.
            valid: pixels that count; within them outputs with a target of 0 or 1 do.
        """
        warn_if_unread(self, self.scale, log_scale)
        mean, variance = rescaled(q.mean, q.variance, self.scale, log_scale)
        lse = expected_log_sum_exp(_against_zero(mean), _against_zero(variance))
        return self._score(target, mean, lse.view_as(mean), valid)

    def predict(
        self, q: GaussianField, log_scale: Float[Tensor, "n #c h w"] | None = None
    ) -> BernoulliPrediction:
        """∫ sigmoid(f / σ²) q(f) df and the parts of its entropy, without sampling.

        Args:
            q: the field of the logits.
            log_scale: log σ.
        """
        mean, variance = rescaled(q.mean, q.variance, self.scale, log_scale)
        probs, entropy, information = softmax_law(_against_zero(mean), _against_zero(variance))
        yes, no = (column.reshape(mean.shape) for column in probs.unbind(1))
        return BernoulliPrediction(yes, entropy.view_as(mean), information.view_as(mean), no)

    def _score(self, target: Tensor, mean: Tensor, lse: Tensor, valid: Tensor | None) -> Tensor:
        if target.shape != mean.shape:
            raise ValueError(
                f"Bernoulli got a target of shape {tuple(target.shape)} for outputs of shape "
                f"{tuple(mean.shape)}; it wants a 0 or 1 for each output, (n, c, h, w)."
            )
        check_valid(valid, (len(mean), *mean.shape[2:]))
        known = (target == 0) | (target == 1)
        mask = known if valid is None else known & valid[:, None]
        yes = (target == 1).to(mean.dtype)
        if self.pos_weight is not None:
            weight = self.pos_weight.to(mean).reshape(1, -1, 1, 1)
            value = weight * yes * (mean - lse) - (1 - yes) * lse
        else:
            value = yes * mean - lse
        return torch.where(mask, value, torch.zeros_like(value)).sum(1)


def _against_zero(x: Tensor) -> Tensor:
    """(n, c, h, w) → (nc, 2, h, w): each output as one of two classes, the other one fixed at 0."""
    pair = torch.stack([x, torch.zeros_like(x)], 2)
    return pair.flatten(0, 1)
