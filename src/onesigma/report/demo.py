"""The demonstration: two small networks trained on generated scenes, and a page about them."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from onesigma.data.base import Task
from onesigma.data.scenes import Scenes
from onesigma.report.page import Page, Section, Table, write_page
from onesigma.report.run_page import training_curves
from onesigma.report.scales import scales_for
from onesigma.report.scenes_study import Findings, study
from onesigma.report.side_by_side import Job, train_side_by_side
from onesigma.training.run import Run, load

TASKS: tuple[Task, ...] = ("segmentation", "depth")
BATCH = 4


@dataclass(frozen=True)
class DemoOptions:
    """How much the demonstration does; the defaults take four minutes on two cores.

    Attributes:
        size: rows and columns of the scenes.
        train_scenes: how many are trained on.
        epochs: of each task.
        test_scenes: of each kind, normal and odd.
        shown: scenes of each kind that become pictures.
        max_std: last colour of depth deviations, in metres.
    """

    size: tuple[int, int] = (72, 96)
    train_scenes: int = 400
    epochs: tuple[int, int] = (4, 8)
    test_scenes: int = 20
    shown: int = 2
    max_std: float = 20.0


def run_demo(out: Path, options: DemoOptions | None = None, console: Console | None = None) -> Path:
    """Train, predict held-out and odd scenes, and write `report.html`; returns its path.

    A second call in the same folder goes on where the first stopped.

    Args:
        out: the folder.
        options: how much to do.
        console: where progress is drawn; the terminal when left out.
    """
    options, console = options or DemoOptions(), console or Console(stderr=True)
    started = time.monotonic()
    jobs = [_job(task, out, options) for task in TASKS]
    console.print("Training by functional variational inference, in two processes:")
    for job in jobs:
        console.print("  onesigma " + " ".join(job.command), highlight=False, soft_wrap=True)
    train_side_by_side(jobs, console, threads=max(1, (os.cpu_count() or 2) // len(jobs)))
    console.print("Predicting normal and odd scenes.")
    sections = [part for task in TASKS for part in _sections(task, out / task, options)]
    return write_page(_page(sections, options, time.monotonic() - started), out / "report.html")


def _job(task: Task, out: Path, options: DemoOptions) -> Job:
    epochs = options.epochs[TASKS.index(task)]
    steps = epochs * max(1, options.train_scenes // BATCH)
    return Job(task, demo_recipe(task, epochs, options), out / task, steps)


def _sections(task: Task, folder: Path, options: DemoOptions) -> list[Section]:
    found = _study(load(folder), task, options)
    return [_numbers(task, found, training_curves(folder / "logs")), _pictures(task, found)]


def demo_recipe(task: Task, epochs: int, options: DemoOptions) -> dict[str, Any]:
    """What the demonstration changes in the library's recipe for scenes.

    Args:
        task: "segmentation" or "depth".
        epochs: how many.
        options: sizes.
    """
    stage = {
        "epochs": epochs,
        "batch": BATCH,
        "kl_weight": "data",
        "optimiser": {"name": "adamw", "lr": 3e-3, "schedule": "cosine"},
    }
    return {
        "base": f"scenes-{task}",
        "data": {
            "options": {"size": list(options.size)},
            "splits": {"train": {"length": options.train_scenes}},
        },
        "network": {"name": "unet", "options": {"widths": [16, 32, 64, 128]}},
        # after so few steps every pixel's own doubt shows more of objects and fog
        "method": {"context_weight": 1.0, "stranger_weight": 0.0},
        "posterior": {
            "rank": 8,
            "min_diagonal": 1e-4,
            "whole_image": False,
            "layer_distances": False,
        },
        "context": {"name": "mixed", "options": {"count": 1, "generators": _context()}},
        "stages": [stage],
        "trainer": {"accelerator": "cpu"},
    }


def _context() -> list[dict[str, Any]]:
    """Odd images of many kinds, none of them of the kinds that are tested."""
    return [
        {"name": "noisy_copies", "options": {"variance": 0.1}},
        {"name": "shuffled_patches"},
        {"name": "shifted_colours"},
        {"name": "pasted_mixtures"},
        {"name": "frequency_noise", "options": {"mix": 0.6}},
    ]


def _study(run: Run, task: Task, options: DemoOptions) -> list[Findings]:
    scenes = Scenes(task, options.size, options.test_scenes, split="test", truth=True)
    scales = scales_for(scenes.spec, high=scenes.noise.max_depth, std=options.max_std)
    return study(run.predict, scenes, scales, shown=options.shown)


_COLUMNS: dict[Task, dict[str, str]] = {
    "segmentation": {
        "miou": "mIoU",
        "nll": "NLL (nats)",
        "aleatoric": "mean aleatoric (nats)",
        "epistemic": "mean epistemic (nats)",
    },
    "depth": {
        "rel": "relative error",
        "rms": "RMSE (m)",
        "nll": "NLL (nats)",
        "aleatoric": "mean aleatoric (share of depth)",
        "epistemic": "mean epistemic (share of depth)",
        "noise_correlation": "aleatoric vs true noise (rank correlation)",
    },
}
_SCORES = {
    "image_auroc_epistemic": "odd scene found by epistemic (AUROC)",
    "image_auroc_total": "by total",
    "pixel_auroc_epistemic": "odd pixel found by epistemic (AUROC)",
    "pixel_auroc_total": "by total",
}


def _numbers(task: Task, found: Sequence[Findings], curves: Sequence[tuple[str, str]]) -> Section:
    columns = _COLUMNS[task] | _SCORES
    rows = [[f.kind, *(_text(f.numbers.get(name)) for name in columns)] for f in found]
    note = (
        "AUROC is the probability that something odd gets a larger uncertainty than something "
        "normal: 0.5 is guessing, below 0.5 is upside down. Whole scenes are scored by their mean "
        "uncertainty; single pixels where only part of a scene is odd. One training run, one seed."
    )
    table = Table(["scenes", *columns.values()], rows, note)
    return Section(f"{task.capitalize()}: numbers", tables=[table], curves=curves)


def _text(number: float | None) -> str:
    """Three digits after the point, one from 10 on; a dash where there is no such number."""
    if number is None or number != number:
        return "–"
    return f"{number:.3f}" if abs(number) < 10 else f"{number:.1f}"


def _pictures(task: Task, found: Sequence[Findings]) -> Section:
    text = {
        "segmentation": "The eleven classes of street scenes. The odd scenes have the layout of "
        "the normal ones, so that they compare; objects of no known class are hatched in truth.",
        "depth": "Distance from the camera. The error has the colours of the deviations: where "
        "the uncertainty is right, the two look alike. The sky has no depth: nothing was learned "
        "about it, and the epistemic map should say so.",
    }
    rows = [row for findings in found for row in findings.rows]
    return Section(f"{task.capitalize()}: pictures", [text[task]], rows=rows)


def _page(sections: Sequence[Section], options: DemoOptions, seconds: float) -> Page:
    lead = (
        f"Two small networks learned {options.train_scenes} generated street scenes by functional "
        "variational inference: one forward pass gives the prediction of every pixel with its "
        "epistemic and aleatoric uncertainty. Here they look at held-out scenes of the same kind, "
        "and at scenes unlike any they were trained on."
    )
    footer = (
        f"Made by onesigma in {seconds / 60:.1f} minutes, {options.test_scenes} scenes per row."
    )
    return Page("What the pixels do not know", lead, sections, footer=footer)
