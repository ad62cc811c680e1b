"""What is no prediction of these targets is refused, not counted."""

import pytest
from metric_fakes import Labels, labelled, measured

from onesigma import metrics as om


@pytest.fixture
def labels(generator):
    return labelled(generator)


@pytest.fixture
def values(generator):
    return measured(generator)


LABEL_METRICS = [om.MeanIoU(5), om.PixelAccuracy(), om.Brier(), om.CalibrationError()]


@pytest.mark.parametrize("metric", LABEL_METRICS, ids=lambda metric: type(metric).__name__)
@pytest.mark.usefixtures("as_users_call")
def test_label_metrics_refuse(metric, labels):
    probs, target = labels
    for bad, said in {
        (probs, target[:, ::2]): "labels have the shape",
        (probs, target[:1]): "labels have the shape",
        (probs[:, :1], target): "one channel for each class",
        (4 * probs.log(), target): r"in \[0, 1\]. Of logits take softmax",
    }.items():
        with pytest.raises(ValueError, match=said):
            metric.update(*bad)
    assert all(not state.any() for state in metric.totals().values())


@pytest.mark.usefixtures("as_users_call")
def test_numbers_of_classes_agree(labels):
    probs, target = labels
    for update in (
        lambda: om.MeanIoU(3).update(probs, target),
        lambda: om.SegmentationSuite(["a", "b", "c"]).update(Labels(probs), target),
    ):
        with pytest.raises(ValueError, match="one channel for each class, 3"):
            update()
    with pytest.raises(ValueError, match="labels have the shape"):
        om.NLL().update(Labels(probs), target[:, ::2])


VALUE_METRICS = [om.NLL(), om.CRPS(), om.IntervalCoverage(), om.QuantileCalibration()]


@pytest.mark.parametrize("metric", VALUE_METRICS, ids=lambda metric: type(metric).__name__)
@pytest.mark.usefixtures("as_users_call")
def test_value_metrics_refuse(metric, values):
    prediction, target = values
    for bad in (target[:, 0], target[:1], target[..., ::2]):
        with pytest.raises(ValueError, match=r"ha(s|ve) the shapes? .*want"):
            metric.update(prediction, bad)
    with pytest.raises(ValueError, match="maps have the shapes"):
        om.DepthErrors().update(prediction.mean[:1], target)
