"""Predictive distributions: what a pixel's target may be, in the target's unit."""

from onesigma.prediction.categorical import (
    BernoulliMixture,
    BernoulliPrediction,
    CategoricalMixture,
    CategoricalPrediction,
)
from onesigma.prediction.mixture import RegressionMixture
from onesigma.prediction.regression import RegressionPrediction
from onesigma.prediction.transforms import Affine, Log, Transform

__all__ = [
    "Affine",
    "BernoulliMixture",
    "BernoulliPrediction",
    "CategoricalMixture",
    "CategoricalPrediction",
    "Log",
    "RegressionMixture",
    "RegressionPrediction",
    "Transform",
]
