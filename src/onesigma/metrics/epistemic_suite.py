"""Is the epistemic uncertainty real? All answers over a set, image by image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import interpolate

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.metrics.bootstrap import Rule
from onesigma.metrics.counting import Counts
from onesigma.metrics.epistemic import (
    DecisionShares,
    KLPerPixel,
    shuffled_variance,
    with_mean,
    with_variance,
)
from onesigma.metrics.proper import NLL, label_log_prob, output_log_prob
from onesigma.metrics.suite import Suite

_KEPT = 16
_NLLS = ("as_is", "without_mean", "paired", "shuffled")
_RULES: dict[str, Rule] = dict.fromkeys(
    ("nll", "nll_without_mean", "nll_lost_without_mean", "nll_lost_by_shuffling"), "pixels"
)


class EpistemicSuite(Suite):
    """Decision shares, KL per pixel, and NLL without q's mean or with others' variances.

    Args:
        likelihood: turns q into a predictive law; targets are in the model's space.
        prior_mean: what replaces q's mean.
        generator: source of randomness of the shuffles, default one seeded with 0.
    """

    task = "epistemic"

    def __init__(
        self,
        likelihood: Likelihood,
        prior_mean: int | float | Float[Tensor, "#n #c #h #w"],
        generator: torch.Generator | None = None,
    ) -> None:
        self.likelihood, self.prior_mean = likelihood, prior_mean
        self.generator = generator or torch.Generator().manual_seed(0)
        self.decision, self.kl = DecisionShares(), KLPerPixel()
        self.nll = {name: NLL() for name in _NLLS}
        super().__init__({"decision": self.decision, "kl": self.kl, **self.nll}, _RULES)
        self._earlier: list[Tensor] = []
        self._seen = 0

    @torch.no_grad()
    def update(
        self,
        q: GaussianField,
        log_scale: Float[Tensor, "n #c h w"] | None,
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
        kl: Float[Tensor, "n d y x"] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add images; variances are shuffled within a batch, or with those of earlier images.

        Args:
            q: the field of the images.
            log_scale: log σ.
            target: labels "n h w" or values "n c h w" in the model's space.
            valid: pixels to count.
            kl: divergence of every image on its own, as of `image_divergence`, if known; it may
                have more pixels than the rest.
            names: names of the images, default running numbers.
        """
        self.to(target.device)
        fields = {"as_is": q.marginals(), "without_mean": with_mean(q, self.prior_mean)}
        other = self._with_others_variance(q)
        if other is not None:
            fields["shuffled"] = other
        laws = self._laws(fields, log_scale)
        for i, name in enumerate(self._names(names, len(q))):
            one = slice(i, i + 1)
            mask = None if valid is None else valid[one]
            values = self._nlls({key: law[one] for key, law in laws.items()}, target[one], mask)
            scale = None if log_scale is None else log_scale[one]
            counts = {
                "decision": self._decisions(q.mean[one], scale, target[one], mask),
                "kl": self._divergence(None if kl is None else kl[i]),
            }
            self._record(name, {**values, **self._drawn_values(counts)}, counts)

    def reset(self) -> None:
        """Forget everything seen."""
        super().reset()
        self._earlier.clear()
        self._seen = 0

    def _laws(
        self, fields: Mapping[str, GaussianField], log_scale: Tensor | None
    ) -> dict[str, Any]:
        """The predictive laws of all fields, in one call: a likelihood's time is mostly fixed."""
        mean, variance = (
            torch.cat([getattr(f, name) for f in fields.values()]) for name in ("mean", "variance")
        )
        scales = None if log_scale is None else torch.cat([log_scale] * len(fields))
        law = self.likelihood.predict(GaussianField(mean, MarginalCovariance(variance)), scales)
        n = len(mean) // len(fields)
        return {name: law[i * n : (i + 1) * n] for i, name in enumerate(fields)}

    def _nlls(
        self, laws: Mapping[str, Any], target: Tensor, valid: Tensor | None
    ) -> dict[str, Any]:
        """The image's NLLs and what they lose, added to those of the set."""
        log_prob = output_log_prob if target.is_floating_point() else label_log_prob
        counts = {
            name: self.nll[name].count(-log_prob(x, target, valid)) for name, x in laws.items()
        }
        if "shuffled" in counts:
            counts["paired"] = counts["as_is"]
        for name, count in counts.items():
            self.nll[name].add(count)
        nll = {name: self.nll[name].scores(count).item() for name, count in counts.items()}
        pixels = int(counts["as_is"]["pixels"])
        return {"pixels": pixels, **_losses(nll)}

    def _decisions(
        self, mean: Tensor, log_scale: Tensor | None, target: Tensor, valid: Tensor | None
    ) -> Tensor:
        """Right and same of each decision, and the pixels; zeros where nothing is decided."""
        if log_scale is None or target.is_floating_point():
            return torch.zeros(7, dtype=torch.float64)
        counts = self.decision.count(mean, log_scale, target, valid)
        self.decision.add(counts)
        return torch.cat([x.reshape(-1) for x in counts.values()]).cpu()

    def _divergence(self, kl: Tensor | None) -> Tensor:
        """Nats and pixels; zeros where they are not known."""
        if kl is None:
            return torch.zeros(2, dtype=torch.float64)
        counts = self.kl.count(kl, 1)
        self.kl.add(counts)
        return torch.stack([*counts.values()]).cpu()

    def _with_others_variance(self, q: GaussianField) -> GaussianField | None:
        """The images with the variances of others; None for the very first image alone."""
        if len(q) > 1:
            return shuffled_variance(q, self.generator)
        pick = self._draw(len(self._earlier)) if self._earlier else None
        other = None if pick is None else self._earlier[pick]
        self._keep(q.variance)
        if other is None:
            return None
        size = (int(q.mean.shape[2]), int(q.mean.shape[3]))
        return with_variance(q, interpolate(other, size, mode="bilinear", align_corners=False))

    def _keep(self, variance: Tensor) -> None:
        """A reservoir: after k images each of them is kept with the same probability."""
        self._seen += 1
        if len(self._earlier) < _KEPT:
            self._earlier.append(variance)
        elif (place := self._draw(self._seen)) < _KEPT:
            self._earlier[place] = variance

    def _draw(self, below: int) -> int:
        return int(torch.randint(below, (), generator=self.generator))

    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {
            "decision": self._value("decision"),
            "kl_per_pixel": self._value("kl"),
            **_losses({name: self._value(name) for name in _NLLS}),
        }

    def _drawn_values(self, counts: Counts) -> dict[str, Tensor]:
        right, same, pixels = counts["decision"].split([3, 3, 1], -1)
        found = self.decision.scores({"right": right, "same": same, "pixels": pixels[..., 0]})
        values = {
            f"decision.{key}.{who}": x for key, row in found.items() for who, x in row.items()
        }
        total, area = counts["kl"].unbind(-1)
        return {**values, "kl_per_pixel": self.kl.scores({"total": total, "pixels": area})}


def _losses(nll: Mapping[str, Any]) -> dict[str, Any]:
    """By how much the NLL rises without the mean and with others' variances, if that is known."""
    lost = {
        "nll": nll["as_is"],
        "nll_without_mean": nll["without_mean"],
        "nll_lost_without_mean": nll["without_mean"] - nll["as_is"],
    }
    if "shuffled" in nll:
        lost["nll_lost_by_shuffling"] = nll["shuffled"] - nll["paired"]
    return lost
