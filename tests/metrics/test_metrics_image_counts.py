"""Pooled values of drawn sets, against the metrics of these very images."""

import numpy as np
import pytest
import torch
from metric_fakes import Labels, Normal, labelled, measured
from sklearn.metrics import average_precision_score, roc_auc_score

from onesigma import metrics as om
from onesigma.metrics.bins import IMAGE_BITS, ScoreHistogram, score_keys
from onesigma.metrics.bootstrap import percentiles, resample_weights
from onesigma.metrics.image_counts import drawn_values
from onesigma.metrics.ranking import detection_scores
from onesigma.metrics.suite import flat_values

NAMES = ["e", "b", "d", "a", "c", "f"]
ORDER = np.argsort(NAMES)  # sets are drawn from images in the order of their names


class Split(Normal):
    """A law that knows its two parts."""

    def __getitem__(self, images):
        return Split(self.mean[images], self.std[images])

    @property
    def aleatoric(self):
        return 0.7 * self.variance

    @property
    def epistemic(self):
        return 0.3 * self.variance


def label_case(generator):
    probs, target = labelled(generator, n=6, c=4, h=30, w=24)
    probs[3] = probs[3].sqrt() / probs[3].sqrt().sum(0)  # not sure enough
    valid = torch.rand(target.shape, generator=generator) > 0.2
    valid[1, 10:] = False  # few pixels
    return om.SegmentationSuite(4), lambda i: (Labels(probs[i]), target[i], valid[i])


def value_case(generator):
    law, target = measured(generator, n=6, h=30, w=24)
    std = law.std * torch.tensor([1.0, 2, 0.5, 1, 1, 3]).double().view(6, 1, 1, 1)
    valid = torch.rand(6, 30, 24, generator=generator) > 0.2
    valid[4, :20] = False
    noise = 0.5 + torch.rand(target.shape, generator=generator, dtype=torch.float64) * std
    return om.RegressionSuite(), lambda i: (
        Split(law.mean[i], std[i]),
        target[i],
        valid[i],
        noise[i],
    )


def odd_case(generator):
    probs, _ = labelled(generator, n=6, c=4, h=60, w=48)
    odd = torch.zeros(6, 60, 48, dtype=torch.bool)
    for i in range(1, 5):
        odd[i, 5 : 5 + 8 * i, 3:33] = True
    probs = torch.where(odd[:, None], 0.7 * probs + 0.3 / 4, probs)
    valid = torch.rand(odd.shape, generator=generator) > 0.1
    return om.AnomalySuite(["entropy"], patch=8), lambda i: (Labels(probs[i]), odd[i], valid[i])


CASES = {"labels": label_case, "values": value_case, "odd": odd_case}


def filled(suite, inputs, images, names):
    """The suite after these images, in whatever order and number."""
    prediction, target, valid, *noise = inputs(images)
    suite.update(prediction, target, valid, names, *noise)
    return suite


def fresh(suite):
    """Another suite of the same kind."""
    if isinstance(suite, om.SegmentationSuite):
        return om.SegmentationSuite(len(suite.classes))
    return (
        om.RegressionSuite()
        if isinstance(suite, om.RegressionSuite)
        else om.AnomalySuite(["entropy"], patch=8)
    )


# what bins of 0.8 % may change on so few pixels; the rest is exact but for rounding to seven digits
WIDE = dict.fromkeys(("adaptive_ece", "aurc", "augrc"), 2e-3) | {"ause": 1e-3, "aurg": 1e-3}
WIDE |= {"entropy.pixels": 3e-3}


