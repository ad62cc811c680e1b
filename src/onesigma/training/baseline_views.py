"""Baselines split into a network and the law of its outputs, so that every view works for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from onesigma.baselines import Baseline, Deterministic, Heteroscedastic, MCDropout
from onesigma.baselines.base import Prediction, certain
from onesigma.baselines.dropout import dropout_active
from onesigma.baselines.ensemble import mixture
from onesigma.field import GaussianField
from onesigma.training.views import Marginals, View, whole

Law = Callable[[GaussianField, Tensor], Prediction]


def predict_baseline(model: Baseline, images: Tensor, view: View) -> Prediction:
    """The law of a baseline's outputs, its network looking at images in any way.

    Args:
        model: any of `onesigma.baselines`.
        images: RGB in [0, 1].
        view: whole, resized or in tiles.
    """
    if view is whole:
        return model.predict(images)
    if isinstance(model, MCDropout):
        return _predict_passes(model, images, view)
    marginals, law = _parts(model)
    return law(*view(marginals, images))


def _predict_passes(model: MCDropout, images: Tensor, view: View) -> Prediction:
    marginals, law = _parts(model.model)
    with torch.random.fork_rng(devices=[]), dropout_active(model.model), torch.no_grad():
        torch.manual_seed(model.seed)
        return mixture(law(*view(marginals, images)) for _ in range(model.passes))


def _parts(model: Baseline) -> tuple[Marginals, Law]:
    if isinstance(model, Deterministic):
        return _plain_parts(model)
    if isinstance(model, Heteroscedastic):
        likelihood = model.likelihood

        def values(images: Tensor) -> tuple[GaussianField, Tensor]:
            mean, log_scale = model(images)
            return certain(mean), log_scale

        return values, likelihood.predict
    raise TypeError(f"{type(model).__name__} can only predict whole images.")


def _plain_parts(model: Deterministic) -> tuple[Marginals, Law]:
    def outputs(images: Tensor) -> tuple[GaussianField, Tensor]:
        out = model(images)
        return certain(out), out.new_zeros(len(out), 1, *out.shape[2:])

    return outputs, lambda field, _: model.pixel_loss.predict(field.mean)
