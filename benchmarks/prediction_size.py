"""At which size a network of labels should predict: its scores at several, on streets.

    python benchmarks/prediction_size.py --root CAMVID --runs RUNS

For runs of `real_images.py`, deterministic ones, so that nothing but the size changes: parts of 96
x 128 at the zooms before and nearer, of 120 x 160 and of 144 x 192. Scored at the labels' 180 x
240. Writes `results/prediction_size.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch

from measuring import RESULTS, machine
from onesigma.data import CamVid
from onesigma.training import load
from real_images import HELD_OUT, plan, segmentation
from scores import SHOWN

RUNS = (
    "camvid_coarse/deterministic-0",
    "camvid/deterministic-small-parts-0",
    "camvid/deterministic-0",
    "camvid/deterministic-large-parts-0",
)
SIZES = ((96, 128), (120, 160), (144, 192), (180, 240))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of CamVid")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    splits = {
        "another drive": CamVid(options.root, "train", only_sequences=HELD_OUT),
        "val": CamVid(options.root, "val"),
    }
    found = {}
    for name in RUNS:
        task, _, run_name = name.partition("/")
        run = load(options.runs / name)
        scores = {}
        for size in SIZES:
            run.recipe = replace(run.recipe, data=replace(run.recipe.data, eval_size=size))
            scores["x".join(map(str, size))] = {
                split: {
                    metric: round(value, 4)
                    for metric, value in segmentation(run.predict, data)["set"].items()
                    if metric in SHOWN
                }
                for split, data in splits.items()
            }
        found[name] = {"settings": plan(task)[run_name], "sizes": scores}
    text = json.dumps({"machine": machine(), "runs": found}, indent=1)
    (RESULTS / "prediction_size.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
