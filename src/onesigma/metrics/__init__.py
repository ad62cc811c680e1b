"""Metrics of uncertainty: all pixels, constant memory, conventions written down in the docs."""

from onesigma.metrics.anomaly_suite import REGRESSION_SCORES, SEGMENTATION_SCORES, AnomalySuite
from onesigma.metrics.bootstrap import bootstrap_intervals, paired_bootstrap
from onesigma.metrics.calibration import (
    AdaptiveCalibrationError,
    CalibrationError,
    ClasswiseCalibrationError,
    FrequencyCalibration,
    ImageCalibration,
)
from onesigma.metrics.epistemic import (
    DecisionShares,
    KLPerPixel,
    NoiseCorrelation,
    decision_shares,
    image_divergence,
    nll_with_shuffled_variance,
    nll_without_mean,
)
from onesigma.metrics.epistemic_suite import EpistemicSuite
from onesigma.metrics.proper import CRPS, NLL
from onesigma.metrics.ranking import Anomaly, RiskCoverage, Sparsification
from onesigma.metrics.regression import (
    DepthErrors,
    ImageQuantileCalibration,
    IntervalCoverage,
    QuantileCalibration,
    Sharpness,
)
from onesigma.metrics.regression_suite import RegressionSuite
from onesigma.metrics.segmentation import Brier, MeanIoU, PixelAccuracy
from onesigma.metrics.segmentation_suite import SegmentationSuite
from onesigma.metrics.suite import Suite
from onesigma.metrics.table import (
    METRIC_HEAD,
    comparison_rows,
    format_comparison,
    format_metrics,
    format_rows,
    incomparable_values,
    metric_rows,
)

__all__ = [
    "CRPS",
    "METRIC_HEAD",
    "NLL",
    "REGRESSION_SCORES",
    "SEGMENTATION_SCORES",
    "AdaptiveCalibrationError",
    "Anomaly",
    "AnomalySuite",
    "Brier",
    "CalibrationError",
    "ClasswiseCalibrationError",
    "DecisionShares",
    "DepthErrors",
    "EpistemicSuite",
    "FrequencyCalibration",
    "ImageCalibration",
    "ImageQuantileCalibration",
    "IntervalCoverage",
    "KLPerPixel",
    "MeanIoU",
    "NoiseCorrelation",
    "PixelAccuracy",
    "QuantileCalibration",
    "RegressionSuite",
    "RiskCoverage",
    "SegmentationSuite",
    "Sharpness",
    "Sparsification",
    "Suite",
    "bootstrap_intervals",
    "comparison_rows",
    "decision_shares",
    "format_comparison",
    "format_metrics",
    "format_rows",
    "image_divergence",
    "incomparable_values",
    "metric_rows",
    "nll_with_shuffled_variance",
    "nll_without_mean",
    "paired_bootstrap",
]
