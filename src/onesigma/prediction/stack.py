"""Members of a mixture side by side: laws of one family are evaluated together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from onesigma.prediction.noise import Noise
from onesigma.prediction.regression import LocationScalePrediction, RegressionPrediction

_TOGETHER = 2**16  # values at once: they and their temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class Stack:
    """Laws with a leading axis of members.

    Attributes:
        location: E f.
        scale: σ.
        ratio: τ = s/σ.
        noise: the law of e.
    """

    location: Tensor
    scale: Tensor
    ratio: Tensor
    noise: Noise

    def log_prob(self, y: Tensor) -> Tensor:
        """The log-densities."""
        return self.noise.log_pdf((y - self.location) / self.scale, self.ratio) - self.scale.log()

    def log_tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(log P(Y ≤ y), log P(Y > y))."""
        return self.noise.log_tails((y - self.location) / self.scale, self.ratio)

    def tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(P(Y ≤ y), P(Y > y)), cheaper than their logarithms."""
        return self.noise.tails((y - self.location) / self.scale, self.ratio)

    def quantile(self, level: Tensor) -> Tensor:
        """The quantiles."""
        x = self.noise.quantile(level.expand_as(self.location), self.ratio.to(level.dtype))
        return self.location + self.scale * x.to(self.location.dtype)


@dataclass(frozen=True, eq=False)
class Single:
    """Any law as a stack of one.

    Attributes:
        law: of the pixels.
    """

    law: RegressionPrediction

    def log_prob(self, y: Tensor) -> Tensor:
        """The log-density."""
        return self.law.log_prob(y)[None]

    def log_tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(log P(Y ≤ y), log P(Y > y))."""
        lower, upper = self.law.log_tails(y)
        return lower[None], upper[None]

    def tails(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(P(Y ≤ y), P(Y > y))."""
        lower, upper = self.log_tails(y)
        return lower.exp(), upper.exp()

    def quantile(self, level: Tensor) -> Tensor:
        """The quantile."""
        return self.law.quantile(level)[None]


def stacks(members: Sequence[RegressionPrediction]) -> list[Stack | Single]:
    """The members in their order, neighbours of one family together."""
    return [stack for _, run in groupby(members, _family) for stack in _stacked(list(run))]


def _family(member: RegressionPrediction) -> object:
    """Equal for laws that differ in location, spread and scale only."""
    if isinstance(member, LocationScalePrediction) and not vars(member.noise):
        return type(member.noise)
    return id(member)


def _stacked(run: list[RegressionPrediction]) -> Iterator[Stack | Single]:
    laws = [member for member in run if isinstance(member, LocationScalePrediction)]
    if len(laws) < 2:
        yield from map(Single, run)
        return
    most = max(1, _TOGETHER // laws[0].location.numel())
    for start in range(0, len(laws), most):
        some = laws[start : start + most]
        location, scale, ratio = (
            torch.stack([getattr(law, name) for law in some])
            for name in ("location", "scale", "ratio")
        )
        spread = any(bool(law.spread.any()) for law in some)
        noise = some[0].noise if spread else some[0].noise.alone()
        yield Stack(location, scale, ratio, noise)
