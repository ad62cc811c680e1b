"""The prior's mean: a number, one for each class, or what is usual among the training labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny_recipe

from onesigma.data import VOID, PixelDataset, TargetSpec
from onesigma.data.base import Sample
from onesigma.training import RecipeError, train
from onesigma.training.assemble import build_method
from onesigma.training.components import build_dataset
from onesigma.training.method import FunctionalVI
from onesigma.training.resolve import class_shares, resolve

ONE = [{"epochs": 1, "batch": 3}]


class Flags(PixelDataset):
    """Two halves of one label each: 0 beside 1, then 0 beside void; nothing of class 2."""

    spec = TargetSpec("segmentation", ("a", "b", "c"), ((0, 0, 0),) * 3)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Sample:
        target = torch.zeros(4, 6, dtype=torch.long)
        target[:, 3:] = VOID if index else 1
        return {"image": torch.zeros(3, 4, 6), "target": target, "name": str(index)}


def test_shares_are_those_of_labelled_pixels_and_never_zero() -> None:
    found = class_shares(Flags())
    wanted = (np.array([2 / 3, 1 / 3, 0]) + 0.001) / 1.003
    assert found == pytest.approx(wanted)


def test_a_prior_that_knows_nothing_says_what_is_usual() -> None:
    recipe = tiny_recipe(prior__mean="shares")
    data = build_dataset(recipe.data, "train", None)
    labels = torch.stack([data[i]["target"] for i in range(len(data))])
    usual = torch.tensor([(labels == k).sum() / (labels >= 0).sum() for k in range(11)])
    method = build_method(resolve(recipe))
    assert isinstance(method, FunctionalVI)
    field = method.prior.at(32, 32)(torch.rand(2, 3, 32, 32))
    floored = (usual + 0.001) / (1 + 11 * 0.001)
    assert torch.allclose(field.mean.softmax(1)[0, :, 0, 0], floored, atol=1e-6)
    # training starts there
    assert torch.allclose(method.posterior.get_parameter("mean.bias"), field.mean[0, :, 0, 0])
    # and shares that differ would have been noticed
    assert usual.max() > 5 * usual.median()


def test_a_run_with_shares_goes_on_under_the_same_command(tmp_path: Path) -> None:
    recipe = tiny_recipe(prior__mean="shares", stages=ONE)
    first = train(recipe, tmp_path / "run")
    assert sum(first.recipe.target.shares) == pytest.approx(1)
    again = train(recipe, tmp_path / "run", resume=True)
    assert again.recipe.target.shares == first.recipe.target.shares


def test_one_mean_for_each_class() -> None:
    means = [0.1 * k for k in range(11)]
    method = build_method(resolve(tiny_recipe(prior__mean=means)))
    assert isinstance(method, FunctionalVI)
    assert method.prior.prior.start_mean == pytest.approx(means)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RecipeError, match="no classes; give a number"):
        resolve(tiny_recipe("scenes-depth", prior__mean="shares"))
    with pytest.raises(ValueError, match="11 outputs and 2 means"):
        build_method(resolve(tiny_recipe(prior__mean=[0.0, 1.0])))
    with pytest.raises(RecipeError, match="mean"):
        tiny_recipe(prior__mean="share")
