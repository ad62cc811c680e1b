"""Mixtures of predictive laws: samples and ensembles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.prediction.regression import LogPrediction, Moments, RegressionPrediction, levels
from onesigma.prediction.solvers import crps_by_quadrature, one_by_one, solve_quantile
from onesigma.prediction.transforms import Log, Transform


@dataclass(frozen=True, eq=False)
class RegressionMixture(RegressionPrediction):
    """Samples or ensemble members as what they are: p(y) = Σ_i w_i p_i(y).

    Attributes:
        members: predictions of the same pixels.
        weights: one per member, summing to 1; None is equal weights.
    """

    members: Sequence[RegressionPrediction]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("RegressionMixture got no members; it wants at least one prediction.")
        weights = self.weights
        if weights is None:
            return
        if len(weights) != len(self.members) or min(weights) <= 0 or abs(sum(weights) - 1) > 1e-6:
            raise ValueError(
                f"RegressionMixture got weights {list(weights)} for {len(self.members)} members; "
                "it wants one positive weight per member, summing to 1."
            )

    @property
    def _shares(self) -> Sequence[float]:
        return self.weights or [1 / len(self.members)] * len(self.members)

    def _average(self, values: Sequence[Tensor]) -> Tensor:
        return sum((w * v for w, v in zip(self._shares, values, strict=True)), torch.zeros(()))

    def _log_average(self, values: Sequence[Tensor]) -> Tensor:
        # log Σ wᵢ exp(vᵢ), one member after the other to keep memory at one image
        total = torch.full_like(values[0], -torch.inf)
        for weight, value in zip(self._shares, values, strict=True):
            total = torch.logaddexp(total, value + math.log(weight))
        return total

    def _combine(self, parts: Sequence[Moments]) -> Moments:
        mean = self._average([part.mean for part in parts])
        between = self._average([(part.mean - mean).square() for part in parts])
        within = self._average([part.epistemic for part in parts])
        return Moments(mean, between + within, self._average([part.aleatoric for part in parts]))

    @property
    def _moments(self) -> Moments:
        return self._combine([Moments(m.mean, m.epistemic, m.aleatoric) for m in self.members])

    @property
    def mean(self) -> Float[Tensor, "n c h w"]:
        """Σ w_i E_i y."""
        return self._average([member.mean for member in self.members])

    @property
    def epistemic(self) -> Float[Tensor, "n c h w"]:
        """Σ w_i (epistemic_i + (mean_i - mean)²)."""
        return self._moments.epistemic

    @property
    def aleatoric(self) -> Float[Tensor, "n c h w"]:
        """Σ w_i aleatoric_i."""
        return self._average([member.aleatoric for member in self.members])

    def __getitem__(self, images: slice) -> RegressionMixture:
        return RegressionMixture([member[images] for member in self.members], self.weights)

    def in_unit(self, transform: Transform) -> RegressionPrediction:
        """Affine: the mixture of the members in the unit. Log: a `LogPrediction` of the mixture."""
        if isinstance(transform, Log):
            return LogPrediction(self, transform)
        return RegressionMixture([m.in_unit(transform) for m in self.members], self.weights)

    def exponential_moments(self, rate: Tensor) -> Moments:
        """Moments of exp(rate · y) over the members."""
        return self._combine([member.exponential_moments(rate) for member in self.members])

    def log_prob(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Log Σ w_i p_i(y)."""
        return self._log_average([member.log_prob(y) for member in self.members])

    def log_tails(
        self, y: Float[Tensor, "n c h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(log P(Y ≤ y), log P(Y > y))."""
        lower, upper = zip(*(member.log_tails(y) for member in self.members), strict=True)
        return self._log_average(lower), self._log_average(upper)

    def quantile(self, u: float | Float[Tensor, "..."]) -> Float[Tensor, "n c h w"]:
        """Between the least and the largest quantile of the members, by bracketed Newton steps."""
        each = [member.quantile(u) for member in self.members]
        lower, upper = each[0], each[0]
        for value in each[1:]:
            lower, upper = torch.minimum(lower, value), torch.maximum(upper, value)
        level = levels(u, lower)
        return solve_quantile(
            lambda y: (*self.log_tails(y), self.log_prob(y)),
            level, self._average(each), lower, upper, steps=10,
        )  # fmt: skip

    def crps(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """By quadrature over the mixture's CDF (about 1e-5 relative)."""
        return crps_by_quadrature(one_by_one(self.log_tails), self.quantile, y)
