"""What a segmentation gets right: IoU, accuracy, and the Brier score of its probabilities."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onesigma.metrics.bins import binned_sum
from onesigma.metrics.counting import (
    CountMetric,
    Counts,
    PixelMean,
    check_classes,
    label_pixels,
    top_class,
)


class MeanIoU(CountMetric):
    """IoU_k = TP_k / (TP_k + FP_k + FN_k) over all pixels of the set, and its mean over classes.

    A class that occurs neither in the truth nor in the prediction has no IoU: it is NaN in `iou`,
    true in `absent`, and not part of the mean.

    Args:
        classes: number of classes.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, classes: int, **kwargs: Any) -> None:
        super().__init__({"intersection": (classes,), "union": (classes,)}, **kwargs)
        self.classes = classes

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        check_classes(probs, self.classes)
        flat, labels = label_pixels(probs, target, valid)
        self.add(self.count(top_class(flat)[1], labels))

    def count(self, decision: Int[Tensor, "p"], labels: Int[Tensor, "p"]) -> Counts:
        """Intersection and union of each class."""
        pairs = binned_sum(labels * self.classes + decision, self.classes**2)
        confusion = pairs.view(self.classes, self.classes)
        both = confusion.diagonal()
        return {"intersection": both, "union": confusion.sum(0) + confusion.sum(1) - both}

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`miou`, and per class `iou` and `absent`."""
        iou = counts["intersection"] / counts["union"]
        return {"miou": iou.nanmean(), "iou": iou, "absent": counts["union"] == 0}


class PixelAccuracy(PixelMean):
    """Share of pixels whose most probable class is the true one."""

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        flat, labels = label_pixels(probs, target, valid)
        self.add(self.count((top_class(flat)[1] == labels).float()))


class Brier(PixelMean):
    """Brier's multi-class score, mean of Σ_k (p_k − 1[y = k])², from 0 to 2."""

    def update(
        self,
        probs: Float[Tensor, "n c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        self.add(self.count_probs(*label_pixels(probs, target, valid)))

    def count_probs(self, flat: Float[Tensor, "c p"], labels: Int[Tensor, "p"]) -> Counts:
        """Sum and number of the pixels' scores."""
        # Σ_k (p_k − 1[y = k])² = 1 − 2 p_y + Σ_k p_k²
        score = torch.add(flat.new_ones(()), flat.gather(0, labels[None]).squeeze(0), alpha=-2)
        for probs in flat:  # class by class: the pixels' scores stay in the cache
            score.addcmul_(probs, probs)
        return self.count(score)
