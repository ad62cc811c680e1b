"""The command line: what it prints, what it returns, what it suggests."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import time
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.cli import COMMANDS, main
from onesigma.divergence import kl_divergence
from onesigma.kernels import paper_kernel
from onesigma.priors import CNNGPPrior
from onesigma.training import RecipeError, Run, load, load_recipe
from onesigma.training.arguments import parse_overrides
from onesigma.training.components import build_dataset
from onesigma.training.method import FunctionalVI, SizedPrior

TINY = [
    *("--data.options.size", "[32, 32]"),
    *("--data.splits", "{train: {length: 6}, test: {length: 4}}"),
    *("--network.name", "unet", "--network.options.widths", "[4, 8]"),
    *("--posterior.rank", "2", "--stages.epochs", "1", "--stages.batch", "3"),
    *("--trainer.threads", "1", "--trainer.accelerator", "cpu"),
]
TRAIN = ["train", "scenes-depth", "--out", "run"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two evaluated runs that differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    names = [str(folder / f"seed{seed}") for seed in (0, 1)]
    for seed, name in enumerate(names):
        words = ["train", "scenes-segmentation", "--out", name, *TINY, "--quiet"]
        assert main([*words, "--seed", str(seed)]) == 0
        assert main(["evaluate", name]) == 0
    return names


def test_a_network_in_the_current_folder_trains_and_predicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_net_of_mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Sequential):\n    out_channels = 4\n\n"
        "    def __init__(self):\n"
        "        super().__init__(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())\n"
    )
    Image.new("RGB", (32, 24)).save("photo.png")
    own = [*TINY[:4], "--network.class_path", "a_net_of_mine.Net", *TINY[8:]]
    assert main(["train", "scenes-segmentation", "--out", "run", *own, "--quiet"]) == 0
    assert main(["predict", "run", "photo.png", "--out", "maps"]) == 0
    capsys.readouterr()
    assert main(["train", "scenes-segmentation", "--network.class_path", "no_such.Net"]) == 1
    assert "lies in the current folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"Example:\n  onesigma {command}" in capsys.readouterr().out


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    listed = capsys.readouterr().out
    for name in ("scenes-segmentation", "scenes-depth", "camvid-small", "nyuv2-small", "camvid"):
        assert f"\n{name} " in f"\n{listed}"
    assert main(["recipes", "camvid"]) == 0
    assert "fc_densenet103" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trian", "x"], "train"),
        (["train", "scenes-segmentatoin"], "scenes-segmentation"),
        (["train", "scenes-depth", "--stages.epoch", "3"], "stages.epochs"),
        (["train", "scenes-depth", "--stages.0.optimiser.lrr", "3"], "stages.0.optimiser.lr"),
        (["train", "scenes-depth", "--data.rooot", "x"], "data.root"),
        (["train", "scenes-depth", "--seeed", "1"], "seed"),
        (["train", "scenes-depth", "--method.name", "mc_droput"], "mc_dropout"),
        (["train", "scenes-depth", "--seed"], "wants a value"),
        (["train", "scenes-depth", "--seed", "--quiet"], "wants a value"),
        (["train", "scenes-depth", "--seed", "many"], "seed"),
        (["train", "--seed", "-1", "scenes-dpth"], "scenes-depth"),
        ([*TRAIN, "--context.options.generators", "[{nam: x}]"], "wants a list of entries"),
        ([*TRAIN, "--context.options.generators", "noisy_copies"], "wants a list of entries"),
        (["evaluate", "nowhere"], "not a run"),
        (["evaluate", "nowhere", "--data.rot", "x"], "--data.root"),
        (["compare", "one"], "two or more"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(
    words: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(words) != 0
    assert hint in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--network.name", "fc_densnet_small"], "fc_densenet_small"),
        (["--network.options.dropuot", "0.1"], "dropout"),
        (["--likelihood.name", "laplase"], "laplace"),
        (["--stages.augment.flipp", "0.1"], "flip"),
    ],
)
def test_mistakes_in_parts_are_found_before_there_is_a_run(
    words: list[str], hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", "scenes-depth", "--out", str(out), *TINY, *words]) == 1
    assert f"Did you mean '{hint}'?" in capsys.readouterr().err
    assert not out.exists()


def test_overrides_reach_one_stage_or_all() -> None:
    words = ["--stages.epochs", "7", "--stages.1.optimiser.lr=1e-4", "--data.eval_size", "[8, 9]"]
    recipe = load_recipe("camvid", parse_overrides(words))
    assert [stage.epochs for stage in recipe.stages] == [7, 7]
    assert [stage.optimiser.lr for stage in recipe.stages] == [1e-3, 1e-4]
    assert recipe.data.eval_size == (8, 9)
    with pytest.raises(RecipeError, match="the last is 1"):
        load_recipe("camvid", {"stages.2.epochs": 1})


def test_train_says_where_the_run_is_and_refuses_a_second(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "scenes-segmentation", "--out", runs[0], *TINY, "--seed", "0"]
    assert main(words) == 1
    assert "already holds a run" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert "finished already" in printed
    assert runs[0] in printed


def test_evaluate_writes_where_it_says(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fog.json"
    words = ["evaluate", runs[0], "--data.options.odd", "fog", "--out", str(file)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert str(file) in printed
    assert "miou" in printed
    fog, clear = json.loads(file.read_text()), json.loads(Path(runs[0], "metrics.json").read_text())
    assert fog["per_image"][0]["name"] != clear["per_image"][0]["name"]
    assert clear["split"] == "test"
    assert "anomaly" not in clear
    assert main([*words[:3], "objects", *words[4:]]) == 0
    found = json.loads(file.read_text())["anomaly"]["set"]["entropy"]
    assert 0 <= found["pixels"]["auroc"] <= 1


def test_the_epistemic_pass_sees_what_the_metrics_see(
    runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(runs[0]).evaluate("test")
    assert found["epistemic"]["set"]["nll"] == pytest.approx(found["set"]["nll"], rel=1e-5)
    monkeypatch.setattr("onesigma.training.evaluate._PIXELS", 64)
    sparse = load(runs[0]).evaluate("test")
    assert sparse["set"] == found["set"]
    # rows and columns 2, 7, ..., 27
    assert sparse["epistemic"]["pixels"] == 4 * 6 * 6
    for name in ("nll", "kl_per_pixel"):
        values = [x["epistemic"]["set"][name] for x in (sparse, found)]
        assert values[0] == pytest.approx(values[1], rel=0.3)
        assert values[0] != values[1]


@torch.no_grad()
def divergences(run: Run) -> dict[str, float]:
    """Nats per pixel of each image, from the joint field of the image alone."""
    assert isinstance(run.method, FunctionalVI)
    dataset, found = build_dataset(run.recipe.data, "test", None), {}
    for sample in (dataset[i] for i in range(len(dataset))):
        image = sample["image"][None]
        q, _ = run.method.posterior(image)
        kl = kl_divergence(q, run.method.prior.at(*image.shape[2:])(image))
        found[sample["name"]] = kl.sum(0).mean().item()
    return found


def test_the_divergence_is_from_the_prior_at_the_image_and_its_size(runs: list[str]) -> None:
    run = load(runs[0])
    assert isinstance(run.method, FunctionalVI)
    outputs = len(run.spec.classes)
    # the variance of this kernel depends on the image, and it is made for one size
    run.method.prior = SizedPrior(lambda h, w: CNNGPPrior(paper_kernel(h, w), outputs, noise=0.1))
    found = run.evaluate("test")["epistemic"]["per_image"]
    per_image = {record["name"]: record["kl_per_pixel"] for record in found}
    assert per_image == pytest.approx(divergences(run), rel=1e-4)


def test_evaluate_measures_the_divergence_of_every_image(
    runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", runs[0]]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    rows = {line[0]: line[1] for line in lines if len(line) > 1}
    found = json.loads(Path(runs[0], "metrics.json").read_text())["epistemic"]
    run = load(runs[0])
    expected = divergences(run)
    per_image = {record["name"]: record["kl_per_pixel"] for record in found["per_image"]}
    assert per_image == pytest.approx(expected, rel=1e-4)
    assert len({*expected.values()}) == len(per_image)
    mean = sum(expected.values()) / len(expected)
    assert found["set"]["kl_per_pixel"] == pytest.approx(mean, rel=1e-4)
    assert float(rows["epistemic.kl_per_pixel"]) == pytest.approx(mean, rel=1e-3)
    span = found["intervals"]["kl_per_pixel"]
    assert min(expected.values()) <= span["low"] * 1.0001 < span["high"] * 1.0001
    for name in ("nll_lost_without_mean", "nll_lost_by_shuffling", "decision.accuracy.mean"):
        assert math.isfinite(float(rows[f"epistemic.{name}"]))


def test_evaluate_writes_a_page(runs: list[str]) -> None:
    page = Path(runs[0], "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "miou" in page
    assert "Numbers of the test split" in page
    assert ": total" in page
    # two steps, fewer than there are between two rows of the logs
    assert "larger is better" in page


def test_compare_marks_what_differs(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line for line in printed.splitlines() if line}
    metrics = [json.loads(Path(run, "metrics.json").read_text()) for run in runs]
    for entry in metrics:
        assert f"{entry['intervals']['nll']['value']:.4g}" in rows["nll"]
        for name in ("ece", "aurc", "set_calibration"):
            assert f"{entry['set'][name]:.4g}" in rows[name]
        value = entry["epistemic"]["set"]["kl_per_pixel"]
        assert f"{value:.4g}" in rows["epistemic.kl_per_pixel"]
    for name in ("config.yaml", "metrics.json"):
        (tmp_path / name).write_bytes(Path(runs[0], name).read_bytes())
    assert main(["compare", runs[0], str(tmp_path)]) == 0
    same = capsys.readouterr().out
    assert not any(line.endswith("*") for line in same.splitlines())
    old = {key: value for key, value in metrics[1].items() if key != "draws"}
    (tmp_path / "metrics.json").write_text(json.dumps(old))
    assert main(["compare", runs[0], str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "evaluate them again" in printed
    assert not any(line.startswith("ece ") for line in printed.splitlines())
    assert main(["compare", runs[0], runs[0]]) == 2


def test_compare_asks_for_an_evaluation(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text(Path(runs[0], "config.yaml").read_text())
    assert main(["compare", runs[0], str(tmp_path)]) == 1
    assert "onesigma evaluate" in capsys.readouterr().err


def test_predict_skips_what_it_cannot_read(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("a.png", "b.jpg"):
        Image.fromarray(np.full((30, 36, 3), 90, np.uint8)).save(photos / name)
    (photos / "broken.png").write_bytes(b"not an image")
    out = tmp_path / "maps"
    assert main(["predict", runs[0], str(photos), "missing.png", "--out", str(out)]) == 1
    printed = capsys.readouterr()
    assert "broken.png" in printed.err
    assert "missing.png" in printed.err
    assert "2 images" in printed.out
    assert str(out) in printed.out
    assert "0 to 2.398" in printed.out  # log 11 nats: the scale is fixed and told
    assert {path.name for path in out.glob("*.npz")} == {"a.npz", "b.npz"}
    assert main(["predict", runs[0], str(photos / "a.png"), "--out", str(out)]) == 0


def test_ctrl_c_says_how_to_resume(tmp_path: Path) -> None:
    words = ["train", "scenes-segmentation", "--out", str(tmp_path / "run"), *TINY]
    words += ["--stages.epochs", "1000", "--trainer.checkpoint_steps", "1", "--quiet"]

    def command() -> None:
        with (tmp_path / "printed").open("w") as file, redirect_stdout(file):
            status = main(words)
        os._exit(status)

    child = multiprocessing.get_context("fork").Process(target=command)
    child.start()
    assert child.pid is not None
    while not list(tmp_path.glob("run/checkpoints/*")) and child.is_alive():
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    printed = (tmp_path / "printed").read_text()
    assert child.exitcode == 130
    assert f"onesigma train scenes-segmentation --out {tmp_path / 'run'}" in printed
    assert printed.rstrip().endswith("--quiet --resume")
