"""Mixtures stay mixtures: CDF, density, moments, quantiles, units."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction.mixture import RegressionMixture
from onesigma.prediction.stack import Single, Stack, stacks
from onesigma.prediction.transforms import Affine, Log

MEANS, STDS, WEIGHTS = (-3.0, 0.5, 4.0), (0.3, 1.0, 0.1), (0.2, 0.5, 0.3)


def member(mean, std, likelihood=None):
    # half of the variance epistemic, half aleatoric
    shape = (2, 1, 3, 4)
    half = std / math.sqrt(2)
    full = lambda value: torch.full(shape, value, dtype=torch.float64)  # noqa: E731
    q = GaussianField(full(mean), MarginalCovariance(full(half**2)))
    return (likelihood or Gaussian()).predict(q, full(math.log(half)))


@pytest.fixture
def mixture():
    members = [member(m, s) for m, s in zip(MEANS, STDS, strict=True)]
    return RegressionMixture(members, WEIGHTS)


@pytest.fixture
def y(generator):
    return 3 * torch.randn(2, 1, 3, 4, generator=generator).double()


def exact(function, y):
    """Σ w p(y; m, s) with scipy's normal distribution."""
    parts = (w * function(y.numpy(), m, s) for w, m, s in zip(WEIGHTS, MEANS, STDS, strict=True))
    return sum(parts)


def test_density_and_cdf(mixture, y):
    np.testing.assert_allclose(mixture.log_prob(y).exp(), exact(stats.norm.pdf, y), rtol=1e-10)
    np.testing.assert_allclose(mixture.cdf(y), exact(stats.norm.cdf, y), rtol=1e-10)


def test_moments_by_sampling(mixture):
    rng = np.random.default_rng(0)
    count = 400_000
    which = rng.choice(3, size=count, p=WEIGHTS)
    mean, std = np.array(MEANS)[which], np.array(STDS)[which]
    f = mean + std / math.sqrt(2) * rng.standard_normal(count)
    y = f + std / math.sqrt(2) * rng.standard_normal(count)
    error = 5 * y.std() / math.sqrt(count)
    assert mixture.mean[0, 0, 0, 0].item() == pytest.approx(y.mean(), abs=error)
    assert mixture.variance[0, 0, 0, 0].item() == pytest.approx(y.var(), rel=0.01)
    assert mixture.epistemic[0, 0, 0, 0].item() == pytest.approx(f.var(), rel=0.01)
    assert mixture.aleatoric[0, 0, 0, 0].item() == pytest.approx((y - f).var(), rel=0.01)


@pytest.mark.parametrize("level", [1e-4, 0.1, 0.2, 0.21, 0.5, 0.69, 0.7, 0.95, 0.9999])
def test_quantiles_of_a_mixture_with_gaps(mixture, level):
    # 0.2 and 0.7 lie in gaps between the members, where the density is nearly 0
    found = mixture.quantile(level)
    np.testing.assert_allclose(mixture.cdf(found), level, rtol=1e-4)


def test_quantiles_take_few_cdf_calls(mixture, monkeypatch):
    calls = []
    counted = Stack.tails
    monkeypatch.setattr(Stack, "tails", lambda self, y: calls.append(1) or counted(self, y))
    mixture.quantile(0.3)
    assert 1 <= len(calls) <= 8  # all members at once


def test_crps_against_the_energy_form(mixture, y):
    rng = np.random.default_rng(1)
    count = 200_000
    which = rng.choice(3, size=2 * count, p=WEIGHTS)
    draws = np.array(MEANS)[which] + np.array(STDS)[which] * rng.standard_normal(2 * count)
    a, b = draws[:count], draws[count:]
    target = float(y[0, 0, 0, 0])
    terms = np.abs(a - target) - 0.5 * np.abs(a - b)
    error = 5 * terms.std() / math.sqrt(count)
    assert mixture.crps(y)[0, 0, 0, 0].item() == pytest.approx(terms.mean(), abs=error)


@pytest.mark.parametrize(
    ("means", "std"), [((2, 2.5, 3, 6, 8), 0.05), ((2, 6), 0.02), ((3, 3.1, 3.2, 5, 5.1), 0.03)]
)
def test_few_narrow_members_have_an_exact_crps(means, std):
    def distance(gap, width):
        # E|N(gap, width²)|
        z = gap / width
        return 2 * width * stats.norm.pdf(z) + gap * (2 * stats.norm.cdf(z) - 1)

    narrow = RegressionMixture([member(m, std) for m in means])
    pairs = np.mean([distance(a - b, math.sqrt(2) * std) for a in means for b in means])
    for y in (2.0, 4.0, 7.0):
        wanted = np.mean([distance(y - m, std) for m in means]) - 0.5 * pairs
        found = narrow.crps(torch.full((2, 1, 3, 4), y, dtype=torch.float64))
        assert found[0, 0, 0, 0].item() == pytest.approx(wanted, rel=2e-5)


@pytest.mark.parametrize("likelihood", [Gaussian(), Laplace()])
def test_quantiles_of_members_far_apart(likelihood):
    apart = RegressionMixture([member(m, 0.01, likelihood) for m in (0.0, 100.0, 101.0)])
    for level in (1e-6, 0.01, 0.3, 0.5, 0.99):
        assert apart.cdf(apart.quantile(level))[0, 0, 0, 0].item() == pytest.approx(level, rel=1e-4)


def test_members_without_a_mean_leave_none():
    endless = member(0.0, 3.0, Laplace())
    unit = RegressionMixture([endless, member(0.0, 0.1, Laplace())]).in_unit(Log())
    assert bool((unit.mean == torch.inf).all())
    assert bool((unit.variance == torch.inf).all())


