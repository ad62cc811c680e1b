import numpy as np
import pytest
import torch
from metric_fakes import Normal, measured
from scipy import integrate, stats

from onesigma.metrics import (
    CRPS,
    NLL,
    DepthErrors,
    ImageQuantileCalibration,
    IntervalCoverage,
    QuantileCalibration,
    Sharpness,
)


@pytest.fixture
def batch(generator):
    prediction, target = measured(generator, c=2)
    prediction.std = prediction.std * 0.7  # too sure of itself
    valid = torch.rand(3, 12, 10, generator=generator) > 0.3
    return prediction, target, valid


def chosen(x, valid):
    return x.movedim(1, -1)[valid].numpy()


def value(metric, *batch):
    metric.update(*batch)
    return metric.compute()


def test_depth_errors_against_numpy(batch):
    prediction, target, valid = batch
    median = 0.9 * prediction.mean
    mean, m, y = (chosen(x, valid) for x in (prediction.mean, median, target))
    ratio = np.maximum(m / y, y / m)
    expected = {
        "rel": (abs(m - y) / y).mean(),
        "log10": abs(np.log10(m) - np.log10(y)).mean(),
        "rms": ((mean - y) ** 2).mean() ** 0.5,
        **{f"delta{i}": (ratio < 1.25**i).mean() for i in (1, 2, 3)},
    }
    found = value(DepthErrors(), prediction.mean, target, valid, median)
    assert found.keys() == expected.keys()
    for name, entry in expected.items():
        assert found[name].item() == pytest.approx(entry, abs=1e-12), name
    alone = value(DepthErrors(), median, target, valid)
    assert alone["rel"] == found["rel"]
    assert alone["rms"] != found["rms"]
    assert 0 < expected["delta1"] < 1


def test_depth_errors_of_odd_values():
    target = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2)
    below = value(DepthErrors(floor=0.1), torch.tensor([-1.0, 2.0]).view(1, 1, 1, 2), target)
    assert below["log10"].item() == pytest.approx(0.5)  # 0.1 instead of -1, against 1
    assert below["rel"].item() == pytest.approx(1.0)
    zero = value(DepthErrors(), target, torch.tensor([0.0, 2.0]).view(1, 1, 1, 2))
    assert all(zero[name].isnan() for name in ("rel", "log10", "delta1", "delta2", "delta3"))
    assert zero["rms"].item() == pytest.approx(0.5**0.5)


def test_nll_crps_and_sharpness_against_scipy(batch):
    prediction, target, valid = batch
    m, s, y = (chosen(x, valid) for x in (prediction.mean, prediction.std, target))
    nll = -stats.norm(m, s).logpdf(y).mean()
    assert value(NLL(), *batch).item() == pytest.approx(nll, rel=1e-10)
    few = [
        integrate.quad(
            lambda t, i=i: (stats.norm.cdf(t, m.flat[i], s.flat[i]) - (t >= y.flat[i])) ** 2,
            m.flat[i] - 12,
            m.flat[i] + 12,
            points=[y.flat[i], m.flat[i]],
        )[0]
        for i in range(3)
    ]
    one = Normal(*(torch.tensor(x.ravel()[:3]).view(1, 1, 1, 3) for x in (m, s)))
    found = value(CRPS(), one, torch.tensor(y.ravel()[:3]).view(1, 1, 1, 3))
    assert found.item() == pytest.approx(np.mean(few), rel=1e-6)
    found = value(Sharpness(), prediction.variance, target, valid)
    assert found.item() == pytest.approx((s**2).mean() ** 0.5, rel=1e-12)


def test_coverage_and_width_against_scipy(batch):
    prediction, target, valid = batch
    m, s, y = (chosen(x, valid) for x in (prediction.mean, prediction.std, target))
    levels = (0.3, 0.9)
    found = value(IntervalCoverage(levels), *batch)
    for k, level in enumerate(levels):
        low, high = stats.norm(m, s).interval(level)
        assert found["coverage"][k].item() == pytest.approx(((low <= y) & (y <= high)).mean())
        assert found["width"][k].item() == pytest.approx((high - low).mean(), rel=1e-9)


def kuleshov(cdf, levels):
    return sum(((cdf <= level).mean() - level) ** 2 for level in levels)


@pytest.mark.parametrize(
    ("variant", "levels"),
    [("paper", np.arange(1, 11) / 10), ("published_code", np.linspace(0, 1, 10))],
)
def test_kuleshovs_score_of_the_set_and_of_images(batch, variant, levels):
    prediction, target, valid = batch
    cdf = stats.norm(prediction.mean, prediction.std).cdf(target)
    pooled = np.moveaxis(cdf, 1, -1)[valid.numpy()]
    scores = value(QuantileCalibration(variant), *batch)
    assert scores["score"].item() == pytest.approx(kuleshov(pooled, levels), abs=1e-12)
    each = [kuleshov(np.moveaxis(cdf[i], 0, -1)[valid[i].numpy()], levels) for i in range(len(cdf))]
    found = value(ImageQuantileCalibration(variant), *batch)
    assert found.item() == pytest.approx(np.mean(each), abs=1e-12)
    expected = [(pooled <= level).mean() for level in levels if level > 0]
    np.testing.assert_allclose(scores["observed"], expected, rtol=1e-12)


def test_levels_at_zero_one_and_every_edge():
    class Given(Normal):
        def cdf(self, target):
            return torch.cat([torch.arange(11) / 10, torch.tensor([0.0])]).view(1, 1, 1, 12)

    zeros = torch.zeros(1, 1, 1, 12)
    curve = value(QuantileCalibration(), Given(zeros, zeros + 1), zeros)["observed"]
    # 0 twice and 0.1 are at or below 0.1, then one more at each level
    np.testing.assert_allclose(curve, np.arange(3, 13) / 12)


def test_a_calibrated_model_keeps_its_promises(generator):
    prediction, target = measured(generator, n=4, h=100, w=100)
    error = 0.5 / 200  # standard error of a share of 40000 pixels
    assert value(QuantileCalibration(), prediction, target)["score"] < 10 * (3 * error) ** 2
    assert value(ImageQuantileCalibration(), prediction, target) < 40 * (3 * error) ** 2
    coverage = value(IntervalCoverage(), prediction, target)["coverage"]
    assert (coverage - torch.tensor([0.5, 0.8, 0.9, 0.95]).double()).abs().max() < 4 * error


def test_invalid_targets_never_reach_the_law(batch):
    prediction, target, valid = batch
    spoilt = torch.where(valid[:, None], target, torch.nan)
    for metric in (NLL, CRPS, QuantileCalibration, ImageQuantileCalibration, IntervalCoverage):
        clean, dirty = metric(), metric()
        clean.update(prediction, target, valid)
        dirty.update(prediction, spoilt)
        for name, total in clean.totals().items():
            torch.testing.assert_close(dirty.totals()[name], total)


def test_a_valid_target_must_be_finite(batch):
    prediction, target, valid = batch
    with pytest.raises(ValueError, match="marked valid"):
        NLL().update(prediction, torch.full_like(target, torch.nan), valid)
