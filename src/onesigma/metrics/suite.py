"""A suite: all metrics of a task, over the set and for each image, in one pass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, distributed

from onesigma.metrics.bootstrap import (
    POOLED,
    Rule,
    as_number,
    bootstrap_intervals,
    percentiles,
    resample_weights,
)
from onesigma.metrics.counting import CountMetric, Counts
from onesigma.metrics.image_counts import ImageCounts, drawn_values


class Suite(ABC):
    """Metrics that see the same images: counts for the set, a record and counts for each image.

    The counts of the set do not grow; a record is a fixed number of scalars, and the counts of an
    image are at most as many as there are bins, whatever its size. Subclasses add `update`.

    Args:
        metrics: the metrics of the set, by name.
        rules: the per-image values that get intervals, and how each is pooled over images.
    """

    task: str

    def __init__(self, metrics: Mapping[str, CountMetric], rules: Mapping[str, Rule]) -> None:
        self.metrics = dict(metrics)
        self.rules = dict(rules)
        self.records: list[dict[str, Any]] = []
        self.counts: list[ImageCounts] = []

    def compute(
        self, resamples: int = 1000, generator: torch.Generator | None = None
    ) -> dict[str, Any]:
        """Everything as nested dicts for JSON: NaN becomes None, infinity "inf".

        In a distributed run all processes must call it; each gets the metrics of all images.

        Args:
            resamples: bootstrap sets for the intervals.
            generator: source of randomness of the bootstrap, default one seeded with 0.
        """
        records, counts = _gathered(self.records), _gathered(self.counts)
        seed = 0 if generator is None else generator.initial_seed()
        values = self._set_values(records)
        flat, names = flat_values(as_json(values)), [record["name"] for record in records]
        weights = resample_weights(len(names), resamples, torch.Generator().manual_seed(seed))
        draws = self._draws(flat, [counts[i] for i in _by_name(names)], weights)
        found = {
            "task": self.task,
            "images": len(records),
            "pixels": int(sum(record["pixels"] for record in records)),
            "set": values,
            "intervals": {
                **bootstrap_intervals(records, self.rules, resamples, generator=generator),
                **_pooled_intervals(flat, draws, len(records)),
            },
            "per_image": records,
            "draws": {"seed": seed, "resamples": resamples, "values": _short(draws)},
        }
        return as_json(found)

    def merge(self, other: Suite) -> None:
        """Add what another suite of the same kind has seen, in another process for instance."""
        for name, metric in self.metrics.items():
            metric.merge_state(other.metrics[name])
        self.records += other.records
        self.counts += other.counts

    def reset(self) -> None:
        """Forget everything seen."""
        for metric in self.metrics.values():
            metric.reset()
        self.records.clear()
        self.counts.clear()

    def to(self, device: torch.device | str) -> None:
        """Move the counts to where the predictions are."""
        for metric in self.metrics.values():
            if metric.device != torch.device(device):
                metric.to(device)

    @abstractmethod
    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The values over the whole set."""

    @abstractmethod
    def _drawn_values(self, counts: Counts) -> Mapping[str, Tensor]:
        """Values of many sets from their summed counts, named as in the flat set values."""

    def _draws(
        self,
        values: Mapping[str, float],
        counts: Sequence[ImageCounts],
        weights: Float[Tensor, "b n"],
    ) -> dict[str, Tensor]:
        """Pooled values of the drawn sets, shifted by what wide bins do to the set itself."""
        once = torch.cat([weights.new_ones(1, len(counts)), weights])
        found = drawn_values(counts, self._drawn_values, once)
        return {name: x[1:] + (values[name] - x[0]) for name, x in found.items()}

    def _value(self, name: str) -> Any:
        """The value of one metric over the set, over all processes."""
        metric = self.metrics[name]
        with metric.sync_context():
            return metric.scores(metric.totals())

    def _record(self, name: str, values: Mapping[str, Any], counts: ImageCounts) -> None:
        self.records.append({"name": name, **as_json(values)})
        self.counts.append(counts)

    def _names(self, names: Sequence[str] | None, count: int) -> Sequence[str]:
        """The given names, or running numbers."""
        if names is None:
            return [f"{len(self.records) + i:06d}" for i in range(count)]
        if len(names) != count:
            raise ValueError(f"The suite got {len(names)} names for {count} images.")
        return names


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of nested metrics by dotted name; curves and lists are left out."""
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flat_values(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            flat[f"{prefix}{key}"] = as_number(value)
    return flat


def _by_name(names: Sequence[str]) -> list[int]:
    """Images in the order of their names: runs that saw them in another order have equal sets."""
    return sorted(range(len(names)), key=names.__getitem__)


def _pooled_intervals(
    values: Mapping[str, float], draws: Mapping[str, Tensor], images: int, level: float = 0.95
) -> dict[str, dict[str, Any]]:
    """The values of the set with the percentiles of their draws."""
    found = {}
    for name, drawn in draws.items():
        low, high = percentiles(drawn, level, images)
        found[name] = {"value": values[name], "low": low, "high": high, "over": POOLED}
    return found


def _short(draws: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Draws to seven digits, all that a file needs to hold."""
    return {name: [float(f"{x:.7g}") for x in drawn.tolist()] for name, drawn in draws.items()}


def _gathered(rows: list[Any]) -> list[Any]:
    """The rows of all processes."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return list(rows)
    parts: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(parts, rows)
    return [row for part in parts for row in part]


def as_json(value: Any) -> Any:
    """Tensors as numbers and lists, NaN as None, ±infinity as a string Python's float reads."""
    if isinstance(value, Tensor):
        return as_json(value.tolist())
    if isinstance(value, Mapping):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
