"""Is the epistemic uncertainty real? All answers over a set, batch by batch."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.metrics.counting import CountMetric
from onesigma.metrics.epistemic import (
    DecisionShares,
    KLPerPixel,
    shuffled_variance,
    with_mean,
)
from onesigma.metrics.proper import NLL
from onesigma.metrics.suite import as_json


class EpistemicSuite:
    """Decision shares, KL per pixel, and NLL without q's mean or with others' variances.

    Args:
        likelihood: turns q into a predictive law; targets are in the model's space.
        prior_mean: what replaces q's mean.
        generator: source of randomness of the shuffles, default one seeded with 0.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        prior_mean: int | float,
        generator: torch.Generator | None = None,
    ) -> None:
        self.likelihood, self.prior_mean = likelihood, prior_mean
        self.generator = generator or torch.Generator().manual_seed(0)
        self.decision, self.kl = DecisionShares(), KLPerPixel()
        self.nll = {name: NLL() for name in ("as_is", "without_mean", "paired", "shuffled")}

    @torch.no_grad()
    def update(
        self,
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None,
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
        kl: Float[Tensor, "c h w"] | None = None,
    ) -> None:
        """Add a batch; variances are shuffled within it, so a batch of one is left out of that.

        Args:
            q: the field of the batch.
            log_scale: log σ.
            target: labels "n h w" or values "n c h w" in the model's space.
            valid: pixels to count.
            kl: `kl_divergence` of the batch's field and its prior, if known.
        """
        fields = {"as_is": q.marginals(), "without_mean": with_mean(q, self.prior_mean)}
        if len(q) > 1:
            fields["shuffled"] = shuffled_variance(q, self.generator)
        laws = {name: self.likelihood.predict(f, log_scale) for name, f in fields.items()}
        if "shuffled" in laws:
            laws["paired"] = laws["as_is"]
        for name, law in laws.items():
            self.nll[name].update(law, target, valid)
        if log_scale is not None and not target.is_floating_point():
            self.decision.update(q.mean, log_scale, target, valid)
        if kl is not None:
            self.kl.update(kl, len(q))

    def compute(self) -> dict[str, Any]:
        """Nested dicts for JSON; None for what was not measured."""
        nll = {name: self._value(metric) for name, metric in self.nll.items()}
        return as_json(
            {
                "decision": self._value(self.decision),
                "kl_per_pixel": self._value(self.kl),
                "nll": nll["as_is"],
                "nll_without_mean": nll["without_mean"],
                "nll_lost_without_mean": nll["without_mean"] - nll["as_is"],
                "nll_lost_by_shuffling": nll["shuffled"] - nll["paired"],
            }
        )

    def _value(self, metric: CountMetric) -> Any:
        with metric.sync_context():
            return metric.scores(metric.totals())
