"""Likelihoods: from a field and a scale to expected log-probabilities and predictions."""

from onesigma.likelihoods.base import Likelihood
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.bernoulli import Bernoulli
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.gibbs import Gibbs, from_loss
from onesigma.likelihoods.laplace import Laplace

__all__ = [
    "BerHu",
    "Bernoulli",
    "Boltzmann",
    "Gaussian",
    "Gibbs",
    "Laplace",
    "Likelihood",
    "from_loss",
]
