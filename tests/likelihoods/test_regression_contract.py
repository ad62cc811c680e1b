"""What every regression likelihood has to satisfy, against dense quadrature in numpy.

A new likelihood inherits the contract in four lines: `make`, the loss in numpy, its kinks.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import erf, ndtr

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.gibbs import from_loss
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction.transforms import Affine, Log

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
BAD = (math.nan, math.inf, -math.inf, 255.0, -1.0, 1e9)


def composite(knots):
    """Gauss-Legendre nodes and weights on every interval between sorted knots."""
    a, b = np.array(knots[:-1])[:, None], np.array(knots[1:])[:, None]
    return ((b - a) / 2 * NODES + (a + b) / 2).ravel(), ((b - a) / 2 * WEIGHTS).ravel()


class Reference:
    """The noise exp(-loss)/Z as 2000 weighted points; laws with τ ≥ 0.05 follow by summation."""

    def __init__(self, loss: Callable, kinks: tuple[float, ...], reach: float) -> None:
        self.loss, self.kinks, self.reach = loss, kinks, reach
        # 20 nodes on each: fine in the middle, where kinks and small τ want it
        knots = {*np.arange(-8, 8.1, 0.25), *np.arange(-reach, reach + 0.1, 4.0), *kinks}
        self.points, weights = composite(sorted(knots))
        mass = weights * np.exp(-loss(self.points))
        self.log_z, self.mass = math.log(mass.sum()), mass / mass.sum()

    def pdf(self, x, tau):
        return (self.mass * np.exp(-0.5 * ((x - self.points) / tau) ** 2)).sum() / (
            tau * math.sqrt(2 * math.pi)
        )

    def cdf(self, x, tau):
        return (self.mass * ndtr((x - self.points) / tau)).sum()

    def moment(self, power):
        return (self.mass * self.points**power).sum()

    def mgf(self, t):
        return (self.mass * np.exp(t * self.points)).sum()

    def expected_loss(self, mu, tau):
        ends = mu + tau * np.linspace(-9, 9, 37)
        features = {*self.kinks, *np.arange(-8, 8.1, 0.5)}
        inner = [k for k in features if ends[0] < k < ends[-1]]
        u, weights = composite(sorted({*ends, *inner}))
        density = np.exp(-0.5 * ((u - mu) / tau) ** 2) / (tau * math.sqrt(2 * math.pi))
        return (weights * density * self.loss(u)).sum()

    def crps(self, x, tau):
        spread = folded(self.points[:, None] - self.points, math.sqrt(2) * tau)
        between = self.mass @ spread @ self.mass
        return [self.mass @ folded(v - self.points, tau) - 0.5 * between for v in x]


def folded(d, tau):
    """E|d + τn|."""
    return tau * math.sqrt(2 / math.pi) * np.exp(-0.5 * (d / tau) ** 2) + d * erf(
        d / (tau * math.sqrt(2))
    )


def grid(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).reshape(1, 1, 1, -1)


def field(mean, variance):
    return GaussianField(mean, MarginalCovariance(variance))


MU = (0.0, 0.3, -1.0, 2.5, -6.0, 0.7)
TAUS = (0.05, 0.4, 1.0, 5.0)
SIGMA, LOCATION = 0.3, 1.7


class RegressionLikelihoodContract:
    make: Callable[[], Likelihood]
    loss: Callable
    kinks: tuple[float, ...] = ()
    reach = 60.0

    @pytest.fixture(scope="class")
    @classmethod
    def likelihood(cls):
        return cls.make().eval()

    @pytest.fixture(scope="class")
    @classmethod
    def reference(cls):
        return Reference(cls.loss, cls.kinks, cls.reach)

    def predict(self, likelihood, tau, x=MU, dtype=torch.float64):
        """The prediction around LOCATION, and targets y at standardised x."""
        mean = torch.full_like(grid(x, dtype), LOCATION)
        variance = torch.full_like(mean, (tau * SIGMA) ** 2)
        scale = torch.full_like(mean, math.log(SIGMA))
        y = LOCATION + SIGMA * grid(x, dtype)
        return likelihood.predict(field(mean, variance), scale), y

    def test_likelihood_integrates_to_one(self, likelihood, reference):
        u, weights = composite(sorted({*np.arange(-self.reach, self.reach, 0.25), *self.kinks}))
        y = LOCATION + SIGMA * grid(u)
        f = torch.full_like(y, LOCATION)
        log_prob = likelihood.log_prob(y, f, torch.full_like(y, math.log(SIGMA)))
        total = (log_prob.exp().flatten().numpy() * weights).sum() * SIGMA
        assert total == pytest.approx(1, abs=1e-7)

    @pytest.mark.parametrize("tau", TAUS)
    def test_density_and_cdf(self, likelihood, reference, tau):
        prediction, y = self.predict(likelihood, tau)
        pdf = np.array([reference.pdf(x, tau) for x in MU]) / SIGMA
        cdf = np.array([reference.cdf(x, tau) for x in MU])
        np.testing.assert_allclose(prediction.log_prob(y).exp().flatten(), pdf, rtol=2e-6)
        np.testing.assert_allclose(prediction.cdf(y).flatten(), cdf, rtol=1e-5, atol=1e-15)
        upper = prediction.log_tails(y)[1].exp().flatten()
        np.testing.assert_allclose(upper, 1 - cdf, rtol=1e-5, atol=1e-12)

    def test_cdf_is_the_integral_of_the_density(self, likelihood):
        x, weights = composite(list(np.linspace(-2, 3, 41)))
        prediction, y = self.predict(likelihood, 0.3, x)
        inside = (prediction.log_prob(y).exp().flatten().numpy() * weights).sum() * SIGMA
        prediction, ends = self.predict(likelihood, 0.3, (-2.0, 3.0))
        low, high = prediction.cdf(ends).flatten().tolist()
        assert high - low == pytest.approx(inside, rel=1e-5)

    @pytest.mark.parametrize("tau", [0.0, 0.05, 1.0, 30.0])
    def test_quantile_inverts_the_cdf(self, likelihood, tau):
        levels = (0.001, 0.05, 0.3, 0.5, 0.8, 0.99)
        prediction, _ = self.predict(likelihood, tau)
        found = prediction.cdf(prediction.quantile(grid(levels))).flatten()
        np.testing.assert_allclose(found, levels, rtol=5e-5)
        one = prediction.quantile(0.3).flatten()[2]
        assert one == pytest.approx(float(prediction.quantile(grid(levels)).flatten()[2]))

    def test_moments(self, likelihood, reference):
        prediction, _ = self.predict(likelihood, 0.5)
        mean, second = reference.moment(1), reference.moment(2)
        aleatoric = SIGMA**2 * (second - mean**2)
        assert prediction.mean.flatten()[0] == pytest.approx(LOCATION + SIGMA * mean, rel=1e-7)
        assert prediction.aleatoric.flatten()[0] == pytest.approx(aleatoric, rel=1e-6)
        assert prediction.epistemic.flatten()[0] == pytest.approx((0.5 * SIGMA) ** 2)
        assert prediction.variance.flatten()[0] == pytest.approx(
            aleatoric + (0.5 * SIGMA) ** 2, rel=1e-6
        )

    @pytest.mark.parametrize("tau", [1e-3, 0.3, 1.0, 40.0])
    def test_expected_log_prob_and_gradients(self, likelihood, reference, tau):
        mean = torch.full_like(grid(MU), LOCATION).requires_grad_()
        variance = torch.full_like(mean, (tau * SIGMA) ** 2).requires_grad_()
        scale = torch.full_like(mean, math.log(SIGMA)).requires_grad_()
        y = LOCATION + SIGMA * grid(MU)
        value = likelihood.expected_log_prob(y, field(mean, variance), scale)
        value.sum().backward()

        def exact(m, v, s, target):
            sigma = math.exp(s)
            loss = reference.expected_loss((target - m) / sigma, math.sqrt(v) / sigma)
            return -loss - s - reference.log_z

        for i, target in enumerate(y.flatten().tolist()):
            at = [LOCATION, (tau * SIGMA) ** 2, math.log(SIGMA)]
            assert value.flatten()[i].item() == pytest.approx(
                exact(*at, target), rel=1e-6, abs=1e-7
            )
            steps = [1e-4 * tau * SIGMA, 1e-4 * at[1], 1e-4 * min(1.0, tau)]
            for j, (leaf, step) in enumerate(zip((mean, variance, scale), steps, strict=True)):
                up, down = at.copy(), at.copy()
                up[j], down[j] = at[j] + step, at[j] - step
                slope = (exact(*up, target) - exact(*down, target)) / (2 * step)
                # the differences carry a rounding error of about 1e-15 · value/step
                noise = 1e-14 * (1 + abs(value.flatten()[i].item())) / step
                assert leaf.grad.flatten()[i].item() == pytest.approx(
                    slope, rel=2e-5, abs=1e-6 * (1 + 1 / at[1] * (j == 1)) + noise
                )

    def test_vanishing_epistemic_variance(self, likelihood):
        y, mean = LOCATION + SIGMA * grid(MU, torch.float32), torch.full((1, 1, 1, 6), LOCATION)
        scale = torch.full_like(mean, math.log(SIGMA))
        limit = likelihood.log_prob(y, mean, scale)
        for share in (1e-12, 1e-14, 1e-30, 0.0):
            leaves = [mean.clone(), torch.full_like(mean, share * SIGMA**2), scale.clone()]
            leaves = [leaf.requires_grad_() for leaf in leaves]
            value = likelihood.expected_log_prob(y, field(*leaves[:2]), leaves[2])
            value.sum().backward()
            torch.testing.assert_close(value.detach(), limit, rtol=2e-6, atol=2e-6)
            assert all(leaf.grad.isfinite().all() for leaf in leaves)
        prediction = likelihood.predict(field(mean, torch.zeros_like(mean)), scale)
        torch.testing.assert_close(prediction.log_prob(y)[:, 0], limit, rtol=1e-5, atol=1e-5)

    def test_invalid_pixels_leave_no_trace(self):
        results = []
        generator = torch.Generator().manual_seed(3)
        mean, variance, y = (torch.rand(2, 2, 1, 10, generator=generator) for _ in range(3))
        log_scale = torch.randn(2, 1, 1, 10, generator=generator)
        for spoiled in (True, False):
            leaves = [mean, variance, log_scale]
            target, valid = y.clone(), torch.ones(2, 1, 10, dtype=torch.bool)
            if spoiled:
                for i, bad in enumerate(BAD):
                    target[:, i % 2, 0, i] = bad
                valid[..., :6] = False
            else:
                leaves, target, valid = [t[..., 6:] for t in leaves], target[..., 6:], None
            leaves = [t.clone().requires_grad_() for t in leaves]
            likelihood = type(self).make().train()
            value = likelihood.expected_log_prob(target, field(*leaves[:2]), leaves[2], valid)
            value.sum().backward()
            results.append((value.detach(), *(t.grad for t in leaves)))
        for with_bad, without in zip(*results, strict=True):
            assert (with_bad[..., :6] == 0).all()
            torch.testing.assert_close(with_bad[..., 6:], without, rtol=0, atol=0)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_is_computed_in_float32(self, likelihood, dtype):
        inputs = [grid(MU, dtype), torch.full((1, 1, 1, 6), 0.3, dtype=dtype)]
        y, scale = torch.zeros_like(inputs[0]), torch.full_like(inputs[0], -1.0)
        half = likelihood.expected_log_prob(y, field(*inputs), scale)
        full = likelihood.expected_log_prob(
            y.float(), field(*(t.float() for t in inputs)), scale.float()
        )
        assert half.dtype == torch.float32
        torch.testing.assert_close(half, full, rtol=0, atol=0)
        assert likelihood.predict(field(*inputs), scale).mean.dtype == torch.float32

    def test_intervals_cover_samples(self, likelihood, reference):
        rng = np.random.default_rng(0)
        count, tau, level = 40_000, 0.8, 0.9
        noise = rng.choice(reference.points, size=count, p=reference.mass)
        y = LOCATION + SIGMA * (noise + tau * rng.standard_normal(count))
        prediction, _ = self.predict(likelihood, tau, (0.0,))
        lower, upper = (edge.item() for edge in prediction.interval(level))
        share = ((y > lower) & (y < upper)).mean()
        assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / count)
        assert abs((y < lower).mean() - 0.05) < 4 * math.sqrt(0.05 * 0.95 / count)

    def test_crps(self, likelihood, reference):
        x = (0.0, -1.5, 4.0, 70.0)
        for tau in (0.3, 2.0):
            prediction, y = self.predict(likelihood, tau, x)
            exact = SIGMA * np.array(reference.crps(x, tau))
            np.testing.assert_allclose(prediction.crps(y).flatten(), exact, rtol=2e-5)

    def test_logarithmic_unit(self, likelihood, reference):
        tau, transform = 0.5, Log(shift=0.4, scale=0.5)
        model, z = self.predict(likelihood, tau)
        unit = model.in_unit(transform)
        y = transform.to_unit(z)
        # change of variables
        torch.testing.assert_close(unit.cdf(y), model.cdf(z))
        torch.testing.assert_close(unit.log_prob(y), model.log_prob(z) - (0.5 * y).log())
        torch.testing.assert_close(unit.quantile(0.2), transform.to_unit(model.quantile(0.2)))
        # E exp(0.4 + 0.5 (m + σ e + s n)) and its variance, by summation over the noise
        t, s2 = 0.5 * SIGMA, (0.5 * tau * SIGMA) ** 2
        base = math.exp(0.4 + 0.5 * LOCATION)
        mean = base * math.exp(s2 / 2) * reference.mgf(t)
        second = base**2 * math.exp(2 * s2) * reference.mgf(2 * t)
        epistemic = (base * reference.mgf(t)) ** 2 * math.exp(s2) * math.expm1(s2)
        assert unit.mean.flatten()[0].item() == pytest.approx(mean, rel=1e-6)
        assert unit.variance.flatten()[0].item() == pytest.approx(second - mean**2, rel=1e-5)
        assert unit.epistemic.flatten()[0].item() == pytest.approx(epistemic, rel=1e-5)

    def test_affine_unit(self, likelihood):
        transform = Affine(shift=-3.0, scale=2.5)
        model, z = self.predict(likelihood, 0.7)
        unit, y = model.in_unit(transform), transform.to_unit(z)
        torch.testing.assert_close(unit.cdf(y), model.cdf(z))
        torch.testing.assert_close(unit.log_prob(y), model.log_prob(z) - math.log(2.5))
        torch.testing.assert_close(unit.mean, transform.to_unit(model.mean))
        torch.testing.assert_close(unit.variance, 2.5**2 * model.variance)

    def test_slices_images(self, likelihood):
        mean = torch.arange(6.0).reshape(3, 1, 1, 2)
        prediction = likelihood.predict(field(mean, 0.1 + mean), torch.zeros(3, 1, 1, 2))
        part = prediction[1:]
        torch.testing.assert_close(part.cdf(mean[1:]), prediction.cdf(mean)[1:])
        torch.testing.assert_close(part.variance, prediction.variance[1:])

    def test_extremes_stay_finite(self, likelihood):
        x = grid((0.0, 1e-3, -1.0, 30.0, -1e4, 1e4), torch.float32)
        for sigma in (1e-12, 1.0, 1e6):
            for tau in (0.0, 1e-8, 1e-3, 1.0, 1e4):
                mean, y = torch.zeros_like(x), x * sigma
                variance = torch.full_like(x, (tau * sigma) ** 2)
                scale = torch.full_like(x, math.log(sigma))
                prediction = likelihood.predict(field(mean, variance), scale)
                assert prediction.log_prob(y).isfinite().all()
                cdf = prediction.cdf(y).flatten()
                assert ((cdf >= 0) & (cdf <= 1)).all()
                assert (cdf[[4, 2, 3, 5]].diff() >= 0).all()
                assert (
                    likelihood.expected_log_prob(y, field(mean, variance), scale).isfinite().all()
                )

    def test_missing_scale_is_explained(self, likelihood):
        q = field(torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2))
        for call in (lambda: likelihood.predict(q), lambda: likelihood.log_prob(q.mean, q.mean)):
            with pytest.raises(ValueError, match="log_scale=None"):
                call()


def berhu_loss(u, c):
    return np.abs(u) + np.maximum(np.abs(u) - c, 0) ** 2 / (2 * c)


class TestGaussian(RegressionLikelihoodContract):
    make = Gaussian
    loss = staticmethod(lambda u: 0.5 * u**2)


class TestLaplace(RegressionLikelihoodContract):
    make = Laplace
    loss, kinks = staticmethod(np.abs), (0.0,)


class TestBerHu(RegressionLikelihoodContract):
    make = staticmethod(lambda: BerHu(threshold=0.7))
    loss, kinks = staticmethod(lambda u: berhu_loss(u, 0.7)), (-0.7, 0.0, 0.7)


class TestWideBerHu(RegressionLikelihoodContract):
    make = staticmethod(lambda: BerHu(threshold=4.0))
    loss, kinks = staticmethod(lambda u: berhu_loss(u, 4.0)), (-4.0, 0.0, 4.0)


class TestHuber(RegressionLikelihoodContract):
    make = staticmethod(lambda: from_loss("huber"))
    loss = staticmethod(lambda u: np.where(np.abs(u) < 1, 0.5 * u**2, np.abs(u) - 0.5))
    kinks = (-1.0, 1.0)


class TestLogCosh(RegressionLikelihoodContract):
    make = staticmethod(lambda: from_loss("log_cosh"))
    loss = staticmethod(lambda u: np.logaddexp(u, -u) - math.log(2))


class TestCharbonnier(RegressionLikelihoodContract):
    make = staticmethod(lambda: from_loss("charbonnier"))
    loss = staticmethod(lambda u: np.sqrt(u**2 + 1) - 1)


def pinball(u):
    return torch.where(u > 0, 1.5 * u, -0.75 * u)


@pytest.mark.filterwarnings("ignore:The loss is not even")
class TestPinball(RegressionLikelihoodContract):
    make = staticmethod(lambda: from_loss(pinball))
    loss, kinks = staticmethod(lambda u: np.where(u > 0, 1.5 * u, -0.75 * u)), (0.0,)
