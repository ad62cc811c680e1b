from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import Tensor, nn

from onesigma.baselines import Deterministic
from onesigma.baselines.deterministic import _pixel_loss
from onesigma.baselines.losses import berhu_scale


def berhu(r: float, t: float) -> float:
    return abs(r) if abs(r) <= t else (r * r + t * t) / (2 * t)


def valid_residuals(model: Deterministic, images: Tensor, target: Tensor) -> list[float]:
    with torch.no_grad():
        residual = (target - model(images)).flatten()
    return [r for r in residual.tolist() if not math.isnan(r)]


def test_l1_is_the_mean_absolute_residual(backbone, images, depths):
    model = Deterministic(backbone, 2, "l1").eval()
    residuals = valid_residuals(model, images, depths)
    expected = 2 * np.mean(np.abs(residuals))  # summed over two outputs
    assert model.loss(images, depths).item() == pytest.approx(expected, rel=1e-5)


def test_berhu_is_the_loss_of_laina_et_al(backbone, images, depths):
    model = Deterministic(backbone, 2, "berhu").eval()
    residuals = valid_residuals(model, images, depths)
    threshold = max(map(abs, residuals)) / 5
    expected = 2 * np.mean([berhu(r, threshold) for r in residuals])
    assert model.loss(images, depths).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", ["cross_entropy", "boltzmann"])
def test_cross_entropy_is_the_mean_over_valid_pixels(loss, backbone, images, labels):
    model = Deterministic(backbone, 6, loss).eval()
    probs = model(images)[:, :6].detach().double().softmax(1)
    where = (labels < 6).nonzero().tolist()
    expected = -np.mean([math.log(probs[n, labels[n, h, w], h, w]) for n, h, w in where])
    assert model.loss(images, labels).item() == pytest.approx(expected, rel=1e-5)


def test_boltzmann_logits_are_divided_by_the_squared_scale(backbone, images):
    model = Deterministic(backbone, 6, "boltzmann").eval()
    nn.init.normal_(model.head.weight)
    output = model(images).double()
    scale = output[:, 6:].exp()
    logits = output[:, :6] / scale**2
    expected = logits.exp() / logits.exp().sum(1, keepdim=True)
    prediction = model.predict(images)
    torch.testing.assert_close(prediction.probs.double(), expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        prediction.mutual_information, torch.zeros(3, 4, 5), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("loss", ["l1", "berhu", "cross_entropy", "boltzmann"])
def test_invalid_targets_reach_neither_value_nor_gradient(loss, backbone, images):
    model = Deterministic(backbone, 2, loss).eval()
    valid = torch.ones(3, 4, 5, dtype=torch.bool)
    valid[1, 2] = False
    values = torch.rand(3, 2, 4, 5) if loss in ("l1", "berhu") else torch.randint(2, (3, 4, 5))
    odd = values.clone()
    odd[1, ..., 2, :] = 255
    seen = []
    for target in (values, odd):
        model.zero_grad()
        value = model.loss(images, target, valid)
        value.backward()
        seen.append([value, *(p.grad.clone() for p in model.parameters())])
    torch.testing.assert_close(seen[0], seen[1])


@pytest.mark.parametrize("loss", ["l1", "berhu", "cross_entropy", "boltzmann"])
def test_a_batch_without_valid_pixels_costs_nothing(loss, backbone, images):
    model = Deterministic(backbone, 2, loss)
    target = torch.zeros(3, 2, 4, 5) if loss in ("l1", "berhu") else torch.zeros(3, 4, 5).long()
    before = [buffer.clone() for buffer in model.pixel_loss.buffers()]
    value = model.loss(images, target, torch.zeros(3, 4, 5, dtype=torch.bool))
    value.backward()
    assert value == 0
    assert all(p.grad.isfinite().all() for p in model.parameters())
    assert list(model.pixel_loss.buffers()) == before


def test_l1_predicts_a_laplace_law_of_the_training_residuals(backbone, images, depths):
    model = Deterministic(backbone, 2, "l1").eval()
    model.pixel_loss.train()  # the scale is fitted, normalisation keeps its statistics
    model.loss(images, depths)
    model.eval()
    scale = np.mean(np.abs(valid_residuals(model, images, depths)))
    prediction, y = model.predict(images), torch.full((3, 2, 4, 5), 1.3)
    law = stats.laplace(model(images).detach().numpy(), scale)
    np.testing.assert_allclose(
        prediction.log_prob(y).detach(), law.logpdf(1.3), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(prediction.cdf(y).detach(), law.cdf(1.3), atol=2e-4)
    np.testing.assert_allclose(prediction.aleatoric.detach(), 2 * scale**2, rtol=1e-3)
    assert not prediction.epistemic.any()


def test_the_scale_forgets_early_batches_and_ignores_validation(backbone, images):
    model = Deterministic(backbone, 1, "l1")
    recent = model.pixel_loss.scale
    for i in range(600):
        recent.update(torch.tensor(100.0 if i < 100 else 2.0 + i % 2))
    weights = [0.99 ** (599 - i) for i in range(600)]
    numbers = [100.0 if i < 100 else 2.0 + i % 2 for i in range(600)]
    assert recent.value.item() == pytest.approx(np.average(numbers, weights=weights), rel=1e-4)
    before = recent.value.clone()
    model.eval().loss(images, torch.rand(3, 1, 4, 5))
    assert recent.value == before


@pytest.mark.parametrize("threshold", [0.01, 0.3, 1.0, 8.0])
def test_berhu_scale_maximises_the_likelihood(threshold):
    residuals = stats.laplace(scale=0.7).rvs(400, random_state=3)
    mean = float(np.mean([berhu(r, threshold) for r in residuals]))

    def negative(log_scale: float) -> float:
        s = math.exp(log_scale)
        z = integrate.quad(
            lambda r: math.exp(-berhu(r, threshold) / s), -60, 60, points=[0.0], limit=500
        )[0]
        return mean / s + math.log(z)

    expected = optimize.minimize_scalar(negative, bounds=(-6, 6), method="bounded").x
    assert berhu_scale(mean, threshold) == pytest.approx(math.exp(expected), rel=1e-4)


def test_berhu_predicts_the_law_of_its_loss(backbone, images, depths):
    model = Deterministic(backbone, 2, "berhu")
    model.loss(images, depths)
    model.eval()
    t = model.pixel_loss.threshold.value.item()
    sigma = berhu_scale(model.pixel_loss.mean_loss.value.item(), t)
    prediction, f = model.predict(images), model(images).detach()
    near, far = prediction.log_prob(f + 0.5 * t), prediction.log_prob(f - 3 * t)
    expected = (berhu(3 * t, t) - berhu(0.5 * t, t)) / sigma
    torch.testing.assert_close(near - far, torch.full_like(near, expected), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(prediction.cdf(f), torch.full_like(f, 0.5), atol=1e-4, rtol=0)


def test_an_unknown_loss_is_refused(backbone):
    with pytest.raises(ValueError, match=r"'l2'.*'l1' or 'berhu'"):
        _pixel_loss("l2")


def test_a_backbone_must_say_how_many_features_it_has():
    layer = nn.ReLU()
    with pytest.raises(TypeError, match="ReLU has out_channels=None"):
        Deterministic(layer, 1)
