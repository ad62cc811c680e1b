"""Targets, masks and scales of another shape than the field are refused, not broadcast."""

import re
import warnings

import pytest
import torch

from onesigma.baselines.losses import L1Loss
from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods import BerHu, Bernoulli, Boltzmann, Gaussian, Laplace, from_loss

N, H, W = 3, 4, 5


def field(outputs, n=N):
    ones = torch.ones(n, outputs, H, W)
    return GaussianField(0 * ones, MarginalCovariance(ones)), 0 * ones


def score(likelihood, outputs, target, valid=None, n=N, scales=None):
    q, log_scale = field(outputs, n)
    log_scale = log_scale if scales is None else torch.zeros(scales)
    likelihood.expected_log_prob(target, q, log_scale, valid)


VALUES, LABELS = torch.rand(N, 1, H, W), torch.zeros(N, H, W, dtype=torch.long)
PIXELS = torch.ones(N, H, W, dtype=torch.bool)

REGRESSION = {
    "valid has the shape (3, 1, 4, 5)": {"target": VALUES, "valid": PIXELS[:, None]},
    "valid has the shape (1, 4, 5)": {"target": VALUES, "valid": PIXELS[:1]},
    "type torch.float32; it wants booleans": {"target": VALUES, "valid": PIXELS.float()},
    "target has the shape (1, 1, 4, 5)": {"target": VALUES[:1]},
    "target has the shape (3, 3, 4, 5)": {"target": VALUES.expand(-1, 3, -1, -1)},
    "target[:, None]": {"target": VALUES[:, 0]},
    "If 5 counts context images too, cut them off: q[:n]": {"target": VALUES, "n": N + 2},
    "log_scale has the shape (5, 1, 4, 5)": {"target": VALUES, "scales": (5, 1, H, W)},
}
BOLTZMANN = {
    "valid has the shape (3, 1, 4, 5)": {"target": LABELS, "valid": PIXELS[:, None]},
    "target[:, 0] for (n, 1, h, w)": {"target": LABELS[:, None]},
    "target.argmax(1) for one-hot": {"target": LABELS[:, None].expand(-1, 2, -1, -1)},
    "type torch.float32": {"target": LABELS.float()},
    "have the shape (1, 4, 5)": {"target": LABELS[:1]},
    "If 5 counts context images too, cut them off: q[:n]": {"target": LABELS, "n": N + 2},
    "log_scale has the shape (5, 2, 4, 5)": {"target": LABELS[:1], "n": 1, "scales": (5, 2, H, W)},
}


@pytest.mark.parametrize("said", REGRESSION)
@pytest.mark.usefixtures("as_users_call")
def test_regression_refuses(said):
    for likelihood in (Gaussian(), Laplace(), BerHu(0.5), from_loss("huber")):
        with pytest.raises(ValueError, match=re.escape(said)):
            score(likelihood, 1, **REGRESSION[said])


@pytest.mark.parametrize("said", BOLTZMANN)
@pytest.mark.usefixtures("as_users_call")
def test_boltzmann_refuses(said):
    for likelihood in (Boltzmann("class"), Boltzmann("class", pairs=2)):
        with pytest.raises(ValueError, match=re.escape(said)):
            score(likelihood, 2, **BOLTZMANN[said])


@pytest.mark.usefixtures("as_users_call")
def test_the_others_refuse_too():
    with pytest.raises(ValueError, match=r"valid has the shape \(3, 1, 4, 5\)"):
        score(Bernoulli(), 1, VALUES.round(), PIXELS[:, None])
    with pytest.raises(ValueError, match=r"target has the shape \(3, 4, 5\)"):
        L1Loss()(VALUES, VALUES[:, 0])


@pytest.mark.parametrize("kind", [Boltzmann, Bernoulli])
def test_a_scale_that_is_learned_and_not_read_is_said(kind):
    q, log_scale = field(2)
    target = LABELS if kind is Boltzmann else q.mean
    log_scale = log_scale.requires_grad_()
    with pytest.warns(UserWarning, match=r'HeadOptions\(scale="none"\).*\(scale="class"\)'):
        kind().expected_log_prob(target, q, log_scale)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind().eval().expected_log_prob(target, q, log_scale)
        kind("class").expected_log_prob(target, q, log_scale)
        kind().expected_log_prob(target, q, log_scale.detach())
