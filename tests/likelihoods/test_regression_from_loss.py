"""from_loss: what it finds, what it refuses, and that it reproduces the built-in classes."""

import math
import pickle

import pytest
import torch

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.berhu import BerHu
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.gibbs import from_loss
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction.special import log_phi


def l1(u):
    return u.abs()


def l2(u):
    return 0.5 * u.square()


def reverse_huber(u):
    return torch.where(u.abs() <= 0.75, u.abs(), (u.square() + 0.75**2) / 1.5)


def student(u):
    return 3 * torch.log1p(u.square() / 5)


BUILT_IN = {"l1": (l1, Laplace()), "l2": (l2, Gaussian()), "berhu": (reverse_huber, BerHu(0.75))}


@pytest.fixture(scope="module", params=sorted(BUILT_IN))
def pair(request):
    loss, built_in = BUILT_IN[request.param]
    return from_loss(loss), built_in


def inputs():
    generator = torch.Generator().manual_seed(0)
    shape = (1, 1, 20, 20)
    # σ = 1 and s from 1e-5 to 1e3
    tau = 10 ** (8 * torch.rand(shape, generator=generator, dtype=torch.float64) - 5)
    y = (
        2
        * torch.randn(shape, generator=generator, dtype=torch.float64)
        * torch.hypot(tau, torch.ones_like(tau))
    )
    return y, torch.zeros_like(y), tau.square(), torch.zeros_like(y)


def test_expected_log_prob_of_built_in_classes(pair):
    grads, values = [], []
    for likelihood in pair:
        y, *leaves = inputs()
        leaves = [leaf.requires_grad_() for leaf in leaves]
        q = GaussianField(leaves[0], MarginalCovariance(leaves[1]))
        value = likelihood.expected_log_prob(y, q, leaves[2])
        value.sum().backward()
        values.append(value.detach())
        # derivatives in units of s and σ
        grads.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*values, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(grads[0][0], grads[1][0], rtol=1e-6, atol=1e-6)
    variance = inputs()[2]
    torch.testing.assert_close(grads[0][1] * variance, grads[1][1] * variance, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grads[0][2], grads[1][2], rtol=1e-5, atol=1e-5)


def test_predictions_of_built_in_classes(pair):
    y, mean, variance, log_scale = inputs()
    q = GaussianField(mean, MarginalCovariance(variance))
    ours, theirs = (likelihood.predict(q, log_scale) for likelihood in pair)
    std = theirs.std
    torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-6, atol=0)
    bulk = theirs.cdf(y).clamp(1e-5, 1 - 1e-5) == theirs.cdf(y)
    torch.testing.assert_close(ours.cdf(y)[bulk], theirs.cdf(y)[bulk], rtol=3e-5, atol=0)
    torch.testing.assert_close(ours.log_prob(y)[bulk], theirs.log_prob(y)[bulk], rtol=0, atol=1e-5)
    for level in (0.001, 0.2, 0.5, 0.95):
        error = (ours.quantile(level) - theirs.quantile(level)) / std
        assert error.abs().max() < 1e-5


@pytest.mark.parametrize(
    ("loss", "kinks", "bends"),
    [(l1, [0.0], []), (l2, [], []), (reverse_huber, [0.0], [-0.75, 0.75])],
)
def test_kinks_are_found(loss, kinks, bends):
    noise = from_loss(loss).noise
    assert list(noise.kinks) == pytest.approx(kinks, abs=1e-9)
    for bend in bends:
        assert min(abs(knot - bend) for knot in noise.loss_knots) < 1e-9


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (lambda u: torch.log1p(u.square()), "no finite mean"),
        (lambda u: 1.25 * torch.log1p(u.square()), "no finite variance"),
        (lambda u: 0.25 * torch.log1p(u.square()), "no finite normaliser"),
        (lambda u: torch.tanh(u.square()), "bounded"),
        (lambda u: u.clamp(min=0), "u → -∞"),
        (lambda u: -u.square(), "bounded \\(or falls\\)"),
        (lambda u: u.square().sum(), "no reduction"),
        (lambda y, f: (y - f).abs() / f, "location-scale"),
        ("hubris", "by name it knows"),
    ],
)
def test_refusals_say_why(loss, reason):
    with pytest.raises(ValueError, match=reason):
        from_loss(loss)


