"""Deep ensembles (Lakshminarayanan et al., 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from onesigma.baselines.base import Prediction, Predictor
from onesigma.prediction import RegressionMixture, RegressionPrediction
from onesigma.prediction.categorical import (
    BernoulliLaw,
    BernoulliMixture,
    CategoricalLaw,
    CategoricalMixture,
)


class DeepEnsemble(nn.Module):
    """Models trained from different seeds, predicting as one: p(y | x) = 1/M Σ_m p_m(y | x).

    Members are trained each on its own. What they are does not matter (deterministic and
    functional-variational runs mix) as long as they predict the same thing in the same unit.

    Args:
        models: anything with `predict(images)`: baselines or loaded runs.
    """

    def __init__(self, models: Sequence[Predictor]) -> None:
        super().__init__()
        if len(models) < 2:
            raise ValueError(f"DeepEnsemble got {len(models)} models; it wants 2 or more.")
        self.models = tuple(models)
        for i, model in enumerate(models):
            if isinstance(model, nn.Module):
                self.add_module(f"model{i}", model)

    def predict(self, images: Float[Tensor, "n k h w"]) -> Prediction:
        """The mixture of the members' laws."""
        return mixture(model.predict(images) for model in self.models)


def mixture(members: Iterable[Prediction]) -> Prediction:
    """Equal shares of laws of one kind; of labels, one member at a time is in memory."""
    rest = iter(members)
    first = next(rest)
    if isinstance(first, RegressionPrediction):
        return RegressionMixture(list(_alike(RegressionPrediction, first, rest)))
    if isinstance(first, CategoricalLaw):
        return CategoricalMixture(_alike(CategoricalLaw, first, rest))
    return BernoulliMixture(_alike(BernoulliLaw, first, rest))


def _alike(kind: type, first: Prediction, rest: Iterator[Prediction]) -> Iterator[Any]:
    for member in chain([first], rest):
        if not isinstance(member, kind):
            raise TypeError(
                f"A mixture got a {type(first).__name__} and a {type(member).__name__}; it wants "
                "values from all members or labels from all."
            )
        yield member
