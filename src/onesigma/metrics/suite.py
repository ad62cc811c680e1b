"""A suite: all metrics of a task, over the set and for each image, in one pass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from onesigma.metrics.bootstrap import Rule, bootstrap_intervals
from onesigma.metrics.counting import CountMetric


class Suite(ABC):
    """Metrics that see the same images: counts for the set, a record of values for each image.

    The counts do not grow; a record is a fixed number of scalars. Subclasses add `update`.

    Args:
        metrics: the metrics of the set, by name.
        rules: the per-image values that get intervals, and how each is pooled over images.
    """

    task: str

    def __init__(self, metrics: Mapping[str, CountMetric], rules: Mapping[str, Rule]) -> None:
        self.metrics = dict(metrics)
        self.rules = dict(rules)
        self.records: list[dict[str, Any]] = []

    def compute(
        self, resamples: int = 1000, generator: torch.Generator | None = None
    ) -> dict[str, Any]:
        """Everything as nested dicts for JSON: NaN becomes None, infinity "inf".

        In a distributed run all processes must call it; each gets the metrics of all images.

        Args:
            resamples: bootstrap sets for the intervals.
            generator: source of randomness of the bootstrap, default one seeded with 0.
        """
        records = self._all_records()
        found = {
            "task": self.task,
            "images": len(records),
            "pixels": int(sum(record["pixels"] for record in records)),
            "set": self._set_values(records),
            "intervals": bootstrap_intervals(records, self.rules, resamples, generator=generator),
            "per_image": records,
        }
        return as_json(found)

    def merge(self, other: Suite) -> None:
        """Add what another suite of the same kind has seen, in another process for instance."""
        for name, metric in self.metrics.items():
            metric.merge_state(other.metrics[name])
        self.records += other.records

    def reset(self) -> None:
        """Forget everything seen."""
        for metric in self.metrics.values():
            metric.reset()
        self.records.clear()

    def to(self, device: torch.device | str) -> None:
        """Move the counts to where the predictions are."""
        for metric in self.metrics.values():
            if metric.device != torch.device(device):
                metric.to(device)

    @abstractmethod
    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The values over the whole set."""

    def _value(self, name: str) -> Any:
        """The value of one metric over the set, over all processes."""
        metric = self.metrics[name]
        with metric.sync_context():
            return metric.scores(metric.totals())

    def _record(self, name: str, values: Mapping[str, Any]) -> None:
        self.records.append({"name": name, **as_json(values)})

    def _names(self, names: Sequence[str] | None, count: int) -> Sequence[str]:
        """The given names, or running numbers."""
        if names is None:
            return [f"{len(self.records) + i:06d}" for i in range(count)]
        if len(names) != count:
            raise ValueError(f"The suite got {len(names)} names for {count} images.")
        return names

    def _all_records(self) -> list[dict[str, Any]]:
        if not (distributed.is_available() and distributed.is_initialized()):
            return list(self.records)
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, self.records)
        return [record for part in parts for record in part]


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
