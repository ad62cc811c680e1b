"""What the scale of an image is worth: the same weights with it and with σ = 1.

    python benchmarks/image_scale.py camvid --root CAMVID --far NYUV2 --runs RUNS

Reads the runs "ours-SEED" of `real_images.py train` with the same task; all else in them was
learned before the scale, so that without it they are runs of a recipe that has none. Writes
`results/image_scale_camvid.json`: scores of both over seeds, their differences with paired
intervals over images, and the mean temperature σ² of the images of training, of val, of another
drive and of rooms.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from measuring import RESULTS, machine
from onesigma.data import CamVid, NYUv2
from onesigma.data.base import PixelDataset
from onesigma.familiarity import ImageScale
from onesigma.training import Run, load
from real_images import DRIVES, HELD_OUT, SEEDS, against, segmentation

METRICS = ("miou", "nll", "ece", "image_calibration", "aurc")


def scales(run: Run) -> Iterator[ImageScale]:
    return (part for part in run.method.modules() if isinstance(part, ImageScale))


def without_scale(path: Path) -> Run:
    """The run with σ = 1 for every image, where its scale began."""
    run = load(path)
    for scale in scales(run):
        scale.load_state_dict(ImageScale(nn.BatchNorm2d(1)).state_dict())
    return run


def temperature(run: Run, data: PixelDataset) -> float:
    """Mean σ² over the images of a data set, seen at its size."""
    seen: list[float] = []
    hooks = [
        scale.register_forward_hook(lambda _part, _inputs, log: seen.extend(log.flatten().tolist()))
        for scale in scales(run)
    ]
    for i in range(len(data)):
        run.predict(data[i]["image"])
    for hook in hooks:
        hook.remove()
    return statistics.mean(torch.tensor(seen).mul(2).exp().tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("camvid", "camvid_coarse", "camvid_short", *DRIVES))
    parser.add_argument("--root", required=True, help="of CamVid")
    parser.add_argument("--far", required=True, help="NYUv2, whose rooms are odd among streets")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    drive = DRIVES.get(options.task, HELD_OUT)
    scored = {
        "another drive": CamVid(options.root, "train", only_sequences=drive),
        "val": CamVid(options.root, "val"),
    }
    others = {
        "training": CamVid(options.root, "train", without_sequences=drive),
        "rooms": NYUv2(options.far, "val", (180, 240)),
    }
    paths = [options.runs / options.task / f"ours-{seed}" for seed in range(SEEDS)]
    with_it, without = [load(path) for path in paths], [without_scale(path) for path in paths]
    found: dict[str, Any] = {"machine": machine(), "seeds": len(paths)}
    for name, data in scored.items():
        ours, plain = (
            [segmentation(run.predict, data) for run in each] for each in (with_it, without)
        )
        found[name] = {
            "with": means(ours),
            "without": means(plain),
            "difference": against(ours, plain),
        }
    found["temperature"] = {
        name: [round(temperature(run, data), 4) for run in with_it]
        for name, data in {**others, **scored}.items()
    }
    (RESULTS / f"image_scale_{options.task}.json").write_text(json.dumps(found, indent=1) + "\n")


def means(runs: list[Any]) -> dict[str, float]:
    """Of the seeds."""
    return {name: round(statistics.mean(run["set"][name] for run in runs), 4) for name in METRICS}


if __name__ == "__main__":
    main()
