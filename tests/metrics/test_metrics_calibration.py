from itertools import pairwise

import numpy as np
import pytest
import torch
from metric_fakes import labelled
from torchmetrics.classification import MulticlassCalibrationError

from onesigma.metrics import (
    AdaptiveCalibrationError,
    CalibrationError,
    ClasswiseCalibrationError,
    FrequencyCalibration,
    ImageCalibration,
)


@pytest.fixture
def batch(generator):
    probs, target = labelled(generator, n=2, h=30, w=30)
    target[0, :15] = 0  # something to be wrong about
    valid = torch.rand(target.shape, generator=generator) > 0.3
    return probs, target, valid


def flat(probs, target, valid):
    return probs.movedim(1, -1)[valid].numpy(), target[valid].numpy()


def in_bins(values, bins):
    """Masks of (lo, hi], the first closed below."""
    edges = np.arange(bins + 1, dtype=np.float32) / np.float32(bins)
    for k, (low, high) in enumerate(pairwise(edges)):
        yield (values <= high) & ((values > low) | (k == 0))


def gaps(values, hits, bins):
    """(share, observed - predicted) of the bins that hold something."""
    found = []
    for mask in in_bins(values, bins):
        if mask.any():
            predicted = values[mask].astype(np.float64).mean()
            found.append((mask.mean(), hits[mask].mean() - predicted))
    return np.array(found)


def value(metric, *batch):
    metric.update(*batch)
    return metric.compute()


def test_ece_and_mce_against_torchmetrics_and_a_loop(batch):
    p, y = flat(*batch)
    scores = value(CalibrationError(15), *batch)
    found = gaps(p.max(1), p.argmax(1) == y, 15)
    assert scores["ece"].item() == pytest.approx((found[:, 0] * abs(found[:, 1])).sum(), abs=1e-9)
    assert scores["mce"].item() == pytest.approx(abs(found[:, 1]).max(), abs=1e-9)
    for norm, name in (("l1", "ece"), ("max", "mce")):
        reference = MulticlassCalibrationError(5, n_bins=15, norm=norm)
        expected = reference(torch.from_numpy(p), torch.from_numpy(y)).item()
        assert scores[name].item() == pytest.approx(expected, abs=1e-5)


def test_ece_at_zero_one_and_every_edge():
    # one pixel at each edge, each wrong: every bin k holds the pixel of its upper edge
    edges = torch.arange(1, 16, dtype=torch.float32) / 15
    metric = CalibrationError(15)
    counts = metric.count(torch.cat([torch.zeros(1), edges]), torch.zeros(16, dtype=torch.bool))
    assert counts["pixels"].tolist() == [2.0] + [1.0] * 14
    scores = metric.scores(counts)
    assert scores["mce"].item() == 1.0
    assert scores["ece"].item() == pytest.approx(edges.double().sum().item() / 16)


def test_adaptive_ece_against_sorting(batch):
    p, y = flat(*batch)
    order = np.argsort(p.max(1))[::-1]
    hits, top = (p.argmax(1) == y)[order], p.max(1).astype(np.float64)[order]
    cuts = np.linspace(0, len(y), 16)
    # interpolate the cumulative sums so that groups may share a pixel
    place = np.arange(len(y) + 1)
    total = np.interp(cuts, place, np.concatenate([[0], (hits - top).cumsum()]))
    expected = abs(np.diff(total)).sum() / len(y)
    assert value(AdaptiveCalibrationError(15), *batch).item() == pytest.approx(expected, abs=1e-3)


def test_adaptive_ece_sees_confidences_near_one(generator):
    # half the pixels are 1e-6 from sure and right, half 1e-3 and wrong 3 % of the time
    doubt = torch.tensor([1e-6, 1e-3]).repeat_interleave(5000).view(1, 1, 100, 100)
    probs = torch.cat([1 - doubt, doubt], 1)
    wrong = torch.rand(100, 100, generator=generator) < 0.03
    target = torch.where((doubt[0, 0] > 1e-4) & wrong, 1, 0)[None]
    share = target.double().sum().item() / 5000
    found = value(AdaptiveCalibrationError(2), probs, target).item()
    assert found == pytest.approx((share - 1e-3) / 2 + 0.5e-6, abs=1e-5)


def test_classwise_ece_against_a_loop(batch):
    p, y = flat(*batch)
    each = [
        (found[:, 0] * abs(found[:, 1])).sum()
        for found in (gaps(p[:, k], y == k, 15) for k in range(5))
    ]
    found = value(ClasswiseCalibrationError(5), *batch).item()
    assert found == pytest.approx(np.mean(each), abs=1e-9)


def test_kendall_and_gals_curve_against_a_loop(batch):
    p, y = flat(*batch)
    hits = np.eye(5, dtype=bool)[y]
    scores = value(FrequencyCalibration(5, bins=10), *batch)
    for k, mask in enumerate(in_bins(p, 10)):
        assert scores["pixels"][k] == mask.sum()
        assert scores["observed"][k].item() == pytest.approx(hits[mask].mean(), abs=1e-12)
        mean = p[mask].astype(np.float64).mean()
        assert scores["predicted"][k].item() == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize(("variant", "bins"), [("paper", 10), ("published_code", 9)])
def test_the_papers_score_against_a_loop(batch, variant, bins):
    each = []
    for image in zip(*batch, strict=True):
        p, y = flat(*(x[None] for x in image))
        hits = np.eye(5, dtype=bool)[y]
        each.append((gaps(p.ravel(), hits.ravel(), bins)[:, 1] ** 2).sum())
    found = value(ImageCalibration(variant), *batch).item()
    assert found == pytest.approx(np.mean(each), abs=1e-9)
    assert each[0] > 2 * each[1]  # the spoilt image is worse, and the average mixes them


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(batch, dtype):
    probs, target, valid = batch
    rounded = probs.to(dtype)
    for metric in (CalibrationError, AdaptiveCalibrationError, ImageCalibration):
        wide, narrow = metric(), metric()
        wide.update(rounded.float(), target, valid)
        narrow.update(rounded, target, valid)
        for name, total in wide.totals().items():
            torch.testing.assert_close(narrow.totals()[name], total)


def test_empty_intervals_count_zero():
    probs = torch.tensor([0.75, 0.25]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    target = torch.tensor([[[0, 0], [0, 1]]])
    assert value(ImageCalibration(), probs, target).item() == 0.0
    assert value(CalibrationError(), probs, target)["ece"].item() == 0.0


def test_images_without_valid_pixels_are_left_out(batch):
    probs, target, valid = batch
    hidden = valid.clone()
    hidden[0] = False
    both = value(ImageCalibration(), probs, target, hidden)
    one = value(ImageCalibration(), probs[1:], target[1:], valid[1:])
    assert both == one


def test_a_calibrated_model_scores_almost_nothing(generator):
    batch = labelled(generator, n=4, c=4, h=120, w=120)
    pixels = 4 * 120 * 120
    noise = 4 * (15 / pixels) ** 0.5  # each of 15 bins is off by about sqrt(1/(4 n_b))
    assert value(CalibrationError(), *batch)["ece"] < noise
    assert value(AdaptiveCalibrationError(), *batch) < noise
    assert value(ClasswiseCalibrationError(4), *batch) < noise
    assert value(FrequencyCalibration(4), *batch)["score"] < 10 * noise**2
    assert value(ImageCalibration(), *batch) < 40 * noise**2
