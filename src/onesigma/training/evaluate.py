"""All metrics of a run over a split."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onesigma.baselines.base import Prediction
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
    image_divergence,
)
from onesigma.metrics.epistemic import pixel_grid
from onesigma.training.checks import warn_of_trained
from onesigma.training.components import build_dataset
from onesigma.training.errors import RecipeError, RunFolderError
from onesigma.training.files import write_atomically
from onesigma.training.folder import RunFolder
from onesigma.training.loading import evaluation_loader, valid_pixels
from onesigma.training.method import Batch, FunctionalVI, Method, Terms
from onesigma.training.predictor import Predictor
from onesigma.training.resolve import with_full_root
from onesigma.views import View, whole


def evaluate_run(
    run: Predictor, split: str | None = None, seen: Callable[[int, int], None] | None = None
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
    if _root_of_training(run) == with_full_root(config).root:
        warn_of_trained(run.folder, dataset, split)
    parts = _Parts(run)
    for done, batch in enumerate(evaluation_loader(dataset, config.workers), start=1):
        parts.update(batch)
        if seen is not None:
            seen(done, len(dataset))
    about = {"task": run.spec.task, "split": split, "data_root": config.root}
    return {"run": str(run.path), **about, **parts.compute()}


def on_data(run: Predictor, root: str | None, options: Mapping[str, Any]) -> Predictor:
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

    def __init__(self, run: Predictor) -> None:
        self.run, labels = run, run.spec.task == "segmentation"
        self.suite = SegmentationSuite(run.spec.classes) if labels else RegressionSuite()
        self.anomaly = AnomalySuite(SEGMENTATION_SCORES if labels else REGRESSION_SCORES)
        self.deeper = _EpistemicPass(run) if isinstance(run.method, FunctionalVI) else None

    @torch.no_grad()
    def update(self, batch: Mapping[str, Any]) -> None:
        device, names = self.run.device, batch["name"]
        target = batch["target"].to(device)
        valid = valid_pixels(target, len(self.run.spec.classes) or 1)
        run = self.run if self.deeper is None else self.deeper.run
        prediction = run.predict(batch["image"])
        if isinstance(self.suite, SegmentationSuite):
            self.suite.update(prediction, target, valid, names)
        else:
            noise = batch["noise"].to(device) if "noise" in batch else None
            self.suite.update(prediction, target, valid, names, noise)
        if "ood" in batch:
            # void pixels are neither odd nor known not to be
            odd = batch["ood"].to(device)
            self.anomaly.update(prediction, odd, valid | odd, names)
        if self.deeper is not None:
            self.deeper.update(target, names)

    def compute(self) -> dict[str, Any]:
        found = self.suite.compute()
        if self.deeper is not None:
            found["epistemic"] = self.deeper.suite.compute()
        if any(record["anomalous"] for record in self.anomaly.records):
            found["anomaly"] = self.anomaly.compute()
        return found


# the questions of `_EpistemicPass` need laws and divergences of their own: a grid of about so many
# pixels of an image answers them, at a cost that does not grow with its size
_PIXELS = 256


def _step(maps: Tensor) -> int:
    """Every how many rows and columns are asked: 13 at 240 x 180, all of 20 x 20.

    Odd, so that the pixels do not all stand in the same corner of the cells of a network's strides.
    """
    height, width = maps.shape[-2:]
    return min(1 + 2 * round((math.sqrt(height * width / _PIXELS) - 1) / 2), height, width)


class _Watched(Method):
    """Functional VI that remembers q, log σ and the divergence of the one pass that predicts."""

    def __init__(self, method: FunctionalVI) -> None:
        super().__init__()
        self.method = method
        self.seen: list[tuple[GaussianField, Tensor]] = []
        self.divergence: list[Tensor] = []

    def loss(self, batch: Batch, kl_weight: float, generator: torch.Generator) -> Terms:
        """As of the method."""
        return self.method.loss(batch, kl_weight, generator)

    def predict(self, images: Tensor, view: View = whole) -> Prediction:
        """As of the method."""
        q, log_scale = view(self._marginals, images)
        self.seen.append((q, log_scale))
        return self.method.likelihood.predict(q, log_scale)

    def _marginals(self, images: Tensor) -> tuple[GaussianField, Tensor]:
        q, log_scale = self.method.posterior.marginals(images)
        prior = self.method.prior.at(*images.shape[2:]).to(images.device)
        self.divergence.append(image_divergence(q, prior, images, _step(images)).cpu())
        return q, log_scale


class _EpistemicPass:
    """Whether q is more than its prior and its mean carries the decision, in the model's space.

    The divergence is that of every image on its own, at the size at which the network sees it; all
    on a grid of pixels.
    """

    def __init__(self, run: Predictor) -> None:
        assert isinstance(run.method, FunctionalVI)
        self.watched, prior = _Watched(run.method), run.method.prior.prior
        self.run = type(run)(run.folder, run.recipe, self.watched, run.temperature)
        mean = torch.tensor(prior.start_mean) if prior.mean is None else prior.mean.detach().cpu()
        self.suite = EpistemicSuite(run.method.likelihood, mean.view(1, -1, 1, 1))

    def update(self, target: Tensor, names: Sequence[str]) -> None:
        """Add the images that the run predicted last."""
        (q, log_scale), divergence = self.watched.seen.pop(), self.watched.divergence.pop()
        # the suite counts on the CPU
        sparse = pixel_grid(_step(target))
        mean, variance = q.mean.cpu()[sparse], q.variance.cpu()[sparse]
        q = GaussianField(mean, MarginalCovariance(variance))
        target, log_scale = target.cpu()[sparse], log_scale.cpu()[sparse]
        if self.run.transform is not None:
            target = self.run.transform.to_model(target)
        valid = valid_pixels(target, q.mean.shape[1])
        self.suite.update(q, log_scale, target, valid, divergence, names)


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
            f"{folder.path} has no metrics.json; run `onesigma evaluate "
            f"{shlex.quote(str(folder.path))}` first."
        )
    try:
        metrics: dict[str, Any] = json.loads(folder.metrics.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{folder.metrics} cannot be read: {error}") from error
    return metrics


def prepare_file(path: Path) -> None:
    """Make the folder of a file, and refuse what cannot be written, before work is spent on it.

    Args:
        path: of the file.
    """
    if path.is_dir():
        raise RunFolderError(f"{path} is a folder; --out wants a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"Cannot make the folder {path.parent}: {error.strerror}.") from error
    if not os.access(path.parent, os.W_OK):
        raise RunFolderError(f"Cannot write into {path.parent}; choose another file with --out.")


def other_data(path: Path, metrics: Mapping[str, Any]) -> str:
    """The split and root of metrics in a file if these are not the same ones, or nothing.

    Args:
        path: of the file, there or not.
        metrics: that will take their place.
    """
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        there, here = ((x["split"], x["data_root"]) for x in (before, metrics))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return "" if there == here else there[0] + (f" of {there[1]}" if there[1] else "")


def _root_of_training(run: Predictor) -> str | None:
    """Where the training images lay; `on_data` may have changed the root of the run's recipe."""
    return run.folder.read_recipe().data.root if run.folder.exists else None


def _check_same_target(run: Predictor, dataset: PixelDataset) -> None:
    if dataset.task != run.spec.task or dataset.classes != run.spec.classes:
        raise RecipeError(
            f"The run predicts {run.spec.task} ({len(run.spec.classes)} classes), the data are for "
            f"{dataset.task} ({len(dataset.classes)} classes)."
        )
