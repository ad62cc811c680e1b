"""Tiles against the whole image, spans against a slow count, memory against a count by hand."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from onesigma.covariance import MarginalCovariance
from onesigma.field import GaussianField
from onesigma.heads import HeadOptions
from onesigma.networks import UNet
from onesigma.posterior import VariationalGP
from onesigma.tiling import bytes_per_pixel, predict_tiled, tile_spans


class Probe:
    """Remembers how many pixels each call of a model saw."""

    def __init__(self, model: VariationalGP) -> None:
        self.model, self.pixels = model.eval(), []

    def __call__(self, images: Tensor) -> tuple[GaussianField, Tensor]:
        self.pixels.append(len(images) * images.shape[2] * images.shape[3])
        return self.model.marginals(images)


def convolutional(radius: int, outputs: int = 3) -> Probe:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.Tanh()]
    for _ in range(radius - 1):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.Tanh()]
    options = HeadOptions(scale_position=True)
    model = VariationalGP(nn.Sequential(*layers).double(), outputs, 2, options=options).double()
    assert model.heads.scale_position is not None
    nn.init.normal_(model.heads.scale_position.slopes)
    return Probe(model)


def unet() -> Probe:
    torch.manual_seed(0)
    options = HeadOptions(scale="shared", shared_factors=False, variance=0.25)
    model = VariationalGP(UNet((8, 16, 16)), 2, rank=2, options=options)
    for head in (model.heads.factor, model.heads.log_diagonal, model.heads.log_scale):
        head.weight.data.mul_(10)  # what depends on the image is to show
    model(torch.rand(4, 3, 32, 32))
    return Probe(model)


def maps(field: GaussianField, log_scale: Tensor) -> dict[str, Tensor]:
    return {"mean": field.mean, "variance": field.covariance.variance, "log_scale": log_scale}


@pytest.mark.parametrize("size", [(96, 160), (101, 77), (40, 200), (64, 65), (5, 7)])
@pytest.mark.parametrize("radius", [3, 6])
def test_exact_where_the_network_looks_no_further_than_three_eighths_of_the_overlap(
    size: tuple[int, int], radius: int, generator: torch.Generator
) -> None:
    probe = convolutional(radius)
    images = torch.rand(2, 3, *size, generator=generator, dtype=torch.float64)
    whole = maps(*probe.model.marginals(images))
    tiled = maps(*predict_tiled(probe, images, tile=(48, 64), overlap=16, stride=1))
    for name, value in whole.items():
        torch.testing.assert_close(tiled[name], value, rtol=1e-12, atol=1e-12)
    assert max(probe.pixels) <= 48 * 64


def test_a_network_that_looks_further_is_not_exact() -> None:
    probe = convolutional(9)
    images = torch.rand(1, 3, 96, 96, dtype=torch.float64)
    whole = probe.model.marginals(images)[0].mean
    tiled = predict_tiled(probe, images, tile=(48, 48), overlap=8, stride=1)[0].mean
    assert (tiled - whole).abs().max() > 1e-6


def test_pooling_falls_on_the_same_pixels(generator: torch.Generator) -> None:
    probe = unet()
    images = torch.rand(1, 3, 103, 230, generator=generator)
    whole = maps(*probe.model.marginals(images))
    tiled = maps(*predict_tiled(probe, images, tile=(256, 136), overlap=64, stride=8))
    for name, value in whole.items():
        torch.testing.assert_close(tiled[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("overlap", "largest", "typical"), [(16, 2.0, 0.08), (32, 0.35, 0.01), (64, 1e-4, 1e-5)]
)
def test_seam_error_falls_with_the_overlap(
    overlap: int, largest: float, typical: float, generator: torch.Generator
) -> None:
    """Largest and root-mean-square error of all pixels, in standard deviations of the map.

    White noise through a random network that looks 23 pixels far is a hard case: measured 1.54 and
    0.060 for an overlap of 16, 0.26 and 0.0075 for 32, 1e-6 for 64.
    """
    probe = unet()
    images = torch.rand(1, 3, 256, 384, generator=generator)
    with torch.no_grad():
        whole = maps(*probe.model.marginals(images))
    tiled = maps(*predict_tiled(probe, images, tile=(128, 128), overlap=overlap, stride=4))
    for name, value in whole.items():
        error = (tiled[name] - value).abs() / value.std()
        assert error.max() < largest, name
        assert error.square().mean().sqrt() < typical, name


def test_tiles_that_disagree_meet_in_a_linear_ramp() -> None:
    def brightness(images: Tensor) -> tuple[GaussianField, Tensor]:
        everywhere = images.mean((1, 2, 3), keepdim=True).expand_as(images[:, :1])
        return GaussianField(everywhere, MarginalCovariance(everywhere + 1)), everywhere

    images = torch.zeros(1, 3, 64, 192)
    images[..., 128:] = 1.0  # tiles 0 to 128 and 64 to 192: 0 and ½
    field, log_scale = predict_tiled(brightness, images, tile=(64, 128), overlap=64, stride=32)
    centre = torch.arange(192) + 0.5
    expected = 0.5 * ((centre - 96) / 16 + 0.5).clamp(0, 1)  # 16 = 64/4 pixels wide
    for blended in (field.mean, field.variance - 1, log_scale):
        torch.testing.assert_close(blended, expected.expand(1, 1, 64, 192))


@pytest.mark.parametrize("length", [7, 32, 41, 96, 103, 136, 201])
@pytest.mark.parametrize(("tile", "overlap"), [(32, 8), (48, 24), (64, 5), (40, 0)])
def test_spans_cover_and_overlap(length: int, tile: int, overlap: int) -> None:
    spans = tile_spans(length, tile, overlap, stride=8)
    covered = [sum(start <= x < end for start, end in spans) for x in range(length)]
    assert min(covered) >= 1
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    assert all(start % 8 == 0 and end - start <= tile for start, end in spans)
    assert all(a[1] - b[0] >= overlap and a[0] < b[0] for a, b in pairwise(spans))


def test_constants_stay_constant() -> None:
    """The weights sum to 1 everywhere, also where three tiles meet."""

    def marginals(images: Tensor) -> tuple[GaussianField, Tensor]:
        one = torch.ones_like(images[:, :1])
        return GaussianField(2 * one, MarginalCovariance(3 * one)), -one

    images = torch.rand(1, 3, 104, 72)
    field, log_scale = predict_tiled(marginals, images, tile=(32, 32), overlap=16, stride=8)
    torch.testing.assert_close(field.mean, torch.full_like(field.mean, 2.0))
    torch.testing.assert_close(field.variance, torch.full_like(field.mean, 3.0))
    torch.testing.assert_close(log_scale, torch.full_like(field.mean, -1.0))


def test_bytes_per_pixel_counts_what_is_alive() -> None:
    narrow, wide, out = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 20, 1), nn.Conv2d(20, 1, 1)

    def marginals(images: Tensor) -> tuple[GaussianField, Tensor]:
        mean = out(wide(narrow(images)).relu_())
        return GaussianField(mean, MarginalCovariance(mean.exp())), mean

    # 8 channels in, 20 out, are the most that live together
    assert bytes_per_pixel(marginals, torch.rand(2, 3, 16, 24)) == 4 * (8 + 20)


@pytest.mark.parametrize("size", [(320, 512), (64, 1000), (600, 100)])
def test_memory_limit_bounds_the_pixels_of_a_call(size: tuple[int, int]) -> None:
    probe = convolutional(2)
    images = torch.rand(2, 3, *size, dtype=torch.float64)
    memory, each = 2.0, 100.0
    predict_tiled(probe, images, overlap=32, memory_mb=memory, bytes_per_pixel=each)
    assert max(probe.pixels) <= memory * 2**20 / each
    # and the limit is used: 20971 pixels hold tiles of at least 128 × 128 or 64 × 320
    assert max(probe.pixels) >= 16384


def test_memory_is_measured_when_not_told() -> None:
    probe = convolutional(2)
    images = torch.rand(1, 3, 512, 640, dtype=torch.float64)
    each = bytes_per_pixel(probe, images[..., :64, :64])
    probe.pixels.clear()
    predict_tiled(probe, images, overlap=32, memory_mb=10.0)
    limit = 10 * 2**20 / each
    assert 0.5 * limit < max(probe.pixels) <= limit


def test_an_image_that_fits_is_one_call() -> None:
    probe = convolutional(2)
    predict_tiled(probe, torch.rand(1, 3, 160, 160, dtype=torch.float64), memory_mb=4096.0)
    assert len(probe.pixels) == 2  # one of them measures
    assert probe.pixels[-1] == 160 * 160


def test_an_image_that_fits_is_as_without_tiles() -> None:
    probe = unet()
    images = torch.rand(1, 3, 75, 131)
    whole = maps(*probe.model.marginals(images))
    tiled = maps(*predict_tiled(probe, images, tile=(96, 160)))
    for name, value in whole.items():
        torch.testing.assert_close(tiled[name], value, rtol=0, atol=0)


@pytest.mark.parametrize("size", [(3, 5), (37, 150)])
def test_networks_that_want_multiples_get_them(size: tuple[int, int]) -> None:
    def picky(images: Tensor) -> tuple[GaussianField, Tensor]:
        assert images.shape[2] % 16 == images.shape[3] % 16 == 0
        first = images[:, :1]
        return GaussianField(first, MarginalCovariance(first + 1)), -first

    images = torch.rand(2, 3, *size)
    field, log_scale = predict_tiled(
        picky, images, tile=(64, 64), overlap=16, stride=32, multiple=16
    )
    torch.testing.assert_close(field.mean, images[:, :1])
    torch.testing.assert_close(log_scale, -images[:, :1])


def test_too_little_memory_says_how_much() -> None:
    probe = convolutional(2)
    images = torch.rand(1, 3, 512, 512, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"Allow at least 2 MB"):
        predict_tiled(probe, images, memory_mb=0.5, bytes_per_pixel=100.0)
    needed = math.ceil(128 * 128 * 100 / 2**20)
    predict_tiled(probe, images, memory_mb=float(needed), bytes_per_pixel=100.0)


@pytest.mark.parametrize(("tile", "overlap"), [((50, 64), 16), ((64, 64), 40)])
def test_tiles_that_cannot_work_are_refused(tile: tuple[int, int], overlap: int) -> None:
    with pytest.raises(ValueError, match="multiples of the stride"):
        predict_tiled(convolutional(1), torch.rand(1, 3, 256, 256).double(), tile, overlap)


@pytest.mark.usefixtures("as_users_call")
def test_what_cannot_be_tiled_is_explained() -> None:
    model, image = nn.Conv2d(3, 1, 1), torch.rand(1, 3, 64, 64)
    for arguments, said in {
        (image[0], (32, 32)): "image\\[None\\]",
        (image, 96): r"tile=96; it wants rows and columns",
        (image, (32, 32)): "a Conv2d in training mode",
    }.items():
        with pytest.raises(ValueError, match=said):
            predict_tiled(model, *arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a VariationalGP in training mode"):
        predict_tiled(VariationalGP(model, 1).train().marginals, image)
