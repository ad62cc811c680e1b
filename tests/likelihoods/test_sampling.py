import math

import pytest
import torch

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.expectation import expected_log_sum_exp, softmax_law
from onesigma.likelihoods.sampling import sampled_law, sampled_log_sum_exp


@pytest.fixture
def logits(generator):
    mean = torch.randn(1, 4, 1, 1, generator=generator, dtype=torch.float64)
    variance = torch.rand(1, 4, 1, 1, generator=generator, dtype=torch.float64) * 0.5 + 0.1
    return mean, variance


def repeated(logits, estimator, runs=4000):
    """Values and gradients of an estimator over many independent pixels holding the same law."""
    mean, variance = (x.expand(-1, -1, 1, runs).clone().requires_grad_() for x in logits)
    value = estimator(mean, variance)
    by = torch.autograd.grad(value.sum(), (mean, variance))
    return value[0, 0], by[0][0, :, 0], by[1][0, :, 0]


def reparametrised(mean, variance, generator, num=10):
    noise = torch.randn(num, *mean.shape, generator=generator, dtype=mean.dtype)
    return (mean + variance.sqrt() * noise).logsumexp(2).mean(0)


def test_value_and_gradients_are_unbiased(logits, generator):
    value, by_mean, by_variance = repeated(
        logits, lambda m, v: sampled_log_sum_exp(m, v, 5, generator)
    )
    leaves = [x.clone().requires_grad_() for x in logits]
    exact = expected_log_sum_exp(*leaves)
    exact.sum().backward()
    for draws, truth in (
        (value[None], exact.view(1)),
        (by_mean, leaves[0].grad.view(4)),
        (by_variance, leaves[1].grad.view(4)),
    ):
        error = draws.std(1) / math.sqrt(draws.shape[1])
        assert ((draws.mean(1) - truth).abs() < 5 * error + 1e-3).all()


def test_price_gradient_has_less_variance_than_reparametrisation(logits, generator):
    price = repeated(logits, lambda m, v: sampled_log_sum_exp(m, v, 5, generator))
    plain = repeated(logits, lambda m, v: reparametrised(m, v, generator))
    assert (price[2].var(1) < plain[2].var(1) / 10).all()
    assert (price[1].var(1) < plain[1].var(1) / 2).all()
    assert price[0].var() < plain[0].var() / 2


def test_sampled_law_tends_to_the_closed_form(logits, generator):
    close = sampled_law(*logits, pairs=20_000, generator=generator)
    for a, b in zip(close, softmax_law(*logits), strict=True):
        assert (a - b).abs().max() < 5e-3


def test_the_likelihood_can_sample(logits, generator):
    mean, variance = (x.float().expand(-1, -1, 20, 20) for x in logits)
    q, target = GaussianField(mean, MarginalCovariance(variance)), torch.zeros(1, 20, 20).long()
    drawn = Boltzmann("none", pairs=10, generator=generator).expected_log_prob(target, q)
    exact = Boltzmann("none").expected_log_prob(target, q)
    assert drawn.std() > 0
    assert abs(drawn.mean() - exact.mean()) < 5 * drawn.std() / 20 + 1e-3


def test_no_pairs_is_refused(logits):
    with pytest.raises(ValueError, match="at least one pair"):
        sampled_law(*logits, pairs=0)
