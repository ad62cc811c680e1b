from __future__ import annotations

import math

import pytest
import torch

from onesigma.baselines import DeepEnsemble, Deterministic, Heteroscedastic
from onesigma.likelihoods import Gaussian, Laplace
from onesigma.prediction.categorical import BernoulliPrediction


class Run:
    """Something that predicts and is no module."""

    def __init__(self, model) -> None:
        self.model = model

    def predict(self, images):
        return self.model.predict(images)


def test_values_are_the_mixture_of_the_members(backbone, images):
    models = [
        Heteroscedastic(backbone, 2, Laplace()).eval(),
        Heteroscedastic(backbone, 2, Gaussian()).eval(),
        Deterministic(backbone, 2, "l1").eval(),
    ]
    prediction, y = DeepEnsemble(models).predict(images), torch.full((3, 2, 4, 5), 0.3)
    members = [m.predict(images) for m in models]
    cdf = sum(m.cdf(y) for m in members) / 3
    mean = sum(m.mean for m in members) / 3
    epistemic = sum((m.mean - mean) ** 2 for m in members) / 3
    torch.testing.assert_close(prediction.cdf(y), cdf, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prediction.epistemic, epistemic, atol=1e-6, rtol=1e-4)


def test_labels_are_the_mean_of_the_members(backbone, images):
    models = [Deterministic(backbone, 6, "cross_entropy").eval() for _ in range(3)]
    prediction = DeepEnsemble([*models[:2], Run(models[2])]).predict(images)
    probs = torch.stack([m.predict(images).probs for m in models])
    aleatoric = -(probs * probs.log()).sum(2).mean(0)
    entropy = -(probs.mean(0) * probs.mean(0).log()).sum(1)
    torch.testing.assert_close(prediction.probs, probs.mean(0))
    torch.testing.assert_close(
        prediction.mutual_information, entropy - aleatoric, atol=1e-5, rtol=1e-3
    )
    assert prediction.mutual_information.max() > 1e-3


def test_members_are_modules_of_the_ensemble(backbone):
    models = [Deterministic(backbone, 1, "l1") for _ in range(2)]
    ensemble = DeepEnsemble(models).eval()
    assert not any(m.training for m in models)
    assert all(f"model{i}.head.weight" in ensemble.state_dict() for i in range(2))


def test_one_member_is_refused(backbone):
    with pytest.raises(ValueError, match="got 1 models"):
        DeepEnsemble([Deterministic(backbone, 1, "l1")])


def test_values_and_labels_do_not_mix(backbone, images):
    ensemble = DeepEnsemble(
        [Deterministic(backbone, 2, "l1"), Deterministic(backbone, 2, "cross_entropy")]
    ).eval()
    with pytest.raises(TypeError, match="values from all members or labels from all"):
        ensemble.predict(images)


def test_yes_and_no_outputs_are_averaged_too(images):
    class Fixed:
        def __init__(self, logit: float) -> None:
            self.logits = torch.full((3, 2, 4, 5), logit)

        def predict(self, images):
            return BernoulliPrediction.from_logits(self.logits)

    prediction = DeepEnsemble([Fixed(-1.0), Fixed(2.0)]).predict(images)
    expected = (1 / (1 + math.exp(1)) + 1 / (1 + math.exp(-2))) / 2
    torch.testing.assert_close(prediction.probs, torch.full((3, 2, 4, 5), expected))
    assert prediction.mutual_information.min() > 0.1


def test_ensembles_can_be_members(backbone, images):
    models = [Deterministic(backbone, 6, "cross_entropy").eval() for _ in range(4)]
    nested = DeepEnsemble([DeepEnsemble(models[:2]), DeepEnsemble(models[2:])])
    flat, deep = DeepEnsemble(models).predict(images), nested.predict(images)
    torch.testing.assert_close(deep.probs, flat.probs)
    torch.testing.assert_close(deep.aleatoric, flat.aleatoric, atol=1e-6, rtol=1e-5)
