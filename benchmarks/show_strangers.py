"""What things pasted into training images teach: docs/images/strangers.png.

    python benchmarks/show_strangers.py --runs RUNS

Reads the first seeds of `scenes_odd.py`. Above, training images with strangers; below, scenes with
an object of a class that none of the networks knows, and the mutual information of every pixel,
all in the same colours.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from onesigma import Strangers
from onesigma.data import Scenes
from onesigma.training import load
from scenes_odd import SIZE, scores_file
from show_results import IMAGES

COLUMNS = {
    "MC dropout, 50 passes": "MC dropout 0",
    "no strangers": "onesigma, no strangers 0",
    "onesigma": "onesigma 0",
}
SHOWN = range(1, 4)
# in nats
LARGEST = 0.05


def training_images(axes: list[Axes]) -> None:
    """A batch as training sees it, with the strangers' outlines."""
    scenes = Scenes("segmentation", SIZE, len(axes), split="train")
    images = torch.stack([scenes[i]["image"] for i in range(len(axes))])
    changed, where = Strangers(rate=1.0)(images, torch.Generator().manual_seed(3))
    for axis, image, mask in zip(axes, changed, where, strict=True):
        show(axis, image)
        axis.contour(mask.float(), [0.5], colors="white", linewidths=1.0)
    axes[0].set_title("training images with strangers", loc="left")


def maps(rows: Any, runs: Path) -> None:
    """Scenes with unseen objects, and what the networks say."""
    scenes = Scenes("segmentation", SIZE, SHOWN.stop, split="val", odd="objects")
    networks = {title: load(scores_file(runs, name).parent) for title, name in COLUMNS.items()}
    for i, row in zip(SHOWN, rows, strict=True):
        image = scenes[i]["image"]
        show(row[0], image)
        for axis, (title, run) in zip(row[1:], networks.items(), strict=True):
            with torch.no_grad():
                unknown = run.predict(image[None]).mutual_information[0]
            show(axis, unknown, cmap="magma", vmin=0, vmax=LARGEST)
            if i == SHOWN.start:
                axis.set_title(title)
    rows[0][0].set_title("unseen objects")


def show(axis: Axes, pixels: Tensor, **options: Any) -> None:
    axis.imshow(pixels.movedim(0, -1) if pixels.ndim == 3 else pixels, **options)
    axis.set_axis_off()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    axes = figure.subplots(1 + len(SHOWN), 1 + len(COLUMNS))
    training_images(list(axes[0]))
    maps(axes[1:], options.runs)
    last = axes[1, -1].images[0]
    figure.colorbar(last, ax=axes, shrink=0.6, label="mutual information, nats", extend="max")
    figure.savefig(IMAGES / "strangers.png", dpi=110)


if __name__ == "__main__":
    main()
