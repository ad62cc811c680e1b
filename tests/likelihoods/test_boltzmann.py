"""The likelihood around the integrals: scales, weights, masks, half precision, export."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from onesigma.covariance import LowRankCovariance, MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.expectation import Nodes

GARBAGE = (255, -1, 1_000_000_000)


def field(mean, variance):
    return GaussianField(mean, MarginalCovariance(variance))


@pytest.fixture
def batch(generator):
    mean = 2 * torch.randn(2, 5, 4, 3, generator=generator)
    variance = torch.rand(2, 5, 4, 3, generator=generator) + 0.1
    log_scale = 0.3 * torch.randn(2, 5, 4, 3, generator=generator)
    target = torch.randint(0, 5, (2, 4, 3), generator=generator)
    return mean, variance, log_scale, target


def sampled(mean, variance, target, generator, num=40_000):
    """E log softmax_y by plain Monte Carlo, with its standard error."""
    noise = torch.randn(num, *mean.shape, generator=generator)
    logs = (mean + variance.sqrt() * noise).log_softmax(2)
    chosen = logs.gather(2, target.expand(num, -1, -1, -1)[:, :, None])[:, :, 0]
    return chosen.mean(0), chosen.std(0) / math.sqrt(num)


@pytest.mark.parametrize("scale", ["class", "shared", "none"])
def test_expected_log_prob_divides_logits_by_the_squared_scale(scale, batch, generator):
    mean, variance, log_scale, target = batch
    log_scale = log_scale[:, :1] if scale == "shared" else log_scale
    factor = torch.ones_like(mean) if scale == "none" else torch.exp(-2 * log_scale)
    value = Boltzmann(scale).expected_log_prob(target, field(mean, variance), log_scale)
    expected, error = sampled(mean * factor, variance * factor**2, target, generator)
    assert ((value - expected).abs() < 5 * error + 2e-3).all()


def test_predict_uses_the_scales(batch, generator):
    mean, variance, log_scale, _ = batch
    factor = torch.exp(-2 * log_scale)
    noise = torch.randn(40_000, *mean.shape, generator=generator)
    expected = (factor * (mean + variance.sqrt() * noise)).softmax(2).mean(0)
    out = Boltzmann(scale="class").predict(field(mean, variance), log_scale)
    assert (out.probs - expected).abs().max() < 5 * 0.5 / 200 + 2e-3
    torch.testing.assert_close(out.aleatoric + out.epistemic, out.entropy)
    assert out.label.shape == (2, 4, 3)


@pytest.mark.parametrize("weights", [None, [0.2, 1.0, 3.0, 0.5, 2.0]])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_weights_and_smoothing_are_those_of_cross_entropy(weights, smoothing, batch):
    mean, _, _, target = batch
    likelihood = Boltzmann("none", class_weights=weights, label_smoothing=smoothing)
    weight = None if weights is None else torch.tensor(weights)
    loss = functional.cross_entropy(
        mean, target, weight, reduction="none", label_smoothing=smoothing
    )
    torch.testing.assert_close(-likelihood.log_prob(target, mean), loss)
    expected = -likelihood.expected_log_prob(target, field(mean, torch.zeros_like(mean)))
    torch.testing.assert_close(expected, loss, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("explicit", [False, True])
def test_invalid_labels_touch_nothing(explicit, batch):
    mean, variance, log_scale, target = batch
    valid = torch.ones_like(target, dtype=torch.bool)
    dirty = target.clone()
    for i, value in enumerate(GARBAGE):
        dirty[0, i, 0], valid[0, i, 0] = value, False
    results = []
    for labels in (dirty, target):
        leaves = [x.clone().requires_grad_() for x in (mean, variance, log_scale)]
        mask = valid if explicit or labels is target else None
        value = Boltzmann("class", label_smoothing=0.1).expected_log_prob(
            labels, field(*leaves[:2]), leaves[2], mask
        )
        value.sum().backward()
        results.append((value, *(leaf.grad for leaf in leaves)))
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)
    assert (results[0][0][~valid] == 0).all()
    assert (results[0][0][valid] != 0).all()
    for grad in results[0][1:]:
        assert (grad.movedim(1, -1)[~valid] == 0).all()
        assert (grad.movedim(1, -1)[valid] != 0).any()


def test_gradient_reaches_the_log_scale(batch):
    mean, variance, log_scale, target = (x.double() if x.is_floating_point() else x for x in batch)
    q, likelihood = field(mean, variance), Boltzmann(scale="class")
    log_scale = log_scale.requires_grad_()
    likelihood.expected_log_prob(target, q, log_scale).sum().backward()
    step = torch.zeros_like(log_scale)
    step[1, 2, 3, 1] = 1e-3
    with torch.no_grad():
        ahead = likelihood.expected_log_prob(target, q, log_scale + step).sum()
        behind = likelihood.expected_log_prob(target, q, log_scale - step).sum()
    assert abs((ahead - behind) / 2e-3 - log_scale.grad[1, 2, 3, 1]) < 5e-3


def test_gradients_flow_into_a_low_rank_field(batch, generator):
    mean, variance, log_scale, target = batch
    factor = torch.randn(2, 3, 5, 4, 3, generator=generator, requires_grad=True)
    q = GaussianField(mean, LowRankCovariance(factor, variance))
    Boltzmann(scale="class").expected_log_prob(target, q, log_scale).sum().backward()
    # ∂/∂g = 2 g ∂/∂v with ∂v the same for all ranks
    ratio = factor.grad / (2 * factor.detach())
    torch.testing.assert_close(ratio[:, 0], ratio[:, 2], rtol=1e-3, atol=1e-5)
    assert (ratio < 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype, batch):
    mean, variance, log_scale, target = batch
    halves = [x.to(dtype) for x in (mean, variance, log_scale)]
    likelihood = Boltzmann(scale="class")
    value = likelihood.expected_log_prob(target, field(*halves[:2]), halves[2])
    same = likelihood.expected_log_prob(
        target, field(*(x.float() for x in halves[:2])), halves[2].float()
    )
    assert value.dtype == torch.float32
    assert torch.equal(value, same)
    assert likelihood.predict(field(*halves[:2]), halves[2]).probs.dtype == torch.float32


def test_mistakes_say_what_to_do(batch):
    mean, variance, log_scale, target = batch
    q = field(mean, variance)
    with pytest.raises(ValueError, match='scale="class" wants a log_scale with 5 channels'):
        Boltzmann(scale="class").predict(q)
    with pytest.raises(ValueError, match="wants a log_scale with 1 channels, got one with 5"):
        Boltzmann("shared").predict(q, log_scale)
    with pytest.raises(ValueError, match="give one weight for each class"):
        Boltzmann("none", class_weights=[1.0, 2.0]).expected_log_prob(target, q)
    with pytest.raises(ValueError, match="label_smoothing"):
        Boltzmann(label_smoothing=1.5)


class Deployed(nn.Module):
    def __init__(self):
        super().__init__()
        self.likelihood = Boltzmann("shared")

    def forward(self, mean, variance, log_scale):
        out = self.likelihood.predict(field(mean, variance), log_scale)
        return out.probs, out.entropy, out.mutual_information


def test_prediction_exports(batch, generator, monkeypatch):
    # the graph is the same for every node; a few keep the test short
    monkeypatch.setattr("onesigma.likelihoods.expectation.PREDICTION_NODES", Nodes(4, 4, 1.0))
    mean, variance, log_scale, _ = batch
    inputs = (mean, variance, log_scale[:, :1].contiguous())
    program = torch.export.export(Deployed(), inputs)
    other = (mean + 1, variance * torch.rand(mean.shape, generator=generator), inputs[2] - 0.2)
    for a, b in zip(program.module()(*other), Deployed()(*other), strict=True):
        torch.testing.assert_close(a, b)
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not [name for name in names if "rand" in name or "linalg" in name]
