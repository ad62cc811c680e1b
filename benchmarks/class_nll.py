"""Which classes cost likelihood: the part of each in the NLL of CamVid's val.

    python benchmarks/class_nll.py --root CAMVID --runs RUNS

Reads the runs of `real_images.py train camvid_short`; writes `results/class_nll.json`: means over
the seeds of a method of Σ_{pixels of the class} -log p / all pixels, whose sum is the NLL.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor

from measuring import RESULTS
from onesigma.data import CamVid
from onesigma.training import load
from real_images import SEEDS

METHODS = ("ours", "deterministic")


def parts(run: Path, data: CamVid) -> Tensor:
    """Of each class in the NLL of all labelled pixels."""
    predict, sums, pixels = load(run).predict, torch.zeros(len(data.classes)).double(), 0
    for i in range(len(data)):
        labels = data[i]["target"][None]
        log_prob = predict(data[i]["image"][None]).log_prob(labels.clamp_min(0))
        known = labels >= 0
        sums.index_add_(0, labels[known], -log_prob[known].double())
        pixels += int(known.sum())
    return sums / pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of the data set")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = CamVid(options.root, "val")
    found: dict[str, dict[str, float]] = {}
    for method in METHODS:
        seeds = [parts(options.runs / "camvid_short" / f"{method}-{k}", data) for k in range(SEEDS)]
        mean = torch.stack(seeds).mean(0).tolist()
        found[method] = {n: round(x, 4) for n, x in zip(data.classes, mean, strict=True)}
    (RESULTS / "class_nll.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
