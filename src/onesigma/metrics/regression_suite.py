"""All metrics of a predicted number in one pass over each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onesigma.metrics.bootstrap import Rule
from onesigma.metrics.calibration import image_count
from onesigma.metrics.counting import Counts, fill_invalid, output_pixels, target_mask
from onesigma.metrics.epistemic import NoiseCorrelation, moment_scores
from onesigma.metrics.image_counts import ImageCounts
from onesigma.metrics.proper import CRPS, NLL
from onesigma.metrics.ranking import Sparsification
from onesigma.metrics.regression import (
    DepthErrors,
    ImageQuantileCalibration,
    IntervalCoverage,
    QuantileCalibration,
    Sharpness,
    level_counts,
    quantile_score,
)
from onesigma.metrics.suite import Suite

_RULES: dict[str, Rule] = {
    **dict.fromkeys(("rel", "log10", "delta1", "delta2", "delta3", "nll", "crps"), "pixels"),
    **dict.fromkeys(("rms", "sharpness"), "squares"),
    **dict.fromkeys(("image_calibration", "image_calibration_published_code"), "images"),
}


class RegressionSuite(Suite):
    """Depth errors, NLL, CRPS, coverage, calibration, sharpness and sparsification.

    Args:
        levels: probabilities of the intervals whose coverage and width are measured.
    """

    task = "regression"

    def __init__(self, levels: Sequence[float] = (0.5, 0.8, 0.9, 0.95)) -> None:
        self.errors, self.nll, self.crps = DepthErrors(), NLL(), CRPS()
        self.sharpness, self.coverage = Sharpness(), IntervalCoverage(levels)
        self.curve = QuantileCalibration()
        self.paper = ImageQuantileCalibration("paper")
        self.code = ImageQuantileCalibration("published_code")
        self.sparsification, self.noise = Sparsification(), NoiseCorrelation()
        metrics = {
            "errors": self.errors,
            "nll": self.nll,
            "crps": self.crps,
            "sharpness": self.sharpness,
            "coverage": self.coverage,
            "curve": self.curve,
            "image_calibration": self.paper,
            "image_calibration_published_code": self.code,
            "sparsification": self.sparsification,
            "noise": self.noise,
        }
        rates: dict[str, Rule] = {
            f"{name}_{level:g}": "pixels" for level in levels for name in ("coverage", "width")
        }
        super().__init__(metrics, _RULES | rates)

    @torch.no_grad()
    def update(
        self,
        prediction: Any,
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
        names: Sequence[str] | None = None,
        noise: Float[Tensor, "n c h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            prediction: a `RegressionPrediction` of n images, in the unit of the target.
            target: true values.
            valid: pixels to count, default finite targets.
            names: names of the images, default running numbers.
            noise: true standard deviation of the target, where the data know it.
        """
        self.to(target.device)
        mask = target_mask(target, valid)
        for i, name in enumerate(self._names(names, len(target))):
            one = slice(i, i + 1)
            values, counts = self._image(prediction[one], target[one], mask[one])
            known = None if noise is None else noise[one]
            self._record(name, values, {**counts, **self._noise(prediction[one], known, mask[one])})

    def _noise(
        self,
        prediction: Any,
        noise: Float[Tensor, "1 c h w"] | None,
        mask: Bool[Tensor, "1 h w"],
    ) -> dict[str, Tensor]:
        if noise is None:
            return {"noise": torch.zeros(6, dtype=torch.float64)}
        counts = self.noise.count(prediction.aleatoric.sqrt(), noise, mask)
        self.noise.add(counts)
        return {"noise": counts["moments"].cpu()}

    def _image(
        self, prediction: Any, target: Float[Tensor, "1 c h w"], mask: Bool[Tensor, "1 h w"]
    ) -> tuple[dict[str, Any], ImageCounts]:
        safe = fill_invalid(target, mask, prediction.mean)
        points = output_pixels(mask, prediction.mean, target, prediction.median)
        variance, cdf = output_pixels(mask, prediction.variance, prediction.cdf(safe))
        log_prob, crps = output_pixels(mask, prediction.log_prob(safe), prediction.crps(safe))
        areas = self.sparsification.count(variance, *points)
        self.sparsification.add_histograms(areas)
        values = {
            "pixels": cdf.numel(),
            **self._add(self.errors, self.errors.count(*points)),
            "nll": self._add(self.nll, self.nll.count(-log_prob)),
            "crps": self._add(self.crps, self.crps.count(crps)),
            "sharpness": self._add(self.sharpness, self.sharpness.count(variance)),
            **self._by_level(
                self._add(self.coverage, self.coverage.count(prediction, target, mask))
            ),
            **self._calibration(cdf),
            **self.sparsification.scores_of(areas),
        }
        levels = level_counts(cdf, self.curve.bins).cpu()
        return values, {"levels": levels, **{name: x.sparse() for name, x in areas.items()}}

    def _drawn_values(self, counts: Counts) -> dict[str, Tensor]:
        noise = moment_scores(counts["noise"])
        return {
            **self.sparsification.scores(counts),
            "set_calibration": quantile_score(counts["levels"]),
            **{f"noise.{name}": value for name, value in noise.items()},
        }

    def _add(self, metric: Any, counts: Counts) -> Any:
        """Add one image's counts to the set; its own values."""
        metric.add(counts)
        return metric.scores(counts)

    def _by_level(self, rates: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One flat name for each rate and level."""
        levels = self.coverage.levels
        return {
            f"{name}_{level:g}": value
            for name, values in rates.items()
            for level, value in zip(levels, values, strict=True)
        }

    def _calibration(self, cdf: Float[Tensor, "p"]) -> dict[str, Tensor]:
        self.curve.add({"pixels": level_counts(cdf, self.curve.bins)})
        found = {}
        for name, metric in (
            ("image_calibration", self.paper),
            ("image_calibration_published_code", self.code),
        ):
            found[name] = quantile_score(level_counts(cdf, metric.bins))
            metric.add(image_count(found[name]))
        return found

    def _set_values(self, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        curve = self._value("curve")
        names = ("nll", "crps", "sharpness")
        images = ("image_calibration", "image_calibration_published_code")
        return {
            **self._value("errors"),
            **{name: self._value(name) for name in (*names, *images)},
            **self._by_level(self._value("coverage")),
            **self._value("sparsification"),
            "set_calibration": curve.pop("score"),
            "calibration_curve": curve,
            "noise": self._value("noise"),
        }
