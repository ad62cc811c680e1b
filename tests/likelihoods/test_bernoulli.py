import math
from itertools import pairwise

import pytest
import torch
from scipy import integrate, special, stats
from torch.nn import functional

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.bernoulli import Bernoulli


def field(mean, variance):
    return GaussianField(mean, MarginalCovariance(variance))


def expectation(function, mean, variance):
    """∫ function(f) N(f; m, v) df, split where the function bends."""
    law, std = stats.norm(mean, math.sqrt(variance)), math.sqrt(variance)
    low, high = mean - 10 * std, mean + 10 * std
    points = sorted({min(max(p, low), high) for p in (-8.0, -2.0, 0.0, 2.0, 8.0, mean)})
    ends = [low, *points, high]
    return sum(
        integrate.quad(lambda f: function(f) * law.pdf(f), a, b, limit=200)[0]
        for a, b in pairwise(ends)
        if b > a
    )


def entropy(p):
    return float(special.entr(p) + special.entr(1 - p))


@pytest.mark.parametrize("variance", [1e-3, 0.04, 0.5, 5.0, 100.0, 1e3])
def test_against_the_logistic_normal_integral(variance):
    means = torch.tensor([-6.0, -1.0, 0.0, 0.4, 3.0])
    q = field(means[None, :, None, None], torch.full((1, 5, 1, 1), variance))
    out = Bernoulli().predict(q)
    ones = Bernoulli().expected_log_prob(torch.ones(1, 5, 1, 1), q).item()
    total = 0.0
    for i, m in enumerate(means.tolist()):
        p = expectation(special.expit, m, variance)
        mutual = entropy(p) - expectation(lambda f: entropy(special.expit(f)), m, variance)
        assert abs(out.probs[0, i].item() - p) < 1e-3
        assert abs(out.entropy[0, i].item() - entropy(p)) < 3e-3
        assert abs(out.mutual_information[0, i].item() - mutual) < 3e-3
        total += expectation(
            lambda f: (
                -float(special.log1p(math.exp(-f)) if f > 0 else special.log1p(math.exp(f)) - f)
            ),
            m,
            variance,
        )
    assert abs(ones - total) < 5e-3 + 1e-3 * abs(total)


def test_small_variances_keep_their_digits():
    q = field(torch.tensor([0.3]).view(1, 1, 1, 1), torch.full((1, 1, 1, 1), 1e-3))
    p = expectation(special.expit, 0.3, 1e-3)
    mutual = entropy(p) - expectation(lambda f: entropy(special.expit(f)), 0.3, 1e-3)
    assert abs(Bernoulli().predict(q).mutual_information.item() / mutual - 1) < 1e-3


@pytest.mark.parametrize("weight", [None, [2.0, 0.5, 1.0]])
def test_without_variance_it_is_binary_cross_entropy(weight, generator):
    f = torch.randn(2, 3, 4, 5, generator=generator)
    y = torch.randint(0, 2, f.shape, generator=generator).float()
    positive = None if weight is None else torch.tensor(weight).view(3, 1, 1)
    loss = functional.binary_cross_entropy_with_logits(
        f, y, pos_weight=positive, reduction="none"
    ).sum(1)
    likelihood = Bernoulli(pos_weight=weight)
    torch.testing.assert_close(-likelihood.log_prob(y, f), loss)
    expected = -likelihood.expected_log_prob(y.bool(), field(f, torch.zeros_like(f)))
    torch.testing.assert_close(expected, loss, atol=5e-3, rtol=2e-3)


def test_invalid_targets_touch_nothing(generator):
    mean = torch.randn(1, 2, 3, 4, generator=generator)
    variance = torch.rand(1, 2, 3, 4, generator=generator)
    clean = torch.randint(0, 2, mean.shape, generator=generator).float()
    dirty, known = clean.clone(), torch.ones_like(clean, dtype=torch.bool)
    for i, value in enumerate((math.nan, math.inf, 255.0, -1.0)):
        dirty[0, 0, 0, i], known[0, 0, 0, i] = value, False
    dirty[0, :, 2, 3], known[0, :, 2, 3] = 1e9, False
    leaves = [x.clone().requires_grad_() for x in (mean, variance)]
    value = Bernoulli().expected_log_prob(dirty, field(*leaves))
    value.sum().backward()
    # the same, output by output, without what is not there
    for c in range(2):
        again = [x[:, c : c + 1].clone().requires_grad_() for x in (mean, variance)]
        part = Bernoulli().expected_log_prob(clean[:, c : c + 1], field(*again), valid=known[:, c])
        part.sum().backward()
        value = value - part
        for a, b in zip(leaves, again, strict=True):
            torch.testing.assert_close(a.grad[:, c : c + 1], b.grad)
            assert (b.grad[:, 0][~known[:, c]] == 0).all()
    torch.testing.assert_close(value, torch.zeros_like(value), atol=1e-6, rtol=0)


def test_scales_and_shapes(generator):
    mean = torch.randn(1, 2, 3, 4, generator=generator)
    variance = torch.rand(1, 2, 3, 4, generator=generator)
    log_scale = 0.3 * torch.randn(1, 1, 3, 4, generator=generator)
    out = Bernoulli("shared").predict(field(mean, variance), log_scale)
    factor = torch.exp(-2 * log_scale)
    same = Bernoulli().predict(field(mean * factor, variance * factor**2))
    torch.testing.assert_close(out.probs, same.probs)
    assert out.label.dtype == torch.bool
    assert out.mutual_information.shape == mean.shape
    with pytest.raises(ValueError, match="a 0 or 1 for each output"):
        Bernoulli().log_prob(torch.ones(1, 3, 4), mean)
