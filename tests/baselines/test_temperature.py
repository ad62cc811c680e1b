from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special
from torch import nn

from onesigma.baselines import DeepEnsemble, Deterministic, Heteroscedastic, TemperatureScaled
from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods import Gaussian, Laplace
from onesigma.prediction.transforms import Log


@pytest.fixture
def classifier(backbone):
    model = Deterministic(backbone, 4, "cross_entropy").eval()
    nn.init.normal_(model.head.weight, std=4)
    return model


def drawn(classifier, temperature, generator, batches=4):
    """Images whose labels are drawn from the classifier at this temperature."""
    for _ in range(batches):
        images = torch.rand(2, 3, 24, 32, generator=generator)
        probs = (classifier(images) / temperature).softmax(1).detach()
        flat = probs.movedim(1, -1).reshape(-1, 4)
        labels = torch.multinomial(flat, 1, generator=generator).reshape(2, 24, 32)
        valid = torch.rand(2, 24, 32, generator=generator) < 0.9
        yield images, torch.where(valid, labels, 255), valid


def numpy_nll(classifier, batches):
    logits, labels = [], []
    for images, target, valid in batches:
        logits.append(classifier(images).detach().movedim(1, -1)[valid].double().numpy())
        labels.append(target[valid].numpy())
    logits, labels = np.concatenate(logits), np.concatenate(labels)
    rows = np.arange(len(labels))
    return lambda t: -special.log_softmax(logits / t, axis=1)[rows, labels].mean()


def test_a_known_temperature_is_found(classifier, generator):
    batches = list(drawn(classifier, 2.5, generator))
    found = TemperatureScaled(classifier).fit(iter(batches))
    nll = numpy_nll(classifier, batches)
    best = optimize.minimize_scalar(nll, bounds=(0.2, 8), method="bounded", options={"xatol": 1e-8})
    assert found == pytest.approx(best.x, rel=2e-3)
    # 1 / √(N d²NLL/dT²) is the standard error
    h, pixels = 1e-2, sum(int(valid.sum()) for _, _, valid in batches)
    curvature = (nll(best.x + h) - 2 * nll(best.x) + nll(best.x - h)) / h**2
    assert abs(found - 2.5) < 4 / np.sqrt(pixels * curvature)


def test_labels_are_predicted_from_divided_logits(classifier, images):
    scaled = TemperatureScaled(classifier)
    scaled.temperature.fill_(2.5)
    expected = (classifier(images) / 2.5).softmax(1)
    torch.testing.assert_close(scaled.predict(images).probs, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [
        (Gaussian, lambda z: z.square().mean().sqrt()),
        (Laplace, lambda z: z.abs().mean()),
    ],
)
def test_the_spread_of_values_is_found(likelihood, expected, backbone, images, depths):
    model = Heteroscedastic(backbone, 2, likelihood()).eval()
    nn.init.normal_(model.head.weight, std=0.3)
    mean, log_scale = (t.detach() for t in model(images))
    z = (depths - mean) / log_scale.exp()
    best = expected(z[z.isfinite()]).item()
    scaled = TemperatureScaled(model)
    assert scaled.fit([(images, depths, None)]) == pytest.approx(best, rel=2e-3)
    prediction, before = scaled.predict(images), model.predict(images)
    temperature = scaled.temperature
    torch.testing.assert_close(prediction.mean, before.mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prediction.std, temperature * before.std, atol=1e-5, rtol=1e-4)
    lower = before.mean + temperature * (before.quantile(0.1) - before.mean)
    torch.testing.assert_close(prediction.quantile(0.1), lower, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(prediction[1:].mean, before[1:].mean, atol=1e-5, rtol=1e-5)


def test_the_temperature_is_kept_with_the_weights(classifier, generator):
    scaled = TemperatureScaled(classifier)
    scaled.fit(drawn(classifier, 0.5, generator))
    assert scaled.state_dict()["temperature"] == scaled.temperature != 1


def test_no_held_out_pixels_are_loud(classifier, images):
    nothing = torch.zeros(3, 4, 5, dtype=torch.bool)
    batch = images, torch.zeros(3, 4, 5).long(), nothing
    with pytest.raises(ValueError, match="check that the held-out batches have valid targets"):
        TemperatureScaled(classifier).fit([batch])


class Fixed:
    """Predicts the same law with epistemic variance whatever the images are."""

    def __init__(self, seed: int) -> None:
        noise = torch.randn(3, 3, 2, 4, 5, generator=torch.Generator().manual_seed(seed))
        self.field = GaussianField(noise[0], MarginalCovariance(noise[1].exp()))
        self.log_scale = noise[2]

    def predict(self, images):
        return Laplace().predict(self.field, self.log_scale)


@pytest.mark.parametrize("model", [Fixed(0), DeepEnsemble([Fixed(1), Fixed(2)])])
def test_every_part_of_the_law_is_stretched(model, images, depths):
    scaled, before = TemperatureScaled(model), model.predict(images)
    scaled.temperature.fill_(1.7)
    prediction = scaled.predict(images)
    y = depths.nan_to_num(0.5)
    stretched = before.mean + 1.7 * (y - before.mean)
    torch.testing.assert_close(prediction.cdf(stretched), before.cdf(y), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(prediction.epistemic, 1.7**2 * before.epistemic)
    torch.testing.assert_close(prediction.aleatoric, 1.7**2 * before.aleatoric)


def test_predictions_in_a_logarithmic_unit_are_refused(images):
    class Logarithmic(Fixed):
        def predict(self, images):
            return super().predict(images).in_unit(Log())

    with pytest.raises(TypeError, match=r"LogPrediction.*scale first, then call in_unit"):
        TemperatureScaled(Logarithmic(0)).predict(images)
