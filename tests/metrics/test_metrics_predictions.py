"""The suites on the library's own predictions."""

import pytest
import torch

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.gaussian import Gaussian
from onesigma.likelihoods.laplace import Laplace
from onesigma.metrics import (
    REGRESSION_SCORES,
    SEGMENTATION_SCORES,
    AnomalySuite,
    EpistemicSuite,
    RegressionSuite,
    SegmentationSuite,
    format_metrics,
)
from onesigma.prediction.categorical import CategoricalMixture
from onesigma.prediction.transforms import Log


def field(generator, n=3, h=40, w=50):
    mean = torch.rand(n, 1, h, w, generator=generator)
    variance = 0.02 + 0.1 * torch.rand(n, 1, h, w, generator=generator)
    log_scale = -2 + torch.rand(n, 1, h, w, generator=generator)
    return GaussianField(mean, MarginalCovariance(variance)), log_scale


@pytest.mark.parametrize("likelihood", [Gaussian(), Laplace()], ids=["gaussian", "laplace"])
def test_targets_drawn_from_the_prediction_are_calibrated(likelihood, generator):
    q, log_scale = field(generator)
    prediction = likelihood.predict(q, log_scale).in_unit(Log(shift=1.0, scale=0.5))
    target = prediction.quantile(torch.rand(q.mean.shape, generator=generator))
    target[:, :, :5] = torch.nan
    suite = RegressionSuite(levels=(0.5, 0.9))
    suite.update(prediction, target, noise=2 * prediction.aleatoric.sqrt())
    found = suite.compute()
    assert found["set"]["noise"]["pearson"] == pytest.approx(1.0)
    assert found["set"]["noise"]["ratio"] == pytest.approx(0.5)
    error = 0.5 / (3 * 35 * 50) ** 0.5  # standard error of a share
    assert found["pixels"] == 3 * 35 * 50
    assert found["set"]["set_calibration"] < 10 * (3 * error) ** 2
    assert found["set"]["coverage_0.5"] == pytest.approx(0.5, abs=4 * error)
    assert found["set"]["coverage_0.9"] == pytest.approx(0.9, abs=4 * error)
    assert found["set"]["rms"] == pytest.approx(found["set"]["sharpness"], rel=0.1)
    assert found["set"]["aurg_rms"] > 0


def test_errors_of_a_skewed_law_are_those_of_its_median_and_mean(generator):
    q, log_scale = field(generator)
    prediction = Gaussian().predict(q, log_scale).in_unit(Log())
    target = prediction.quantile(torch.rand(q.mean.shape, generator=generator))
    suite = RegressionSuite()
    suite.update(prediction, target)
    found = suite.compute(resamples=2)["set"]
    mean, median = prediction.mean, prediction.median
    relative = {"mean": (mean - target).abs() / target, "median": (median - target).abs() / target}
    square = {"mean": (mean - target).square(), "median": (median - target).square()}
    assert found["rel"] == pytest.approx(relative["median"].mean().item(), rel=1e-5)
    assert found["rms"] == pytest.approx(square["mean"].mean().sqrt().item(), rel=1e-5)
    # each is the better guess for its error
    assert relative["median"].mean() < 0.99 * relative["mean"].mean()
    assert square["mean"].mean() < 0.99 * square["median"].mean()


def test_scores_of_a_regression_find_a_noisy_region(generator):
    q, log_scale = field(generator)
    region = torch.zeros(3, 40, 50, dtype=torch.bool)
    region[1:, :20, :20] = True
    variance = torch.where(region[:, None], 3 * q.variance, q.variance)
    prediction = Gaussian().predict(GaussianField(q.mean, MarginalCovariance(variance)), log_scale)
    suite = AnomalySuite(REGRESSION_SCORES)
    suite.update(prediction, region)
    found = suite.compute()["set"]
    assert found["epistemic"]["pixels"]["auroc"] > 0.8
    assert abs(found["aleatoric"]["pixels"]["auroc"] - 0.5) < 0.05
    assert found["epistemic"]["images"]["patch"]["auroc"] == 1.0


def test_epistemic_suite_of_a_regression(generator):
    q, log_scale = field(generator)
    target = Laplace().predict(q, log_scale).quantile(torch.rand(q.mean.shape, generator=generator))
    suite = EpistemicSuite(Laplace(), prior_mean=0)
    suite.update(q, log_scale, target)
    metrics = suite.compute()
    assert any(line.startswith("nll_lost_without_mean") for line in format_metrics(metrics))
    found = metrics["set"]
    assert found["nll_lost_without_mean"] > 0.1
    # variances of the same distribution, but of other images: worse than the right ones
    assert found["nll_lost_by_shuffling"] > 0


def logits(generator, n=2, c=4, h=60, w=60):
    mean = 2 * torch.randn(n, c, h, w, generator=generator)
    variance = 0.1 + torch.rand(n, c, h, w, generator=generator)
    log_scale = 0.2 * torch.randn(n, c, h, w, generator=generator)
    return GaussianField(mean, MarginalCovariance(variance)), log_scale


def draw(prediction, generator):
    rows = prediction.probs.movedim(1, -1).reshape(-1, prediction.probs.shape[1])
    return rows.multinomial(1, generator=generator).view(prediction.probs[:, 0].shape)


def test_labels_drawn_from_the_prediction_are_calibrated(generator):
    prediction = Boltzmann(scale="class").predict(*logits(generator))
    mixture = CategoricalMixture([prediction, Boltzmann(scale="class").predict(*logits(generator))])
    for law in (prediction, mixture):
        suite = SegmentationSuite(4)
        suite.update(law, draw(law, generator))
        found = suite.compute()["set"]
        noise = (15 / 7200) ** 0.5  # each of 15 bins is off by about sqrt(1/(4 n_b))
        assert found["ece"] < noise
        assert found["set_calibration"] < 10 * noise**2
        # the expected NLL of a calibrated law is its mean entropy
        entropy = law.entropy.mean().item()
        assert found["nll"] == pytest.approx(entropy, abs=4 * (1 / 7200) ** 0.5)
        anomaly = AnomalySuite(SEGMENTATION_SCORES)
        anomaly.update(law, law.entropy > law.entropy.median())
        assert anomaly.compute()["set"]["entropy"]["pixels"]["auroc"] == pytest.approx(1, abs=1e-3)


def test_epistemic_suite_of_a_segmentation(generator):
    q, log_scale = logits(generator)
    likelihood = Boltzmann(scale="class")
    target = draw(likelihood.predict(q, log_scale), generator)
    suite = EpistemicSuite(likelihood, prior_mean=1.0)
    suite.update(q, log_scale, target, kl=torch.full((2, 4, 60, 60), 0.5))
    found = suite.compute()["set"]
    assert found["kl_per_pixel"] == pytest.approx(4 * 0.5)
    assert found["nll_lost_without_mean"] > 0.1
    accuracy = found["decision"]["accuracy"]
    assert accuracy["both"] > accuracy["mean"] > accuracy["scale"] > 0.25