def test_units(mixture, y):
    affine = mixture.in_unit(Affine(1.0, 2.0))
    torch.testing.assert_close(affine.cdf(1 + 2 * y), mixture.cdf(y))
    torch.testing.assert_close(affine.variance, 4 * mixture.variance)
    log = mixture.in_unit(Log(0.1, 0.2))
    target = (0.1 + 0.2 * y).exp()
    torch.testing.assert_close(log.cdf(target), mixture.cdf(y))
    torch.testing.assert_close(log.log_prob(target), mixture.log_prob(y) - (0.2 * target).log())
    # log-normal components
    parts = [(0.1 + 0.2 * m, 0.2 * s) for m, s in zip(MEANS, STDS, strict=True)]
    mean = sum(w * math.exp(m + s * s / 2) for w, (m, s) in zip(WEIGHTS, parts, strict=True))
    second = sum(w * math.exp(2 * m + 2 * s * s) for w, (m, s) in zip(WEIGHTS, parts, strict=True))
    assert log.mean[0, 0, 0, 0].item() == pytest.approx(mean)
    assert log.variance[0, 0, 0, 0].item() == pytest.approx(second - mean**2)


def test_slices_and_equal_weights(y):
    members = [member(m, s, Laplace()) for m, s in zip(MEANS, STDS, strict=True)]
    mixture = RegressionMixture(members)
    torch.testing.assert_close(mixture[1:].cdf(y[1:]), mixture.cdf(y)[1:])
    torch.testing.assert_close(mixture.cdf(y), sum(m.cdf(y) for m in members) / 3)


def test_weights_are_normalised(mixture, y):
    scaled = RegressionMixture(mixture.members, [5 * w for w in WEIGHTS])
    torch.testing.assert_close(scaled.cdf(y), mixture.cdf(y))
    torch.testing.assert_close(scaled.variance, mixture.variance)


def test_one_member_is_itself(y):
    one = member(0.5, 1.0, Laplace())
    mixture = RegressionMixture([one])
    torch.testing.assert_close(mixture.quantile(0.2), one.quantile(0.2))
    torch.testing.assert_close(mixture.variance, one.variance)
    torch.testing.assert_close(mixture.crps(y), one.crps(y), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.5, 0.6, -0.1), (0.5, 0.5, 0.0)])
def test_wrong_weights_are_refused(mixture, weights):
    with pytest.raises(ValueError, match="one positive weight per member"):
        RegressionMixture(mixture.members, weights)
    with pytest.raises(ValueError, match="no members"):
        RegressionMixture([])


def sharp(mean, scale, likelihood):
    """No epistemic variance at all, as a pass of MC dropout has."""
    full = lambda value: torch.full((2, 1, 3, 4), value, dtype=torch.float64)  # noqa: E731
    q = GaussianField(full(mean), MarginalCovariance(full(0.0)))
    return likelihood.predict(q, full(math.log(scale)))


@pytest.mark.parametrize("together", [1, 40, 2**16])
def test_members_of_one_family_are_evaluated_together(monkeypatch, y, together):
    monkeypatch.setattr("onesigma.prediction.stack._TOGETHER", together)
    members = [sharp(m, s, Laplace()) for m, s in zip(MEANS, STDS, strict=True)]
    mixture = RegressionMixture([*members, member(1.0, 2.0)], (*(0.9 * w for w in WEIGHTS), 0.1))
    law = [stats.laplace(m, s) for m, s in zip(MEANS, STDS, strict=True)] + [stats.norm(1, 2)]
    weights = [0.9 * w for w in WEIGHTS] + [0.1]
    pdf, cdf, survival = (
        sum(w * getattr(one, name)(y.numpy()) for w, one in zip(weights, law, strict=True))
        for name in ("pdf", "cdf", "sf")
    )
    lower, upper = mixture.log_tails(y)
    np.testing.assert_allclose(mixture.log_prob(y).exp(), pdf, rtol=1e-10)
    np.testing.assert_allclose(lower.exp(), cdf, rtol=1e-10)
    np.testing.assert_allclose(upper.exp(), survival, rtol=1e-10)
    for level in (1e-3, 0.3, 0.9):
        np.testing.assert_allclose(mixture.cdf(mixture.quantile(level)), level, rtol=1e-6)


def test_what_is_stacked():
    laplace, other = sharp(0.0, 1.0, Laplace()), member(0.0, 1.0, Laplace())
    gauss = member(0.0, 1.0)
    kinds = [type(part) for part in stacks([laplace, other, gauss, laplace])]
    assert kinds == [Stack, Single, Single]


def test_far_tails_are_finite():
    mixture = RegressionMixture([sharp(0.0, 0.01, Laplace()), sharp(0.1, 0.01, Laplace())])
    far = torch.full((2, 1, 3, 4), 50.0, dtype=torch.float64)
    assert bool(mixture.log_tails(far)[1].isfinite().all())
    assert bool(mixture.log_prob(far).isfinite().all())


def test_bare_laplace_is_the_limit_of_no_spread(y):
    one = sharp(0.3, 0.7, Laplace())
    stack = stacks([one, one])[0]
    torch.testing.assert_close(stack.log_prob(y)[0], one.log_prob(y), rtol=1e-3, atol=1e-3)
    crps = stack.scale * stack.noise.crps((y - stack.location) / stack.scale, stack.ratio)
    torch.testing.assert_close(crps[0], one.crps(y), rtol=1e-3, atol=1e-5)
