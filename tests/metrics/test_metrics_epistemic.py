import numpy as np
import pytest
import torch
from metric_fakes import Normal
from scipy import stats

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.metrics import (
    EpistemicSuite,
    NoiseCorrelation,
    decision_shares,
    image_divergence,
    nll_with_shuffled_variance,
    nll_without_mean,
)
from onesigma.priors import Prior


class Noise(Likelihood):
    """y = f + σ ε, in closed form."""

    def log_prob(self, target, f, log_scale=None, valid=None):
        raise NotImplementedError

    def expected_log_prob(self, target, q, log_scale=None, valid=None):
        raise NotImplementedError

    def predict(self, q, log_scale=None):
        return Normal(q.mean, (q.variance + (2 * log_scale).exp()).sqrt())


@pytest.fixture
def regression(generator):
    """Each image has an epistemic variance of its own, and its errors follow it."""
    variance = torch.tensor([0.01, 1.0, 9.0]).view(3, 1, 1, 1).expand(3, 1, 40, 40).double()
    mean = torch.randn(3, 1, 40, 40, generator=generator).double() + 4
    log_scale = torch.full_like(mean, -1.0)
    std = (variance + (2 * log_scale).exp()).sqrt()
    target = mean + std * torch.randn(mean.shape, generator=generator).double()
    valid = torch.rand(3, 40, 40, generator=generator) > 0.2
    return GaussianField(mean, MarginalCovariance(variance)), log_scale, target, valid


def normal_nll(mean, variance, log_scale, target, valid):
    std = (variance + (2 * log_scale).exp()).sqrt()
    return -stats.norm(mean, std).logpdf(target)[:, 0][valid.numpy()].mean()


def test_nll_without_the_mean(regression):
    q, log_scale, target, valid = regression
    found = nll_without_mean(Noise(), q, log_scale, 0.5, target, valid).item()
    expected = normal_nll(torch.full_like(q.mean, 0.5), q.variance, log_scale, target, valid)
    assert found == pytest.approx(expected, rel=1e-10)
    assert found > normal_nll(q.mean, q.variance, log_scale, target, valid) + 1


def test_nll_with_shuffled_variances(regression, generator):
    q, log_scale, target, valid = regression
    found = nll_with_shuffled_variance(Noise(), q, log_scale, target, valid, generator).item()
    cycles = [
        normal_nll(q.mean, q.variance[c], log_scale, target, valid) for c in ([1, 2, 0], [2, 0, 1])
    ]
    assert min(abs(found - x) for x in cycles) < 1e-10
    assert found > normal_nll(q.mean, q.variance, log_scale, target, valid) + 0.5
    with pytest.raises(ValueError, match="at least two"):
        nll_with_shuffled_variance(Noise(), q[:1], log_scale[:1], target[:1])


def test_shuffling_equal_maps_loses_nothing(regression):
    q, log_scale, target, valid = regression
    same = GaussianField(q.mean, MarginalCovariance(torch.ones_like(q.mean)))
    found = nll_with_shuffled_variance(Noise(), same, log_scale, target, valid).item()
    expected = normal_nll(same.mean, same.variance, log_scale, target, valid)
    assert found == pytest.approx(expected, rel=1e-10)


def test_epistemic_suite_over_batches(regression):
    q, log_scale, target, valid = regression
    suite = EpistemicSuite(Noise(), prior_mean=0.5)
    for images in (slice(0, 2), slice(2, 3)):
        kl = torch.full((3, 1, 40, 40), 2.0)[images] + images.start
        suite.update(q[images], log_scale[images], target[images], valid[images], kl)
    metrics = suite.compute()
    found, per_image = metrics["set"], metrics["per_image"]
    nll = normal_nll(q.mean, q.variance, log_scale, target, valid)
    assert found["nll"] == pytest.approx(nll, rel=1e-10)
    without = nll_without_mean(Noise(), q, log_scale, 0.5, target, valid).item()
    assert found["nll_lost_without_mean"] == pytest.approx(without - nll, rel=1e-9)
    # only the batch of two can be shuffled: its images swap their maps
    swapped = normal_nll(q.mean[:2], q.variance[[1, 0]], log_scale[:2], target[:2], valid[:2])
    kept = normal_nll(q.mean[:2], q.variance[:2], log_scale[:2], target[:2], valid[:2])
    assert found["nll_lost_by_shuffling"] == pytest.approx(swapped - kept, rel=1e-9)
    assert found["kl_per_pixel"] == pytest.approx((2 + 2 + 4) / 3)
    assert [record["kl_per_pixel"] for record in per_image] == pytest.approx([2, 2, 4])
    assert found["decision"]["accuracy"]["both"] is None
    for i, record in enumerate(per_image):
        alone = (x[i : i + 1] for x in (q.mean, q.variance, log_scale, target, valid))
        assert record["nll"] == pytest.approx(normal_nll(*alone), rel=1e-10)
    assert metrics["intervals"]["nll"]["value"] == pytest.approx(nll, rel=1e-9)
    spans = metrics["intervals"]
    assert spans["kl_per_pixel"]["low"] == 2.0
    assert spans["kl_per_pixel"]["high"] == 4.0
    assert spans["decision.accuracy.both"]["low"] is None


def test_images_one_by_one_are_shuffled_with_earlier_ones(regression):
    q, log_scale, target, valid = regression
    suite = EpistemicSuite(Noise(), prior_mean=0.5)
    for i in (1, 2):
        one = slice(i, i + 1)
        suite.update(q[one], log_scale[one], target[one], valid[one])
    # the first has no other, the second gets the map of the first
    assert "nll_lost_by_shuffling" not in suite.records[0]
    rest = (log_scale[2:], target[2:], valid[2:])
    lost = normal_nll(q.mean[2:], q.variance[1:2], *rest)
    lost -= normal_nll(q.mean[2:], q.variance[2:], *rest)
    assert lost > 0.5
    assert suite.records[1]["nll_lost_by_shuffling"] == pytest.approx(lost, rel=1e-9)
    found = suite.compute()
    assert found["set"]["nll_lost_by_shuffling"] == pytest.approx(lost, rel=1e-9)
    assert found["intervals"]["nll_lost_by_shuffling"]["value"] == pytest.approx(lost, rel=1e-9)


