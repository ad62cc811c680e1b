"""Fewer training images."""

from __future__ import annotations

import pytest

from onesigma.data import Scenes, Spread
from onesigma.training.components import build_dataset
from onesigma.training.config import DataConfig


def test_the_kept_images_are_spread_over_the_data_set() -> None:
    data = Scenes("segmentation", length=10, size=(24, 32))
    few = Spread(data, 4)
    assert [sample["name"] for sample in few] == [data[i]["name"] for i in (0, 2, 5, 7)]
    assert few.spec == data.spec
    with pytest.raises(ValueError, match="11 images were asked for of a data set that has 10"):
        Spread(data, 11)


def test_a_limit_holds_for_training_alone() -> None:
    sizes = {"task": "segmentation", "length": 6, "size": [24, 32]}
    config = DataConfig(name="scenes", options=sizes, limit=3)
    assert [len(build_dataset(config, split, None)) for split in ("train", "val")] == [3, 6]
