"""What functional variational inference is compared with; all return the core's predictions."""

from onesigma.baselines.base import Baseline, Predictor
from onesigma.baselines.deterministic import Deterministic
from onesigma.baselines.dropout import MCDropout
from onesigma.baselines.ensemble import DeepEnsemble
from onesigma.baselines.heteroscedastic import Heteroscedastic
from onesigma.baselines.temperature import TemperatureScaled

__all__ = [
    "Baseline",
    "DeepEnsemble",
    "Deterministic",
    "Heteroscedastic",
    "MCDropout",
    "Predictor",
    "TemperatureScaled",
]
