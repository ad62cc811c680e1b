"""Classes left out of training, by parts of images: most whole ones have the class.

    python benchmarks/left_out_parts.py --root CAMVID --runs RUNS [NAME ...]

Every image is cut into 3 × 4 parts. A part is odd where at least a hundredth of it is of the class;
parts with less of it do not count. A part's score is the mean of entropy or mutual information over
its pixels that have a label or are of the class. Reads the runs "METHOD-without-CLASS" of
`real_images.py train camvid_short`, all when no name is given, and adds to
`results/left_out_parts.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from measuring import RESULTS
from onesigma.data import CamVid
from onesigma.metrics import Anomaly
from onesigma.training import load
from real_images import HELD_OUT, Predict

PARTS = (3, 4)
LEAST = 0.01
FILE = RESULTS / "left_out_parts.json"


@torch.no_grad()
def score(predict: Predict, data: CamVid) -> dict[str, Any]:
    """AUROC and FPR95 of parts, by entropy and by mutual information."""
    found = {"entropy": Anomaly(), "mutual_information": Anomaly()}
    odd = total = 0
    for i in range(len(data)):
        sample = data[i]
        prediction, ood = predict(sample["image"][None]), sample["ood"][None]
        seen = (sample["target"][None] >= 0) | ood
        share = part_means(ood)
        counts = (share == 0) | (share >= LEAST)
        odd, total = odd + int((share >= LEAST).sum()), total + int(counts.sum())
        for name, metric in found.items():
            means = part_means(getattr(prediction, name) * seen) / part_means(seen).clamp_min(1e-9)
            metric.update(means, share >= LEAST, counts)
    scores = {name: metric.compute() for name, metric in found.items()}
    kept = {
        name: {key: round(float(each[key]), 4) for key in ("auroc", "fpr95")}
        for name, each in scores.items()
    }
    return {"parts": total, "odd": odd, **kept}


def part_means(pixels: Tensor) -> Tensor:
    """Means (n, 3, 4) over the parts of maps (n, h, w)."""
    return functional.adaptive_avg_pool2d(pixels.double()[:, None], PARTS)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True, help="of CamVid")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = options.runs / "camvid_short"
    for name in options.names or sorted(path.name for path in runs.glob("*-without-*")):
        odd = name.rsplit("-without-", 1)[1:]
        predict = load(runs / name).predict
        scores = {
            "held out": score(
                predict, CamVid(options.root, "train", exclude_classes=odd, only_sequences=HELD_OUT)
            ),
            "val": score(predict, CamVid(options.root, "val", exclude_classes=odd)),
        }
        kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
        FILE.write_text(json.dumps(dict(sorted({**kept, name: scores}.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
