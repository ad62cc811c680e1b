"""All metrics of a segmentation in one pass over each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from onesigma.likelihoods.base import mask_labels
from onesigma.metrics.bins import ScoreHistogram, SparseHistogram
from onesigma.metrics.bootstrap import Rule
from onesigma.metrics.calibration import (
    AdaptiveCalibrationError,
    CalibrationError,
    ClasswiseCalibrationError,
    FrequencyCalibration,
    ImageCalibration,
    doubt_histogram,
    frequency_table,
    image_count,
    merge_bins,
    pooled_score,
)
from onesigma.metrics.counting import (
    Counts,
    check_classes,
    class_pixels,
    top_class,
    true_indices,
)
from onesigma.metrics.image_counts import ImageCounts
from onesigma.metrics.proper import NLL
from onesigma.metrics.ranking import RiskCoverage
from onesigma.metrics.segmentation import Brier, MeanIoU, PixelAccuracy
from onesigma.metrics.suite import Suite

_FINE = 90
"""Intervals of the one table that serves 15 (classwise), 10 (paper) and 9 (published code)."""

_RULES: dict[str, Rule] = {
    "miou": "classes",
    **dict.fromkeys(("accuracy", "nll", "brier"), "pixels"),
    **dict.fromkeys(("image_calibration", "image_calibration_published_code"), "images"),
}


class SegmentationSuite(Suite):
    """IoU, accuracy, NLL, Brier, calibration and risk-coverage of predicted labels.

    Args:
        classes: their names, or how many there are.
    """

    task = "segmentation"

    def __init__(self, classes: int | Sequence[str]) -> None:
        names = [str(i) for i in range(classes)] if isinstance(classes, int) else list(classes)
        self.iou, self.accuracy = MeanIoU(len(names)), PixelAccuracy()
        self.nll, self.brier = NLL(), Brier()
        self.calibration, self.adaptive = CalibrationError(), AdaptiveCalibrationError()
        self.classwise = ClasswiseCalibrationError(len(names))
        self.curve = FrequencyCalibration(len(names))
        self.paper, self.code = ImageCalibration("paper"), ImageCalibration("published_code")
        self.risk = RiskCoverage()
        metrics = {
            "iou": self.iou,
            "accuracy": self.accuracy,
            "nll": self.nll,
            "brier": self.brier,
            "calibration": self.calibration,
            "adaptive_ece": self.adaptive,
            "classwise_ece": self.classwise,
            "curve": self.curve,
            "image_calibration": self.paper,
            "image_calibration_published_code": self.code,
            "risk": self.risk,
        }
        super().__init__(metrics, _RULES)
        self.classes = names

    @torch.no_grad()
    def update(
        self,
        prediction: Any,
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """Add images.

        Args:
            prediction: a `CategoricalPrediction` or a mixture, of n images.
            target: labels.
            valid: pixels to count, default labels in range.
            names: names of the images, default running numbers.
        """
        self.to(target.device)
        for i, name in enumerate(self._names(names, len(target))):
            one = slice(i, i + 1)
            mask = None if valid is None else valid[one]
            self._record(name, *self._image(prediction[one], target[one], mask))

    def _image(
        self, prediction: Any, target: Int[Tensor, "1 h w"], valid: Bool[Tensor, "1 h w"] | None
    ) -> tuple[dict[str, Any], ImageCounts]:
        check_classes(prediction.probs, len(self.classes))
        known, mask = mask_labels(target, len(self.classes), valid, prediction.probs.shape)
        index = true_indices(mask.flatten())
        flat, labels = class_pixels(prediction.probs, index), known.flatten().index_select(0, index)
        top, decision = top_class(flat)
        correct = decision == labels
        log_prob = prediction.log_prob(known).flatten().index_select(0, index)
        nll = self.nll.count(-log_prob)
        iou, brier = self.iou.count(decision, labels), self.brier.count_probs(flat, labels)
        right = self.accuracy.count(correct.float())
        for metric, counts in zip(
            (self.nll, self.iou, self.brier, self.accuracy), (nll, iou, brier, right), strict=True
        ):
            metric.add(counts)
        sure, sure_counts = self._confidence(top, correct)
        frequent, frequent_counts = self._frequencies(frequency_table(flat, labels, _FINE))
        values = {
            "pixels": labels.numel(),
            "miou": self.iou.scores(iou)["miou"],
            "accuracy": self.accuracy.scores(right),
            "nll": self.nll.scores(nll),
            "brier": self.brier.scores(brier),
            **sure,
            **frequent,
            **{name: count.long() for name, count in iou.items()},
        }
        return values, {**sure_counts, **frequent_counts}

    def _confidence(
        self, top: Tensor, correct: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor | SparseHistogram]]:
        """What follows from the largest probability and whether it is right."""
        counts = self.calibration.count(top, correct)
        self.calibration.add(counts)
        errors = self.calibration.scores(counts)
        histogram = doubt_histogram(top, ~correct)
        self.adaptive.add_histograms({"histogram": histogram})
        risk = ScoreHistogram(histogram.offset, histogram.rows[:2])
        self.risk.add_histograms({"histogram": risk})
        values = {
            "ece": errors["ece"],
            "mce": errors["mce"],
            "adaptive_ece": self.adaptive.scores_of({"histogram": histogram}),
            **self.risk.scores_of({"histogram": risk}),
        }
        return values, {"reliability": torch.stack([*counts.values()]), "doubt": histogram.sparse()}

    def _frequencies(self, table: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What follows from the probabilities of all classes."""
        by_class = {"table": merge_bins(table, self.classwise.bins)}
        self.classwise.add(by_class)
        pooled = merge_bins(table, self.curve.bins)
        self.curve.add({"table": pooled})
        found = {"classwise_ece": self.classwise.scores(by_class)}
        for name, metric in (
            ("image_calibration", self.paper),
            ("image_calibration_published_code", self.code),
        ):
            found[name] = pooled_score(merge_bins(table, metric.bins))
            metric.add(image_count(found[name]))
        return found, {"classes": by_class["table"].cpu(), "curve": pooled.sum(1).cpu()}

    def _drawn_values(self, counts: Counts) -> dict[str, Tensor]:
        pixels, confidence, hits = counts["reliability"].unbind(-2)
        errors = self.calibration.scores({"pixels": pixels, "confidence": confidence, "hits": hits})
        histogram = {"histogram": counts["doubt"]}
        return {
            "ece": errors["ece"],
            "mce": errors["mce"],
            "adaptive_ece": self.adaptive.scores(histogram),
            "classwise_ece": self.classwise.scores({"table": counts["classes"]}),
            **self.risk.scores(histogram),
            "set_calibration": pooled_score(counts["curve"].unsqueeze(-2)),
        }

    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        iou, errors = self._value("iou"), self._value("calibration")
        absent = iou.pop("absent").tolist()
        curve = self._value("curve")
        names = ("accuracy", "nll", "brier", "adaptive_ece", "classwise_ece")
        images = ("image_calibration", "image_calibration_published_code")
        return {
            "miou": iou["miou"],
            "iou": dict(zip(self.classes, iou["iou"], strict=True)),
            "absent": [name for name, gone in zip(self.classes, absent, strict=True) if gone],
            "ece": errors.pop("ece"),
            "mce": errors.pop("mce"),
            **{name: self._value(name) for name in (*names, *images)},
            **self._value("risk"),
            "set_calibration": curve.pop("score"),
            "calibration_curve": curve,
            "reliability": errors,
        }
