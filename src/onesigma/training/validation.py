"""What a run does with its validation split: watch, and fit a temperature."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from onesigma.baselines import TemperatureScaled
from onesigma.modes import evaluating
from onesigma.training.assemble import num_outputs
from onesigma.training.components import build_dataset, build_transform
from onesigma.training.config import Recipe
from onesigma.training.loading import evaluation_loader, valid_pixels
from onesigma.training.method import Method, Viewed, full_mask
from onesigma.training.views import evaluation_view


def fit_temperature(recipe: Recipe, method: Method) -> float:
    """The temperature that fits the validation split best, in the model's space.

    Args:
        recipe: resolved.
        method: trained.
    """
    with evaluating(method):
        return TemperatureScaled(Viewed(method, evaluation_view(recipe))).fit(_batches(recipe))


@torch.no_grad()
def validation_nll(recipe: Recipe, method: Method) -> float:
    """Mean negative log-likelihood of the validation targets, in the model's space.

    Args:
        recipe: resolved.
        method: in training; its mode comes back as it was.
    """
    viewed, total, count = Viewed(method, evaluation_view(recipe)), 0.0, 0
    device = next(method.parameters()).device
    with evaluating(method):
        for images, target, valid in _batches(recipe):
            values = target.to(device).where(full_mask(valid, target).to(device), 0)
            log_prob = viewed.predict(images.to(device)).log_prob(values)
            mask = full_mask(valid, log_prob)
            total -= float(log_prob[mask].double().sum())
            count += int(valid.sum())
    return total / max(count, 1)


def _batches(recipe: Recipe) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    dataset, transform = build_dataset(recipe.data, "val", None), build_transform(recipe.transform)
    for batch in evaluation_loader(dataset, recipe.data.workers):
        target = batch["target"]
        target = target if transform is None else transform.to_model(target)
        yield batch["image"], target, valid_pixels(target, num_outputs(recipe))
