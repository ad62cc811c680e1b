"""The search for weights of camvid-small: one seed, trained with some settings changed.

    python benchmarks/camvid_recipe_study.py --root CAMVID --far NYUV2 --runs RUNS prior.scale=10

Trains without one drive, scores that drive, val and rooms among streets, and adds a line to
`results/camvid_recipe_study.jsonl`. Settings that are not named are those the recipe had during the
search: ten pixels to one unknown, context weight 3, no weight of unlabelled pixels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from measuring import RESULTS
from real_images import HELD_OUT, TEN_PIXELS, score_camvid
from runs import train

SHOWN = ("miou", "nll", "ece", "image_calibration", "aurc")


def shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """Scores and mean uncertainties of both splits, and what tells rooms or a class left out."""
    line: dict[str, Any] = {}
    for split in ("held out", "val"):
        values = {name: round(found[split]["set"][name], 4) for name in SHOWN}
        means = {name: round(value, 4) for name, value in found[split]["mean"].items()}
        line[split] = {**values, "mean": means}
        if "anomaly" in found[split]:
            line[split]["class left out"] = detection(found[split]["anomaly"]["set"])
    return {**line, "rooms": detection(found["far"]["set"])} if "far" in found else line


def detection(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        score: {name: round(values[score]["pixels"][name], 4) for name in ("auroc", "fpr95")}
        for score in ("entropy", "mutual_information")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of CamVid")
    parser.add_argument("--far", required=True, help="of NYUv2")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("settings", nargs="*", help="key=value of the recipe")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = dict(setting.split("=", 1) for setting in options.settings)
    odd = settings.get("data.options.exclude_classes")
    name = "-".join(f"{key}={value}" for key, value in settings.items()) or "recipe"
    name += f"-without-{odd}" if odd else ""
    fixed = {"data.root": options.root, "data.options.without_sequences": HELD_OUT}
    train("camvid-small", options.runs / name, {**fixed, **TEN_PIXELS, **settings})
    found = score_camvid(name, options.root, options.far, options.runs)
    line = {"settings": settings, **shown(found)}
    with (RESULTS / "camvid_recipe_study.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line, indent=1))


if __name__ == "__main__":
    main()
