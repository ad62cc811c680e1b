"""Per-pixel epistemic and aleatoric uncertainty for dense vision networks, in one forward pass.

The names below are the public API. The core (fields, priors, likelihoods, posterior, objective) is
imported with the package; `networks`, `baselines`, `data`, `metrics`, `tiling`, `training` and
`report` are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onesigma import kernels
from onesigma.context import (
    AlteredCopies,
    Context,
    FrequencyNoise,
    MixedContext,
    NoisyCopies,
    PastedMixtures,
    ShiftedColours,
    ShuffledPatches,
    Strangers,
)
from onesigma.covariance import BlockCovariance, LowRankCovariance, MarginalCovariance
from onesigma.divergence import NotPositiveDefiniteError, kl_divergence
from onesigma.field import GaussianField, cat
from onesigma.heads import HeadOptions
from onesigma.likelihoods import (
    BerHu,
    Bernoulli,
    Boltzmann,
    Gaussian,
    Laplace,
    Likelihood,
    from_loss,
)
from onesigma.objective import (
    FunctionalELBO,
    data_weight,
    functional_elbo,
    sparse_expected_log_prob,
    training_divergence,
    unlabelled_divergence,
)
from onesigma.posterior import VariationalGP
from onesigma.prediction import (
    Affine,
    BernoulliMixture,
    BernoulliPrediction,
    CategoricalMixture,
    CategoricalPrediction,
    Log,
    RegressionMixture,
    RegressionPrediction,
)
from onesigma.priors import CNNGPPrior, PriorReport, SampledPrior, prior_report
from onesigma.wrap import wrap

if TYPE_CHECKING:
    from onesigma import baselines, data, metrics, networks, report, tiling, training
    from onesigma.training import load

__version__ = "0.1.0"

__all__ = [
    "Affine",
    "AlteredCopies",
    "BerHu",
    "Bernoulli",
    "BernoulliMixture",
    "BernoulliPrediction",
    "BlockCovariance",
    "Boltzmann",
    "CNNGPPrior",
    "CategoricalMixture",
    "CategoricalPrediction",
    "Context",
    "FrequencyNoise",
    "FunctionalELBO",
    "Gaussian",
    "GaussianField",
    "HeadOptions",
    "Laplace",
    "Likelihood",
    "Log",
    "LowRankCovariance",
    "MarginalCovariance",
    "MixedContext",
    "NoisyCopies",
    "NotPositiveDefiniteError",
    "PastedMixtures",
    "PriorReport",
    "RegressionMixture",
    "RegressionPrediction",
    "SampledPrior",
    "ShiftedColours",
    "ShuffledPatches",
    "Strangers",
    "VariationalGP",
    "baselines",
    "cat",
    "data",
    "data_weight",
    "from_loss",
    "functional_elbo",
    "kernels",
    "kl_divergence",
    "load",
    "metrics",
    "networks",
    "prior_report",
    "report",
    "sparse_expected_log_prob",
    "tiling",
    "training",
    "training_divergence",
    "unlabelled_divergence",
    "wrap",
]

_ROOMS = ("baselines", "data", "metrics", "networks", "report", "tiling", "training")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"onesigma.{name}")
    if name == "load":
        return importlib.import_module("onesigma.training").load
    raise AttributeError(f"module 'onesigma' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
