"""The space in which a run sees depth is fitted to its training targets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny_recipe

from onesigma.training import Recipe, load, train
from onesigma.training.components import build_dataset
from onesigma.training.config import StageConfig
from onesigma.training.module import build_augment
from onesigma.training.resolve import resolve


def depth_recipe(**overrides: Any) -> Recipe:
    options = {"task": "depth", "size": [32, 32]}
    return tiny_recipe("scenes-depth", data__options=options, **overrides)


@pytest.mark.parametrize(
    ("name", "offset"), [("affine", 0.0), ("log", 0.0), ("log", 2.0), ("log", 30.0)]
)
def test_mean_and_deviation_of_the_training_targets(name: str, offset: float) -> None:
    recipe = resolve(depth_recipe(transform__name=name, transform__offset=offset))
    data = build_dataset(recipe.data, "train", None)
    values = torch.cat([data[i]["target"].flatten() for i in range(len(data))]).double()
    values = values[values.isfinite()]
    if name == "log":
        values = torch.tensor([math.log(y + offset) for y in values.tolist()]).double()
    assert recipe.transform.offset == offset
    assert recipe.transform.shift == pytest.approx(float(values.mean()), rel=1e-6)
    assert recipe.transform.scale == pytest.approx(float(values.std(correction=0)), rel=1e-6)


def test_a_run_keeps_the_offset_of_its_logarithm(tmp_path: Path) -> None:
    stages = [{"epochs": 1, "batch": 2}]
    recipe = depth_recipe(transform__name="log", transform__offset=2.0, stages=stages)
    run = train(recipe, tmp_path / "run")
    image = torch.rand(1, 3, 32, 32)
    prediction = load(tmp_path / "run").predict(image)
    torch.testing.assert_close(prediction.median, run.predict(image).median)
    transform = load(tmp_path / "run").recipe.transform
    z = run.method.predict(image).median
    median = torch.exp(transform.shift + transform.scale * z) - 2.0
    torch.testing.assert_close(prediction.median, median)


def test_a_negative_offset_is_refused_before_the_run_begins(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"offset=-1\.0; it wants a number of at least 0"):
        train(depth_recipe(transform__name="log", transform__offset=-1.0), tmp_path / "run")
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_depth_of_parts_is_that_of_the_size_of_prediction() -> None:
    image, depth = torch.rand(1, 3, 32, 48), torch.full((1, 1, 32, 48), 6.0)
    # the whole image, as large as at prediction, is as far as its file says; a part of it is nearer
    for zoom, metres in ((0.5, 6.0), (1.0, 3.0)):
        stage = StageConfig(size=(32, 48), crop=(16, 24), augment={"scale": (zoom, zoom)})
        _, seen = build_augment(stage, (16, 24))(image, depth, torch.Generator())
        assert seen.unique().tolist() == [metres]
    assert build_augment(stage, None).true_zoom == 1
    given = replace(stage, augment={"true_zoom": 0.7})
    assert build_augment(given, (16, 24)).true_zoom == 0.7
