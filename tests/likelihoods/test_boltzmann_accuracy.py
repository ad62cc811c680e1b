"""The closed forms against dense quadrature, Sobol points and finite differences."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch.quasirandom import SobolEngine

from onesigma.likelihoods.expectation import expected_log_sum_exp, softmax_law

EULER = 0.5772156649015329


def dense(mean, variance):
    """E p, E H, E LSE, E p(1 - p) of one pixel: brute trapezoids in t and in each Gaussian."""
    std = variance.sqrt()
    low, high = (mean - 8 * std - 5).max(), (mean + 8 * std).max() + 38
    step = 0.1
    t = torch.arange(low.item(), high.item(), step, dtype=torch.float64)
    z = torch.linspace(-8.5, 8.5, 401, dtype=torch.float64)
    w = torch.exp(-z * z / 2)
    w = w / w.sum()
    cdf, density, moment = [], [], []
    for m, s in zip(mean, std, strict=True):
        u = t[:, None] - m - s * z
        tail = torch.exp(-u.clamp_min(-30))
        g = torch.exp(-u.clamp_min(-30) - tail)
        cdf.append((w * torch.exp(-tail)).sum(1))
        density.append((w * g).sum(1))
        moment.append((w * g * u).sum(1))
    cdf, density, moment = (torch.stack(x, 1) for x in (cdf, density, moment))
    product = cdf.log().clamp_min(-700).sum(1).exp()
    rate = density / cdf.clamp_min(1e-300)
    probs = step * (product[:, None] * rate).sum(0)
    entropy = step * (product * (moment / cdf.clamp_min(1e-300)).sum(1)).sum() - EULER
    lse = step * (product * rate.sum(1) * t).sum() - EULER
    curve = step * (product[:, None] * rate * (rate.sum(1, keepdim=True) - rate)).sum(0)
    return probs, entropy, lse, curve


def law(mean, variance):
    probs, entropy, information = softmax_law(
        mean.float()[None, :, :, None], variance.float()[None, :, :, None]
    )
    return probs[0, :, :, 0].double(), entropy[0, :, 0].double(), information[0, :, 0].double()


def entropy_of(probs):
    return torch.special.entr(probs).sum(0)


def pixels(classes, kind, count, generator):
    shape = (classes, count)
    mean = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    if isinstance(kind, float):
        return mean, torch.full_like(mean, kind)
    exponent = 6 * torch.rand(shape, generator=generator, dtype=torch.float64) - 3
    if kind == "one wide":
        exponent = exponent.clamp_max(-0.5)
        exponent[0] = 2
        mean[0] += 6
    return mean, 10**exponent


@pytest.mark.parametrize("kind", [0.3, 3.0, "mixed", "one wide"])
@pytest.mark.parametrize("classes", [2, 11])
def test_against_dense_quadrature(classes, kind, generator):
    mean, variance = pixels(classes, kind, 3, generator)
    if kind == "mixed":
        variance = variance.clamp_max(60)  # the brute inner trapezoid needs it
    probs, entropy, information = law(mean, variance)
    lse_in = mean.float()[None, :, :, None].requires_grad_()
    v_in = variance.float()[None, :, :, None].requires_grad_()
    lse = expected_log_sum_exp(lse_in, v_in)
    lse.sum().backward()
    for i in range(mean.shape[1]):
        p, aleatoric, e_lse, curve = dense(mean[:, i], variance[:, i])
        assert (probs[:, i] - p).abs().sum() / 2 < 1.5e-3
        assert abs(entropy[i] - entropy_of(p)) < 3e-3
        assert abs(information[i] - (entropy_of(p) - aleatoric)) < 5e-3
        assert abs(lse[0, i, 0].item() - e_lse) < 1e-2
        assert (lse_in.grad[0, :, i, 0] - p).abs().max() < 2e-3
        assert (v_in.grad[0, :, i, 0] - curve / 2).abs().max() < 2e-3


def test_dense_oracle_is_the_logistic_normal_integral():
    mean = torch.tensor([0.7, -0.4], dtype=torch.float64)
    variance = torch.tensor([0.8, 1.5], dtype=torch.float64)
    normal = stats.norm(1.1, math.sqrt(2.3))
    exact = integrate.quad(lambda f: normal.pdf(f) * special.expit(f), -20, 20)[0]
    assert abs(dense(mean, variance)[0][0].item() - exact) < 1e-9


def sobol(mean, variance):
    u = SobolEngine(mean.shape[0], scramble=True, seed=3).draw(2**15, dtype=torch.float64)
    noise = torch.special.ndtri(u.clamp(1e-12, 1 - 1e-12))
    probs, aleatoric = [], []
    for m, s in zip(mean.T, variance.sqrt().T, strict=True):
        logs = (m + s * noise).log_softmax(1)
        probs.append(logs.exp().mean(0))
        aleatoric.append(-(logs.exp() * logs).sum(1).mean())
    probs = torch.stack(probs, 1)
    return probs, entropy_of(probs) - torch.stack(aleatoric)


@pytest.mark.parametrize("kind", [1e-3, 1e-2, 0.1, 1.0, 30.0, 1e3, "mixed"])
@pytest.mark.parametrize("classes", [2, 19])
def test_against_sobol(classes, kind, generator):
    mean, variance = pixels(classes, kind, 30, generator)
    if kind in (30.0, 1e3):
        mean = mean * math.sqrt(kind) / 2
    reference, mutual = sobol(mean, variance)
    probs, _, information = law(mean, variance)
    assert (probs - reference).abs().sum(0).max() / 2 < 5e-3
    assert (information - mutual).abs().max() < 1e-2
    assert stats.spearmanr(information, mutual).statistic > 0.999


def test_rank_correlation_holds_over_both_regimes(generator):
    mean = 2 * torch.randn(5, 100, generator=generator, dtype=torch.float64)
    variance = (
        10 ** (-2.5 + 2 * torch.rand(100, generator=generator, dtype=torch.float64))
    ).expand(5, -1)
    _, mutual = sobol(mean, variance)
    information = law(mean, variance)[2]
    assert stats.spearmanr(information, mutual).statistic > 0.999
    assert ((information - mutual).abs() / mutual).median() < 0.02


def test_second_order_series_beats_the_first(generator):
    mean, variance = pixels(4, 0.05, 20, generator)
    _, mutual = sobol(mean, variance)
    p = mean.softmax(0)
    first = 0.5 * (variance * p * (1 - p)).sum(0)
    information = law(mean, variance)[2]
    assert (information - mutual).abs().max() < 0.2 * (first - mutual).abs().max()


def gauss_hermite(mean, variance):
    """E p, H(E p) and the mutual information of one pixel of three classes, relatively exact."""
    x, w = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(90))
    grid = torch.stack(torch.meshgrid(x, x, x, indexing="ij")).flatten(1)
    weight = torch.stack(torch.meshgrid(w, w, w, indexing="ij")).flatten(1).prod(0)
    logs = (mean[:, None] + variance.sqrt()[:, None] * grid).log_softmax(0)
    weight = weight / weight.sum()
    p = (weight * logs.exp()).sum(1)
    rest = p[1:].sum()
    entropy = entropy_of(p[1:]) - (1 - rest) * torch.log1p(-rest)
    return p, entropy, entropy - (weight * -(logs.exp() * logs).sum(0)).sum()


@pytest.mark.parametrize("gap", [7.0, 9.0, 12.0, 20.0, 40.0])
@pytest.mark.parametrize("size", [0.05, 0.3, 1.0])
def test_sure_pixels_keep_their_digits(gap, size):
    mean = torch.tensor([0.0, -gap, -gap - 1.5], dtype=torch.float64)
    variance = size * torch.tensor([1.0, 0.7, 2.0], dtype=torch.float64)
    p, entropy, mutual = gauss_hermite(mean, variance)
    found = law(mean[:, None], variance[:, None])
    torch.testing.assert_close(found[0][1:, 0], p[1:], rtol=2e-2, atol=0)
    torch.testing.assert_close(found[1][0], entropy, rtol=6e-3, atol=2e-7)
    torch.testing.assert_close(found[2][0], mutual, rtol=5e-2, atol=1e-8)


def test_no_class_is_more_probable_than_its_bound():
    # E p_k ≤ E exp(f_k - f_0), also where another class leaves the pixel in doubt
    mean = torch.tensor([0.0, -0.5, -40.0], dtype=torch.float64)[:, None]
    for size in (0.02, 0.3, 2.0):
        probs = law(mean, torch.full_like(mean, size))[0]
        assert -40 - 3 * size < probs[2].log().item() <= -40 + size + 1e-4


def test_the_expected_log_sum_exp_is_that_of_the_means_at_least(generator):
    mean = 4 * torch.randn(2, 5, 8, 8, generator=generator)
    for size in (0.0, 0.1, 3.0):
        value = expected_log_sum_exp(mean, torch.full_like(mean, size))
        assert bool((value >= mean.logsumexp(1)).all())
    one = torch.full((1, 1, 1, 1), 3.0)
    assert expected_log_sum_exp(one, 2 * one).item() == pytest.approx(3, abs=3e-3)


def test_no_variance_is_the_softmax(generator):
    mean = 5 * torch.randn(2, 7, 3, 4, generator=generator)
    probs, entropy, information = softmax_law(mean, torch.zeros_like(mean))
    torch.testing.assert_close(probs, mean.softmax(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(entropy, torch.special.entr(mean.softmax(1)).sum(1))
    assert (information == 0).all()


@pytest.mark.parametrize("size", [1e4, 1e6, 1e9])
def test_huge_logits_are_an_argmax_of_gaussians(size, generator):
    mean = torch.tensor([0.4, -0.2, 0.0], dtype=torch.float64)[:, None]
    std = torch.tensor([1.0, 0.6, 1.3], dtype=torch.float64)[:, None]
    draws = mean + std * torch.randn(3, 200_000, generator=generator, dtype=torch.float64)
    expected = torch.bincount(draws.argmax(0), minlength=3) / 200_000
    probs, entropy, information = law(size * mean, (size * std) ** 2)
    assert (probs[:, 0] - expected).abs().max() < 4e-3
    assert abs(entropy[0] - information[0]) < 5e-3  # all of it epistemic


@pytest.mark.parametrize("mean", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("variance", [0.0, 1e-8, 1.0, 1e3, 1e8])
def test_extremes_are_finite_and_consistent(mean, variance):
    m = torch.tensor([mean, 0.0, -3.0, 1e4])[None, :, None, None]
    v = torch.tensor([variance, 1e-4, 2.0, 0.0])[None, :, None, None]
    probs, entropy, information = softmax_law(m, v)
    assert probs.isfinite().all()
    assert abs(probs.sum() - 1) < 1e-5
    assert (probs >= 0).all()
    assert 0 <= information.item() <= entropy.item() + 1e-6 <= math.log(4) + 1e-4
    m.requires_grad_(), v.requires_grad_()
    expected_log_sum_exp(m, v).sum().backward()
    assert m.grad.isfinite().all()
    assert v.grad.isfinite().all()
    assert (v.grad >= -1e-6).all()


def test_gradients_are_those_of_the_value(generator):
    mean = (2 * torch.randn(1, 6, 3, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    variance = (
        torch.rand(1, 6, 3, 3, generator=generator, dtype=torch.float64).add(0.3).requires_grad_()
    )
    direction = torch.randn(2, 1, 6, 3, 3, generator=generator, dtype=torch.float64)
    value = expected_log_sum_exp(mean, variance)
    by = torch.autograd.grad(value.sum(), (mean, variance))
    predicted = (by[0] * direction[0] + by[1] * direction[1]).sum(1)
    eps = 1e-3
    with torch.no_grad():
        ahead = expected_log_sum_exp(mean + eps * direction[0], variance + eps * direction[1])
        behind = expected_log_sum_exp(mean - eps * direction[0], variance - eps * direction[1])
    assert ((ahead - behind) / (2 * eps) - predicted).abs().max() < 5e-3


def test_chunks_do_not_show(generator, monkeypatch):
    mean = torch.randn(5, 3, 4, 6, generator=generator)
    variance = torch.rand(5, 3, 4, 6, generator=generator)
    whole = softmax_law(mean, variance)
    for size in (30, 200):
        monkeypatch.setattr("onesigma.likelihoods.expectation._CHUNK", size)
        for a, b in zip(whole, softmax_law(mean, variance), strict=True):
            torch.testing.assert_close(a, b)
