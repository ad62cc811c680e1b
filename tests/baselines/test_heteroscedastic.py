from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from onesigma.baselines import Heteroscedastic
from onesigma.likelihoods import Gaussian, Laplace

LAWS = [(Gaussian, stats.norm), (Laplace, stats.laplace)]


@pytest.mark.parametrize(("likelihood", "law"), LAWS)
def test_loss_and_prediction_are_those_of_the_law(likelihood, law, backbone, images, depths):
    model = Heteroscedastic(backbone, 2, likelihood()).eval()
    nn.init.normal_(model.head.weight, std=0.5)
    mean, log_scale = (t.detach().numpy() for t in model(images))
    reference = law(mean, np.exp(log_scale))
    valid = np.isfinite(depths.numpy()).all(1)
    log_prob = reference.logpdf(depths.numpy()).sum(1)[valid]
    assert model.loss(images, depths).item() == pytest.approx(-log_prob.mean(), rel=1e-4)
    prediction = model.predict(images)
    np.testing.assert_allclose(prediction.mean.detach(), mean, rtol=1e-5)
    np.testing.assert_allclose(prediction.aleatoric.detach(), reference.var(), rtol=1e-4)
    y = torch.full((3, 2, 4, 5), 0.8)
    np.testing.assert_allclose(prediction.cdf(y).detach(), reference.cdf(0.8), atol=1e-4)
    assert not prediction.epistemic.any()


@pytest.mark.parametrize(("likelihood", "law"), LAWS)
def test_training_finds_the_noise(likelihood, law, backbone):
    images = torch.rand(2, 3, 20, 20)
    target = torch.from_numpy(law(2.0, 0.3).rvs((2, 1, 20, 20), random_state=0)).float()
    model = Heteroscedastic(backbone, 1, likelihood())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        model.loss(images, target).backward()
        optimiser.step()
    mean, log_scale = model(images)
    assert mean.mean().item() == pytest.approx(2.0, abs=0.05)
    assert log_scale.mean().exp().item() == pytest.approx(0.3, abs=0.04)


def test_the_scale_starts_at_one(backbone, images):
    assert not Heteroscedastic(backbone, 2, Laplace())(images)[1].any()
