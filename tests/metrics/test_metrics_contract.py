"""What every metric owes: constant state, merging, masks, pickling, NaN for nothing."""

import pickle

import pytest
import torch
from metric_fakes import Labels, labelled, measured

from onesigma import metrics as om


def label_case(cls, *args):
    def make(generator, n, h, w):
        probs, target = labelled(generator, n=n, h=h, w=w)
        return cls(*args), (probs, target)

    return make


def law_case(cls, *args):
    def make(generator, n, h, w):
        return cls(*args), measured(generator, n=n, h=h, w=w)

    return make


def nll_case(generator, n, h, w):
    probs, target = labelled(generator, n=n, h=h, w=w)
    return om.NLL(), (Labels(probs), target)


def mean_case(generator, n, h, w):
    prediction, target = measured(generator, n=n, h=h, w=w)
    return om.DepthErrors(), (prediction.mean, target)


def sharpness_case(generator, n, h, w):
    prediction, target = measured(generator, n=n, h=h, w=w)
    return om.Sharpness(), (prediction.variance, target)


def sparsification_case(generator, n, h, w):
    prediction, target = measured(generator, n=n, h=h, w=w)
    return om.Sparsification(), (prediction.variance, prediction.mean, target)


def risk_case(generator, n, h, w):
    score = torch.rand(n, h, w, generator=generator)
    return om.RiskCoverage(), (score, score > 0.7)


def anomaly_case(generator, n, h, w):
    score = torch.rand(n, h, w, generator=generator)
    return om.Anomaly(), (score, torch.rand(score.shape, generator=generator) < score)


def noise_case(generator, n, h, w):
    true = 0.1 + torch.rand(n, h, w, generator=generator)
    return om.NoiseCorrelation(), (true + 0.1 * torch.rand(true.shape, generator=generator), true)


def decision_case(generator, n, h, w):
    probs, target = labelled(generator, n=n, h=h, w=w)
    scale = torch.randn(probs.shape, generator=generator)
    return om.DecisionShares(), (probs, scale, target)


CASES = {
    "MeanIoU": label_case(om.MeanIoU, 5),
    "PixelAccuracy": label_case(om.PixelAccuracy),
    "Brier": label_case(om.Brier),
    "NLL": nll_case,
    "CalibrationError": label_case(om.CalibrationError),
    "AdaptiveCalibrationError": label_case(om.AdaptiveCalibrationError),
    "ClasswiseCalibrationError": label_case(om.ClasswiseCalibrationError, 5),
    "FrequencyCalibration": label_case(om.FrequencyCalibration, 5),
    "ImageCalibration": label_case(om.ImageCalibration),
    "RegressionNLL": law_case(om.NLL),
    "CRPS": law_case(om.CRPS),
    "IntervalCoverage": law_case(om.IntervalCoverage),
    "QuantileCalibration": law_case(om.QuantileCalibration),
    "ImageQuantileCalibration": law_case(om.ImageQuantileCalibration),
    "DepthErrors": mean_case,
    "Sharpness": sharpness_case,
    "Sparsification": sparsification_case,
    "RiskCoverage": risk_case,
    "Anomaly": anomaly_case,
    "NoiseCorrelation": noise_case,
    "DecisionShares": decision_case,
}
each_metric = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())


def leaves(value):
    """All tensors of a nested result."""
    if isinstance(value, dict):
        return [leaf for entry in value.values() for leaf in leaves(entry)]
    return [value]


def same(first, second):
    for a, b in zip(leaves(first), leaves(second), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-9, atol=1e-12)


def random_mask(generator, n, h, w):
    return torch.rand(n, h, w, generator=generator) > 0.3


@each_metric
def test_two_halves_merge_to_the_whole(make, generator):
    metric, inputs = make(generator, 4, 16, 12)
    valid = random_mask(generator, 4, 16, 12)
    metric.update(*inputs, valid)
    half, other = metric.clone(), metric.clone()
    for part, images in ((half, slice(0, 1)), (other, slice(1, 4))):
        part.reset()
        part.update(*(x[images] for x in inputs), valid[images])
    half.merge_state(other)
    same(half.compute(), metric.compute())
    assert not all(leaf.isnan().all() for leaf in leaves(metric.compute()))


@each_metric
def test_state_does_not_grow(make, generator):
    metric, inputs = make(generator, 1, 8, 8)
    metric.update(*inputs)
    small = {name: state.shape for name, state in metric.totals().items()}
    _, more = make(generator, 3, 40, 40)
    metric.update(*more)
    assert {name: state.shape for name, state in metric.totals().items()} == small
    assert not any(isinstance(state, list) for state in metric.metric_state.values())
    assert all(state.dtype == torch.float64 for state in metric.totals().values())


@each_metric
def test_masked_pixels_change_nothing(make, generator):
    metric, inputs = make(generator, 2, 16, 12)
    valid = random_mask(generator, 2, 16, 12)
    other, _ = make(generator, 2, 16, 12)
    metric.update(*inputs, valid)
    target = inputs[-1]
    mask = valid.unsqueeze(1).expand_as(target) if target.ndim == 4 else valid
    changed = torch.where(mask, target, target.flip(-1))
    other.update(*inputs[:-1], changed, valid)
    assert not torch.equal(changed, target)
    same(metric.compute(), other.compute())


@each_metric
def test_nothing_valid_is_nan_and_no_crash(make, generator):
    metric, inputs = make(generator, 2, 8, 8)
    metric.update(*inputs, torch.zeros(2, 8, 8, dtype=torch.bool))
    values = [leaf for leaf in leaves(metric.compute()) if leaf.is_floating_point()]
    assert any(leaf.isnan().all() for leaf in values)
    assert all((leaf.isnan() | (leaf == 0) | ((leaf > 0) & (leaf <= 1))).all() for leaf in values)


@each_metric
def test_pickling_keeps_the_counts(make, generator):
    metric, inputs = make(generator, 2, 8, 8)
    metric.update(*inputs)
    same(pickle.loads(pickle.dumps(metric)).compute(), metric.compute())


@each_metric
def test_calling_returns_the_batch_and_keeps_the_total(make, generator):
    metric, inputs = make(generator, 3, 8, 8)
    whole, _ = make(generator, 3, 8, 8)
    whole.update(*inputs)
    metric.update(*(x[:2] for x in inputs))
    last = metric(*(x[2:] for x in inputs))
    alone, _ = make(generator, 3, 8, 8)
    alone.update(*(x[2:] for x in inputs))
    same(last, alone.compute())
    same(metric.compute(), whole.compute())


def test_kl_per_pixel_of_unequal_batches():
    metric = om.KLPerPixel()
    metric.update(torch.full((3, 2, 5), 4.0), 4)  # 3 nats per pixel of four images
    metric.update(torch.full((3, 2, 5), 1.0), 1)
    assert metric.compute().item() == pytest.approx((3 * 4 + 3 * 1) / 5)