def test_all_earlier_images_are_equally_likely_to_lend_their_variance(monkeypatch):
    lenders = []
    monkeypatch.setattr("onesigma.metrics.epistemic_suite._KEPT", 3)
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        suite = EpistemicSuite(Noise(), 0.0, generator)
        for i in range(10):
            variance = torch.full((1, 1, 2, 2), float(i + 1))
            suite.update(
                GaussianField(torch.zeros_like(variance), MarginalCovariance(variance)),
                torch.zeros_like(variance),
                torch.zeros_like(variance),
            )
        # what the last image lost tells whose map it got: ½ log((1 + v) / (1 + 10))
        lost = suite.records[-1]["nll_lost_by_shuffling"]
        lenders.append(round(11 * np.exp(2 * lost) - 1))
    assert min(lenders) >= 1
    assert max(lenders) <= 9
    # the mean of 40 draws from 1, ..., 9 is 5 with a standard error of 0.41
    assert abs(np.mean(lenders) - 5) < 4 * 0.41
    assert len({*lenders}) > 6


class OnePixelPrior(Prior):
    """A variance that depends on the image."""

    def covariance(self, images):
        values = images.mean(1)
        return 2 + torch.einsum("ihw,jhw->ijhw", values, values)[:, :, None]


def test_divergence_of_each_image_against_the_formula(generator):
    images = torch.rand(3, 3, 5, 4, generator=generator).double()
    mean = torch.randn(3, 2, 5, 4, generator=generator).double()
    variance = 0.1 + torch.rand(3, 2, 5, 4, generator=generator).double()
    q = GaussianField(mean, MarginalCovariance(variance))
    found = image_divergence(q, OnePixelPrior(2, mean=[0.5, -1.0], noise=0.1), images)
    prior = (2.1 + images.mean(1, keepdim=True) ** 2).expand_as(mean)
    centre = torch.tensor([0.5, -1.0]).view(1, 2, 1, 1).expand_as(mean)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, variance.sqrt()),
        torch.distributions.Normal(centre, prior.sqrt()),
    )
    torch.testing.assert_close(found, expected)
    sparse = image_divergence(q, OnePixelPrior(2, mean=[0.5, -1.0], noise=0.1), images, step=2)
    torch.testing.assert_close(sparse, expected[..., 1::2, 1::2])


def test_decisions_carried_by_the_scales(generator):
    # the mean is flat up to a whisper, the label is written into the scales
    target = torch.randint(0, 4, (2, 30, 30), generator=generator)
    mean = 1 + 0.01 * torch.randn(2, 4, 30, 30, generator=generator)
    log_scale = 1 - torch.nn.functional.one_hot(target, 4).movedim(-1, 1).float()
    valid = torch.rand(target.shape, generator=generator) > 0.2
    found = decision_shares(mean, log_scale, target, valid)
    logits = (mean / (2 * log_scale).exp()).movedim(1, -1)[valid].numpy()
    y, f = target[valid].numpy(), mean.movedim(1, -1)[valid].numpy()
    assert found["accuracy"]["scale"] == 1.0
    assert found["accuracy"]["both"].item() == pytest.approx((logits.argmax(1) == y).mean())
    assert found["accuracy"]["mean"].item() == pytest.approx((f.argmax(1) == y).mean())
    agree = (f.argmax(1) == logits.argmax(1)).mean()
    assert found["agreement"]["mean"].item() == pytest.approx(agree)
    assert found["agreement"]["both"] == 1.0
    assert found["accuracy"]["mean"] < 0.4


def test_a_shared_scale_decides_nothing(generator):
    target = torch.randint(0, 4, (1, 20, 20), generator=generator)
    mean = torch.randn(1, 4, 20, 20, generator=generator)
    log_scale = torch.randn(1, 1, 20, 20, generator=generator)
    found = decision_shares(mean, log_scale, target)
    assert found["accuracy"]["scale"].isnan()
    assert found["accuracy"]["mean"] == found["accuracy"]["both"]
    assert found["agreement"]["mean"] == 1.0


def test_tied_noise_levels_as_scipy(generator):
    true = torch.tensor([0.1, 0.2, 0.8])[torch.randint(0, 3, (1, 30, 30), generator=generator)]
    predicted = torch.where(torch.rand(true.shape, generator=generator) < 0.7, true, 0.4)
    metric = NoiseCorrelation()
    metric.update(predicted, true)
    expected = stats.spearmanr(predicted.flatten(), true.flatten()).statistic
    assert metric.compute()["spearman"].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("spread", [0.3, 2.0])
def test_noise_correlation_against_scipy(generator, spread):
    true = (spread * torch.randn(2, 1, 70, 70, generator=generator)).exp() * 0.05
    predicted = true**0.7 * (0.5 * spread * torch.randn(true.shape, generator=generator)).exp()
    valid = torch.rand(2, 70, 70, generator=generator) > 0.2
    metric = NoiseCorrelation()
    metric.update(predicted, true, valid)
    found = metric.compute()
    x, y = (z[:, 0][valid].double().numpy() for z in (predicted, true))
    assert found["pearson"].item() == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert found["spearman"].item() == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-3)
    assert found["ratio"].item() == pytest.approx(x.mean() / y.mean(), rel=1e-9)
