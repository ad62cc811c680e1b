"""The expected numbers of a shipped recipe: trained and evaluated on val as a user would.

    python benchmarks/shipped.py camvid-small --root CAMVID --runs RUNS
    python benchmarks/shipped.py scenes-segmentation --runs RUNS

Writes what `evaluate` found, without single images, to `results/camvid_small_val.json`; with
`--seed 1` to `results/camvid_small_val_seed1.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from measuring import RESULTS
from onesigma.cli import main as onesigma
from runs import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--root", help="of the data set; scenes need none")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--seed", type=int, help="instead of the recipe's")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seed = "" if options.seed is None else f"_seed{options.seed}"
    out = options.runs / f"{options.recipe}{seed}"
    other = {"data.root": options.root, "seed": options.seed}
    train(options.recipe, out, {name: value for name, value in other.items() if value is not None})
    if onesigma(["evaluate", str(out), "--split", "val"]):
        raise SystemExit(f"Evaluating {out.name} failed.")
    found = json.loads((out / "metrics.json").read_text())
    kept = {key: found[key] for key in ("split", "task", "images", "pixels", "set", "intervals")}
    kept["epistemic"] = {key: found["epistemic"][key] for key in ("set", "intervals")}
    kept["command"] = f"onesigma train {options.recipe}; onesigma evaluate --split val"
    name = f"{options.recipe.replace('-', '_')}_val{seed}.json"
    (RESULTS / name).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
