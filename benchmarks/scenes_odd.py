"""Do uncertainties find generated scenes that are odd? Functional VI against the baselines.

    python benchmarks/scenes_odd.py --runs RUNS [NAME ...]

Trains `scenes-segmentation` at 48 × 64 with several methods and seeds, scores scenes like those of
training, and tells them from the same scenes with an unseen object, at night, in fog and through
a failing sensor. Runs that are scored are not made again; names choose some of them, so that two
processes can share the work. Writes all that is scored to `results/scenes_odd.json`.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, get_args

import torch

from measuring import write
from onesigma.data import Scenes
from onesigma.data.scenes import Odd
from onesigma.metrics import AnomalySuite, SegmentationSuite
from runs import train

SIZE = (48, 64)
TEST_SCENES = 100
SEEDS = 3
NO_STRANGERS = {"method.stranger_weight": 0.0}
NO_DISTANCES = {"posterior.layer_distances": False}
# neither colours nor sensor noise: night and the failing sensor are then of no generator's family
OTHER_FAMILIES = ["shuffled_patches", "pasted_mixtures", "frequency_noise"]
METHODS: dict[str, dict[str, Any]] = {
    "deterministic": {"method.name": "deterministic"},
    "MC dropout": {"method.name": "mc_dropout", "network.options.dropout": 0.1},
    "onesigma": {},
    "onesigma, no strangers": NO_STRANGERS,
    "onesigma, no layer distances": NO_DISTANCES,
    "onesigma, variance of the pixel": {"posterior.whole_image": False, **NO_DISTANCES},
    "onesigma, other contexts": {
        "context.options.generators": [{"name": name} for name in OTHER_FAMILIES],
        **NO_STRANGERS,
    },
}
ALL = {
    f"{method} {seed}": {"seed": seed, **settings}
    for method, settings in METHODS.items()
    for seed in range(SEEDS)
}


@torch.no_grad()
def score(run: Any) -> dict[str, Any]:
    """Metrics on scenes like those of training, and how well each kind of odd ones lights up."""
    normal = Scenes("segmentation", SIZE, TEST_SCENES, split="test", truth=True)
    suite, odd = SegmentationSuite(normal.classes), {kind: AnomalySuite() for kind in get_args(Odd)}
    for i in range(TEST_SCENES):
        sample = normal[i]
        prediction = run.predict(sample["image"])
        suite.update(prediction, sample["target"][None])
        for anomalies in odd.values():
            anomalies.update(prediction, sample["ood"][None])
    for kind, anomalies in odd.items():
        scenes = Scenes("segmentation", SIZE, TEST_SCENES, split="test", odd=kind, truth=True)
        for i in range(TEST_SCENES):
            sample = scenes[i]
            anomalies.update(run.predict(sample["image"]), sample["ood"][None])
    values = suite.compute(resamples=2)["set"]
    return {
        "normal": {name: values[name] for name in ("miou", "nll", "ece", "image_calibration")},
        **{kind: _detection(found.compute(resamples=2)["set"]) for kind, found in odd.items()},
    }


def _detection(found: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            where: {key: values[key] for key in ("auroc", "fpr95")}
            for where, values in (
                ("pixels", found[name]["pixels"]),
                ("images", found[name]["images"]["mean"]),
            )
        }
        for name in ("entropy", "mutual_information")
    }


def scores_file(runs: Path, name: str) -> Path:
    """Beside the weights of a run."""
    return runs / re.sub("[ ,/]+", "-", name) / "odd.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("names", nargs="*", help=f"of {'; '.join(ALL)}; all when left out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.names or ALL:
        file = scores_file(options.runs, name)
        if not file.is_file():
            settings = {"data.options.size": list(SIZE), **ALL[name]}
            file.write_text(json.dumps(score(train("scenes-segmentation", file.parent, settings))))
    files = {name: scores_file(options.runs, name) for name in ALL}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
    print(write("scenes_odd", {"test scenes": TEST_SCENES, "settings": METHODS, "runs": found}))


if __name__ == "__main__":
    main()
