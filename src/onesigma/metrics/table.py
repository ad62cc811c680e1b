"""Metrics as text a person can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onesigma.metrics.bootstrap import as_number, paired_bootstrap

_HEAD = ("metric", "set", "over images", "95 % interval")


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of nested metrics by dotted name; curves and lists are left out."""
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flat_values(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            flat[f"{prefix}{key}"] = as_number(value)
    return flat


def metric_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Name, value over the set, value pooled over images, and its interval."""
    values, intervals = flat_values(metrics.get("set", metrics)), metrics.get("intervals", {})
    names = [*values, *(name for name in intervals if name not in values)]
    rows: list[tuple[str, ...]] = []
    for name in names:
        entry = intervals.get(name, {})
        pooled = _text(entry["value"]) if entry else ""
        span = _span(entry["low"], entry["high"]) if entry else ""
        rows.append((name, _text(values[name]) if name in values else "", pooled, span))
    return rows


def format_metrics(metrics: Mapping[str, Any]) -> list[str]:
    """Lines of a table of what one suite computed; absent classes are named below it."""
    lines = format_rows([_HEAD, *metric_rows(metrics)])
    if "set" not in metrics:
        return lines
    lines.append(f"{metrics['images']} images, {metrics['pixels']} valid values")
    if metrics["set"].get("absent"):
        absent = ", ".join(metrics["set"]["absent"])
        lines.append(f"absent from truth and prediction, not averaged in: {absent}")
    return lines


def comparison_rows(
    runs: Mapping[str, Mapping[str, Any]],
    resamples: int = 1000,
    generator: torch.Generator | None = None,
) -> list[tuple[str, ...]]:
    """All runs against the first: values, differences with intervals, * where 0 is excluded."""
    if len(runs) < 2:
        raise ValueError(f"A comparison got {len(runs)} run; it wants two or more.")
    (base, first), *others = runs.items()
    head: list[str] = ["metric", base]
    columns: list[dict[str, dict[str, Any]]] = []
    for name, metrics in others:
        head += [name, f"{name} - {base}", "95 % interval", ""]
        columns.append(paired_bootstrap(first, metrics, resamples, generator=generator))
    shared = [name for name in columns[0] if all(name in column for column in columns)]
    return [tuple(head), *(_comparison_row(name, columns) for name in shared)]


def format_comparison(
    runs: Mapping[str, Mapping[str, Any]],
    resamples: int = 1000,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Lines of a table of several runs against the first."""
    return format_rows(comparison_rows(runs, resamples, generator))


def format_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned lines: names left, numbers right, a rule under the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


def _comparison_row(
    name: str, columns: Sequence[Mapping[str, Mapping[str, Any]]]
) -> tuple[str, ...]:
    row = [name, _text(columns[0][name]["first"])]
    for column in columns:
        entry = column[name]
        row += [_text(entry["second"]), f"{entry['difference']:+.4g}"]
        row += [_span(entry["low"], entry["high"]), "*" if entry["excludes_zero"] else ""]
    return tuple(row)


def _text(value: int | float | str | None) -> str:
    return f"{as_number(value):.4g}"


def _span(low: int | float | str | None, high: int | float | str | None) -> str:
    return f"[{_text(low)}, {_text(high)}]"