def tolerance(name):
    return next((wide for start, wide in WIDE.items() if name.startswith(start)), 2e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_draws_are_the_metric_of_the_drawn_images(case, generator):
    suite, inputs = case(generator)
    found = filled(suite, inputs, list(range(6)), NAMES).compute(resamples=12)
    weights = resample_weights(6, 12)
    assert len(found["draws"]["values"]) >= 7
    for b, row in enumerate(weights.int().tolist()):
        images = [int(ORDER[i]) for i, times in enumerate(row) for _ in range(times)]
        again = fresh(suite)
        filled(again, inputs, images, None)
        expected = flat_values(again.compute(resamples=1)["set"])
        for name, draws in found["draws"]["values"].items():
            value = np.nan if draws[b] is None else draws[b]
            assert value == pytest.approx(
                expected[name], abs=tolerance(name), rel=2e-6, nan_ok=True
            ), name


def test_draws_against_other_libraries(generator):
    suite, inputs = odd_case(generator)
    found = filled(suite, inputs, list(range(6)), NAMES).compute(resamples=8)["draws"]["values"]
    labels, label_inputs = label_case(generator)
    ece = filled(labels, label_inputs, list(range(6)), NAMES).compute(8)["draws"]["values"]["ece"]
    for b, row in enumerate(resample_weights(6, 8).int().tolist()):
        images = [int(ORDER[i]) for i, times in enumerate(row) for _ in range(times)]
        prediction, odd, valid = inputs(images)
        truth, score = odd[valid].numpy(), prediction.entropy[valid].numpy()
        auroc, precision = roc_auc_score(truth, score), average_precision_score(truth, score)
        assert found["entropy.pixels.auroc"][b] == pytest.approx(auroc, abs=3e-3)
        assert found["entropy.pixels.average_precision"][b] == pytest.approx(precision, abs=3e-3)
        prediction, target, valid = label_inputs(images)
        top, label = (x[valid].numpy() for x in prediction.probs.max(1))
        right, bins = label == target[valid].numpy(), np.ceil(top * 15)
        gaps = [abs((right[bins == k] - top[bins == k]).sum()) for k in range(1, 16)]
        assert ece[b] == pytest.approx(sum(gaps) / len(top), abs=1e-6)


def odd_scores(rng, images):
    """Scores of 6 × 6 pixels, a third of them odd; level and separation differ between images."""
    level, shift = rng.normal(size=(2, images, 1, 1))
    odd = rng.random((images, 6, 6)) < 0.3
    return np.exp(rng.normal(size=odd.shape) + (1.5 + 0.8 * shift) * odd + 1.5 * level), odd


def pooled_auroc(counts):
    pixels, positive = counts["score"].unbind(-2)
    return detection_scores(positive, pixels - positive)


def test_intervals_of_a_pooled_value_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    score, odd = odd_scores(rng, 40000)
    truth = roc_auc_score(odd.ravel(), score.ravel())
    hits, means = 0, 0
    for seed in range(60):
        score, odd = odd_scores(rng, 40)
        images = [
            {"score": ScoreHistogram.of(*(torch.tensor(x).flatten() for x in pair)).sparse()}
            for pair in zip(score, odd, strict=True)
        ]
        weights = resample_weights(40, 400, torch.Generator().manual_seed(seed))
        low, high = percentiles(drawn_values(images, pooled_auroc, weights)["auroc"], 0.9, 40)
        hits += low < truth < high
        each = [roc_auc_score(y.ravel(), x.ravel()) for x, y in zip(score, odd, strict=True)]
        low, high = percentiles(weights @ torch.tensor(each, dtype=torch.float64) / 40, 0.9, 40)
        means += low < truth < high
    # 54 of 60 promised, give or take 2.3, and the percentile bootstrap's own bias at n = 40
    assert 45 <= hits < 60
    # the mean AUROC of images is another quantity, and its interval is about that
    assert means < 10


def test_the_same_sets_whatever_the_order(generator):
    suite, inputs = label_case(generator)
    first = filled(suite, inputs, list(range(6)), NAMES).compute(resamples=20)
    turned = fresh(suite)
    for i in (4, 0, 5, 2, 1, 3):
        filled(turned, inputs, [i], [NAMES[i]])
    second = turned.compute(resamples=20)
    for name, draws in first["draws"]["values"].items():
        assert draws == pytest.approx(second["draws"]["values"][name], rel=1e-6, abs=1e-9), name
    pairs = om.paired_bootstrap(first, second)
    assert pairs["ece"]["low"] == pytest.approx(0, abs=1e-7)
    assert pairs["ece"]["high"] == pytest.approx(0, abs=1e-7)


def overconfident(probs, power):
    sharp = probs**power
    return Labels(sharp / sharp.sum(1, keepdim=True))


def test_pairing_of_pooled_values(generator):
    probs, target = labelled(generator, n=20, c=4, h=24, w=20)
    runs = []
    for power in (1.0, 1.4):
        suite = om.SegmentationSuite(4)
        suite.update(overconfident(probs, power), target)
        runs.append(suite.compute(resamples=300))
    found = om.paired_bootstrap(*runs)
    for name in ("ece", "set_calibration", "classwise_ece", "adaptive_ece"):
        entry = found[name]
        sets = [run["set"][name] for run in runs]
        assert [entry["first"], entry["second"]] == pytest.approx(sets)
        draws = np.subtract(*(run["draws"]["values"][name] for run in reversed(runs)))
        low, high = np.quantile(draws, [0.025, 0.975], method="nearest")
        assert entry["low"] == pytest.approx(low, abs=1e-6)
        assert entry["high"] == pytest.approx(high, abs=1e-6)
        assert entry["low"] > 0
        assert entry["excludes_zero"], name
    # sharper probabilities change no decision and no order but that of ties
    assert abs(found["miou"]["difference"]) < 1e-12
    assert not found["miou"]["excludes_zero"]


@pytest.mark.parametrize("change", ["seed", "resamples", "values"])
def test_other_sets_are_not_paired(change, generator):
    suite, inputs = label_case(generator)
    filled(suite, inputs, list(range(6)), NAMES)
    first = suite.compute(resamples=10)
    second = suite.compute(resamples=10) | {"draws": {**first["draws"], change: {}}}
    found = om.paired_bootstrap(first, second)
    assert "ece" not in found
    assert "nll" in found
    runs = {"first": first, "second": second}
    assert "ece" in om.incomparable_values(runs)
    assert "nll" not in om.incomparable_values(runs)
    assert "evaluate them again" in om.format_comparison(runs)[-1]
    assert om.incomparable_values({"first": first, "second": first}) == []


def test_counts_of_an_image_do_not_grow_with_its_pixels(generator):
    sizes = []
    for side in (20, 300):
        score = 10 ** (4 * torch.rand(side * side, generator=generator) - 2)
        sparse = ScoreHistogram.of(score, score > 1).sparse()
        assert sparse.rows[0].sum() == side * side
        sizes.append(len(sparse.keys))
    octaves = np.log2(1e4)
    assert sizes[0] < 400
    assert sizes[1] <= octaves * 2**IMAGE_BITS + 2


def test_wide_bins_are_those_of_the_scores(generator):
    score = torch.randn(500, generator=generator).exp()
    score[:3] = torch.tensor([0.0, -1.0, torch.inf])
    weight = torch.rand(500, generator=generator)
    sparse = ScoreHistogram.of(score, weight).sparse()
    keys = score_keys(score, IMAGE_BITS)
    assert torch.equal(sparse.keys, keys.unique())
    for key, (count, total) in zip(sparse.keys, sparse.rows.T, strict=True):
        assert count == (keys == key).sum()
        assert total.item() == pytest.approx(weight[keys == key].sum().item(), rel=1e-5)
