import json
import pickle

import pytest
import torch
from metric_fakes import Labels, Normal, labelled, measured
from torch.nn.functional import avg_pool2d

from onesigma import metrics as om
from onesigma.metrics.anomaly_suite import largest_patch
from onesigma.metrics.suite import as_json

NAMES = ["a", "b", "c", "d"]


@pytest.fixture
def labels(generator):
    probs, target = labelled(generator, n=4, c=5, h=24, w=20)
    target[0] = 0
    valid = torch.rand(target.shape, generator=generator) > 0.3
    return probs, target, valid


@pytest.fixture
def values(generator):
    prediction, target = measured(generator, n=4, h=24, w=20)
    return prediction, target, torch.rand(4, 24, 20, generator=generator) > 0.3


def standalone_labels(probs, target, valid):
    """Every value by the metrics on their own."""
    inputs = (probs, target, valid)
    found = {}
    for name, metric in {
        "iou": om.MeanIoU(5),
        "accuracy": om.PixelAccuracy(),
        "brier": om.Brier(),
        "calibration": om.CalibrationError(),
        "adaptive_ece": om.AdaptiveCalibrationError(),
        "classwise_ece": om.ClasswiseCalibrationError(5),
        "image_calibration": om.ImageCalibration(),
        "image_calibration_published_code": om.ImageCalibration("published_code"),
    }.items():
        found[name] = metric(*inputs)
    found |= {"miou": found.pop("iou")["miou"]}
    found |= {name: found["calibration"][name] for name in ("ece", "mce")}
    del found["calibration"]
    top, decision = probs.max(1)
    found |= om.RiskCoverage()(1 - top, decision != target, valid)
    return found | {"nll": om.NLL()(Labels(probs), target, valid)}


def standalone_values(prediction, target, valid):
    found = om.DepthErrors()(prediction.mean, target, valid)
    found |= {"nll": om.NLL()(prediction, target, valid)}
    found |= {"crps": om.CRPS()(prediction, target, valid)}
    found |= {"sharpness": om.Sharpness()(prediction.variance, target, valid)}
    found |= {"image_calibration": om.ImageQuantileCalibration()(prediction, target, valid)}
    found |= om.Sparsification()(prediction.variance, prediction.mean, target, valid)
    rates = om.IntervalCoverage()(prediction, target, valid)
    return found | {"coverage_0.9": rates["coverage"][2], "width_0.95": rates["width"][3]}


CASES = {
    "segmentation": (lambda: om.SegmentationSuite(5), standalone_labels, Labels),
    "regression": (om.RegressionSuite, standalone_values, None),
}


def suite_case(task, request):
    make, alone, wrap = CASES[task]
    batch = request.getfixturevalue("labels" if task == "segmentation" else "values")
    prediction = wrap(batch[0]) if wrap else batch[0]
    return make, alone, batch, (prediction, *batch[1:])


def cut(inputs, images):
    return tuple(x[images] for x in inputs)


