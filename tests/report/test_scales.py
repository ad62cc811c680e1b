import math

import matplotlib
import numpy as np
import pytest

from onesigma.data.base import DEPTH, TargetSpec
from onesigma.data.classes import STREET_CLASSES, STREET_PALETTE
from onesigma.report.scales import ColourScale, LabelScale, label_scales, scales_for


def test_colours_are_those_of_matplotlib_norms() -> None:
    scale = ColourScale("std", "m", 1.0, 9.0, "viridis", power=0.5)
    values = np.linspace(-2, 12, 91).reshape(7, 13)
    norm = matplotlib.colors.PowerNorm(0.5, 1.0, 9.0, clip=True)
    expected = matplotlib.colormaps["viridis"](norm(values), bytes=True)[..., :3]
    assert np.abs(scale.pixels(values).astype(int) - expected).max() <= 1


def test_the_same_number_has_the_same_colour_in_every_picture() -> None:
    scale = scales_for(DEPTH, high=80.0).epistemic
    alone = scale.pixels(np.full((1, 1), 3.0))
    among = scale.pixels(np.array([[0.0, 3.0, 500.0]]))
    assert (alone[0, 0] == among[0, 1]).all()


def test_infinite_is_the_last_colour_and_missing_is_hatched() -> None:
    scale = ColourScale("std", "m", 0.0, 1.0)
    pixels = scale.pixels(np.array([[1.0, np.inf, np.nan]]))
    assert (pixels[0, 0] == pixels[0, 1]).all()
    assert tuple(pixels[0, 2]) in {(205,) * 3, (238,) * 3}


def test_labels_have_their_colours() -> None:
    scale = LabelScale("class", ("a", "b"), ((1, 2, 3), (40, 50, 60)))
    pixels = scale.pixels(np.array([[0, 1, -1, 2]]))
    assert [tuple(p) for p in pixels[0, :2]] == [(1, 2, 3), (40, 50, 60)]
    assert all(len(set(p.tolist())) == 1 and p[0] > 200 for p in pixels[0, 2:])


@pytest.mark.parametrize("high", [0.3, 2.398, 10.0, 80.0, 1230.0])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_ticks_stand_where_their_numbers_are(high: float, power: float) -> None:
    scale = ColourScale("x", "", 0.0, high, power=power)
    positions, texts = zip(*scale.ticks(), strict=True)
    assert positions[0] == 0
    assert positions[-1] == 1
    for position, text in zip(positions, texts, strict=True):
        assert (float(text) / high) ** power == pytest.approx(position, abs=2e-3)
    assert min(np.diff(positions)) >= 0.13  # numbers do not run into each other


def test_uncertainties_of_labels_share_the_range_of_all_entropies() -> None:
    scales = scales_for(TargetSpec("segmentation", STREET_CLASSES, STREET_PALETTE))
    for scale in (scales.total, scales.epistemic, scales.aleatoric):
        assert (scale.low, scale.high, scale.unit) == (0.0, math.log(11), "nats")
        assert not scale.open_end


def test_uncertainties_of_depth_share_a_range_that_says_or_more() -> None:
    scales = scales_for(DEPTH, high=80.0, std=10.0)
    for scale in (scales.total, scales.epistemic, scales.aleatoric, scales.error):
        assert (scale.low, scale.high, scale.unit) == (0.0, 10.0, "m")
        assert scale.ticks()[-1][1] == "≥ 10"


def test_classes_without_colours_get_some() -> None:
    scale = label_scales(["a", "b", "c"]).prediction
    assert isinstance(scale, LabelScale)
    assert len(set(scale.palette)) == 3


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="low < high"):
        ColourScale("depth", "m", 5.0, 5.0)
