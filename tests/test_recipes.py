"""Every recipe: two steps, evaluation and prediction, on tiny files in the real format."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent / "training"))
from tiny_files import write_camvid, write_folder, write_make3d, write_nyuv2

from onesigma import Boltzmann, MixedContext, data_weight
from onesigma.cli import main
from onesigma.training import load_recipe, recipe_names
from onesigma.training.components import build_context, build_likelihood, build_network
from onesigma.training.config import Recipe
from onesigma.training.recipes import write_yaml

WRITERS = {
    "camvid": write_camvid,
    "nyuv2": write_nyuv2,
    "make3d": write_make3d,
    "folder": write_folder,
}


def small_arguments() -> list[str]:
    return [
        *("--network.name", "unet", "--network.options", "{widths: [4, 8], dropout: 0.2}"),
        *("--posterior.rank", "2", "--method.passes", "2", "--stages.epochs", "1"),
        *("--data.workers", "0", "--trainer.threads", "1", "--trainer.accelerator", "cpu"),
        "--quiet",
    ]


def data_arguments(name: str, root: Path) -> tuple[list[str], int]:
    """Where the data are, and how many images a test split has."""
    if name.startswith("scenes"):
        sizes = "{train: {length: 8}, val: {length: 2}, test: {length: 3}}"
        return ["--data.options.size", "[32, 40]", "--data.splits", sizes], 3
    kind, images = name.split("-")[0], 4
    sized = ["--data.eval_size", "[32, 40]"] if name.endswith("small") or kind == "make3d" else []
    if kind == "folder":
        classes = ["--data.options.classes", "[a, b, c]"] if "segmentation" in name else []
        sized, images = [*sized, *classes, "--data.eval_size", "[32, 40]"], 2
    if kind == "camvid" and not name.endswith("small"):
        sized = ["--stages.0.crop", "[24, 24]", "--stages.0.batch", "2"]
    else:
        sized += ["--stages.size", "[32, 40]", "--stages.batch", "2"]
    if name in ("camvid-small", "folder-segmentation"):
        sized += ["--stages.crop", "[32, 40]"]
    return ["--data.root", str(WRITERS[kind](root)), *sized], images


@pytest.mark.filterwarnings("ignore:.*lists 4 pairs")
@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_trains_evaluates_and_predicts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, images = data_arguments(name, tmp_path / "data")
    run, maps = str(tmp_path / "run"), tmp_path / "maps"
    assert main(["train", name, "--out", run, *small_arguments(), *data]) == 0, capsys.readouterr()
    assert main(["evaluate", run]) == 0, capsys.readouterr()
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["images"] == images
    assert len(metrics["per_image"]) == images
    assert all(np.isfinite(record["nll"]) for record in metrics["per_image"])
    picture = tmp_path / "picture.png"
    Image.fromarray(np.zeros((36, 44, 3), np.uint8)).save(picture)
    assert main(["predict", run, str(picture), "--out", str(maps)]) == 0, capsys.readouterr()
    arrays = np.load(maps / "picture.npz")
    assert {"prediction", "total", "epistemic", "aleatoric"} <= set(arrays)
    assert all(arrays[key].shape == (36, 44) for key in ("prediction", "total", "epistemic"))
    pictures = {path.name for path in maps.glob("*.png")}
    assert pictures == {
        f"picture_{kind}.png" for kind in ("prediction", "total", "epistemic", "aleatoric")
    }


@pytest.mark.filterwarnings("ignore:.*lists 4 pairs")
def test_a_class_left_out_of_training_is_scored_as_an_anomaly(tmp_path: Path) -> None:
    data, _ = data_arguments("camvid-small", tmp_path / "data")
    run = str(tmp_path / "run")
    without = ["--data.options.exclude_classes", "[car]"]
    assert main(["train", "camvid-small", "--out", run, *small_arguments(), *data, *without]) == 0
    assert main(["evaluate", run, "--split", "val"]) == 0
    anomaly = json.loads((tmp_path / "run" / "metrics.json").read_text())["anomaly"]
    labels = [np.asarray(Image.open(p)) for p in (tmp_path / "data" / "valannot").iterdir()]
    assert all(record["anomalous"] for record in anomaly["per_image"])
    # cars count, void does not
    assert anomaly["pixels"] == sum((label < 11).sum() for label in labels)


def test_the_papers_recipe_says_what_the_paper_says() -> None:
    recipe = load_recipe("camvid")
    crops, full = recipe.stages
    assert (crops.epochs, crops.batch, crops.crop) == (1000, 4, (224, 224))
    assert (full.epochs, full.batch, full.crop, full.size) == (1, 1, None, None)
    assert crops.optimiser.name == full.optimiser.name == "sgd"
    assert (crops.optimiser.lr, crops.optimiser.momentum) == (1e-3, 0.9)
    assert (crops.optimiser.weight_decay, crops.optimiser.gamma) == (1e-4, 0.998)
    assert full.optimiser.lr == pytest.approx(1e-3 * 0.998**1000, rel=1e-2)
    assert (recipe.prior.kernel, recipe.prior.mean, recipe.prior.noise) == ("paper", 1.0, 0.1)
    assert (recipe.posterior.rank, recipe.posterior.shared_factors) == (20, False)
    assert (recipe.posterior.variance, recipe.likelihood.options) == (None, {"scale": "class"})
    assert crops.kl_weight == 1.0
    assert recipe.context.options["variance"] == 0.1
    weights = sum(p.numel() for p in build_network(recipe.network).parameters())
    assert 9.2e6 < weights < 9.5e6
    dropout = load_recipe("camvid-mc-dropout")
    assert (dropout.method.passes, dropout.network.options) == (50, {"dropout": 0.2})
    assert dropout.stages == recipe.stages


@pytest.mark.parametrize(
    ("own", "measured", "images"),
    [("folder-segmentation", "camvid-small", 266), ("folder-depth", "nyuv2-small", 172)],
)
def test_a_folder_of_your_own_gets_what_was_measured(own: str, measured: str, images: int) -> None:
    mine, ours = load_recipe(own), load_recipe(measured)
    for part in ("network", "likelihood", "prior", "context", "transform"):
        assert getattr(mine, part) == getattr(ours, part), part
    assert replace(mine.posterior, layer_distances=ours.posterior.layer_distances) == ours.posterior
    # where void pixels may be anything, things pasted in speak instead, and contexts louder
    weights_of = ("context_weight", "unlabelled_weight", "stranger_weight")
    same = {name: getattr(ours.method, name) for name in weights_of}
    assert replace(mine.method, **same) == ours.method
    if own == "folder-segmentation":
        assert tuple(getattr(mine.method, name) for name in weights_of) == (10.0, 0.0, 100.0)
        assert tuple(same.values()) == (3.0, 30.0, 0.0)
    assert mine.stages[0].average == ours.stages[0].average
    # with as many images the divergence weighs as much, to a fifth
    weights = [
        data_weight(s.batch, images, s.correlated_pixels) if s.kl_weight == "data" else s.kl_weight
        for s in (mine.stages[0], ours.stages[0])
    ]
    assert weights[0] == pytest.approx(weights[1], rel=0.2)


def test_a_recipe_that_says_nothing_is_not_the_papers() -> None:
    bare, small = Recipe(), load_recipe("camvid-small")
    likelihood, context = build_likelihood(bare.likelihood), build_context(bare.context)
    assert isinstance(likelihood, Boltzmann)
    # neither has a scale of pixels, which would carry the label past f
    assert (likelihood.scale, small.posterior.scale) == ("none", "image")
    assert (bare.prior.kernel, bare.prior.noise) == (small.prior.kernel, small.prior.noise)
    # either factor may carry the variance
    assert bare.prior.scale == small.prior.scale * small.prior.options["variance"]
    assert bare.posterior.variance == small.posterior.variance
    assert isinstance(context, MixedContext)
    assert len(context.generators) == 5


def test_a_recipe_file_can_build_on_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "base: scenes-depth\nlikelihood: {name: gaussian}\nposterior: {rank: 3}\nseed: 7\n"
    )
    recipe = load_recipe(tmp_path / "mine.yaml", {"stages.epochs": 1})
    assert recipe.likelihood.name == "gaussian"
    assert (recipe.posterior.rank, recipe.seed, recipe.stages[0].epochs) == (3, 7, 1)
    assert recipe.data.options["task"] == "depth"


@pytest.mark.parametrize("name", recipe_names())
def test_the_resolved_recipe_of_a_run_is_a_recipe(name: str, tmp_path: Path) -> None:
    resolved = tmp_path / "config.yaml"
    resolved.write_text(write_yaml(load_recipe(name)))
    assert load_recipe(resolved) == load_recipe(name)
