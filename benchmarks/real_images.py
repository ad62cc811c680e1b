"""The comparison on real images with the shipped recipes: equal network, data, epochs, schedule.

    python benchmarks/real_images.py plan camvid
    python benchmarks/real_images.py train camvid NAME --root CAMVID --runs RUNS
    python benchmarks/real_images.py score camvid --root CAMVID --far NYUV2 --runs RUNS

`plan` lists the runs, `train` makes one (again and again until it is done: it resumes), `score`
compares all that are finished and writes `results/real_images_camvid.json`. CamVid is trained
without the sequence 0006R0, which is scored beside val; NYUv2 in five folds of train and val.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from measuring import RESULTS, machine
from onesigma.baselines import DeepEnsemble, TemperatureScaled
from onesigma.cli import main as onesigma
from onesigma.data import CamVid, NYUv2
from onesigma.data.base import PixelDataset
from onesigma.metrics import (
    AnomalySuite,
    RegressionSuite,
    SegmentationSuite,
    paired_bootstrap,
)
from onesigma.training import Run, load

HELD_OUT = "0006R0"
FOLDS = 5
MEMBERS = 3
PAPER = {
    "likelihood.options.scale": "class",
    "prior.kernel": "paper",
    "prior.mean": 1.0,
    "prior.scale": 1.0,
    "prior.noise": 0.1,
    "posterior.shared_factors": False,
    "posterior.context_statistics": "joint",
    "context.name": "noisy_copies",
    "posterior.variance": None,
    "method.kl_stride": 1,
    "stages.kl_weight": 1.0,
}
DROPOUT = {"method.name": "mc_dropout", "network.options.dropout": 0.1}
Settings = dict[str, Any]


def plan(task: str) -> dict[str, Settings]:
    """The runs by name, as settings on top of the recipe."""
    return {"camvid": _camvid, "nyuv2": _nyuv2}[task]()


def _camvid() -> dict[str, Settings]:
    base = {"data.options.without_sequences": HELD_OUT}
    runs = {f"ours-{seed}": {"seed": seed} for seed in range(MEMBERS)}
    for seed in range(MEMBERS):
        runs[f"deterministic-{seed}"] = {"seed": seed, "method.name": "deterministic"}
    runs["dropout-0"] = DROPOUT
    runs["paper-0"] = PAPER
    for odd in ("car", "pedestrian"):
        left_out = {"data.options.exclude_classes": odd}
        runs[f"ours-without-{odd}"] = left_out
        runs[f"deterministic-without-{odd}"] = {"method.name": "deterministic", **left_out}
        runs[f"dropout-without-{odd}"] = {**DROPOUT, **left_out}
    for images, epochs in ((25, 168), (100, 42)):
        # as many steps as with all images
        runs[f"ours-{images}-images"] = {"data.limit": images, "stages.epochs": epochs}
    return {name: {**base, **settings} for name, settings in runs.items()}


def _nyuv2() -> dict[str, Settings]:
    methods: dict[str, Settings] = {
        "ours": {},
        "deterministic": {"method.name": "deterministic", "method.loss": "likelihood"},
        "heteroscedastic": {"method.name": "heteroscedastic"},
        "dropout": DROPOUT,
    }
    return {
        f"{method}-fold{k}": {**settings, "data.options.fold": [k, FOLDS]}
        for k in range(FOLDS)
        for method, settings in methods.items()
    }


def train(task: str, name: str, root: str, runs: Path) -> int:
    """Make one run by the command line, or go on with it."""
    out = runs / task / name
    settings = {"data.root": root, "trainer.threads": torch.get_num_threads(), **plan(task)[name]}
    words = [w for key, value in settings.items() for w in (f"--{key}", json.dumps(value))]
    resume = ["--resume"] if (out / "config.yaml").is_file() else []
    return onesigma(["train", f"{task}-small", "--out", str(out), *words, *resume, "--quiet"])


Predict = Callable[[Tensor], Any]


def finished(runs: Path, names: Iterable[str]) -> dict[str, Run]:
    """The runs that have their weights."""
    return {
        name: load(runs / name) for name in names if (runs / name / "weights.safetensors").is_file()
    }


def segmentation(predict: Predict, data: PixelDataset) -> dict[str, Any]:
    """Metrics of labels; where a class was left out, how well it lights up."""
    suite, odd = SegmentationSuite(data.classes), AnomalySuite()
    for sample in data:
        labels = sample["target"][None]
        prediction, names = predict(sample["image"][None]), [sample["name"]]
        suite.update(prediction, labels, labels >= 0, names)
        if "ood" in sample:
            ood = sample["ood"][None]
            odd.update(prediction, ood, (labels >= 0) | ood, names)
    found = suite.compute()
    return {**found, "anomaly": odd.compute()} if odd.records else found


def far(predict: Predict, near: PixelDataset, rooms: PixelDataset) -> dict[str, Any]:
    """Whole rooms among streets: does the uncertainty tell them apart?"""
    suite = AnomalySuite()
    for data, odd in ((near, False), (rooms, True)):
        for sample in data:
            prediction = predict(sample["image"][None])
            where = torch.full((1, *sample["image"].shape[1:]), odd)
            suite.update(prediction, where, names=[sample["name"]])
    return suite.compute()


def depth(predict: Predict, data: PixelDataset, suite: RegressionSuite) -> None:
    """Add the images of one fold."""
    for sample in data:
        target = sample["target"][None]
        suite.update(
            predict(sample["image"][None]), target, target[:, 0].isfinite(), [sample["name"]]
        )


def predictors(runs: Mapping[str, Run], val: PixelDataset) -> dict[str, Predict]:
    """All methods of the CamVid table; the first seed stands for a method."""
    found: dict[str, Predict] = {name: run.predict for name, run in runs.items()}
    members = [runs[f"deterministic-{seed}"] for seed in range(MEMBERS)]
    found[f"ensemble of {MEMBERS}"] = DeepEnsemble(members).predict
    scaled = TemperatureScaled(runs["deterministic-0"])
    batches = [(s["image"][None], s["target"][None], s["target"][None] >= 0) for s in val]
    scaled.fit(batches)
    found["deterministic + temperature (fitted on val)"] = scaled.predict
    return found


def score_camvid(root: str, far_root: str, runs: Path) -> dict[str, Any]:
    """Every method on the held-out sequence, on val, and against rooms."""
    names = plan("camvid")
    whole = [name for name in names if "without" not in name]
    val = CamVid(root, "val")
    held_out = CamVid(root, "train", only_sequences=HELD_OUT)
    rooms = NYUv2(far_root, "val", (180, 240))
    result: dict[str, Any] = {}
    for name, predict in predictors(finished(runs, whole), val).items():
        result[name] = {
            "held out": segmentation(predict, held_out),
            "val": segmentation(predict, val),
            "far": far(predict, held_out, rooms),
        }
    for name, run in finished(runs, [name for name in names if "without" in name]).items():
        odd = name.rsplit("-", 1)[1]
        result[name] = {
            "held out": segmentation(run.predict, CamVid(root, "train", None, odd, HELD_OUT)),
            "val": segmentation(run.predict, CamVid(root, "val", None, odd)),
        }
    return result


def score_nyuv2(root: str, runs: Path) -> dict[str, Any]:
    """Every method over all images, each predicted by the run that did not see it."""
    found = finished(runs, plan("nyuv2"))
    methods = {name.split("-")[0] for name in found}
    result = {}
    for method in sorted(methods):
        suite = RegressionSuite()
        for k in range(FOLDS):
            if f"{method}-fold{k}" in found:
                fold = NYUv2(root, "val", fold=(k, FOLDS))
                depth(found[f"{method}-fold{k}"].predict, fold, suite)
        result[method] = {"folds": suite.compute()}
    return result


def differences(result: Mapping[str, Any], ours: str, splits: Iterable[str]) -> dict[str, Any]:
    """Ours minus each other method on the same images, with paired bootstrap intervals."""
    return {
        split: {
            name: paired_bootstrap(other[split], result[ours][split])
            for name, other in result.items()
            if name != ours and other[split]["images"] == result[ours][split]["images"]
        }
        for split in splits
    }


def summary(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What a table needs: the set's values and intervals, without images and draws."""
    kept = {key: metrics[key] for key in ("images", "set", "intervals") if key in metrics}
    if "anomaly" in metrics:
        kept["anomaly"] = summary(metrics["anomaly"])
    return kept


