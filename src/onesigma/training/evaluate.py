"""All metrics of a run over a split."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from onesigma.covariance import MarginalCovariance
from onesigma.data.base import PixelDataset
from onesigma.field import GaussianField
from onesigma.metrics import (
    REGRESSION_SCORES,
    SEGMENTATION_SCORES,
    AnomalySuite,
    EpistemicSuite,
    RegressionSuite,
    SegmentationSuite,
)
from onesigma.training.components import build_dataset
from onesigma.training.errors import RecipeError, RunFolderError
from onesigma.training.files import write_atomically
from onesigma.training.folder import RunFolder
from onesigma.training.loading import evaluation_loader, valid_pixels
from onesigma.training.method import FunctionalVI
from onesigma.training.views import evaluation_view

if TYPE_CHECKING:
    from onesigma.training.run import Run


def evaluate_run(
    run: Run, split: str | None = None, seen: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Metrics over a split at the size of its targets, as they stand in `metrics.json`.

    Args:
        run: loaded.
        split: default the recipe's `data.evaluate`.
        seen: told how many images of how many are done.
    """
    config, split = run.recipe.data, split or run.recipe.data.evaluate
    dataset = build_dataset(config, split, None)
    _check_same_target(run, dataset)
    parts = _Parts(run)
    for done, batch in enumerate(evaluation_loader(dataset, config.workers), start=1):
        parts.update(batch)
        if seen is not None:
            seen(done, len(dataset))
    return {"run": str(run.path), "split": split, "data_root": config.root, **parts.compute()}


def on_data(run: Run, root: str | None, options: Mapping[str, Any]) -> Run:
    """The run with other data; generated scenes know the truth and tell it.

    Args:
        run: loaded.
        root: another folder of data in the same format.
        options: further arguments of the data set.
    """
    config = run.recipe.data
    known = {"truth": True} if config.name == "scenes" else {}
    elsewhere = replace(
        config,
        root=config.root if root is None else root,
        options={**config.options, **known, **options},
    )
    recipe = replace(run.recipe, data=elsewhere)
    return type(run)(run.folder, recipe, run.method, run.temperature)


class _Parts:
    """The suites that fit a run and what is known of the data."""

    def __init__(self, run: Run) -> None:
        self.run, labels = run, run.spec.task == "segmentation"
        self.suite = SegmentationSuite(run.spec.classes) if labels else RegressionSuite()
        self.anomaly = AnomalySuite(SEGMENTATION_SCORES if labels else REGRESSION_SCORES)
        self.deeper = _EpistemicPass(run) if isinstance(run.method, FunctionalVI) else None

    @torch.no_grad()
    def update(self, batch: Mapping[str, Any]) -> None:
        device, names = self.run.device, batch["name"]
        target = batch["target"].to(device)
        valid = valid_pixels(target, len(self.run.spec.classes) or 1)
        prediction = self.run.predict(batch["image"])
        if isinstance(self.suite, SegmentationSuite):
            self.suite.update(prediction, target, valid, names)
        else:
            noise = batch["noise"].to(device) if "noise" in batch else None
            self.suite.update(prediction, target, valid, names, noise)
        if "ood" in batch:
            self.anomaly.update(prediction, batch["ood"].to(device), names=names)
        if self.deeper is not None:
            self.deeper.update(batch["image"], target)

    def compute(self) -> dict[str, Any]:
        found = self.suite.compute()
        if self.deeper is not None:
            found["epistemic"] = self.deeper.compute()
        if any(record["anomalous"] for record in self.anomaly.records):
            found["anomaly"] = self.anomaly.compute()
        return found


# the questions of `_EpistemicPass` need three more predictive laws: a grid of pixels answers them
_GRID = 4


class _EpistemicPass:
    """Whether the mean of q carries the decision, in the model's space, on a grid of pixels."""

    def __init__(self, run: Run) -> None:
        assert isinstance(run.method, FunctionalVI)
        self.run, self.method = run, run.method
        self.view = evaluation_view(run.recipe)
        self.suite = EpistemicSuite(self.method.likelihood, run.recipe.prior.mean)

    def update(self, images: torch.Tensor, target: torch.Tensor) -> None:
        images = images.to(self.run.device)
        q, log_scale = self.view(self.method.posterior.marginals, images)
        # the suite counts on the CPU
        sparse = (..., slice(None, None, _GRID), slice(None, None, _GRID))
        mean, variance = q.mean.cpu()[sparse], q.variance.cpu()[sparse]
        q = GaussianField(mean, MarginalCovariance(variance))
        target, log_scale = target.cpu()[sparse], log_scale.cpu()[sparse]
        if self.run.transform is not None:
            target = self.run.transform.to_model(target)
        valid = valid_pixels(target, q.mean.shape[1])
        self.suite.update(q, log_scale, target, valid)

    def compute(self) -> dict[str, Any]:
        return self.suite.compute()


def save_metrics(path: Path, metrics: Mapping[str, Any]) -> None:
    """Write metrics as JSON, whole or not at all.

    Args:
        path: of the file, such as `run.folder.metrics`.
        metrics: of `evaluate_run`.
    """
    write_atomically(path, json.dumps(metrics, indent=1))


def read_metrics(folder: RunFolder) -> dict[str, Any]:
    """What `evaluate` wrote."""
    if not folder.exists and not folder.metrics.is_file():
        folder.read_recipe()
    if not folder.metrics.is_file():
        raise RunFolderError(
            f"{folder.path} has no metrics.json; run `onesigma evaluate {folder.path}` first."
        )
    try:
        metrics: dict[str, Any] = json.loads(folder.metrics.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{folder.metrics} cannot be read: {error}") from error
    return metrics


def _check_same_target(run: Run, dataset: PixelDataset) -> None:
    if dataset.task != run.spec.task or dataset.classes != run.spec.classes:
        raise RecipeError(
            f"The run predicts {run.spec.task} ({len(run.spec.classes)} classes), the data are for "
            f"{dataset.task} ({len(dataset.classes)} classes)."
        )
