"""Does uncertainty rank errors and anomalies? Areas under curves, from score histograms."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

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
        pixels, error = occupied(counts["histogram"][..., :2, :])
        total, place = pixels.sum(-1), pixels.cumsum(-1)
        before, risk = place - pixels, error.cumsum(-1) - error
        rate = torch.where(pixels > 0, error / pixels, 0.0)
        # Σ_{i≤k} (R₀ + r i)/(C₀ + i) = e + (R₀ − r C₀) (ψ(C₀ + k + 1) − ψ(C₀ + 1))
        spread = torch.digamma(pad(place, (1, 0)) + 1).diff()
        aurc = (error + (risk - rate * before) * spread).sum(-1) / total
        # Σ_{i≤k} (R₀ + r i) = k R₀ + e (k + 1)/2
        augrc = (pixels * risk + error * (pixels + 1) / 2).sum(-1) / total**2
        return {"aurc": aurc, "augrc": augrc}


class Sparsification(HistogramMetric):
    """AUSE and AURG: error of the pixels left when the most uncertain k/K are removed, k = 0..K.

    Errors are |m − y|/y of the median m, and (μ − y)² of the mean μ, as in `DepthErrors`.
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
        median: Float[Tensor, "n c h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            uncertainty: larger = less sure.
            mean: of the predictive law, or the only prediction there is.
            target: true values.
            valid: pixels to count, default finite targets.
            median: of the predictive law, default the mean.
        """
        maps = (uncertainty, mean, target, mean if median is None else median)
        self.add_histograms(self.count(*output_pixels(target_mask(target, valid), *maps)))

    def count(
        self,
        uncertainty: Float[Tensor, "p"],
        mean: Float[Tensor, "p"],
        target: Float[Tensor, "p"],
        median: Float[Tensor, "p"],
    ) -> dict[str, ScoreHistogram]:
        """Errors by uncertainty, and by themselves."""
        error = (mean - target).abs()
        relative = torch.where(target > 0, (median - target).abs() / target, torch.nan)
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
            whole = curve[..., 0]
            ause, aurg = _area(curve - oracle), whole - _area(curve)
            areas |= {f"ause_{name}": ause, f"aurg_{name}": aurg}
            areas |= {f"ause_{name}_normalised": ause / whole}
            areas |= {f"aurg_{name}_normalised": aurg / whole}
        return areas

    def _curve(
        self, pixels: Float[Tensor, "*s b"], values: Float[Tensor, "*s b"]
    ) -> Float[Tensor, "*s points"]:
        """Mean of the values over the (1 − k/K) N first pixels, k = 0..K; 0 for none."""
        steps = torch.arange(self.intervals, -1, -1, dtype=pixels.dtype, device=pixels.device)
        total = pixels.sum(-1, keepdim=True)
        kept = steps / self.intervals * total
        curve = torch.where(kept > 0, cumulated(pixels, values, kept) / kept, 0.0)
        return torch.where(total > 0, curve, torch.nan)


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
    positive: Float[Tensor, "*s b"], negative: Float[Tensor, "*s b"], recall: float = 0.95
) -> dict[str, Tensor]:
    """AUROC, average precision and FPR at a recall of groups in ascending order of the score.

    A group is a set of tied scores: trapezoids in the ROC curve, one step in precision as in
    scikit-learn, linear interpolation at the recall.
    """
    positive, negative = positive.flip(-1), negative.flip(-1)
    found, alarms = positive.cumsum(-1), negative.cumsum(-1)
    anomalies, others = positive.sum(-1), negative.sum(-1)
    wanted = recall * anomalies[..., None]
    values = {
        # AUROC = Σ_g n_g (TP_{g−1} + p_g/2) / (P N)
        "auroc": (negative * (found - positive / 2)).sum(-1) / (anomalies * others),
        "average_precision": (positive * found / (found + alarms)).nansum(-1) / anomalies,
        "fpr95": cumulated(positive, negative, wanted)[..., 0] / others,
    }
    both = (anomalies > 0) & (others > 0)
    return {name: torch.where(both, value, torch.nan) for name, value in values.items()}


def exact_detection_scores(
    score: Float[Tensor, "p"], target: Bool[Tensor, "p"], recall: float = 0.95
) -> dict[str, Tensor]:
    """The same without bins, for as many scores as fit in memory: one for each image, say."""
    values, group = score.unique(return_inverse=True)
    pixels, positive = (
        torch.bincount(index, minlength=len(values)).double() for index in (group, group[target])
    )
    return detection_scores(positive, pixels - positive, recall)


def _area(curve: Float[Tensor, "*s points"]) -> Float[Tensor, "*s"]:
    """∫₀¹ by trapezoids."""
    return torch.trapezoid(curve, dx=1 / (curve.shape[-1] - 1))
