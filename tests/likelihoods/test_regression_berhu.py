"""BerHu: constants, float32 over wide ranges, and where the threshold comes from."""

import math

import mpmath as mp
import numpy as np
import pytest
import torch

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.berhu import BerHu, BerHuNoise
from onesigma.likelihoods.laplace import LaplaceNoise

mp.mp.dps = 40


def berhu(u, c):
    u = abs(u)
    return u if u <= c else (u * u + c * c) / (2 * c)


def field(mean, variance):
    return GaussianField(mean, MarginalCovariance(variance))


def batch(seed=0, n=2, c=1, h=4, w=5):
    generator = torch.Generator().manual_seed(seed)
    y, mean = (torch.randn(n, c, h, w, generator=generator) for _ in range(2))
    variance = torch.rand(n, c, h, w, generator=generator)
    return y, mean, variance, 0.5 * torch.randn(n, 1, h, w, generator=generator)


def expected_sizes(y, mean, variance, log_scale):
    """E|y - f|/σ by the trapezoid rule over f."""
    n = np.linspace(-9, 9, 4001)
    weights = np.exp(-0.5 * n**2) / np.exp(-0.5 * n**2).sum()
    f = mean.numpy()[..., None] + variance.sqrt().numpy()[..., None] * n
    size = (np.abs(y.numpy()[..., None] - f) * weights).sum(-1)
    return size / log_scale.exp().numpy()


@pytest.mark.parametrize("c", [1e-6, 1e-4, 1e-2, 0.3, 1.0, 5.0, 30.0, 700.0])
def test_normaliser_and_variance_against_mpmath(c):
    # ∫ by the same pieces, in 40 digits
    c = float(torch.tensor(c))
    inside = 2 * mp.quad(lambda z: mp.exp(-z), [0, min(c, 80)])
    tail = [c, c + 3 * mp.sqrt(c), c + 12 * mp.sqrt(c), c + 40 * mp.sqrt(c)]
    gauss = lambda z: mp.exp(-(z * z + c * c) / (2 * c))  # noqa: E731
    z0 = inside + 2 * mp.quad(gauss, tail)
    second = 2 * mp.quad(lambda z: z * z * mp.exp(-z), [0, min(c, 40), min(c, 120)])
    second += 2 * mp.quad(lambda z: z * z * gauss(z), tail)
    noise = BerHuNoise(torch.tensor(c))
    assert float(noise.log_normaliser) == pytest.approx(float(mp.log(z0)), abs=1e-9)
    assert float(noise.variance) == pytest.approx(float(second / z0), rel=1e-7)


def test_expected_loss_in_float32_over_the_whole_range():
    rng = np.random.default_rng(0)
    count = 150
    mu = (10 ** rng.uniform(-6, 4, count) * rng.choice([-1, 1], count)).astype(np.float32)
    tau2 = (10 ** rng.uniform(-12, 8, count)).astype(np.float32)
    worst_value = worst_slope = 0.0
    for m, v, c in zip(mu, tau2, 10 ** rng.uniform(-6, 6, count), strict=True):
        threshold = torch.tensor(c, dtype=torch.float32)
        value, by_mu, by_tau2 = BerHuNoise(threshold).expected_loss(
            torch.tensor(m), torch.tensor(v)
        )
        exact, slope, slope2 = exact_berhu(float(m), float(v), float(threshold))
        worst_value = max(worst_value, abs(float(value) / exact - 1))
        worst_slope = max(worst_slope, abs(float(by_mu) - slope) / (1 + abs(m) / float(threshold)))
        assert float(by_tau2) == pytest.approx(slope2, rel=3e-5, abs=1e-30)
    assert worst_value < 1e-6
    assert worst_slope < 1e-6


def exact_berhu(m, v, c):
    m, t, c = mp.mpf(m), mp.sqrt(mp.mpf(v)), mp.mpf(c)
    big_phi = lambda x: mp.erfc(-x / mp.sqrt(2)) / 2  # noqa: E731
    phi = lambda x: mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)  # noqa: E731
    value, slope, slope2 = (
        2 * t * phi(m / t) + m * mp.erf(m / t / mp.sqrt(2)),
        mp.erf(m / t / mp.sqrt(2)),
        phi(m / t) / t,
    )
    for sign in (1, -1):
        d = sign * m - c
        value += ((d * d + t * t) * big_phi(d / t) + d * t * phi(d / t)) / (2 * c)
        slope += sign * (d * big_phi(d / t) + t * phi(d / t)) / c
        slope2 += big_phi(d / t) / (2 * c)
    return float(value), float(slope), float(slope2)


