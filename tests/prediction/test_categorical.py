import math

import pytest
import torch
from scipy import stats

from onesigma.prediction.categorical import (
    BernoulliMixture,
    BernoulliPrediction,
    CategoricalMixture,
    CategoricalPrediction,
)


@pytest.fixture
def logits(generator):
    return 2 * torch.randn(3, 2, 4, 5, 6, generator=generator, dtype=torch.float64)


def test_from_logits_is_a_softmax_without_epistemic_part(logits):
    out = CategoricalPrediction.from_logits(logits[0])
    torch.testing.assert_close(out.probs, logits[0].softmax(1))
    expected = stats.entropy(logits[0].softmax(1).numpy(), axis=1)
    torch.testing.assert_close(out.entropy, torch.from_numpy(expected))
    assert (out.epistemic == 0).all()
    torch.testing.assert_close(out.aleatoric, out.entropy)
    assert torch.equal(out.label, logits[0].argmax(1))


def test_infinite_logits_have_an_entropy():
    logits = torch.tensor([0.0, -math.inf, 0.0]).view(1, 3, 1, 1)
    out = CategoricalPrediction.from_logits(logits)
    assert abs(out.entropy.item() - math.log(2)) < 1e-6
    assert abs(CategoricalMixture([out, out]).entropy.item() - math.log(2)) < 1e-6


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0]])
def test_mixture_of_categoricals(logits, weights):
    members = [CategoricalPrediction.from_logits(x) for x in logits]
    mix = CategoricalMixture(iter(members), weights)
    w = torch.tensor(weights or [1.0] * 3, dtype=torch.float64)
    w = (w / w.sum()).view(-1, 1, 1, 1, 1)
    p = logits.softmax(2)
    mean = (w * p).sum(0)
    torch.testing.assert_close(mix.probs, mean)
    # MI = Σ_i w_i KL(p_i ‖ mean), another form than the difference of entropies
    divergence = (w * p * (p.log() - mean.log())).sum((0, 2))
    torch.testing.assert_close(mix.mutual_information, divergence)
    torch.testing.assert_close(mix.epistemic + mix.aleatoric, mix.entropy)
    y = mean.argmin(1)
    torch.testing.assert_close(mix.log_prob(y), mean.amin(1).log())


def test_mixture_of_uncertain_members_keeps_their_information(logits):
    first = CategoricalPrediction.from_logits(logits[0])
    unsure = CategoricalPrediction(first.probs, first.entropy, first.entropy / 3)
    mix = CategoricalMixture([unsure, unsure])
    torch.testing.assert_close(mix.mutual_information, unsure.mutual_information)
    nested = CategoricalMixture([mix, first], weights=[2.0, 1.0])
    flat = CategoricalMixture([unsure, unsure, first])
    torch.testing.assert_close(nested.mutual_information, flat.mutual_information)


def test_mixture_is_never_negative(logits):
    same = [CategoricalPrediction.from_logits(logits[0].float())] * 7
    assert (CategoricalMixture(same).mutual_information >= 0).all()
    assert CategoricalMixture(same).mutual_information.max() < 1e-6


def test_unknown_labels_are_loud(logits):
    out = CategoricalPrediction.from_logits(logits[0])
    y = torch.zeros(2, 5, 6, dtype=torch.int64)
    y[0, 0, 0], y[0, 0, 1], y[1, 4, 5] = 255, -1, 10**9
    value = out.log_prob(y)
    assert value.isnan().sum() == 3
    assert value[[0, 0, 1], [0, 0, 4], [0, 1, 5]].isnan().all()
    torch.testing.assert_close(value[1, 0], logits[0].log_softmax(1)[1, 0, 0])


def test_slices_cut_images(logits):
    members = [CategoricalPrediction.from_logits(x) for x in logits]
    for whole in (members[0], CategoricalMixture(members)):
        part = whole[1:2]
        assert type(part) is type(whole)
        assert len(part) == 1
        for name in ("probs", "entropy", "mutual_information", "aleatoric", "label"):
            torch.testing.assert_close(getattr(part, name), getattr(whole, name)[1:2])


def test_bernoulli_mixture(logits):
    members = [BernoulliPrediction.from_logits(x) for x in logits]
    mix = BernoulliMixture(members, [1.0, 1.0, 2.0])
    p = logits.sigmoid()
    mean = (p[0] + p[1] + 2 * p[2]) / 4
    torch.testing.assert_close(mix.probs, mean)
    pair = torch.stack([mean, 1 - mean]).numpy()
    torch.testing.assert_close(mix.entropy, torch.from_numpy(stats.entropy(pair)))
    parts = torch.stack([p, 1 - p]).numpy()
    each = torch.from_numpy(stats.entropy(parts))
    torch.testing.assert_close(mix.aleatoric, (each[0] + each[1] + 2 * each[2]) / 4)
    assert torch.equal(mix.label, mean > 0.5)
    y = torch.zeros_like(mean)
    y[0], y[1, 0, 0, 0] = 1, math.nan
    torch.testing.assert_close(mix.log_prob(y)[0], mean[0].log())
    torch.testing.assert_close(mix.log_prob(y)[1, 1:], (1 - mean[1, 1:]).log())
    assert mix.log_prob(y).isnan().sum() == 1
    torch.testing.assert_close(mix[1:].epistemic, mix.epistemic[1:])


def test_sure_answers_keep_their_digits():
    logits = torch.tensor([20.0, -20.0]).view(1, 2, 1, 1)
    wrong = torch.tensor([0, 1]).view(1, 2, 1, 1)
    sure = BernoulliPrediction.from_logits(logits)
    for law in (sure, BernoulliMixture([sure, sure]), sure[:1]):
        torch.testing.assert_close(law.log_prob(wrong), torch.full_like(logits, -20.0))
        # (1 + 20) exp(-20), of which the 1 comes from the sure answer
        entropy = torch.full_like(logits, 21 * math.exp(-20))
        torch.testing.assert_close(law.entropy, entropy, rtol=0.06, atol=0)


def test_mixtures_refuse_what_is_none():
    with pytest.raises(ValueError, match="at least one prediction"):
        CategoricalMixture([])
    one = CategoricalPrediction.from_logits(torch.zeros(1, 2, 1, 1))
    with pytest.raises(ValueError, match="wants positive ones"):
        CategoricalMixture([one, one], [1.0, -1.0])
    with pytest.raises(ValueError, match="zip"):
        CategoricalMixture([one, one], [1.0])


@pytest.mark.parametrize("kind", [CategoricalPrediction, BernoulliPrediction])
@pytest.mark.usefixtures("as_users_call")
def test_images_are_chosen_by_a_slice(kind):
    one = kind.from_logits(torch.zeros(2, 3, 1, 1))
    mixture = CategoricalMixture if kind is CategoricalPrediction else BernoulliMixture
    for law in (one, mixture([one, one])):
        with pytest.raises(TypeError, match=f"{type(law).__name__} is cut by a slice"):
            law[0]
