"""The search for settings of a small recipe: one seed, trained with some settings changed.

    python benchmarks/recipe_study.py camvid --root CAMVID --far NYUV2 --runs RUNS prior.scale=10
    python benchmarks/recipe_study.py nyuv2 --root NYUV2 --runs RUNS --fold 2 stages.kl_weight=0.4

CamVid is trained without one drive and scored on it, on val and by rooms among streets. NYUv2 is
scored on the images of a fold and on every eighth of its training images, since the difference
between the two is what the settings are about. Adds a line to `results/nyuv2_study.jsonl`, where
lines that name no fold are of fold 0, or to `results/camvid_recipe_study.jsonl`. Settings that are
not named are those the recipe had during the search.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from measuring import RESULTS
from onesigma.data import NYUv2, Spread
from onesigma.data.base import PixelDataset
from onesigma.metrics import RegressionSuite
from real_images import (
    DEPTH_SIZE,
    FIRST_DEPTH,
    FOLDS,
    HELD_OUT,
    LAST_STEP,
    METRES,
    NO_SCALE,
    SHARP,
    SHORT_LABELS,
    TEN_PIXELS,
    Predict,
    depth,
    score_camvid,
)
from runs import train

LABELS = ("miou", "nll", "ece", "image_calibration", "aurc")
DEPTHS = (
    "rel", "rms", "nll", "crps", "ause_rms", "image_calibration", "set_calibration",
    "coverage_0.5", "coverage_0.9",
)  # fmt: skip


def camvid(settings: Mapping[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Another drive, val and rooms; of a class left out, how well it lights up."""
    odd = settings.get("data.options.exclude_classes")
    name = _name(settings) + (f"-without-{odd}" if odd else "")
    fixed = {"data.root": options.root, "data.options.without_sequences": HELD_OUT}
    search = {**fixed, **SHORT_LABELS, **LAST_STEP, **NO_SCALE, **TEN_PIXELS}
    train("camvid-small", options.runs / name, {**search, **settings})
    found = score_camvid(name, options.root, options.far, options.runs)
    line: dict[str, Any] = {}
    for split in ("held out", "val"):
        means = {key: round(value, 4) for key, value in found[split]["mean"].items()}
        line[split] = {**_rounded(found[split]["set"], LABELS), "mean": means}
        if "anomaly" in found[split]:
            line[split]["class left out"] = _detection(found[split]["anomaly"]["set"])
    return {**line, "rooms": _detection(found["far"]["set"])} if "far" in found else line


def nyuv2(settings: Mapping[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Images of the fold, and some that were trained on."""
    fold = (options.fold, FOLDS)
    fixed = {"data.root": options.root, "data.options.fold": list(fold)}
    out = options.runs / f"{_name(settings)}-fold{options.fold}"
    search = {**fixed, **LAST_STEP, **FIRST_DEPTH, **METRES, **SHARP}
    predict = train("nyuv2-small", out, {**search, **settings}).predict
    unseen, seen = (NYUv2(options.root, split, DEPTH_SIZE, fold=fold) for split in ("val", "train"))
    return {
        "fold": options.fold,
        "unseen": _depth_scores(predict, unseen),
        "seen": _depth_scores(predict, Spread(seen, len(seen) // 8)),
    }


def _depth_scores(predict: Predict, data: PixelDataset) -> dict[str, float]:
    suite = RegressionSuite()
    depth(predict, data, suite)
    return _rounded(suite.compute(resamples=2)["set"], DEPTHS)


def _detection(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        score: _rounded(values[score]["pixels"], ("auroc", "fpr95"))
        for score in ("entropy", "mutual_information")
    }


def _rounded(values: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    return {name: round(values[name], 4) for name in names}


def _name(settings: Mapping[str, str]) -> str:
    return "-".join(f"{key}={value}" for key, value in settings.items()) or "recipe"


STUDIES = {"camvid": (camvid, "camvid_recipe_study"), "nyuv2": (nyuv2, "nyuv2_study")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=tuple(STUDIES))
    parser.add_argument("--root", required=True, help="of the data set")
    parser.add_argument("--far", help="NYUv2, whose rooms are odd among streets")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--fold", type=int, default=0, help="of NYUv2")
    parser.add_argument("settings", nargs="*", help="key=value of the recipe")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    study, file = STUDIES[options.task]
    line = {"settings": settings, **study(settings, options)}
    with (RESULTS / f"{file}.jsonl").open("a") as out:
        out.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
