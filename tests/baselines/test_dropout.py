from __future__ import annotations

import pytest
import torch
from torch import nn

from onesigma.baselines import Deterministic, Heteroscedastic, MCDropout
from onesigma.likelihoods import Laplace


def slow_passes(model, images, passes, seed):
    """Members of the mixture, one pass after the other, in a mode set by hand."""
    model.eval()
    dropout = model.backbone.layers[2]
    dropout.train()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        members = [model.predict(images) for _ in range(passes)]
    dropout.eval()
    return members


def test_labels_are_the_mean_of_the_passes(dropping, images):
    inner = Deterministic(dropping, 6, "cross_entropy")
    members = slow_passes(inner, images, 7, seed=3)
    probs = torch.stack([m.probs.double() for m in members])
    mean = probs.mean(0)
    aleatoric = -(probs * probs.log()).sum(2).mean(0)
    entropy = -(mean * mean.log()).sum(1)
    prediction = MCDropout(inner, passes=7, seed=3).predict(images)
    torch.testing.assert_close(prediction.probs.double(), mean, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(prediction.entropy.double(), entropy, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prediction.aleatoric.double(), aleatoric, atol=1e-5, rtol=1e-5)
    expected = entropy - aleatoric
    assert expected.mean() > 5e-3
    torch.testing.assert_close(
        prediction.mutual_information.double(), expected, atol=1e-5, rtol=1e-3
    )


def test_values_are_the_mixture_of_the_passes(dropping, images):
    inner = Heteroscedastic(dropping, 2, Laplace())
    members = slow_passes(inner, images, 5, seed=0)
    prediction, y = MCDropout(inner, passes=5).predict(images), torch.full((3, 2, 4, 5), 0.4)
    cdf = torch.stack([m.cdf(y) for m in members]).mean(0)
    density = torch.stack([m.log_prob(y).exp() for m in members]).mean(0)
    means = torch.stack([m.mean for m in members])
    torch.testing.assert_close(prediction.cdf(y), cdf, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prediction.log_prob(y).exp(), density, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prediction.epistemic, means.var(0, unbiased=False))
    assert prediction.epistemic.min() > 0


def test_masks_follow_from_seed_or_generator(dropping, images):
    inner = Deterministic(dropping, 6, "cross_entropy")
    model = MCDropout(inner, passes=3)
    first = model.predict(images).probs
    torch.rand(10)
    assert torch.equal(first, model.predict(images).probs)
    assert not torch.equal(first, MCDropout(inner, passes=3, seed=1).predict(images).probs)
    generators = [torch.Generator().manual_seed(s) for s in (5, 5, 6)]
    a, b, c = (model.predict(images, generator=g).probs for g in generators)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert not torch.equal(a, model.predict(images, generator=generators[0]).probs)


def test_the_global_generator_is_left_alone(dropping, images):
    model = MCDropout(Deterministic(dropping, 6, "cross_entropy"), passes=3)
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    model.predict(images)
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("training", [True, False])
def test_modes_and_statistics_come_back(training, dropping, images):
    model = MCDropout(Deterministic(dropping, 6, "cross_entropy"), passes=3).train(training)
    dropping.layers[0].train(not training)  # a part the user froze
    modes = [m.training for m in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.predict(images)
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_modes_come_back_after_an_error(dropping):
    model = MCDropout(Deterministic(dropping, 6, "cross_entropy"), passes=3).train()
    with pytest.raises(RuntimeError):
        model.predict(torch.rand(1, 5, 4, 4))
    assert all(m.training for m in model.modules())


def test_a_network_without_dropout_is_refused(backbone):
    with pytest.raises(ValueError, match=r"without a dropout layer of p > 0.*dropout=0\.2"):
        MCDropout(Deterministic(backbone, 6, "cross_entropy"))


def test_one_pass_is_refused(dropping):
    with pytest.raises(ValueError, match="passes=1"):
        MCDropout(Deterministic(dropping, 6, "cross_entropy"), passes=1)


@pytest.mark.parametrize("loss", ["l1", "cross_entropy"])
def test_no_spread_is_loud(loss, dropping, images):
    inner = Deterministic(dropping, 2, loss)
    nn.init.zeros_(inner.head.weight)
    with pytest.warns(UserWarning, match="epistemic uncertainty is zero"):
        MCDropout(inner, passes=3).predict(images)


def test_it_trains_as_its_model(dropping, images, labels):
    inner = Deterministic(dropping, 6, "cross_entropy")
    model = MCDropout(inner).eval()
    assert model.loss(images, labels) == inner.loss(images, labels)
