"""The public API by name: a change here is one users will notice, so it is in the changelog."""

from __future__ import annotations

import inspect

import pytest

import onesigma

SIGNATURES = {
    "CNNGPPrior": "(kernel, outputs, mean, noise, scale, learn)",
    "GaussianField": "(mean, covariance)",
    "VariationalGP": (
        "(backbone, outputs, rank, min_diagonal, options, context_statistics, features)"
    ),
    "data_weight": "(batch_images, training_images, correlated_pixels)",
    "from_loss": "(loss, width)",
    "functional_elbo": "(fit, kl, valid, kl_weight, normalisation, weights)",
    "kl_divergence": "(q, p, jitter)",
    "prior_report": "(prior, images)",
    "wrap": ("(network, outputs, rank, min_diagonal, options, layer, select, context_statistics)"),
}

NAMES = [
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


def test_names() -> None:
    assert sorted(onesigma.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(onesigma, name) is not None


def test_signatures() -> None:
    for name, wanted in SIGNATURES.items():
        found = inspect.signature(getattr(onesigma, name)).parameters
        assert f"({', '.join(found)})" == wanted, name


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="variational_gp"):
        onesigma.variational_gp  # noqa: B018
