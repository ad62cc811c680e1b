"""What only generated scenes can tell: true noise against predicted, and wrong labels in training.

    python benchmarks/scenes_truth.py depth --runs RUNS
    python benchmarks/scenes_truth.py labels --runs RUNS

`depth` trains the shipped `scenes-depth` and its heteroscedastic twin, and compares the predicted
aleatoric deviation with the true one of every pixel. The variance that a model calls aleatoric
should be σ²; what it says beyond that, as a share of its squared error (prediction − true depth)²,
is error that passes for noise.

`labels` replaces a share of the training labels by random ones and trains `scenes-segmentation` at
48 × 64 with a scale per class (the paper), a shared one and none, and deterministically; scored
against the true labels. The paper says that the scales make training robust to wrong labels.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from measuring import write
from onesigma.data import Scenes
from onesigma.data.base import Sample
from onesigma.metrics import NLL, DepthErrors, NoiseCorrelation, SegmentationSuite, decision_shares
from onesigma.training import Run
from onesigma.training.method import FunctionalVI
from runs import train

TEST_SCENES = 100
WRONG = (0.0, 0.3)
DEPTH = {"ours": {}, "heteroscedastic": {"method.name": "heteroscedastic"}}
# what the recipe was when the labels were studied
BEFORE = {
    "stages.correlated_pixels": 1,
    "method.context_weight": 1.0,
    "method.stranger_weight": 0.0,
    "posterior.whole_image": False,
    "posterior.layer_distances": False,
}
LABELS: dict[str, dict[str, Any]] = {
    "scale per class": {"likelihood.options.scale": "class"},
    "shared scale": {"likelihood.options.scale": "shared"},
    "no scale": {"likelihood.options.scale": "none"},
    "no scale and B/10N": {
        "likelihood.options.scale": "none",
        "stages.correlated_pixels": 10,
    },
    "deterministic": {"method.name": "deterministic"},
}


@dataclass(frozen=True)
class WrongScenes(Scenes):
    """Scenes whose training labels are replaced by random ones with probability `wrong`."""

    wrong: float = 0.0

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        if self.split == "train":
            g = torch.Generator().manual_seed(index)
            target = sample["target"]
            other = torch.randint(self.num_outputs, target.shape, generator=g)
            hit = torch.rand(target.shape, generator=g) < self.wrong
            sample["target"] = torch.where(hit & (target >= 0), other, target)
        return sample


@torch.no_grad()
def depth(run: Run) -> dict[str, Any]:
    """Predicted against true noise on scenes that training did not see."""
    errors, nll, noise = DepthErrors(), NLL(), NoiseCorrelation()
    sums = dict.fromkeys(("aleatoric", "epistemic", "noise", "error"), 0.0)
    for sample in map(Scenes("depth", length=TEST_SCENES, split="test", truth=True).__getitem__,
                      range(TEST_SCENES)):  # fmt: skip
        law, target, valid = (
            run.predict(sample["image"]),
            sample["target"],
            sample["target"].isfinite(),
        )
        errors.update(law.mean, target[None], median=law.median)
        nll.update(law, target[None])
        noise.update(law.aleatoric[0].sqrt(), sample["noise"], valid)
        maps = {
            "aleatoric": law.aleatoric[0],
            "epistemic": law.epistemic[0],
            "noise": sample["noise"].square(),
            "error": (law.mean[0] - sample["depth"]).square(),
        }
        for name, values in maps.items():
            sums[name] += float(values[valid].double().sum())
    found = {name: float(value) for name, value in noise.compute().items()}
    return {
        "rel": float(errors.compute()["rel"]),
        "nll": float(nll.compute()),
        "aleatoric deviation against the true one": found,
        # (E aleatoric variance − E σ²) / E (prediction − true depth)²
        "share of the squared error called aleatoric": (sums["aleatoric"] - sums["noise"])
        / sums["error"],
        "epistemic variance over squared error": sums["epistemic"] / sums["error"],
    }


@torch.no_grad()
def labels(run: Run) -> dict[str, Any]:
    """Metrics against the true labels."""
    test = Scenes("segmentation", (48, 64), TEST_SCENES, split="test", truth=True)
    suite, shares = SegmentationSuite(test.classes), []
    for sample in map(test.__getitem__, range(TEST_SCENES)):
        truth = sample["labels"][None]
        suite.update(run.predict(sample["image"]), truth)
        if isinstance(run.method, FunctionalVI):
            q, log_scale = run.method.posterior.marginals(sample["image"][None])
            shares.append(decision_shares(q.mean, log_scale, truth)["accuracy"])
    values = suite.compute(resamples=2)["set"]
    found = {name: values[name] for name in ("miou", "accuracy", "nll", "ece", "image_calibration")}
    if shares:
        means = {who: float(torch.stack([s[who] for s in shares]).mean()) for who in shares[0]}
        # a scale that all classes share decides nothing
        found["accuracy of"] = {who: mean for who, mean in means.items() if not math.isnan(mean)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("depth", "labels"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if options.what == "depth":
        for name, settings in DEPTH.items():
            found[name] = depth(train("scenes-depth", options.runs / f"depth-{name}", settings))
    else:
        for wrong in WRONG:
            data = {
                "data.name": None,
                "data.class_path": "scenes_truth.WrongScenes",
                "data.options": {"task": "segmentation", "size": [48, 64], "wrong": wrong},
            }
            for name, settings in LABELS.items():
                out = options.runs / f"labels-{name.replace(' ', '-').replace('/', '-')}-{wrong}"
                run = train("scenes-segmentation", out, {**data, **BEFORE, **settings})
                found[f"{name}, {wrong:.0%} of labels wrong"] = labels(run)
    print(write(f"scenes_{options.what}", {"test scenes": TEST_SCENES, **found}))


if __name__ == "__main__":
    main()
