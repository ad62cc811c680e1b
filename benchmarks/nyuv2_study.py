"""The search for settings of nyuv2-small: one fold, one seed, trained with some settings changed.

    python benchmarks/nyuv2_study.py --root NYUV2 --runs RUNS stages.epochs=40 stages.kl_weight=0.2

Scores the images of fold 0 and every eighth of its training images, since the difference between
the two is what the settings are about, and adds a line to `results/nyuv2_study.jsonl`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from measuring import RESULTS
from onesigma.cli import main as onesigma
from onesigma.data import NYUv2, Spread
from onesigma.data.base import PixelDataset
from onesigma.metrics import RegressionSuite
from onesigma.training import load
from real_images import DEPTH_SIZE, FOLDS, Predict, depth

SHOWN = (
    "rel", "rms", "nll", "crps", "ause_rms", "image_calibration", "set_calibration",
    "coverage_0.5", "coverage_0.9",
)  # fmt: skip


def scores(predict: Predict, data: PixelDataset) -> dict[str, float]:
    suite = RegressionSuite()
    depth(predict, data, suite)
    found = suite.compute(resamples=2)["set"]
    return {name: round(found[name], 4) for name in SHOWN}


def study(settings: dict[str, str], root: str, runs: Path) -> dict[str, Any]:
    out = runs / ("-".join(f"{key}={value}" for key, value in settings.items()) or "recipe")
    settings = {"data.root": root, "data.options.fold": f"[0, {FOLDS}]", **settings}
    words = [w for key, value in settings.items() for w in (f"--{key}", value)]
    if onesigma(["train", "nyuv2-small", "--out", str(out), *words, "--quiet"]):
        raise SystemExit(f"Training {out} failed.")
    predict = load(out).predict
    unseen, seen = (NYUv2(root, split, DEPTH_SIZE, fold=(0, FOLDS)) for split in ("val", "train"))
    return {
        "unseen": scores(predict, unseen),
        "seen": scores(predict, Spread(seen, len(seen) // 8)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of NYUv2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("settings", nargs="*", help="key=value of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    line = {"settings": settings, **study(settings, options.root, options.runs)}
    with (RESULTS / "nyuv2_study.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
