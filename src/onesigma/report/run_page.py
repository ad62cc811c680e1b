"""The page of one run: pictures, its metrics, and how training went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onesigma.data.base import PixelDataset
from onesigma.data.spread import Spread
from onesigma.metrics import METRIC_HEAD, metric_rows
from onesigma.metrics.table import count_images
from onesigma.report.curves import curve_svg, read_logs, smoothed
from onesigma.report.maps import panels
from onesigma.report.page import READING_GUIDE, Page, Row, Section, Table, write_page
from onesigma.report.scales import MapScales, scales_for
from onesigma.training.components import build_dataset
from onesigma.training.predictor import Predictor

_GUIDE = (
    READING_GUIDE[0],
    ("total", "all that is not sure, epistemic and aleatoric together."),
    *READING_GUIDE[1:],
)


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
        shown: how many images of the split become pictures, evenly spread over it: neighbours in
            a video look alike.
        split: default the recipe's `data.evaluate`.
    """
    split = split or run.recipe.data.evaluate
    dataset = build_dataset(run.recipe.data, split, None)
    scales = scales_for(run.spec, high=run.largest_target)
    sections = [_pictures(run, dataset, scales, shown, split)]
    sections += [] if metrics is None else [_metrics(metrics, split)]
    curves = training_curves(run.folder.logs)
    sections += [Section("Training", curves=curves)] if curves else []
    trained = run.recipe.description.partition(" Needs ")[0]
    page = Page(f"Run {run.path.name}", trained, sections, _GUIDE)
    return write_page(page, run.path / "report.html")


def training_curves(logs: Path) -> list[tuple[str, str]]:
    """(caption, SVG) of what the logs hold, smoothed over about ten rows.

    Args:
        logs: folder of the CSV logs.
    """
    read = read_logs(logs)
    known = {
        "fit": "expected log-probability of the training targets; larger is better",
        "kl": "divergence between posterior and prior",
        "val_nll": "negative log-probability of the validation targets; smaller is better",
    }
    curves = []
    for name, caption in known.items():
        rows = read.get(name, [])
        if len(rows) > 1:
            steps, values = zip(*rows, strict=True)
            # looks at the validation split are few and no single batch: nothing to smooth
            line = values if name == "val_nll" else smoothed(values)
            curves.append((caption, curve_svg(steps, {name: line}, "nats per pixel")))
    return curves


def _metrics(metrics: Mapping[str, Any], split: str) -> Section:
    note = f"{count_images(metrics['images'])}, {metrics['pixels']} pixels with a target."
    return Section(
        f"Numbers of the {split} split", tables=[Table([*METRIC_HEAD], metric_rows(metrics), note)]
    )


def _pictures(
    run: Predictor, dataset: PixelDataset, scales: MapScales, shown: int, split: str
) -> Section:
    rows = []
    spread = Spread(dataset, min(shown, len(dataset)))
    for index in range(len(spread)):
        sample = spread[index]
        image, truth = sample["image"], sample["target"]
        pictures = panels(run.predict(image), image, scales, truth, total=True)
        rows.append(Row(sample["name"], pictures))
    return Section(f"Images of the {split} split", rows=rows)