def test_exact_berhu_is_the_integral():
    # the oracle above against the definition
    for m, v, c in ((0.3, 0.25, 0.7), (-2.0, 1.0, 0.5)):
        s = math.sqrt(v)
        knots = sorted({m - 12 * s, -c, 0.0, c, m, m + 12 * s})
        density = lambda u: mp.npdf(u, m, s)  # noqa: B023, E731
        value = mp.quad(lambda u: berhu(u, c) * density(u), knots)  # noqa: B023
        assert exact_berhu(m, v, c)[0] == pytest.approx(float(value), rel=1e-10)


def test_laplace_in_float32_over_the_whole_range():
    rng = np.random.default_rng(1)
    mu = torch.tensor(10 ** rng.uniform(-6, 4, 300), dtype=torch.float32)
    tau2 = torch.tensor(10 ** rng.uniform(-12, 8, 300), dtype=torch.float32)
    value, by_mu, _ = LaplaceNoise().expected_loss(mu, tau2)
    for i in range(300):
        m, t = mp.mpf(float(mu[i])), mp.sqrt(mp.mpf(float(tau2[i])))
        sign = mp.erf(m / t / mp.sqrt(2))
        exact = 2 * t * mp.npdf(m / t) + m * sign
        assert float(value[i]) == pytest.approx(float(exact), rel=1e-6)
        assert float(by_mu[i]) == pytest.approx(float(sign), abs=1e-6)


@pytest.mark.parametrize("c", [0.02, 0.3, 2.0, 20.0])
def test_float32_cdf_and_quantiles(c):
    generator = torch.Generator().manual_seed(0)
    tau = 10 ** (4 * torch.rand(300, generator=generator) - 3)
    level = 0.001 + 0.998 * torch.rand(300, generator=generator)
    noise, wide = BerHuNoise(torch.tensor(c)), BerHuNoise(torch.tensor(c).double())
    std = (wide.variance + tau.double().square()).sqrt()
    exact = wide.quantile(level.double(), tau.double())
    assert ((noise.quantile(level, tau) - exact).abs() / std).max() < 1e-4
    x = exact.float()
    assert (noise.cdf(x, tau) - wide.cdf(x.double(), tau.double())).abs().max() < 3e-6


def test_batch_threshold_is_a_fifth_of_the_largest_expected_residual():
    y, mean, variance, log_scale = batch()
    sizes = expected_sizes(y, mean, variance, log_scale)
    likelihood = BerHu()
    got = likelihood.expected_log_prob(y, field(mean, variance), log_scale)
    same = BerHu(threshold=float(sizes.max()) / 5)
    want = same.expected_log_prob(y, field(mean, variance), log_scale)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert float(likelihood.kept) == pytest.approx(sizes.max() / 5, rel=1e-5)


def test_raw_rule_ignores_the_scale():
    y, mean, variance, log_scale = batch()
    likelihood = BerHu(rule="raw")
    likelihood.expected_log_prob(y, field(mean, variance), log_scale)
    raw = expected_sizes(y, mean, variance, torch.zeros_like(log_scale))
    assert float(likelihood.kept) == pytest.approx(raw.max() / 5, rel=1e-5)


def test_threshold_ignores_invalid_pixels_and_carries_no_gradient():
    y, mean, variance, log_scale = batch()
    spoiled = y.clone()
    spoiled[0, 0, 0, 0] = 1e9
    valid = torch.ones(2, 4, 5, dtype=torch.bool)
    valid[0, 0, 0] = False
    likelihood = BerHu()
    mean = mean.requires_grad_()
    likelihood.expected_log_prob(spoiled, field(mean, variance), log_scale, valid).sum().backward()
    sizes = expected_sizes(y, mean.detach(), variance, log_scale)[:, 0][valid.numpy()]
    assert float(likelihood.kept) == pytest.approx(sizes.max() / 5, rel=1e-5)
    assert not likelihood.kept.requires_grad
    fixed, again = BerHu(float(likelihood.kept)), mean.detach().requires_grad_()
    fixed.expected_log_prob(spoiled, field(again, variance), log_scale, valid).sum().backward()
    torch.testing.assert_close(mean.grad, again.grad, rtol=1e-5, atol=1e-6)


