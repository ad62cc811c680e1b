"""Temperature scaling (Guo et al., 2017), for labels and for values."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from onesigma.baselines.base import Prediction, Predictor
from onesigma.likelihoods.base import mask_labels, mask_regression
from onesigma.prediction import CategoricalPrediction, RegressionMixture, RegressionPrediction
from onesigma.prediction.categorical import CategoricalLaw
from onesigma.prediction.regression import LocationScalePrediction

Batch = tuple[Tensor, Tensor, Tensor | None]


class TemperatureScaled(nn.Module):
    """A model whose certainty is corrected by one number T, fitted on held-out data.

    Labels: softmax(logits / T), that is p^(1/T) renormalised. Values: the law stretched about its
    mean by T, so that σ becomes T σ.

    Args:
        model: anything with `predict(images)`; it is not changed.
    """

    temperature: Tensor

    def __init__(self, model: Predictor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("temperature", torch.ones(()))

    @torch.no_grad()
    def fit(self, batches: Iterable[Batch], low: float = 0.1, high: float = 10.0) -> float:
        """Minimise the mean negative log-likelihood over T, in one pass over the batches.

        Args:
            batches: held-out (images, target, valid or None).
            low: smallest T considered.
            high: largest T considered.

        Returns:
            T, which is kept for prediction.
        """
        grid = torch.logspace(math.log10(low), math.log10(high), 65, dtype=torch.float64)
        total = torch.zeros_like(grid)
        for images, target, valid in batches:
            prediction = self.model.predict(images)
            losses = [_loss(t, prediction, target, valid) for t in grid.tolist()]
            total += torch.tensor(losses, dtype=torch.float64)
        self.temperature.fill_(_lowest(grid.log(), total).exp())
        return float(self.temperature)

    def predict(self, images: Float[Tensor, "n k h w"]) -> Prediction:
        """The model's law at temperature T; of labels all uncertainty counts as aleatoric."""
        return _at(float(self.temperature), self.model.predict(images))


def _at(temperature: float, prediction: Prediction) -> CategoricalPrediction | RegressionPrediction:
    if isinstance(prediction, RegressionPrediction):
        return _stretched(prediction, prediction.mean, temperature)
    if isinstance(prediction, CategoricalLaw):
        return CategoricalPrediction.from_logits(_logits(prediction) / temperature)
    raise _refusal(prediction)


def _stretched(
    prediction: RegressionPrediction, centre: Tensor, factor: float
) -> RegressionPrediction:
    """The law of centre + T (y - centre)."""
    if isinstance(prediction, RegressionMixture):
        members = [_stretched(member, centre, factor) for member in prediction.members]
        return RegressionMixture(members, prediction.weights)
    if not isinstance(prediction, LocationScalePrediction):
        raise _refusal(prediction)
    return LocationScalePrediction(
        centre + factor * (prediction.location - centre),
        factor**2 * prediction.spread,
        factor * prediction.scale,
        prediction.noise,
    )


def _refusal(prediction: Prediction) -> TypeError:
    return TypeError(
        f"TemperatureScaled got a {type(prediction).__name__}; it wants one of many labels, or "
        "values in the space the model works in. For a logarithm, scale first, then call in_unit."
    )


def _loss(
    temperature: float, prediction: Prediction, target: Tensor, valid: Tensor | None
) -> float:
    """-Σ log p_T(y) over valid pixels."""
    if isinstance(prediction, CategoricalLaw):
        # from logits, because probabilities of 0 in float32 would end the search
        logits = _logits(prediction) / temperature
        target, valid = mask_labels(target, logits.shape[1], valid, logits.shape)
        each = functional.cross_entropy(logits, target, reduction="none")
    else:
        target, valid = mask_regression(target, valid)
        each = -_at(temperature, prediction).log_prob(target).sum(1)
    return each[valid].double().sum().item()


def _logits(prediction: CategoricalLaw) -> Float[Tensor, "n c h w"]:
    return prediction.probs.clamp(min=torch.finfo(prediction.probs.dtype).tiny).log()


def _lowest(x: Float[Tensor, "t"], y: Float[Tensor, "t"]) -> Float[Tensor, ""]:
    """The bottom of the parabola through the lowest of equally spaced points and its neighbours."""
    i = int(y.argmin())
    if i in (0, len(x) - 1):
        raise ValueError(
            f"The best temperature is at or beyond {x[i].exp():.3g}, the end of the range; "
            "check that the held-out batches have valid targets, or widen `low` and `high`."
        )
    before, here, after = y[i - 1 : i + 2]
    return x[i] + (x[1] - x[0]) * (before - after) / (2 * (before - 2 * here + after))
