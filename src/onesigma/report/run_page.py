"""The page of one run: its metrics, how training went, and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onesigma.data.base import PixelDataset
from onesigma.metrics import METRIC_HEAD, metric_rows
from onesigma.report.curves import curve_svg, read_logs, smoothed
from onesigma.report.maps import panels
from onesigma.report.page import Page, Row, Section, Table, write_page
from onesigma.report.scales import MapScales, scales_for
from onesigma.training.components import build_dataset
from onesigma.training.predictor import Predictor


def write_run_page(
    run: Predictor,
    metrics: Mapping[str, Any] | None = None,
    shown: int = 6,
    split: str | None = None,
) -> Path:
    """Write `report.html` into the folder of a run; returns its path.

    Args:
        run: loaded.
        metrics: as `evaluate` returns them; without them the page has none.
        shown: how many images of the split become pictures.
        split: default the recipe's `data.evaluate`.
    """
    split = split or run.recipe.data.evaluate
    dataset = build_dataset(run.recipe.data, split, None)
    scales = scales_for(run.spec, high=run.largest_target)
    sections = [] if metrics is None else [_metrics(metrics)]
    curves = training_curves(run.folder.logs)
    sections += [Section("Training", curves=curves)] if curves else []
    sections += [_pictures(run, dataset, scales, shown, split)]
    trained = run.recipe.description.partition(" Needs ")[0]
    page = Page(f"Run {run.path.name}", trained, sections)
    return write_page(page, run.path / "report.html")


def training_curves(logs: Path) -> list[tuple[str, str]]:
    """(caption, SVG) of what the logs hold, smoothed over about ten rows.

    Args:
        logs: folder of the CSV logs.
    """
    read = read_logs(logs)
    if len(read.get("step", [])) < 2:
        return []
    known = {
        "fit": "expected log-probability of the training targets; larger is better",
        "kl": "divergence between posterior and prior",
    }
    return [
        (caption, curve_svg(read["step"], {name: smoothed(read[name])}, "nats per pixel"))
        for name, caption in known.items()
        if name in read
    ]


def _metrics(metrics: Mapping[str, Any]) -> Section:
    note = f"{metrics['images']} images, {metrics['pixels']} pixels with a target."
    return Section("Numbers", tables=[Table([*METRIC_HEAD], metric_rows(metrics), note)])


def _pictures(
    run: Predictor, dataset: PixelDataset, scales: MapScales, shown: int, split: str
) -> Section:
    rows = []
    for index in range(min(shown, len(dataset))):
        sample = dataset[index]
        pictures = panels(run.predict(sample["image"]), sample["image"], scales, sample["target"])
        rows.append(Row(sample["name"], pictures))
    return Section(f"Images of the {split} split", rows=rows)
