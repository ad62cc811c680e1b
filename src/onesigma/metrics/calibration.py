"""Do predicted probabilities come true? Calibration errors and curves for segmentation."""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from onesigma.metrics.bins import (
    HistogramMetric,
    ScoreHistogram,
    binned_sum,
    occupied,
    uniform_bins,
    uniform_edges,
)
from onesigma.metrics.counting import CountMetric, Counts, label_pixels, top_class, true_indices

Variant = Literal["paper", "published_code"]
INTERVALS: dict[Variant, int] = {"paper": 10, "published_code": 9}
"""Equal intervals of [0, 1] in the paper's score, and in the code published with it."""


class CalibrationError(CountMetric):
    """ECE = Σ_b (n_b/N) |accuracy_b − confidence_b| and MCE = max_b of the same gap.

    Pixels are binned by the probability of their most probable class into equal intervals
    (lo, hi], 0 in the first. Empty bins count for neither.

    Args:
        bins: number of intervals.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, bins: int = 15, **kwargs: Any) -> None:
        super().__init__({"pixels": (bins,), "confidence": (bins,), "hits": (bins,)}, **kwargs)
        self.bins = bins

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        flat, labels = label_pixels(probs, target, valid)
        top, decision = top_class(flat)
        self.add(self.count(top, decision == labels))

    def count(self, top: Float[Tensor, "p"], correct: Bool[Tensor, "p"]) -> Counts:
        """Pixels, summed confidence and hits of each bin."""
        index = uniform_bins(top, self.bins)
        return {
            "pixels": binned_sum(index, self.bins),
            "confidence": binned_sum(index, self.bins, top),
            "hits": binned_sum(index, self.bins, correct),
        }

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`ece`, `mce` and the reliability diagram `confidence`, `accuracy`, `pixels`."""
        pixels = counts["pixels"]
        confidence, accuracy = counts["confidence"] / pixels, counts["hits"] / pixels
        gap = (accuracy - confidence).abs()
        return {
            "ece": (gap * pixels).nansum(-1) / pixels.sum(-1),
            "mce": _nanmax(gap),
            "confidence": confidence,
            "accuracy": accuracy,
            "pixels": pixels,
        }


class AdaptiveCalibrationError(HistogramMetric):
    """ECE over bins of equal mass: pixels sorted by confidence, cut into B equal groups.

    The order is that of float-bit bins of 1 − confidence; a bin on a cut is shared between its
    neighbours in proportion.

    Args:
        bins: number of groups.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, bins: int = 15, **kwargs: Any) -> None:
        super().__init__({"histogram": 3}, **kwargs)
        self.bins = bins

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        flat, labels = label_pixels(probs, target, valid)
        top, decision = top_class(flat)
        self.add_histograms({"histogram": doubt_histogram(top, decision != labels)})

    def scores(self, counts: Counts) -> Tensor:
        """Σ_b (1/B) |error_b − doubt_b|, doubt = 1 − confidence."""
        pixels, wrong, doubt = occupied(counts["histogram"])
        total = pixels.sum(-1)
        parts = torch.linspace(0, 1, self.bins + 1, dtype=total.dtype, device=total.device)
        cuts = total[..., None] * parts
        wrong, doubt = (cumulated(pixels, x, cuts).diff() for x in (wrong, doubt))
        return (wrong - doubt).abs().sum(-1) / total


class ClasswiseCalibrationError(CountMetric):
    """Mean over classes of Σ_b (n_kb/N) |frequency_kb − mean probability_kb|.

    The probability of every class at every pixel is binned, not the largest alone; all classes
    count, also those that do not occur.

    Args:
        classes: number of classes.
        bins: number of equal intervals (lo, hi], 0 in the first.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, classes: int, bins: int = 15, **kwargs: Any) -> None:
        super().__init__({"table": (3, classes, bins)}, **kwargs)
        self.bins = bins

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        self.add({"table": frequency_table(*label_pixels(probs, target, valid), self.bins)})

    def scores(self, counts: Counts) -> Tensor:
        """The mean over classes."""
        pixels, predicted, hits = counts["table"].unbind(-3)
        return ((hits - predicted).abs().sum(-1) / pixels.sum(-1)).mean(-1)


