"""Errors of a predicted number, and whether its law keeps its promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onesigma.metrics.bins import binned_sum, uniform_bins
from onesigma.metrics.calibration import INTERVALS, Variant, image_count
from onesigma.metrics.counting import (
    CountMetric,
    Counts,
    PixelMean,
    count_of,
    fill_invalid,
    output_pixels,
    target_mask,
)
from onesigma.metrics.proper import ValueLaw

_POSITIVE_SUMS = ("relative", "log10", "delta1", "delta2", "delta3")


class DepthErrors(CountMetric):
    """The errors of depth estimation, over all valid pixels and outputs.

    rel = mean |m − y|/y, log10 = mean |log₁₀ m − log₁₀ y|, delta_i = share of
    max(m/y, y/m) < 1.25ⁱ, rms = √mean (μ − y)². All but rms need positive targets and are NaN if
    one is not. m is the median of the law, which |log m − log y| is least for in expectation, and
    μ its mean, which (μ − y)² is least for; they differ where the law is skewed.

    Args:
        floor: predictions below it are raised to it in log10 and delta, which need positive ones.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, floor: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(dict.fromkeys((*_POSITIVE_SUMS, "square", "pixels"), ()), **kwargs)
        self.floor = floor

    def update(
        self,
        mean: Float[Tensor, "n c h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
        median: Float[Tensor, "n c h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            mean: of the predictive law, or the only prediction there is.
            target: true values.
            valid: pixels to count, default finite targets.
            median: of the predictive law, default the mean.
        """
        maps = (mean, target, mean if median is None else median)
        self.add(self.count(*output_pixels(target_mask(target, valid), *maps)))

    def count(
        self, mean: Float[Tensor, "p"], target: Float[Tensor, "p"], median: Float[Tensor, "p"]
    ) -> Counts:
        """Summed errors."""
        error = (median - target).double()
        positive = torch.where(target > 0, target, torch.nan)
        # max(m/y, y/m) < 1.25ⁱ ⇔ |log₁₀ m − log₁₀ y| < i log₁₀ 1.25
        log10 = (median.clamp_min(self.floor).double() / positive).log10().abs()
        limit = torch.tensor(1.25, dtype=torch.float64).log10().item()
        undefined = 0 * log10.sum()
        near = {f"delta{i}": (log10 < i * limit).sum() + undefined for i in (1, 2, 3)}
        return {
            "relative": (error.abs() / positive).sum(),
            "log10": log10.sum(),
            **near,
            "square": (mean - target).double().square().sum(),
            "pixels": count_of(error),
        }

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`rel`, `log10`, `rms`, `delta1`, `delta2`, `delta3`."""
        share = {name: counts[name] / counts["pixels"] for name in (*_POSITIVE_SUMS, "square")}
        rms, rel = share.pop("square").sqrt(), share.pop("relative")
        return {"rel": rel, "rms": rms, **share}


class Sharpness(PixelMean):
    """√(mean predictive variance): the size of the claimed error, in the target's unit."""

    def update(
        self,
        variance: Float[Tensor, "n c h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        self.add(self.count(*output_pixels(target_mask(target, valid), variance)))

    def scores(self, counts: Counts) -> Tensor:
        """Root of the mean."""
        return (counts["total"] / counts["pixels"]).sqrt()


class IntervalCoverage(CountMetric):
    """Share of truths inside the central interval of each level, and its mean width.

    Args:
        levels: probabilities the intervals claim.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95), **kwargs: Any) -> None:
        size = (len(levels),)
        super().__init__({"inside": size, "width": size, "pixels": ()}, **kwargs)
        self.levels = tuple(levels)

    def update(
        self,
        prediction: ValueLaw,
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        self.add(self.count(prediction, target, target_mask(target, valid)))

    def count(
        self,
        prediction: ValueLaw,
        target: Float[Tensor, "n c h w"],
        mask: Bool[Tensor, "n h w"],
    ) -> Counts:
        """Hits and summed widths of each level."""
        inside, width = [], []
        for level in self.levels:
            low, high = prediction.interval(level)
            y, low, high = output_pixels(mask, target, low, high)
            inside.append(((low <= y) & (y <= high)).sum(dtype=torch.float64))
            width.append((high - low).sum(dtype=torch.float64))
        return {"inside": torch.stack(inside), "width": torch.stack(width), "pixels": count_of(y)}

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`coverage` and `width`, one for each level."""
        names = {"coverage": "inside", "width": "width"}
        return {name: counts[state] / counts["pixels"] for name, state in names.items()}


class QuantileCalibration(CountMetric):
    """Kuleshov's curve over the whole set: share of pixels with F(y) ≤ level, levels j/B.

    The score is Σ_j (share_j − level_j)². It needs the marginal law of each pixel and nothing
    else, so the whole set costs no more than one image.

    Args:
        variant: "paper" has levels 0.1, ..., 1, "published_code" 0, 1/9, ..., 1 (0 is trivial).
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__({"pixels": (INTERVALS[variant],)}, **kwargs)
        self.bins = INTERVALS[variant]

    def update(
        self,
        prediction: ValueLaw,
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        mask = target_mask(target, valid)
        self.add({"pixels": level_counts(cdf_pixels(prediction, target, mask), self.bins)})

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """The curve `level`, `observed`, and its `score`."""
        level, observed = quantile_curve(counts["pixels"])
        return {"level": level, "observed": observed, "score": quantile_score(counts["pixels"])}


class ImageQuantileCalibration(CountMetric):
    """The paper's score for regression: Kuleshov's Σ_j (share_j − level_j)², mean over images.

    Args:
        variant: "paper" has levels 0.1, ..., 1, "published_code" 0, 1/9, ..., 1 (0 is trivial).
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__({"total": (), "images": ()}, **kwargs)
        self.bins = INTERVALS[variant]

    def update(
        self,
        prediction: ValueLaw,
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images."""
        mask = target_mask(target, valid)
        cdf = prediction.cdf(fill_invalid(target, mask, prediction.mean))
        for i in range(len(target)):
            (values,) = output_pixels(mask[i : i + 1], cdf[i : i + 1])
            self.add(image_count(quantile_score(level_counts(values, self.bins))))

    def scores(self, counts: Counts) -> Tensor:
        """Mean over images with valid pixels."""
        return counts["total"] / counts["images"]


def cdf_pixels(
    prediction: ValueLaw, target: Float[Tensor, "n c h w"], mask: Bool[Tensor, "n h w"]
) -> Float[Tensor, "p"]:
    """F(y) of the masked pixels, outputs pooled, flat."""
    return output_pixels(mask, prediction.cdf(fill_invalid(target, mask, prediction.mean)))[0]


def level_counts(cdf: Float[Tensor, "p"], bins: int) -> Float[Tensor, "b"]:
    """Number of pixels with F(y) in (j/B, (j+1)/B], 0 in the first."""
    return binned_sum(uniform_bins(cdf, bins), bins)


def quantile_curve(
    pixels: Float[Tensor, "*s b"],
) -> tuple[Float[Tensor, "b"], Float[Tensor, "*s b"]]:
    """Levels 1/B, ..., 1 and the share of pixels with F(y) at or below them."""
    bins = pixels.shape[-1]
    level = torch.arange(1, bins + 1, dtype=pixels.dtype, device=pixels.device)
    return level / bins, pixels.cumsum(-1) / pixels.sum(-1, keepdim=True)


def quantile_score(pixels: Float[Tensor, "*s b"]) -> Float[Tensor, "*s"]:
    """Σ_j (observed_j − level_j)²; NaN without pixels."""
    level, observed = quantile_curve(pixels)
    return (observed - level).square().sum(-1)