@pytest.mark.parametrize("task", CASES)
def test_the_set_and_each_image_equal_the_single_metrics(task, request):
    make, alone, batch, inputs = suite_case(task, request)
    suite = make()
    suite.update(*cut(inputs, slice(0, 3)), NAMES[:3])
    suite.update(*cut(inputs, slice(3, 4)), NAMES[3:])
    found = suite.compute()
    assert [record["name"] for record in found["per_image"]] == NAMES
    assert found["pixels"] == int(batch[2].sum())
    for name, value in alone(*batch).items():
        assert found["set"][name] == pytest.approx(value.item(), rel=1e-6), name
    for i, record in enumerate(found["per_image"]):
        for name, value in alone(*cut(batch, slice(i, i + 1))).items():
            assert record[name] == pytest.approx(value.item(), rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("task", CASES)
def test_pooled_intervals_are_of_the_set_value(task, request):
    make, _, _, inputs = suite_case(task, request)
    suite = make()
    suite.update(*inputs)
    found = suite.compute()
    pooled = [name for name in found["intervals"] if name in found["set"]]
    assert len(pooled) > 10
    for name in pooled:
        entry = found["intervals"][name]
        assert entry["value"] == pytest.approx(found["set"][name], rel=1e-9), name
        assert entry["low"] < entry["high"]
        if entry["over"] != "counts":  # which may be larger on every set that repeats images
            assert entry["low"] <= entry["value"] <= entry["high"]


@pytest.mark.parametrize("task", CASES)
def test_merging_pickled_suites_and_json(task, request):
    make, _, _, inputs = suite_case(task, request)
    whole, first, second = make(), make(), make()
    whole.update(*inputs, NAMES)
    first.update(*cut(inputs, slice(0, 1)), NAMES[:1])
    second.update(*cut(inputs, slice(1, 4)), NAMES[1:])
    first.merge(pickle.loads(pickle.dumps(second)))
    merged, expected = first.compute(), whole.compute()
    assert json.loads(json.dumps(merged, allow_nan=False)) == merged
    assert om.metric_rows(merged) == om.metric_rows(expected)
    first.reset()
    assert first.compute()["images"] == 0


@pytest.mark.parametrize("task", CASES)
def test_an_image_without_valid_pixels_is_none(task, request):
    make, _, _, inputs = suite_case(task, request)
    valid = inputs[2].clone()
    valid[1] = False
    with_it, without = make(), make()
    with_it.update(*inputs[:2], valid)
    without.update(*(x[:1] for x in inputs))
    without.update(*(x[2:] for x in inputs))
    record = with_it.records[1]
    assert record["pixels"] == 0
    assert record["nll"] is None
    a, b = with_it.compute()["set"], without.compute()["set"]
    assert a["nll"] == pytest.approx(b["nll"])
    assert a["image_calibration"] == pytest.approx(b["image_calibration"])
    assert len(om.format_metrics(with_it.compute())) > 10


@pytest.mark.parametrize("task", CASES)
def test_inference_mode_and_gradients_do_not_matter(task, request):
    make, _, _, inputs = suite_case(task, request)
    plain, other = make(), make()
    plain.update(*inputs)
    plain.update(*inputs)
    with torch.inference_mode():
        other.update(*inputs)
    other.update(*inputs)
    assert om.metric_rows(plain.compute()) == om.metric_rows(other.compute())


def test_absent_classes_are_named(generator):
    probs, target = labelled(generator, n=1, c=2)
    more = torch.cat([probs, torch.zeros_like(probs[:, :1])], 1)
    suite = om.SegmentationSuite(["road", "sky", "sign"])
    suite.update(Labels(more), target)
    found = suite.compute()
    assert found["set"]["absent"] == ["sign"]
    assert found["set"]["iou"]["sign"] is None
    assert not any("nan" in cell for row in om.metric_rows(found)[:4] for cell in row[:2])
    assert [row[0] for row in om.metric_rows(found)[:4]] == ["miou", "iou.road", "iou.sky", "ece"]
    assert "absent from truth and prediction, not averaged in: sign" in om.format_metrics(found)


def test_names_must_fit(labels):
    with pytest.raises(ValueError, match="2 names for 4 images"):
        om.SegmentationSuite(5).update(Labels(labels[0]), labels[1], names=["a", "b"])


def test_whole_set_quantile_score(values):
    suite = om.RegressionSuite()
    suite.update(*values)
    found, alone = suite.compute()["set"], om.QuantileCalibration()(*values)
    assert found["set_calibration"] == pytest.approx(alone["score"].item())
    assert found["calibration_curve"]["observed"] == pytest.approx(alone["observed"].tolist())


def test_anomaly_suite(generator):
    probs, _ = labelled(generator, n=6, c=4, h=40, w=40)
    target = torch.zeros(6, 40, 40, dtype=torch.bool)
    target[3:, 8:24, 8:24] = True
    probs = torch.where(target[:, None], 0.6 * probs + 0.4 / 4, probs)
    valid = torch.rand(target.shape, generator=generator) > 0.1
    latent = torch.rand(target.shape, generator=generator)
    prediction = Labels(probs)
    suite = om.AnomalySuite(extra=["latent"], patch=16)
    suite.update(prediction, target, valid, extra={"latent": latent})
    found = suite.compute()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for name, score in {"entropy": prediction.entropy, "latent": latent}.items():
        metric = om.Anomaly()
        metric.update(score, target, valid)
        for key, value in metric.compute().items():
            assert found["set"][name]["pixels"][key] == pytest.approx(value.item(), abs=1e-9)
    # a patch of higher entropy is found by the patch, and images without one have no pixel AUROC
    assert found["set"]["entropy"]["images"]["patch"]["auroc"] == 1.0
    assert found["per_image"][0]["entropy.auroc"] is None
    assert found["per_image"][5]["entropy.auroc"] > 0.6
    mean = prediction.entropy[5][valid[5]].double()
    assert found["per_image"][5]["entropy.mean"] == pytest.approx(mean.mean().item())
    share = (mean <= found["per_image"][5]["entropy.quantile"]).double().mean().item()
    assert share == pytest.approx(0.95, abs=2e-3)
    with pytest.raises(ValueError, match="pass the missing ones"):
        suite.update(prediction, target, valid)


def test_anomaly_suite_of_a_regression(generator):
    prediction, _ = measured(generator, n=2, c=3)

    class Split(Normal):
        epistemic = prediction.variance / 4
        aleatoric = 3 * prediction.variance / 4

    target = prediction.variance.mean(1) > 0.5
    suite = om.AnomalySuite(om.REGRESSION_SCORES)
    suite.update(Split(prediction.mean, prediction.std), target)
    assert suite.compute()["set"]["variance"]["pixels"]["auroc"] == pytest.approx(1.0, abs=1e-3)


def test_largest_patch_against_pooling(generator):
    score = torch.rand(33, 50, generator=generator)
    everywhere = torch.ones(33, 50, dtype=torch.bool)
    expected = avg_pool2d(score[None], 8, 4).max()
    assert largest_patch(score, everywhere, 8).item() == pytest.approx(expected.item())
    # a bright corner that is not valid is not seen; NaN there does no harm
    score[:8, :8] = torch.nan
    mask = everywhere.clone()
    mask[:8, :8] = False
    assert 0.5 < largest_patch(score, mask, 8).item() < 1
    assert largest_patch(score, ~everywhere, 8).isnan()
    assert largest_patch(score[10:12], mask[10:12], 8).isfinite()


def test_json_of_odd_numbers():
    found = as_json({"a": torch.tensor([1.0, float("nan")]), "b": (float("inf"), True), "c": 3})
    assert found == {"a": [1.0, None], "b": ["inf", True], "c": 3}
