"""Does the variance of depth know what is odd? Streets and drawn scenes among the rooms of NYUv2.

    python benchmarks/depth_odd.py --root NYUV2 --far CAMVID --runs RUNS --folds 3 4

Reads the runs of `real_images.py train nyuv2`. Rooms are those that a run did not see; no context
generator knows streets or drawings. AUROC and FPR95 of pixels and of whole images (by their mean),
by the epistemic deviation relative to the depth, by the epistemic variance and by all of the
variance, with the mean over folds; writes `results/depth_odd.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from measuring import RESULTS
from onesigma.data import CamVid, Scenes, Spread
from onesigma.data.base import PixelDataset
from onesigma.metrics import AnomalySuite
from onesigma.training import load
from real_images import DEPTH_SIZE, Predict, fold_parser, unseen
from scores import mean_over

METHODS = (
    "ours", "ours-by-heart", "ours-plain", "ours-no-divergence", "dropout", "heteroscedastic",
)  # fmt: skip
SCORES = ("epistemic", "variance")
IMAGES = 25


def add(suites: Iterable[AnomalySuite], predict: Predict, data: PixelDataset, odd: bool) -> None:
    """All pixels of all images, as odd ones or as ones that are not."""
    for i in range(len(data)):
        prediction = predict(data[i]["image"][None])
        relative = (prediction.epistemic.sqrt() / prediction.mean)[:, 0]
        target = torch.full_like(relative, odd, dtype=torch.bool)
        for suite in suites:
            suite.update(prediction, target, extra={"relative": finite(relative)})


def finite(score: Tensor) -> Tensor:
    """A mean of 0 or without bounds says nothing: no doubt."""
    return score.nan_to_num(0.0, 0.0, 0.0)


def detection(values: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """By score: of pixels, and of images by their mean."""
    return {
        score: {
            where: {name: found[name] for name in ("auroc", "fpr95")}
            for where, found in (("pixels", x["pixels"]), ("images", x["images"]["mean"]))
        }
        for score, x in values.items()
    }


def main() -> None:
    parser = fold_parser(__doc__)
    parser.add_argument("--far", required=True, help="CamVid, whose streets are odd among rooms")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="names of runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    odd = {
        "streets": Spread(CamVid(options.far, "val", DEPTH_SIZE), IMAGES),
        "drawn scenes": Scenes(size=DEPTH_SIZE, length=IMAGES, split="test"),
    }
    file = RESULTS / "depth_odd.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    for method in options.methods:
        folds = []
        for k in options.folds:
            predict = load(options.runs / "nyuv2" / f"{method}-fold{k}").predict
            suites = {kind: AnomalySuite(SCORES, extra=("relative",)) for kind in odd}
            add(suites.values(), predict, unseen(options.root, k), odd=False)
            for kind, images in odd.items():
                add([suites[kind]], predict, images, odd=True)
            folds.append({kind: detection(x.compute(2)["set"]) for kind, x in suites.items()})
        found[method] = {"folds": options.folds, **mean_over(folds)}
        file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
