"""Mixtures of predictive laws: samples and ensembles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.field import check_slice
from onesigma.prediction.regression import LogPrediction, Moments, RegressionPrediction, levels
from onesigma.prediction.solvers import (
    CRPS_LEVELS,
    crps_by_quadrature,
    one_by_one,
    solve_quantile,
)
from onesigma.prediction.stack import Single, Stack, stacks
from onesigma.prediction.transforms import Log, Transform

# up to so many members, each one's own quantiles at these levels are knots of the CRPS
_FEW, _RISING = 10, (1e-6, 1e-2, 0.2, 0.8, 1 - 1e-2, 1 - 1e-6)


@dataclass(frozen=True, eq=False)
class RegressionMixture(RegressionPrediction):
    """Samples or ensemble members as what they are: p(y) = Σ_i w_i p_i(y).

    Attributes:
        members: predictions of the same pixels.
        weights: one per member, positive, normalised here; None is equal weights.
    """

    members: Sequence[RegressionPrediction]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("RegressionMixture got no members; it wants at least one prediction.")
        weights = self.weights
        if weights is None:
            return
        if len(weights) != len(self.members) or min(weights) <= 0:
            raise ValueError(
                f"RegressionMixture got weights {list(weights)} for {len(self.members)} members; "
                "it wants one positive weight per member."
            )

    @property
    def _shares(self) -> Sequence[float]:
        weights = self.weights or [1.0] * len(self.members)
        total = sum(weights)
        return [weight / total for weight in weights]

    def _average(self, values: Iterable[Tensor]) -> Tensor:
        return self._total(value[None] for value in values)

    @cached_property
    def _stacks(self) -> list[Stack | Single]:
        return stacks(self.members)

    def _log_average(self, parts: Iterable[Tensor]) -> Tensor:
        # log Σ wᵢ exp(vᵢ), part by part to keep memory small
        total = torch.tensor(-torch.inf)
        for shares, values in self._weighted(parts):
            part = (values + shares.log().view(-1, *[1] * (values.ndim - 1))).logsumexp(0)
            total = torch.logaddexp(total.to(part), part)
        return total

    def _combine(self, parts: Sequence[Moments]) -> Moments:
        mean = self._average([part.mean for part in parts])
        # members without a mean are infinitely far apart: ∞ - ∞ is no number
        apart = [torch.where(mean.isinf(), torch.inf, part.mean - mean) for part in parts]
        between = self._average([gap.square() for gap in apart])
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
        check_slice(self, images)
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
        return self._log_average(stack.log_prob(y) for stack in self._stacks)

    def log_tails(
        self, y: Float[Tensor, "n c h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(log P(Y ≤ y), log P(Y > y))."""
        lower, upper = zip(*(stack.log_tails(y) for stack in self._stacks), strict=True)
        return self._log_average(lower), self._log_average(upper)

    def quantile(self, u: float | Float[Tensor, "..."]) -> Float[Tensor, "n c h w"]:
        """Between the least and the largest quantile of the members, by bracketed Newton steps."""
        level = levels(u, self.members[0].mean)
        each = [stack.quantile(level) for stack in self._stacks]
        lower = reduce(torch.minimum, (part.amin(0) for part in each))
        upper = reduce(torch.maximum, (part.amax(0) for part in each))
        found = solve_quantile(
            lambda y: (*self._rough_log_tails(y), self._rough_log_prob(y)),
            level, self._total(each), lower, upper, steps=80, stop=True,
        )  # fmt: skip
        return found.to(lower.dtype)

    def crps(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """By quadrature over the mixture's CDF, about 1e-4 relative.

        That of a few narrow members is a staircase, so that every step has its own nodes; the steps
        of many are small.
        """
        if len(self.members) > _FEW:
            knots, nodes = [self.quantile(level) for level in CRPS_LEVELS], 8
        else:
            rising = [levels(u, self.members[0].mean) for u in _RISING]
            each = torch.cat([stack.quantile(u) for stack in self._stacks for u in rising])
            knots, nodes = [*each.sort(0).values], 5
        return crps_by_quadrature(one_by_one(self._rough_log_tails), knots, y, nodes)

    def _rough_log_tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """`log_tails` summed before the logarithm: for less than 1e-38 it is -∞."""
        lower, upper = zip(*(stack.tails(y) for stack in self._stacks), strict=True)
        return self._total(lower).log(), self._total(upper).log()

    def _rough_log_prob(self, y: Tensor) -> Tensor:
        return self._total(stack.log_prob(y).exp() for stack in self._stacks).log()

    def _total(self, parts: Iterable[Tensor]) -> Tensor:
        # Σ wᵢ vᵢ
        sums = (torch.tensordot(shares, values, 1) for shares, values in self._weighted(parts))
        return reduce(torch.add, sums)

    def _weighted(self, parts: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Parts of the members, in their order, each with its weights."""
        done = 0
        for values in parts:
            yield values.new_tensor(self._shares[done : done + len(values)]), values
            done += len(values)