def test_maximum_of_the_epoch():
    likelihood = BerHu(keep="maximum")
    values = []
    for seed in range(4):
        y, mean, variance, log_scale = batch(seed)
        values.append(expected_sizes(y, mean, variance, log_scale).max() / 5)
        likelihood.expected_log_prob(y, field(mean, variance), log_scale)
        assert float(likelihood.kept) == pytest.approx(max(values), rel=1e-5)
    likelihood.start_epoch()
    assert float(likelihood.kept) == pytest.approx(max(values), rel=1e-5)  # until the next batch
    y, mean, variance, log_scale = batch(2)
    likelihood.expected_log_prob(y, field(mean, variance), log_scale)
    assert float(likelihood.kept) == pytest.approx(values[2], rel=1e-5)
    assert min(values) < max(values)


def test_running_quantile_grows_less_with_image_size():
    kept = {}
    for keep in ("maximum", "quantile"):
        for size in (100, 400):
            y, mean, variance, log_scale = batch(1, n=1, h=size, w=size)
            likelihood = BerHu(keep=keep)
            likelihood.expected_log_prob(y, field(0 * mean, 1e-12 * variance), 0 * log_scale)
            kept[keep, size] = float(likelihood.kept)
    sizes = np.sort(y.abs().numpy().ravel())
    assert kept["quantile", 400] == pytest.approx(sizes[-16] / 5, rel=1e-5)
    assert kept["maximum", 400] / kept["maximum", 100] > 1.05
    assert kept["quantile", 400] / kept["quantile", 100] < 1.02


def test_running_quantile_averages_batches():
    likelihood, values = BerHu(momentum=0.75), []
    for seed in range(3):
        y, mean, variance, log_scale = batch(seed)
        values.append(expected_sizes(y, mean, variance, log_scale).max() / 5)
        likelihood.expected_log_prob(y, field(mean, variance), log_scale)
    want = 0.75 * (0.75 * values[0] + 0.25 * values[1]) + 0.25 * values[2]
    assert float(likelihood.kept) == pytest.approx(want, rel=1e-5)


def test_eval_mode_uses_and_does_not_change_the_kept_threshold():
    likelihood = BerHu()
    first, second = batch(0), batch(1)
    likelihood.expected_log_prob(first[0], field(*first[1:3]), first[3])
    kept = float(likelihood.kept)
    value = likelihood.eval().expected_log_prob(second[0], field(*second[1:3]), second[3])
    fixed = BerHu(threshold=kept).expected_log_prob(second[0], field(*second[1:3]), second[3])
    torch.testing.assert_close(value, fixed)
    assert float(likelihood.kept) == kept
    again = BerHu()
    again.load_state_dict(likelihood.state_dict())
    out = again.predict(field(*second[1:3]), second[3])
    torch.testing.assert_close(
        out.cdf(second[0]), likelihood.predict(field(*second[1:3]), second[3]).cdf(second[0])
    )


def test_no_valid_pixel_changes_nothing():
    y, mean, variance, log_scale = batch()
    likelihood = BerHu()
    value = likelihood.expected_log_prob(y * math.nan, field(mean, variance), log_scale)
    assert (value == 0).all()
    assert float(likelihood.kept) == 0


def test_predicting_before_training_is_explained():
    y, mean, variance, log_scale = batch()
    for call in (
        lambda: BerHu().predict(field(mean, variance), log_scale),
        lambda: BerHu().eval().expected_log_prob(y, field(mean, variance), log_scale),
    ):
        with pytest.raises(ValueError, match="no threshold yet"):
            call()


@pytest.mark.parametrize("options", [{"threshold": -1.0}, {"rule": "x"}, {"keep": "x"}])
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match="BerHu got"):
        BerHu(**options)
