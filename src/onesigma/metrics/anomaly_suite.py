"""Do uncertainties find what the training data did not have? Pixels and whole images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from onesigma.metrics.bins import ScoreHistogram, SparseHistogram
from onesigma.metrics.bootstrap import Rule, as_number
from onesigma.metrics.counting import Counts, map_pixels
from onesigma.metrics.image_counts import ImageCounts
from onesigma.metrics.ranking import Anomaly, detection_scores, exact_detection_scores
from onesigma.metrics.suite import Suite

SEGMENTATION_SCORES = ("entropy", "mutual_information", "aleatoric")
REGRESSION_SCORES = ("variance", "epistemic", "aleatoric")
_VALUES = ("auroc", "average_precision", "fpr95")
_SUMMARIES = ("mean", "quantile", "patch")


class AnomalySuite(Suite):
    """AUROC, average precision and FPR at 95 % recall of several uncertainties.

    Pooled over all pixels, for each image that has both kinds of pixels, and for whole images by
    three summaries of the score: its mean, an upper quantile, and the largest mean of a patch.

    Args:
        scores: attributes of the prediction to try, larger = less sure; with maps of several
            outputs their mean.
        quantile: the upper quantile that summarises an image.
        patch: side of the patches in pixels; they overlap by half, and half of a patch must be
            valid.
        extra: names of further maps that `update` is given.
    """

    task = "anomaly"

    def __init__(
        self,
        scores: Sequence[str] = SEGMENTATION_SCORES,
        quantile: float = 0.95,
        patch: int = 16,
        extra: Sequence[str] = (),
    ) -> None:
        names = (*scores, *extra)
        self.pixelwise = {name: Anomaly() for name in names}
        rules: dict[str, Rule] = {f"{name}.{x}": "images" for name in names for x in _VALUES}
        super().__init__(self.pixelwise, rules)
        self.scores, self.quantile, self.patch = tuple(scores), quantile, patch

    @torch.no_grad()
    def update(
        self,
        prediction: Any,
        target: Bool[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
        names: Sequence[str] | None = None,
        extra: Mapping[str, Float[Tensor, "n h w"]] | None = None,
    ) -> None:
        """Add images.

        Args:
            prediction: of n images; any with the attributes `scores`.
            target: true where a pixel is anomalous; an image is if one of its valid pixels is.
            valid: pixels to count, default all.
            names: names of the images, default running numbers.
            extra: further score maps, for instance the variance of f.
        """
        self.to(target.device)
        maps = {name: _one_map(getattr(prediction, name)) for name in self.scores} | dict(
            extra or {}
        )
        if maps.keys() != self.pixelwise.keys():
            raise ValueError(
                f"AnomalySuite got the maps {sorted(maps)}, it was made for "
                f"{sorted(self.pixelwise)}; pass the missing ones as `extra`."
            )
        mask = torch.ones_like(target) if valid is None else valid
        for i, name in enumerate(self._names(names, len(target))):
            one = {key: x[i] for key, x in maps.items()}
            self._record(name, *self._image(one, target[i], mask[i]))

    def _image(
        self,
        maps: Mapping[str, Float[Tensor, "h w"]],
        target: Bool[Tensor, "h w"],
        mask: Bool[Tensor, "h w"],
    ) -> tuple[dict[str, Any], ImageCounts]:
        odd = bool((target & mask).any())
        found: dict[str, Any] = {"pixels": int(mask.sum()), "anomalous": odd}
        counts: dict[str, SparseHistogram] = {}
        for name, score in maps.items():
            flat, anomalous = map_pixels(mask, score, target)
            histogram = ScoreHistogram.of(flat, anomalous)
            self.pixelwise[name].add_histograms({"histogram": histogram})
            summaries = self._summaries(score, mask)
            values = self.pixelwise[name].scores_of({"histogram": histogram}) | summaries
            found |= {f"{name}.{key}": value for key, value in values.items()}
            counts[f"{name}.pixels"] = histogram.sparse()
            for key, value in summaries.items():
                counts[f"{name}.images.{key}"] = SparseHistogram.point(value, odd)
        return found, counts

    def _drawn_values(self, counts: Counts) -> dict[str, Tensor]:
        found = {}
        for name, rows in counts.items():
            total, positive = rows.unbind(-2)
            for key, value in detection_scores(positive, total - positive).items():
                found[f"{name}.{key}"] = value
        return found

    def _summaries(
        self, score: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"]
    ) -> dict[str, Tensor]:
        """One number for the image, in three ways."""
        flat = score[mask].double()
        rank = min(len(flat), int(self.quantile * len(flat)) + 1)
        upper = flat.kthvalue(rank).values if len(flat) else flat.new_tensor(torch.nan)
        return {
            "mean": flat.mean(),
            "quantile": upper,
            "patch": largest_patch(score, mask, self.patch),
        }

    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        anomalous = torch.tensor([record["anomalous"] for record in records], dtype=torch.bool)
        found: dict[str, Any] = {}
        for name in self.pixelwise:
            found[name] = {"pixels": self._value(name), "images": {}}
            for summary in _SUMMARIES:
                column = [as_number(record[f"{name}.{summary}"]) for record in records]
                score = torch.tensor(column, dtype=torch.float64)
                seen = ~score.isnan()
                scores = exact_detection_scores(score[seen], anomalous[seen])
                found[name]["images"][summary] = scores
        return found


def largest_patch(
    score: Float[Tensor, "h w"], mask: Bool[Tensor, "h w"], side: int
) -> Float[Tensor, ""]:
    """Largest mean of the score over square patches that are at least half valid.

    Patches overlap by half; an image smaller than a patch is one patch. NaN if no patch qualifies.
    """
    size = (min(side, score.shape[0]), min(side, score.shape[1]))
    step = (max(size[0] // 2, 1), max(size[1] // 2, 1))
    inside = mask.double()
    total = avg_pool2d(torch.where(mask, score, 0.0).double()[None], size, step)
    share = avg_pool2d(inside[None], size, step)
    means = (total / share)[share >= 0.5]
    return means.max() if len(means) else total.new_tensor(torch.nan)


def _one_map(values: Tensor) -> Tensor:
    """Maps of several outputs "n c h w" averaged over them, "n h w" as they are."""
    return values.mean(1) if values.ndim == 4 else values
