"""Where depth errs: relative errors by true depth, on some folds of NYUv2.

    python benchmarks/depth_ranges.py --root NYUV2 --runs RUNS --folds 3 4

Reads the runs of `real_images.py train nyuv2`; writes `results/depth_ranges.json`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from measuring import RESULTS
from onesigma.data import NYUv2
from onesigma.training import load
from real_images import fold_parser, unseen

EDGES = (0.0, 1.5, 2.5, 4.0, 10.5)
METHODS = ("ours", "deterministic", "heteroscedastic")


def relative_errors(run: Path, data: NYUv2) -> tuple[Tensor, Tensor]:
    """|median − y| / y and y of every valid pixel."""
    predict, errors, depths = load(run).predict, [], []
    for i in range(len(data)):
        target = data[i]["target"][None]
        median, valid = predict(data[i]["image"][None]).median, target.isfinite()
        depths.append(target[valid])
        errors.append((median[valid] - target[valid]).abs() / target[valid])
    return torch.cat(errors), torch.cat(depths)


def main() -> None:
    options = fold_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    found: dict[str, object] = {"folds": options.folds, "edges in metres": EDGES}
    for method in METHODS:
        parts = [
            relative_errors(
                options.runs / "nyuv2" / f"{method}-fold{k}",
                unseen(options.root, k),
            )
            for k in options.folds
        ]
        errors, depths = (torch.cat(each) for each in zip(*parts, strict=True))
        ranges = [(depths >= low) & (depths < high) for low, high in pairwise(EDGES)]
        found["share of pixels"] = [round(float(x.double().mean()), 3) for x in ranges]
        found[method] = [round(float(errors[x].mean()), 4) for x in ranges]
    (RESULTS / "depth_ranges.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