def score(task: str, root: str, far_root: str, runs: Path) -> None:
    """Score and compare all finished runs of a task."""
    if task == "camvid":
        result, ours, splits = (
            score_camvid(root, far_root, runs / task),
            "ours-0",
            ("held out", "val"),
        )
    else:
        result, ours, splits = score_nyuv2(root, runs / task), "ours", ("folds",)
    whole = {name: found for name, found in result.items() if "without" not in name}
    report = {
        "machine": machine(),
        "settings": plan(task),
        "methods": {
            name: {split: summary(metrics) for split, metrics in found.items()}
            for name, found in result.items()
        },
        "ours minus": differences(whole, ours, splits),
    }
    (RESULTS / f"real_images_{task}.json").write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("plan", "train", "score"))
    parser.add_argument("task", choices=("camvid", "nyuv2"))
    parser.add_argument("name", nargs="?", help="of the run to train")
    parser.add_argument("--root", help="of the data set")
    parser.add_argument("--far", help="NYUv2, whose rooms are odd among streets")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.what == "plan":
        print("\n".join(plan(options.task)))
    elif options.what == "train":
        raise SystemExit(train(options.task, options.name, options.root, options.runs))
    else:
        score(options.task, options.root, options.far, options.runs)


if __name__ == "__main__":
    main()