class FrequencyCalibration(CountMetric):
    """Kendall and Gal's curve: probabilities of all classes pooled, against observed frequencies.

    Args:
        classes: number of classes.
        bins: number of equal intervals (lo, hi], 0 in the first.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, classes: int, bins: int = 10, **kwargs: Any) -> None:
        super().__init__({"table": (3, classes, bins)}, **kwargs)
        self.bins = bins

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        self.add({"table": frequency_table(*label_pixels(probs, target, valid), self.bins)})

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """The curve `predicted`, `observed` with its `pixels`, and the summed square `score`."""
        pixels, predicted, hits = counts["table"].sum(-2).unbind(-2)
        return {
            "predicted": predicted / pixels,
            "observed": hits / pixels,
            "pixels": pixels,
            "score": pooled_score(counts["table"]),
        }


class ImageCalibration(CountMetric):
    """The paper's score: mean over images of Σ_b (observed_b − mean probability_b)².

    Within an image the probabilities of all classes and pixels are pooled; the intervals are not
    weighted, and empty ones count 0. Images without valid pixels are left out.

    Args:
        variant: "paper" has 10 equal intervals, "published_code" the nine between 0, 1/9, ..., 1.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__({"total": (), "images": ()}, **kwargs)
        self.bins = INTERVALS[variant]

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        for i in range(len(probs)):
            one = slice(i, i + 1)
            mask = None if valid is None else valid[one]
            flat, labels = label_pixels(probs[one], target[one], mask)
            self.add(image_count(pooled_score(frequency_table(flat, labels, self.bins))))

    def scores(self, counts: Counts) -> Tensor:
        """Mean over images."""
        return counts["total"] / counts["images"]


def frequency_table(
    flat: Float[Tensor, "c p"], labels: Int[Tensor, "p"], bins: int
) -> Float[Tensor, "3 c b"]:
    """Per class and interval: number of pixels, sum of the probability, number of true ones.

    Most classes of most pixels are in the first interval: it gets what the others leave.
    """
    rows, edges = [], uniform_edges(bins, flat)
    for probs in flat:  # class by class: a row of pixels stays in the cache
        above = probs.index_select(0, true_indices(probs > edges[0]))
        index = uniform_bins(above, bins, edges)
        rows.append(torch.stack([binned_sum(index, bins), binned_sum(index, bins, above)]))
    table = torch.stack(rows, 1)
    table[0, :, 0] = flat.shape[1] - table[0].sum(1)
    table[1, :, 0] = (flat.sum(1, dtype=torch.float64) - table[1].sum(1)).clamp_min(0)
    true = uniform_bins(flat.gather(0, labels[None]).squeeze(0), bins) + labels * bins
    hits = binned_sum(true, len(flat) * bins).view(1, len(flat), bins)
    return torch.cat([table, hits])


def merge_bins(table: Float[Tensor, "3 c f"], bins: int) -> Float[Tensor, "3 c b"]:
    """The table of wider intervals, exact because their edges are among the finer ones."""
    fine = table.shape[2]
    if fine % bins:
        raise ValueError(f"merge_bins got {fine} intervals for {bins}; it wants a multiple.")
    return table.unflatten(2, (bins, fine // bins)).sum(3)


def pooled_score(table: Float[Tensor, "*s 3 c b"]) -> Float[Tensor, "*s"]:
    """Σ_b (observed_b − mean probability_b)², classes pooled, empty intervals 0; NaN if all are."""
    pixels, predicted, hits = table.sum(-2).unbind(-2)
    gap = torch.where(pixels > 0, (hits - predicted) / pixels, 0.0)
    return torch.where(pixels.sum(-1) > 0, gap.square().sum(-1), torch.nan)


def image_count(score: Float[Tensor, ""]) -> Counts:
    """One image's score as counts; an undefined one counts for nothing."""
    defined = ~score.isnan()
    return {"total": torch.where(defined, score, 0.0), "images": defined.double()}


def doubt_histogram(top: Float[Tensor, "p"], wrong: Bool[Tensor, "p"]) -> ScoreHistogram:
    """Pixels, errors and doubt by doubt = 1 − (largest probability), fine where it is near 0.

    Less than 2⁻²⁵, what float32 cannot tell from 0, is ranked as that: it keeps histograms short.
    """
    doubt = (1 - top).clamp_min(0)
    return ScoreHistogram.of(doubt.clamp_min(2**-25), wrong, doubt)


def cumulated(
    pixels: Float[Tensor, "*s b"], values: Float[Tensor, "*s b"], at: Float[Tensor, "*s q"]
) -> Float[Tensor, "*s q"]:
    """Sum of the values over the first `at` pixels, linear within a bin (ties in random order)."""
    if pixels.shape[-1] == 0:
        return at * torch.nan
    place, total = (pad(x.cumsum(-1), (1, 0)) for x in (pixels, values))
    upper = torch.searchsorted(place, at.contiguous()).clamp(1, pixels.shape[-1])
    before, after = place.gather(-1, upper - 1), place.gather(-1, upper)
    share = torch.where(after > before, (at - before) / (after - before), 0.0).clamp(0, 1)
    low = total.gather(-1, upper - 1)
    return low + share * (total.gather(-1, upper) - low)


def _nanmax(values: Float[Tensor, "*s b"]) -> Float[Tensor, "*s"]:
    """Largest defined value, NaN without any."""
    defined = ~values.isnan()
    largest = torch.where(defined, values, -torch.inf).amax(-1)
    return torch.where(defined.any(-1), largest, torch.nan)
