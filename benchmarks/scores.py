"""What was found on every image, kept so that later runs can be paired with it.

One file a method, `results/scores/TASK/METHOD.json.gz`. What was scored in parts, some folds of a
data set at a time, has a file for each, `METHOD-folds-012.json.gz`, and is put together when it is
read.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

from measuring import RESULTS
from onesigma.metrics.bootstrap import as_number

SHOWN = (
    "miou", "ece", "aurc", "nll", "image_calibration",
    "rel", "rms", "crps", "ause_rel", "ause_rms", "set_calibration",
)  # fmt: skip
PART = "-folds-"


def family(name: str) -> str:
    """A run's name without its seed."""
    stem, _, seed = name.rpartition("-")
    return stem if seed.isdigit() else name


def keep(task: str, name: str, found: Mapping[str, Any]) -> None:
    """Write down the scores of a method, the same bytes for the same scores."""
    file = RESULTS / "scores" / task / f"{name}.json.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({split: pairable(metrics) for split, metrics in found.items()})
    short = json.loads(text, parse_float=lambda digits: float(f"{float(digits):.7g}"))
    file.write_bytes(gzip.compress(json.dumps(short).encode(), mtime=0))


def kept(task: str, like: str | None = None) -> dict[str, Any]:
    """The scores of all methods that were measured, parts put together.

    Args:
        task: of the comparison.
        like: leave out the folds that this method does not have.
    """
    files = sorted((RESULTS / "scores" / task).glob("*.json.gz"))
    named = [(file, *file.name.removesuffix(".json.gz").partition(PART)[::2]) for file in files]
    wanted = {fold for _, name, part in named if like in (None, name) for fold in part}
    parts: dict[str, list[Any]] = {}
    for file, name, part in named:
        if wanted.issuperset(part):
            parts.setdefault(name, []).append(json.loads(gzip.decompress(file.read_bytes())))
    return {
        name: {split: together([one[split] for one in each]) for split in each[0]}
        for name, each in parts.items()
    }


def pairable(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The set's values, and of single images what a paired comparison of `SHOWN` needs."""
    kept = summary(metrics)
    if metrics["task"] == "anomaly":
        return kept
    needed = {"name", "pixels", "intersection", "union", *SHOWN}
    kept["per_image"] = [
        {key: value for key, value in record.items() if key in needed}
        for record in metrics["per_image"]
    ]
    values = {name: x for name, x in metrics["draws"]["values"].items() if name in SHOWN}
    return {**kept, "draws": {**metrics["draws"], "values": values}}


def summary(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What a table needs: the set's values and intervals, without images and draws."""
    kept = {key: metrics[key] for key in ("images", "set", "intervals", "mean") if key in metrics}
    if "anomaly" in metrics:
        kept["anomaly"] = summary(metrics["anomaly"])
    return kept


def together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parts of a set of images as one.

    What is a mean over images or pixels is that of all. What ranks or counts the pixels of a set
    (AUSE, calibration of the set) is the mean of the parts by their images, each part drawn anew on
    its own in a bootstrap.
    """
    if len(parts) == 1:
        return dict(parts[0])
    images = sum(part["images"] for part in parts)
    shares = [part["images"] / images for part in parts]
    rules = {name: x["over"] for name, x in parts[0]["intervals"].items()}

    def pooled(name: str) -> float:
        power = 2 if rules[name] == "squares" else 1
        values = [as_number(part["intervals"][name]["value"]) ** power for part in parts]
        return float(_mean(values, shares) ** (1 / power))

    intervals = {name: {"value": pooled(name), "over": rule} for name, rule in rules.items()}
    draws = parts[0]["draws"]
    values = {
        name: [
            _mean(drawn, shares)
            for drawn in zip(*(part["draws"]["values"][name] for part in parts), strict=True)
        ]
        for name in draws["values"]
    }
    return {
        "images": images,
        "set": {name: x["value"] for name, x in intervals.items()},
        "intervals": intervals,
        "per_image": [record for part in parts for record in part["per_image"]],
        "draws": {**draws, "values": values},
    }


def mean_over(folds: Sequence[Any]) -> Any:
    """Results of the same form, number by number."""
    if isinstance(folds[0], Mapping):
        return {key: mean_over([fold[key] for fold in folds]) for key in folds[0]}
    return round(sum(folds) / len(folds), 4)


def _mean(values: Sequence[float], shares: Sequence[float]) -> float:
    return sum(share * value for share, value in zip(shares, values, strict=True))
