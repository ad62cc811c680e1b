"""How sure are the metrics? Bootstrap over images, alone and paired between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

Record = Mapping[str, Any]
Metrics = Mapping[str, Any]  # of a run
Rule = Literal["images", "pixels", "squares", "classes"]
"""How a value of the set follows from its images: their mean, the mean weighted by valid pixels,
the root of that mean of squares, or the mean over classes of summed intersection over union."""

POOLED = "counts"
"""What stands for the rule of a value that is recomputed from the counts of the drawn images."""


def bootstrap_intervals(
    records: Sequence[Record],
    rules: Mapping[str, Rule],
    resamples: int = 1000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> dict[str, dict[str, Any]]:
    """Percentile intervals of every value, images drawn with replacement.

    Args:
        records: one for each image.
        rules: names of the values and how each is pooled over images.
        resamples: number of bootstrap sets.
        level: probability of the interval.
        generator: source of randomness, default one seeded with 0.
    """
    weights = resample_weights(len(records), resamples, generator)
    found = {}
    for name, rule in rules.items():
        value, draws = _value_and_draws(records, name, rule, weights)
        low, high = percentiles(draws, level, len(records))
        found[name] = {"value": value, "low": low, "high": high, "over": rule}
    return found


def paired_bootstrap(
    first: Metrics | Sequence[Metrics],
    second: Metrics | Sequence[Metrics],
    resamples: int = 1000,
    level: float = 0.95,
    generator: torch.Generator | None = None,
) -> dict[str, dict[str, Any]]:
    """Second minus first run for every value both have, both on the same resampled images.

    Values pooled over the set come with their draws, made on sets that depend on the names of the
    images and the seed alone; they are left out if a run has none or made them otherwise.

    Args:
        first: metrics of a run, as a suite computes them; of several seeds, their mean counts.
        second: metrics of another run on the same images, or of several seeds.
        resamples: number of bootstrap sets, but for the values that come with draws.
        level: probability of the interval.
        generator: source of randomness, default one seeded with 0.
    """
    sides = [[run] if isinstance(run, Mapping) else list(run) for run in (first, second)]
    runs = [run for side in sides for run in side]
    records = _align([run["per_image"] for run in runs])
    images = len(records[0])
    weights = resample_weights(images, resamples, generator)
    found = {}
    for name in comparable_values(*runs):
        rule = runs[0]["intervals"][name]["over"]
        each = [
            _stored_draws(run, name)
            if rule == POOLED
            else _value_and_draws(records[i], name, rule, weights)
            for i, run in enumerate(runs)
        ]
        parts = each[: len(sides[0])], each[len(sides[0]) :]
        (a, a_draws), (b, b_draws) = (_mean_of_seeds(part) for part in parts)
        low, high = percentiles(b_draws - a_draws, level, images)
        found[name] = {"first": a, "second": b, "difference": b - a, "low": low, "high": high}
        found[name]["excludes_zero"] = low > 0 or high < 0
    return found


def comparable_values(*runs: Metrics) -> list[str]:
    """Values all runs pool over images in the same way, on the same sets where it matters."""
    draws = [run.get("draws", {}) for run in runs]
    sets = [tuple(one.get(key) for key in ("seed", "resamples")) for one in draws]
    same_sets = all(one == sets[0] for one in sets)
    stored = set.intersection(*({*one.get("values", ())} for one in draws)) if same_sets else set()
    rules = [{name: x["over"] for name, x in run["intervals"].items()} for run in runs]
    shared = [name for name, rule in rules[0].items() if all(r.get(name) == rule for r in rules)]
    return [name for name in shared if rules[0][name] != POOLED or name in stored]


def _mean_of_seeds(runs: Sequence[tuple[float, Tensor]]) -> tuple[float, Tensor]:
    values, draws = zip(*runs, strict=True)
    return sum(values) / len(values), torch.stack(draws).mean(0)


def _stored_draws(run: Mapping[str, Any], name: str) -> tuple[float, Tensor]:
    draws = [as_number(x) for x in run["draws"]["values"][name]]
    return as_number(run["intervals"][name]["value"]), torch.tensor(draws, dtype=torch.float64)


def resample_weights(
    images: int, resamples: int, generator: torch.Generator | None = None
) -> Float[Tensor, "b n"]:
    """How often each image occurs in each bootstrap set; the counts of a row sum to n."""
    generator = generator or torch.Generator().manual_seed(0)
    if images == 0:
        return torch.zeros(resamples, 0, dtype=torch.float64)
    drawn = torch.randint(images, (resamples, images), generator=generator)
    ones = torch.ones(1, dtype=torch.float64).expand_as(drawn)
    return torch.zeros(resamples, images, dtype=torch.float64).scatter_add_(1, drawn, ones)


def pooled_value(
    records: Sequence[Record], name: str, rule: Rule, weights: Float[Tensor, "b n"]
) -> Float[Tensor, "b"]:
    """The value of sets in which image i occurs weights[b, i] times.

    A mean over images leaves those out whose value is undefined. One over pixels leaves those out
    that were not asked for it; if the value of an image with pixels is undefined, so is the mean.
    """
    if not records:
        return weights.new_full((len(weights),), torch.nan)
    if rule == "classes":
        both, either = (weights @ _column(records, key) for key in ("intersection", "union"))
        return (both / either).nanmean(1)
    values = _column(records, name)
    if rule != "images":
        pixels = _column(records, "pixels")
        asked = torch.tensor([name in record for record in records])
        if bool((asked & values.isnan() & (pixels > 0)).any()):
            return weights.new_full((len(weights),), torch.nan)
        weights = weights * pixels
    if rule == "squares":
        return _weighted_mean(values.square(), weights).sqrt()
    return _weighted_mean(values, weights)


def as_number(value: int | float | str | None) -> float:
    """A number read back from JSON, where None stands for NaN and "inf" for infinity."""
    return float("nan") if value is None else float(value)


def _column(records: Sequence[Record], name: str) -> Tensor:
    """The values of all images, NaN where one has none."""
    rows = [record.get(name) for record in records]
    if rows and isinstance(rows[0], list):
        return torch.tensor(rows, dtype=torch.float64)
    return torch.tensor([as_number(x) for x in rows], dtype=torch.float64)


def _weighted_mean(values: Float[Tensor, "n"], weights: Float[Tensor, "b n"]) -> Tensor:
    defined = ~values.isnan()
    kept = weights[:, defined]
    # 0 · ∞ must not spoil the sets that leave an infinite image out
    total = torch.where(kept > 0, kept * values[defined], 0.0).sum(1)
    return total / kept.sum(1)


def _value_and_draws(
    records: Sequence[Record], name: str, rule: Rule, weights: Float[Tensor, "b n"]
) -> tuple[float, Tensor]:
    """The value of the images themselves, and of the bootstrap sets."""
    once = weights.new_ones(1, len(records))
    value = pooled_value(records, name, rule, once)[0].item()
    return value, pooled_value(records, name, rule, weights)


def percentiles(draws: Float[Tensor, "b"], level: float, images: int) -> tuple[float, float]:
    """The central interval of the defined draws; NaN for fewer than two images."""
    defined = draws[~draws.isnan()]
    if images < 2 or len(defined) == 0:
        return float("nan"), float("nan")
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    low, high = defined.quantile(tails, interpolation="nearest").tolist()  # ∞ − ∞ is no number
    return low, high


def _align(runs: Sequence[Sequence[Record]]) -> list[Sequence[Record]]:
    """The records of all runs in the same order of images."""
    names = [record["name"] for record in runs[0]]
    aligned: list[Sequence[Record]] = []
    for run in runs:
        by_name = {record["name"]: record for record in run}
        unpaired = sorted({*names} ^ {*by_name})
        if unpaired or len({*names}) != len(names) or len(by_name) != len(run):
            raise ValueError(
                f"paired_bootstrap got runs over {len(names)} and {len(run)} images that do not "
                f"pair by name (for instance {unpaired[:3]}); evaluate both runs on the same "
                "images, each with its own name."
            )
        aligned.append([by_name[name] for name in names])
    return aligned
