"""Metrics as text a person can read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onesigma.metrics.bootstrap import as_number, comparable_values, paired_bootstrap
from onesigma.metrics.suite import flat_values

METRIC_HEAD = ("metric", "value", "95 % interval")
_PARTS = ("epistemic", "anomaly")


def metric_rows(metrics: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Name, value and interval, of the suite and of what deeper suites found beside it.

    What nothing defines has no row.
    """
    rows: list[tuple[str, ...]] = []
    for prefix, part in _parts(metrics).items():
        values, intervals = flat_values(part.get("set", part)), part.get("intervals", {})
        values |= {
            name: as_number(x["value"]) for name, x in intervals.items() if name not in values
        }
        for name, value in values.items():
            if math.isnan(value):
                continue
            entry = intervals.get(name)
            span = _span(entry["low"], entry["high"]) if entry else ""
            rows.append((prefix + name, _text(value), span))
    return rows


def _parts(metrics: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The suites of an evaluation by the prefix of their names."""
    return {"": metrics, **{f"{name}.": metrics[name] for name in _PARTS if name in metrics}}


def count_images(count: int) -> str:
    """How many, in words."""
    return "1 image" if count == 1 else f"{count} images"


def format_metrics(metrics: Mapping[str, Any]) -> list[str]:
    """Lines of a table of what suites computed; absent classes are named below it."""
    lines = format_rows([METRIC_HEAD, *metric_rows(metrics)])
    if "set" not in metrics:
        return lines
    lines.append(f"{count_images(metrics['images'])}, {metrics['pixels']} valid values")
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
        columns.append(_compared(first, metrics, resamples, generator))
    shared = [name for name in columns[0] if all(name in column for column in columns)]
    return [tuple(head), *(_comparison_row(name, columns) for name in shared)]


def _compared(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    resamples: int,
    generator: torch.Generator | None,
) -> dict[str, dict[str, Any]]:
    """Paired differences of all suites that both runs have."""
    one, two = _parts(first), _parts(second)
    found: dict[str, dict[str, Any]] = {}
    for prefix in one:
        if prefix in two and all("per_image" in parts[prefix] for parts in (one, two)):
            pairs = paired_bootstrap(one[prefix], two[prefix], resamples, generator=generator)
            defined = {name: x for name, x in pairs.items() if not math.isnan(x["first"])}
            found |= {prefix + name: entry for name, entry in defined.items()}
    return found


def incomparable_values(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Values all runs have of which one was evaluated in another way: by an older version, say."""
    parts = [_parts(metrics) for metrics in runs.values()]
    found = []
    for prefix in (name for name in parts[0] if all(name in part for part in parts)):
        first, *others = (part[prefix] for part in parts)
        names = [*first.get("intervals", ())]
        for other in others:
            if "intervals" not in first or "intervals" not in other:
                continue
            known = {*comparable_values(first, other)}
            missing = [x for x in names if x in other["intervals"] and x not in known]
            found += [prefix + x for x in missing if prefix + x not in found]
    return found


def format_comparison(
    runs: Mapping[str, Mapping[str, Any]],
    resamples: int = 1000,
    generator: torch.Generator | None = None,
) -> list[str]:
    """Lines of a table of several runs against the first."""
    lines = format_rows(comparison_rows(runs, resamples, generator))
    missing = incomparable_values(runs)
    if missing:
        lines.append(
            f"left out, because the runs were evaluated differently: {', '.join(missing)}; "
            "evaluate them again to compare these"
        )
    return lines


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
    # one image alone has no interval
    known = not (math.isnan(as_number(low)) and math.isnan(as_number(high)))
    return f"[{_text(low)}, {_text(high)}]" if known else ""
