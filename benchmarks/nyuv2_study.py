"""The search for settings of nyuv2-small: one fold, one seed, trained with some settings changed.

    python benchmarks/nyuv2_study.py --root NYUV2 --runs RUNS --fold 2 stages.kl_weight=0.4

Scores the images of the fold and every eighth of its training images, since the difference between
the two is what the settings are about, and adds a line to `results/nyuv2_study.jsonl`. Lines that
name no fold are of fold 0.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from measuring import RESULTS
from onesigma.data import NYUv2, Spread
from onesigma.data.base import PixelDataset
from onesigma.metrics import RegressionSuite
from real_images import DEPTH_SIZE, FOLDS, METRES, SHARP, Predict, depth
from runs import train

SHOWN = (
    "rel", "rms", "nll", "crps", "ause_rms", "image_calibration", "set_calibration",
    "coverage_0.5", "coverage_0.9",
)  # fmt: skip


def scores(predict: Predict, data: PixelDataset) -> dict[str, float]:
    suite = RegressionSuite()
    depth(predict, data, suite)
    found = suite.compute(resamples=2)["set"]
    return {name: round(found[name], 4) for name in SHOWN}


def study(settings: dict[str, str], fold: int, root: str, runs: Path) -> dict[str, Any]:
    name = "-".join(f"{key}={value}" for key, value in settings.items()) or "recipe"
    out = runs / f"{name}-fold{fold}"
    # what the recipe was during the search, unless told
    before = {"data.root": root, "data.options.fold": [fold, FOLDS], **METRES, **SHARP}
    predict = train("nyuv2-small", out, {**before, **settings}).predict
    unseen, seen = (
        NYUv2(root, split, DEPTH_SIZE, fold=(fold, FOLDS)) for split in ("val", "train")
    )
    return {
        "unseen": scores(predict, unseen),
        "seen": scores(predict, Spread(seen, len(seen) // 8)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of NYUv2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("settings", nargs="*", help="key=value of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    found = study(settings, options.fold, options.root, options.runs)
    line = {"settings": settings, "fold": options.fold, **found}
    with (RESULTS / "nyuv2_study.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
