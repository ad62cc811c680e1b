"""Fill in what a recipe leaves to the data and the machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from onesigma.data.base import PixelDataset
from onesigma.training.checks import check_targets
from onesigma.training.components import build_dataset, build_transform
from onesigma.training.config import DataConfig, Recipe, TargetConfig, TransformConfig
from onesigma.training.errors import RecipeError
from onesigma.training.recipes import as_tree

MOST_IMAGES = 200


def resolve(recipe: Recipe) -> Recipe:
    """The recipe with target, transform and threads as this run has them.

    Args:
        recipe: as loaded; the data must be there.
    """
    dataset = build_dataset(recipe.data, "train", recipe.stages[0].size)
    spec = dataset.spec
    check_targets(dataset)
    shares = class_shares(dataset) if recipe.prior.mean == "shares" else []
    target = TargetConfig(spec.task, list(spec.classes), list(spec.palette), spec.unit, shares)
    threads = recipe.trainer.threads or torch.get_num_threads()
    return replace(
        recipe,
        data=with_full_root(recipe.data),
        target=target,
        transform=fit_transform(recipe.transform, dataset),
        trainer=replace(recipe.trainer, threads=threads),
    )


def fit_transform(config: TransformConfig, dataset: PixelDataset) -> TransformConfig:
    """Shift and scale as mean and standard deviation of g(y) over training targets.

    Args:
        config: of the recipe; what it gives is kept.
        dataset: training data; at most 200 images of it are read.
    """
    if config.name is None or (config.shift is not None and config.scale is not None):
        return config
    if dataset.task != "depth":
        raise RecipeError(f"transform.name is {config.name!r}, but labels have no transform.")
    mean, deviation = _moments(_values(config, dataset))
    shift = mean if config.shift is None else config.shift
    scale = deviation if config.scale is None else config.scale
    return replace(config, shift=shift, scale=scale)


def class_shares(dataset: PixelDataset) -> list[float]:
    """Of each class among the labelled pixels, at least about a thousandth.

    Args:
        dataset: training data; at most 200 images of it are read.
    """
    if dataset.task != "segmentation":
        raise RecipeError('prior.mean is "shares", but the target has no classes; give a number.')
    labels = torch.cat([target[target >= 0] for target in _targets(dataset)])
    # a class that none of these images shows is rare, not impossible
    counts = torch.bincount(labels, minlength=dataset.num_outputs) + len(labels) / 1000
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def differences(resolved: Recipe, recipe: Recipe) -> list[str]:
    """Dotted keys in which a recipe differs from a resolved one and that change what is learned."""
    one, two = (_flat(as_tree(recipe)) for recipe in (resolved, recipe))
    free = ("target.", "trainer.", "description", "data.workers", "data.root")
    learned = ("trainer.precision", "trainer.clip")
    keys = [key for key in {**one, **two} if not key.startswith(free) or key in learned]
    left_open = [
        f"transform.{name}" for name in ("shift", "scale") if two[f"transform.{name}"] is None
    ]
    return [key for key in keys if one.get(key) != two.get(key) and key not in left_open]


def with_machine_of(recipe: Recipe, other: Recipe) -> Recipe:
    """A resolved recipe, run in the way that another says: checkpoints, logs, workers, root.

    Args:
        recipe: of a run that was begun before.
        other: of the command that resumes it; threads that it leaves open stay as they were.
    """
    threads = other.trainer.threads or recipe.trainer.threads
    return replace(
        recipe,
        trainer=replace(other.trainer, threads=threads),
        data=with_full_root(
            replace(
                recipe.data,
                workers=other.data.workers,
                root=other.data.root or recipe.data.root,
            )
        ),
    )


def with_full_root(data: DataConfig) -> DataConfig:
    """The data found from any working directory."""
    return data if data.root is None else replace(data, root=str(Path(data.root).resolve()))


def _flat(tree: object, prefix: str = "") -> dict[str, object]:
    if isinstance(tree, dict) and tree:
        parts = [_flat(value, f"{prefix}{key}.") for key, value in tree.items()]
        return {key: value for part in parts for key, value in part.items()}
    if isinstance(tree, list) and tree and isinstance(tree[0], dict):
        return _flat({str(i): entry for i, entry in enumerate(tree)}, prefix)
    return {prefix.rstrip("."): tree}


def _values(config: TransformConfig, dataset: PixelDataset) -> Iterator[Tensor]:
    bare = build_transform(replace(config, shift=0.0, scale=1.0))
    assert bare is not None
    for target in _targets(dataset):
        values = bare.to_model(target.double()[None])
        yield values[values.isfinite()]


def _targets(dataset: PixelDataset) -> Iterator[Tensor]:
    """Of at most 200 images, evenly spread."""
    stride = max(1, math.ceil(len(dataset) / MOST_IMAGES))
    return (dataset[index]["target"] for index in range(0, len(dataset), stride))


def _moments(parts: Iterator[Tensor]) -> tuple[float, float]:
    count, total, squares = 0, 0.0, 0.0
    for values in parts:
        count += values.numel()
        total += float(values.sum())
        squares += float(values.square().sum())
    if count < 2:
        raise RecipeError("The training targets have no valid pixel to fit a transform to.")
    mean = total / count
    return mean, max(math.sqrt(max(squares / count - mean**2, 0.0)), 1e-6)
