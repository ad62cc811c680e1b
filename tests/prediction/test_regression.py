"""Predictions in a logarithmic unit, their edges, and export."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.gibbs import from_loss
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction.mixture import RegressionMixture
from onesigma.prediction.transforms import Affine, Log


def full(value, dtype=torch.float64):
    return torch.full((1, 1, 1, 1), value, dtype=dtype)


def predict(likelihood, mean=0.4, std=0.3, sigma=0.5, dtype=torch.float64):
    q = GaussianField(full(mean, dtype), MarginalCovariance(full(std**2, dtype)))
    return likelihood.predict(q, full(math.log(sigma), dtype))


def test_gaussian_in_a_log_unit_is_log_normal():
    unit = predict(Gaussian()).in_unit(Log(0.2, 0.7))
    spread = 0.7 * math.hypot(0.3, 0.5)
    law = stats.lognorm(s=spread, scale=math.exp(0.2 + 0.7 * 0.4))
    assert unit.mean.item() == pytest.approx(law.mean())
    assert unit.variance.item() == pytest.approx(law.var())
    assert unit.median.item() == pytest.approx(law.median())
    assert unit.log_prob(full(2.0)).item() == pytest.approx(law.logpdf(2.0))
    for y in (0.5, 1.5, 6.0):
        below = integrate.quad(lambda t: law.cdf(t) ** 2, 0, y)[0]
        above = integrate.quad(lambda t: law.sf(t) ** 2, y, 60)[0]
        assert unit.crps(full(y)).item() == pytest.approx(below + above, rel=1e-6)
    at_zero = integrate.quad(lambda t: law.sf(t) ** 2, 0, 60)[0]
    assert unit.crps(full(-2.0)).item() == pytest.approx(2 + at_zero, rel=1e-6)


def test_an_offset_moves_the_log_normal_law():
    unit = predict(Gaussian()).in_unit(Log(0.2, 0.7, offset=1.5))
    law = stats.lognorm(s=0.7 * math.hypot(0.3, 0.5), scale=math.exp(0.2 + 0.7 * 0.4), loc=-1.5)
    assert unit.mean.item() == pytest.approx(law.mean())
    assert unit.variance.item() == pytest.approx(law.var())
    assert unit.quantile(0.1).item() == pytest.approx(law.ppf(0.1))
    for y in (-1.2, 0.0, 2.0):
        assert unit.log_prob(full(y)).item() == pytest.approx(law.logpdf(y))
        assert unit.cdf(full(y)).item() == pytest.approx(law.cdf(y))
        below = integrate.quad(lambda t: law.cdf(t) ** 2, -1.5, y)[0]
        above = integrate.quad(lambda t: law.sf(t) ** 2, y, 60)[0]
        assert unit.crps(full(y)).item() == pytest.approx(below + above, rel=1e-6)
    assert unit.log_prob(full(-1.5)).item() == -math.inf
    end = integrate.quad(lambda t: law.sf(t) ** 2, -1.5, 60)[0]
    assert unit.crps(full(-3.0)).item() == pytest.approx(1.5 + end, rel=1e-6)


@pytest.mark.parametrize("transform", [Affine(0.3, 2.0), Log(0.2, 0.7), Log(0.2, 0.7, 1.5)])
@pytest.mark.parametrize("likelihood", [Laplace(), Gaussian()])
def test_the_median_is_the_half_quantile(likelihood, transform):
    unit = predict(likelihood, sigma=0.2).in_unit(transform)
    assert unit.median.item() == pytest.approx(unit.quantile(0.5).item(), rel=1e-9)
    assert unit.cdf(unit.median).item() == pytest.approx(0.5, abs=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1.5])
def test_crps_by_quadrature_in_a_log_unit(offset):
    model = predict(Laplace(), sigma=0.2)
    unit = model.in_unit(Log(0.2, 0.7, offset))
    y = 1.8 - offset
    cdf = lambda t: unit.cdf(full(t)).item()  # noqa: E731
    below = integrate.quad(lambda t: cdf(t) ** 2, -offset, y, limit=100)[0]
    above = integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, 40, limit=100)[0]
    assert unit.crps(full(y)).item() == pytest.approx(below + above, rel=1e-4)


def test_moments_that_do_not_exist_are_infinite():
    # scale · σ = 0.6: a mean, no variance; 1.2: neither; quantiles always
    for sigma, mean, variance in ((0.6, False, True), (1.2, True, True), (0.4, False, False)):
        unit = predict(Laplace(), sigma=sigma).in_unit(Log())
        assert unit.mean.isinf().item() == mean
        assert unit.variance.isinf().item() == variance
        assert not unit.mean.isnan()
        assert not unit.variance.isnan()
        assert unit.quantile(0.9).isfinite().all()


def test_a_sure_function_has_no_epistemic_part_even_without_a_mean():
    unit = predict(Laplace(), std=0.0, sigma=1.2).in_unit(Log())
    assert unit.mean.item() == math.inf
    assert unit.epistemic.item() == 0
    assert unit.variance.item() == math.inf


@pytest.mark.parametrize("likelihood", [Gaussian(), Laplace(), BerHu(0.3), from_loss("huber")])
def test_far_quantiles_in_float32(likelihood):
    single, double = (predict(likelihood, dtype=d) for d in (torch.float32, torch.float64))
    for level in (1e-9, 1e-6, 0.9999, 1 - 1e-6, 1 - 1e-9):
        found = single.quantile(level)
        assert found.dtype == torch.float32
        assert found.item() == pytest.approx(double.quantile(level).item(), rel=1e-4)
    low, high = single.in_unit(Log(0.0, 0.1)).interval(1 - 2e-9)
    # the law of the logarithm is even about its median
    assert low.log().item() + high.log().item() == pytest.approx(2 * 0.1 * 0.4, abs=1e-4)


def test_berhu_tails_in_float32():
    noise = BerHu(0.1).predictive_noise()
    x = torch.tensor([1.0, 3.0, 6.0, 12.0])
    for tau in (0.05, 0.5, 30.0):
        found = noise.log_tails(-tau * x, torch.full_like(x, tau))[0]
        wanted = noise.log_tails(-tau * x.double(), torch.full_like(x, tau).double())[0]
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_small_scales_keep_the_aleatoric_variance_in_float32():
    # M(2t)/M(t)² - 1 ≈ w t² for t → 0
    for likelihood, w in ((Laplace(), 2.0), (BerHu(50.0), 2.0), (Gaussian(), 1.0)):
        unit = predict(likelihood, std=1e-3, sigma=1e-4, dtype=torch.float32).in_unit(Log())
        want = w * 1e-8 * math.exp(2 * 0.4)
        assert unit.aleatoric.item() == pytest.approx(want, rel=1e-4)


def test_log_unit_has_no_mass_below_zero():
    unit = predict(Laplace()).in_unit(Log())
    assert unit.cdf(full(-1.0)).item() == 0
    assert unit.log_prob(full(0.0)).item() == -math.inf
    with pytest.raises(ValueError, match="in the target's unit already"):
        unit.in_unit(Affine(0.0, 2.0))


def test_laplace_far_tails_against_logarithms():
    # log-density: -|x| + τ²/2 - log 2σ far right of τ², for any distance
    prediction = predict(Laplace(), mean=0.0, std=0.5, sigma=0.5, dtype=torch.float32)
    for x in (50.0, 1e3, 1e4):
        y = full(0.5 * x, torch.float32)
        assert prediction.log_prob(y).item() == pytest.approx(-x + 0.5 - math.log(1.0), rel=1e-6)
    lower, upper = prediction.log_tails(full(500.0, torch.float32))
    assert upper.item() == pytest.approx(-1000 + 0.5 - math.log(2), rel=1e-6)
    assert lower.item() == 0


def test_wrong_levels_are_refused():
    prediction = predict(Laplace())
    for call in (lambda: prediction.quantile(1.0), lambda: prediction.interval(1.5)):
        with pytest.raises(ValueError, match="probability between 0 and 1"):
            call()


class Summary(nn.Module):
    """All a user reads from a prediction, as one module."""

    def __init__(self, likelihood):
        super().__init__()
        self.likelihood = likelihood

    def forward(self, mean, variance, log_scale, y):
        q = GaussianField(mean, MarginalCovariance(variance))
        out = self.likelihood.predict(q, log_scale)
        return out.mean, out.variance, out.cdf(y), out.log_prob(y), *out.interval(0.9)


def trained_berhu():
    likelihood = BerHu()
    q = GaussianField(torch.zeros(1, 1, 4, 4), MarginalCovariance(torch.ones(1, 1, 4, 4)))
    likelihood.expected_log_prob(torch.ones(1, 1, 4, 4), q, torch.zeros(1, 1, 4, 4))
    return likelihood


@pytest.mark.parametrize("make", [Laplace, pytest.param(trained_berhu, marks=pytest.mark.slow)])
def test_predictions_export(make, generator):
    inputs = tuple(torch.rand(2, 1, 3, 4, generator=generator) + 0.1 for _ in range(4))
    module = Summary(make()).eval()
    program = torch.export.export(module, inputs)
    for got, want in zip(program.module()(*inputs), module(*inputs), strict=True):
        torch.testing.assert_close(got, want)
    operations = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    # what exporters expand badly, randomness and linear algebra
    banned = ("erfcx", "gammainc", "ndtri", "log_ndtr", "erfinv", "rand", "linalg", "matmul")
    assert not [name for name in operations if any(word in name for word in banned)]
    assert any("exp" in name for name in operations)


def test_log_unit_mean_by_sampling():
    rng = np.random.default_rng(0)
    unit = predict(BerHu(1.0), sigma=0.2).in_unit(Log(0.1, 0.5))
    e = np.linspace(-12, 12, 200_001)
    p = np.exp(-np.where(np.abs(e) < 1, np.abs(e), (e**2 + 1) / 2))
    z = 0.4 + 0.3 * rng.standard_normal(400_000) + 0.2 * rng.choice(e, 400_000, p=p / p.sum())
    y = np.exp(0.1 + 0.5 * z)
    assert unit.mean.item() == pytest.approx(y.mean(), abs=5 * y.std() / math.sqrt(len(y)))
    assert unit.variance.item() == pytest.approx(y.var(), rel=0.02)


PREDICTIONS = [
    predict(Gaussian()),
    predict(from_loss("huber")),
    predict(Laplace()).in_unit(Log()),
    RegressionMixture([predict(Laplace()), predict(Laplace(), 0.1)]),
]


@pytest.mark.parametrize("law", PREDICTIONS, ids=lambda law: type(law).__name__)
@pytest.mark.usefixtures("as_users_call")
def test_levels_and_images_that_are_none(law):
    for level in (90, 0, -0.1):
        with pytest.raises(ValueError, match=f"the level {level}; level is a probability between"):
            law.interval(level)
    with pytest.raises(ValueError, match=r"levels of shape \(2, 3\) .* call it with each"):
        law.quantile(torch.full((2, 3), 0.1))
    with pytest.raises(TypeError, match=f"{type(law).__name__} is cut by a slice .* got 0"):
        law[0]
