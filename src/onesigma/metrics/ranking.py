"""Does uncertainty rank errors and anomalies? Areas under curves, from score histograms."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onesigma.metrics.bins import HistogramMetric, ScoreHistogram, occupied
from onesigma.metrics.calibration import cumulated
from onesigma.metrics.counting import Counts, map_pixels, output_pixels, target_mask


class RiskCoverage(HistogramMetric):
    """Risk when only the surest pixels are kept: AURC and AUGRC.

    AURC = (1/N) Σ_i R_i/i and AUGRC = (1/N) Σ_i R_i/N, with R_i the summed error of the i surest
    pixels. Pixels in one score bin are taken in random order: the value is the exact expectation.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"histogram": 2}, **kwargs)

    def update(
        self,
        uncertainty: Float[Tensor, "n h w"],
        error: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            uncertainty: larger = less sure.
            error: what a pixel costs, "n h w", for a label whether it is wrong.
            valid: pixels to count, default all.
        """
        score, cost = map_pixels(valid, uncertainty, error)
        self.add_histograms({"histogram": ScoreHistogram.of(score, cost)})

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`aurc` and `augrc`."""
        pixels, error = occupied(counts["histogram"][:2])
        total = pixels.sum()
        before, risk = pixels.cumsum(0) - pixels, error.cumsum(0) - error
        rate = error / pixels
        # Σ_{i≤k} (R₀ + r i)/(C₀ + i) = e + (R₀ − r C₀) (ψ(C₀ + k + 1) − ψ(C₀ + 1))
        spread = torch.digamma(torch.cat([before, total[None]]) + 1).diff()
        aurc = (error + (risk - rate * before) * spread).sum() / total
        # Σ_{i≤k} (R₀ + r i) = k R₀ + e (k + 1)/2
        augrc = (pixels * risk + error * (pixels + 1) / 2).sum() / total**2
        return {"aurc": aurc, "augrc": augrc}


class Sparsification(HistogramMetric):
    """AUSE and AURG: error of the pixels left when the most uncertain k/K are removed, k = 0..K.

    AUSE is the trapezoid area between that curve and the oracle's, which removes the largest
    errors; AURG the area between the constant error of random removal and the curve. All curves
    but the constant end at 0 when nothing is left. Normalised areas have curves divided by the
    error of all pixels.

    Args:
        intervals: K.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, intervals: int = 50, **kwargs: Any) -> None:
        super().__init__({"uncertainty": 3, "oracle_rel": 2, "oracle_rms": 2}, **kwargs)
        self.intervals = intervals

    def update(
        self,
        uncertainty: Float[Tensor, "n c h w"],
        mean: Float[Tensor, "n c h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        mask = target_mask(target, valid)
        self.add_histograms(self.count(*output_pixels(mask, uncertainty, mean, target)))

    def count(
        self,
        uncertainty: Float[Tensor, "p"],
        mean: Float[Tensor, "p"],
        target: Float[Tensor, "p"],
    ) -> dict[str, ScoreHistogram]:
        """Errors by uncertainty, and by themselves."""
        error = (mean - target).abs()
        relative = torch.where(target > 0, error / target, torch.nan)
        return {
            "uncertainty": ScoreHistogram.of(uncertainty, relative, error.double().square()),
            "oracle_rel": ScoreHistogram.of(relative, relative),
            "oracle_rms": ScoreHistogram.of(error, error.double().square()),
        }

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`ause_rel`, `aurg_rel`, `ause_rms`, `aurg_rms`, and each with `_normalised`."""
        pixels, relative, square = occupied(counts["uncertainty"])
        areas: dict[str, Tensor] = {}
        for name, values, power in (("rel", relative, 1.0), ("rms", square, 0.5)):
            curve = self._curve(pixels, values) ** power
            oracle = self._curve(*occupied(counts[f"oracle_{name}"])) ** power
            ause, aurg = _area(curve - oracle), curve[0] - _area(curve)
            areas |= {f"ause_{name}": ause, f"aurg_{name}": aurg}
            areas |= {f"ause_{name}_normalised": ause / curve[0]}
            areas |= {f"aurg_{name}_normalised": aurg / curve[0]}
        return areas

    def _curve(
        self, pixels: Float[Tensor, "b"], values: Float[Tensor, "b"]
    ) -> Float[Tensor, "points"]:
        """Mean of the values over the (1 − k/K) N first pixels, k = 0..K; 0 for none."""
        steps = torch.arange(self.intervals, -1, -1, dtype=pixels.dtype, device=pixels.device)
        if len(pixels) == 0:
            return steps * torch.nan
        kept = steps / self.intervals * pixels.sum()
        return torch.where(kept > 0, cumulated(pixels, values, kept) / kept, 0.0)


class Anomaly(HistogramMetric):
    """Does a score tell anomalous pixels from others? AUROC, average precision, FPR at a recall.

    Args:
        recall: share of anomalies found at which the false positive rate is read.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, recall: float = 0.95, **kwargs: Any) -> None:
        super().__init__({"histogram": 2}, **kwargs)
        self.recall = recall

    def update(
        self,
        score: Float[Tensor, "n h w"],
        target: Bool[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            score: larger = more anomalous.
            target: true where the pixel is anomalous.
            valid: pixels to count, default all.
        """
        flat, anomalous = map_pixels(valid, score, target)
        self.add_histograms({"histogram": ScoreHistogram.of(flat, anomalous)})

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`auroc`, `average_precision` and `fpr95`; NaN unless both kinds occur."""
        pixels, positive = occupied(counts["histogram"])
        return detection_scores(positive, pixels - positive, self.recall)


def detection_scores(
    positive: Float[Tensor, "b"], negative: Float[Tensor, "b"], recall: float = 0.95
) -> dict[str, Tensor]:
    """AUROC, average precision and FPR at a recall of groups in ascending order of the score.

    A group is a set of tied scores: trapezoids in the ROC curve, one step in precision as in
    scikit-learn, linear interpolation at the recall.
    """
    found, alarms = positive.flip(0).cumsum(0), negative.flip(0).cumsum(0)
    if len(found) == 0 or found[-1] == 0 or alarms[-1] == 0:
        nan = positive.new_tensor(torch.nan)
        return {"auroc": nan, "average_precision": nan, "fpr95": nan}
    positive, negative = positive.flip(0), negative.flip(0)
    # AUROC = Σ_g n_g (TP_{g−1} + p_g/2) / (P N)
    auroc = (negative * (found - positive / 2)).sum() / (found[-1] * alarms[-1])
    precision = (positive * found / (found + alarms)).sum() / found[-1]
    wanted = (recall * found[-1]).reshape(1)
    return {
        "auroc": auroc,
        "average_precision": precision,
        "fpr95": cumulated(positive, negative, wanted)[0] / alarms[-1],
    }


def exact_detection_scores(
    score: Float[Tensor, "p"], target: Bool[Tensor, "p"], recall: float = 0.95
) -> dict[str, Tensor]:
    """The same without bins, for as many scores as fit in memory: one for each image, say."""
    values, group = score.unique(return_inverse=True)
    pixels, positive = (
        torch.bincount(index, minlength=len(values)).double() for index in (group, group[target])
    )
    return detection_scores(positive, pixels - positive, recall)


def _area(curve: Float[Tensor, "points"]) -> Float[Tensor, ""]:
    """∫₀¹ by trapezoids."""
    return torch.trapezoid(curve, dx=1 / (len(curve) - 1))
