"""Metrics as text."""

import pytest
from metric_fakes import Labels, labelled

from onesigma import metrics as om


@pytest.fixture
def one_image(generator):
    probs, target = labelled(generator, n=1, c=3, h=8, w=9)
    suite = om.SegmentationSuite(["a", "b", "c"])
    suite.update(Labels(probs), target, target >= 0, ["only"])
    return suite.compute()


def test_one_image_has_no_interval(one_image) -> None:
    lines = om.format_metrics(one_image)
    assert any(line.startswith("1 image, ") for line in lines)
    both = om.format_comparison({"one": one_image, "two": one_image})
    assert any(line.startswith("nll") for line in both)
    assert not any("nan" in line for line in (*lines, *both))
