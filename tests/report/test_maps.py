from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.covariance import MarginalCovariance
from onesigma.data.base import DEPTH
from onesigma.field import GaussianField
from onesigma.likelihoods.boltzmann import Boltzmann
from onesigma.likelihoods.laplace import Laplace
from onesigma.prediction.categorical import CategoricalPrediction
from onesigma.prediction.regression import RegressionPrediction
from onesigma.report.figures import Panel, save_map, save_overview
from onesigma.report.maps import map_arrays, panels, save_maps
from onesigma.report.scales import WRONG_PALETTE, label_scales, scales_for

H, W = 24, 32


def categorical(images: int = 1, generator: torch.Generator | None = None) -> CategoricalPrediction:
    mean = 2 * torch.randn(images, 3, H, W, generator=generator)
    return Boltzmann(scale="none").predict(GaussianField(mean, MarginalCovariance(mean.exp())))


def depth(images: int = 1, generator: torch.Generator | None = None) -> RegressionPrediction:
    mean = 5 + torch.rand(images, 1, H, W, generator=generator)
    field = GaussianField(mean, MarginalCovariance(torch.full_like(mean, 9.0)))
    return Laplace().predict(field, torch.full_like(mean, 0.5).log())


def test_arrays_of_labels(generator: torch.Generator) -> None:
    prediction = categorical(1, generator)
    arrays = map_arrays(prediction)
    probs = arrays["probs"].astype(np.float64)
    assert probs.shape == (3, H, W)
    np.testing.assert_array_equal(arrays["prediction"], probs.argmax(0))
    entropy = -(probs * np.log(probs)).sum(0)
    np.testing.assert_allclose(arrays["total"], entropy, atol=1e-5)
    np.testing.assert_allclose(arrays["epistemic"] + arrays["aleatoric"], entropy, atol=1e-4)


def test_arrays_of_depth_are_standard_deviations() -> None:
    arrays = map_arrays(depth())
    np.testing.assert_allclose(arrays["epistemic"], 3.0, rtol=1e-5)
    np.testing.assert_allclose(arrays["aleatoric"], 0.5 * 2**0.5, rtol=1e-5)  # Laplace: 2σ²
    np.testing.assert_allclose(arrays["total"], (9 + 0.5) ** 0.5, rtol=1e-5)
    np.testing.assert_array_equal(arrays["median"], arrays["prediction"])  # an even law


@pytest.mark.parametrize("task", ["segmentation", "depth"])
def test_files(task: str, tmp_path: Path, generator: torch.Generator) -> None:
    prediction = categorical(1, generator) if task == "segmentation" else depth(1, generator)
    classes = label_scales(["a", "b", "c"])
    scales = classes if task == "segmentation" else scales_for(DEPTH, 80.0)
    paths = save_maps(prediction, "street", tmp_path / "new", scales)
    kinds = ("prediction", "total", "epistemic", "aleatoric")
    wanted = [*(f"street_{kind}.png" for kind in kinds), "street.npz"]
    assert [path.name for path in paths] == wanted
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(wanted)
    with np.load(paths[-1]) as stored:
        for kind, array in map_arrays(prediction).items():
            np.testing.assert_array_equal(stored[kind], array)


def test_a_map_is_drawn_pixel_by_pixel_above_its_scale(tmp_path: Path) -> None:
    scales = scales_for(DEPTH, 80.0)
    pixels = scales.epistemic.pixels(np.random.default_rng(0).uniform(0, 30, (H, W)))
    save_map(tmp_path / "map.png", pixels, "title", scales.epistemic)
    drawn = np.asarray(Image.open(tmp_path / "map.png").convert("RGB"))
    zoom = 18  # 560 pixels or more
    inner = drawn[36 : 36 + H * zoom, 14 : 14 + W * zoom]
    np.testing.assert_array_equal(inner, pixels.repeat(zoom, 0).repeat(zoom, 1))
    below = drawn[36 + H * zoom :]
    ends = scales.epistemic.map([0.0, 1.0], bytes=True)[:, :3].astype(int)
    for end in ends:  # both ends of the colour bar are in the picture
        assert (np.abs(below.astype(int) - end).max(-1) <= 4).any()
    assert (below < 60).all(-1).sum() > 50  # numbers in ink


def test_large_maps_keep_their_pixels_and_get_larger_text(tmp_path: Path) -> None:
    scale = scales_for(DEPTH, 80.0).total
    save_map(tmp_path / "map.png", np.zeros((300, 1800, 3), np.uint8), "title", scale)
    with Image.open(tmp_path / "map.png") as drawn:
        assert drawn.width == pytest.approx(1800 + 2 * 14 * 2, abs=1)


def test_panels_of_one_image(generator: torch.Generator) -> None:
    prediction, image = categorical(1, generator), torch.rand(3, H, W, generator=generator)
    truth = prediction.label[0].clone()
    truth[0] = (truth[0] + 1) % 3
    truth[1] = -1
    shown = panels(prediction, image, label_scales(["a", "b", "c"]), truth)
    titles = [panel.title for panel in shown]
    assert titles == ["image", "truth", "prediction", "epistemic", "aleatoric", "error"]
    expected = np.round(image.numpy() * 255).transpose(1, 2, 0)
    assert np.abs(shown[0].pixels - expected).max() <= 1
    error = shown[-1].pixels
    right, wrong = WRONG_PALETTE
    assert (error[0] == wrong).all()
    assert (error[2:] == right).all()
    assert not (error[1] == right).all(-1).any()


def test_without_truth_there_is_no_error(generator: torch.Generator) -> None:
    shown = panels(depth(1, generator), torch.rand(3, H, W), scales_for(DEPTH, 80.0))
    assert [p.title for p in shown] == ["image", "prediction", "epistemic", "aleatoric"]
    more = panels(depth(1, generator), torch.rand(3, H, W), scales_for(DEPTH, 80.0), total=True)
    assert [p.title for p in more] == ["image", "prediction", "total", "epistemic", "aleatoric"]


def test_error_of_depth_has_the_colours_of_the_deviations() -> None:
    prediction, scales = depth(), scales_for(DEPTH, 80.0)
    truth = prediction.mean[0] + 2.0
    truth[0, 0, 0] = torch.nan
    error = panels(prediction, torch.rand(3, H, W), scales, truth)[-1].pixels
    two = scales.total.pixels(np.full((1, 1), 2.0))[0, 0].astype(int)
    assert np.abs(error[1:].astype(int) - two).max() <= 1
    assert len(set(error[0, 0].tolist())) == 1  # hatched


def test_overview_holds_all_pictures(tmp_path: Path) -> None:
    scales = scales_for(DEPTH, 80.0)
    colours = [(10, 200, 30), (200, 10, 30), (30, 10, 200)]
    pictures = [
        Panel(f"picture {i}", np.full((H, W, 3), colour, np.uint8), scales.total if i else None)
        for i, colour in enumerate(colours)
    ]
    save_overview(tmp_path / "all.png", pictures, "name")
    drawn = np.asarray(Image.open(tmp_path / "all.png").convert("RGB"))
    columns = [np.nonzero((drawn == colour).all(-1).any(0))[0] for colour in colours]
    assert all(len(c) == pytest.approx(280, abs=2) for c in columns)
    assert columns[0].max() < columns[1].min() < columns[1].max() < columns[2].min()


def test_several_images_or_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match="one image"):
        map_arrays(categorical(2))
    mean = torch.rand(1, 2, H, W)
    two = Laplace().predict(GaussianField(mean, MarginalCovariance(mean)), mean)
    with pytest.raises(ValueError, match="one output"):
        map_arrays(two)
