"""The share of `onesigma evaluate` that is spent in metrics, on a run with real images.

    python benchmarks/metric_share.py RUN

Processor time of one thread over the run's evaluation split, with the network at the images' own
size and at the size that the recipe gives it. Everything that no prediction needs counts as
metrics: suites, the prior and the divergence of every image, the bootstrap.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from measuring import write
from onesigma.metrics import EpistemicSuite, SegmentationSuite
from onesigma.training import evaluate, load
from onesigma.training.config import Size

PARTS = {
    "segmentation metrics": (SegmentationSuite, "update"),
    "epistemic metrics": (EpistemicSuite, "update"),
    "prior and divergence": (evaluate, "image_divergence"),
    "bootstrap": (SegmentationSuite, "compute"),
    "epistemic bootstrap": (EpistemicSuite, "compute"),
}


def timed(function: Callable[..., Any], spent: dict[str, float], name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        start = time.process_time()
        try:
            return function(*args, **options)
        finally:
            spent[name] += time.process_time() - start

    return call


def shares(folder: str, size: Size | None) -> dict[str, Any]:
    run, spent = load(folder), defaultdict[str, float](float)
    run.recipe = replace(run.recipe, data=replace(run.recipe.data, eval_size=size))
    kept = {name: getattr(owner, leaf) for name, (owner, leaf) in PARTS.items()}
    for name, (owner, leaf) in PARTS.items():
        setattr(owner, leaf, timed(kept[name], spent, name))
    start = time.process_time()
    found = evaluate.evaluate_run(run)
    total = time.process_time() - start
    for name, (owner, leaf) in PARTS.items():
        setattr(owner, leaf, kept[name])
    return {
        "images": found["images"],
        "CPU milliseconds per image": 1e3 * total / found["images"],
        "shares": {name: value / total for name, value in spent.items()},
        "share of all metrics": sum(spent.values()) / total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    folder = parser.parse_args().run
    torch.set_num_threads(1)
    given = load(folder).recipe.data.eval_size
    result = {
        "network at the images' size": shares(folder, None),
        f"network at {given}": shares(folder, given),
    }
    print(write("metric_share", result))


if __name__ == "__main__":
    main()