def test_student_noise_is_accepted():
    # ½(ν + 1) log(1 + u²/ν), ν = 5: variance ν/(ν - 2)
    noise = from_loss(student).noise
    normaliser = math.sqrt(5 * math.pi) * math.gamma(2.5) / math.gamma(3)
    assert noise.variance == pytest.approx(5 / 3, rel=1e-6)
    assert noise.log_normaliser == pytest.approx(math.log(normaliser), abs=1e-8)
    u = torch.tensor([0.01, 0.3, 0.5, 0.9, 0.999], dtype=torch.float64)
    tau = torch.full_like(u, 0.3)
    assert torch.allclose(noise.cdf(noise.quantile(u, tau), tau), u, rtol=1e-4)


def test_asymmetric_losses_shift_the_mean_and_say_so():
    # exp(-u) right of 0, exp(2u) left: E e = (1 - ¼)/(1 + ½) = ½
    with pytest.warns(UserWarning, match="shifted from f by \\+0.5"):
        likelihood = from_loss(lambda u: torch.where(u > 0, u, -2 * u))
    q = GaussianField(torch.ones(1, 1, 1, 1), MarginalCovariance(torch.ones(1, 1, 1, 1)))
    out = likelihood.predict(q, torch.full((1, 1, 1, 1), math.log(3.0)))
    assert out.mean.item() == pytest.approx(1 + 3 * 0.5, rel=1e-6)
    assert "mean 0.5" in repr(likelihood)


@pytest.mark.parametrize("name", ["huber", "log_cosh", "charbonnier"])
@pytest.mark.parametrize("width", [0.05, 1.0])
def test_named_losses_become_linear(name, width):
    noise = from_loss(name, width).noise
    # for τ ≫ width the expected loss is slope · E|u| to leading order
    slope = 1.0 if name == "charbonnier" else width
    tau2 = torch.tensor([1e8], dtype=torch.float64)
    value = noise.expected_loss(torch.zeros_like(tau2), tau2)[0]
    assert value.item() == pytest.approx(slope * 1e4 * math.sqrt(2 / math.pi), rel=3e-4)


def test_no_exponential_moment_is_infinite():
    noise = from_loss(l1).noise
    t = torch.tensor([0.5, 0.99, 1.01], dtype=torch.float64)
    got = noise.log_mgf(t)
    assert got[:2].tolist() == pytest.approx(
        [-math.log1p(-0.25), -math.log1p(-(0.99**2))], rel=1e-6
    )
    assert got[2] == math.inf


@pytest.mark.parametrize("tau", [0.01, 0.3, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("name", ["l1", "l2"])
def test_ten_deviations_away(name, tau):
    """Where the noise given y is far from y - f: most of what is far is the Gaussian's doing."""
    loss, built_in = BUILT_IN[name]
    ours, theirs = from_loss(loss).noise, built_in.predictive_noise()
    x = math.hypot(tau, math.sqrt(theirs.variance)) * torch.linspace(-10, 10, 201)
    for dtype in (torch.float32, torch.float64):
        at = x.to(dtype), torch.full_like(x, tau, dtype=dtype)
        torch.testing.assert_close(ours.log_pdf(*at), theirs.log_pdf(*at), rtol=0, atol=1e-4)
        torch.testing.assert_close(ours.log_tails(*at), theirs.log_tails(*at), rtol=0, atol=1e-4)


def test_noise_with_heavy_tails_far_away():
    """Two minima: x is an outlier of the noise, or of the Gaussian. Against a fine sum."""
    noise = from_loss(student).noise
    e = torch.linspace(-300, 300, 600_001, dtype=torch.float64)
    density = -student(e) - noise.log_normaliser + math.log(1e-3)
    for tau, far in ((0.3, 40.0), (1.0, 40.0), (3.0, 12.0), (10.0, 30.0), (10.0, 200.0)):
        x, width = (torch.tensor([value], dtype=torch.float64) for value in (far, tau))
        expected = (density + log_phi((x - e) / width) - width.log()).logsumexp(0)
        assert abs(float(noise.log_pdf(x, width) - expected)) < 1e-2


@pytest.mark.parametrize("name", ["huber", "log_cosh", "charbonnier"])
def test_named_losses_can_be_pickled(name):
    likelihood = from_loss(name)
    again = pickle.loads(pickle.dumps(likelihood))
    u = torch.linspace(-3, 3, 7)
    torch.testing.assert_close(again.noise.loss(u), likelihood.noise.loss(u))


@pytest.mark.slow
def test_densities_export():
    class Density(torch.nn.Module):
        def forward(self, x, tau):
            return noise.log_pdf(x, tau)

    noise = from_loss("huber").noise
    inputs = torch.linspace(-9, 9, 5), torch.linspace(0.1, 4, 5)
    exported = torch.export.export(Density(), inputs).module()
    torch.testing.assert_close(exported(*inputs), noise.log_pdf(*inputs))
