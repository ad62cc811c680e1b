"""Augmentation moves image and target together and draws from the given generator alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from onesigma.data import Augment

H, W = 12, 16


def coded(n: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    # every pixel says which it is: row and column in the image, both in the label
    row, col = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    image = torch.stack([row / H, col / W, torch.full((H, W), 0.5)])
    return image.expand(n, -1, -1, -1).clone(), (row * W + col).expand(n, -1, -1).clone()


def decode(image: torch.Tensor) -> torch.Tensor:
    return (image[:, 0] * H).round().long() * W + (image[:, 1] * W).round().long()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("crop", [None, (7, 9), (12, 16), (1, 1)])
def test_crop_and_flip_keep_pixels_on_their_labels(crop: tuple[int, int] | None) -> None:
    image, target = coded(20)
    cut, labels = Augment(crop=crop, flip=0.5)(image, target, seeded())
    assert cut.shape[-2:] == labels.shape[-2:] == (crop or (H, W))
    assert torch.equal(decode(cut), labels)
    if crop == (7, 9):
        assert len(labels[:, 0].unique(dim=0)) > 5


def test_all_places_are_cut_and_half_are_mirrored() -> None:
    image, target = coded(400)
    _, labels = Augment(crop=(11, 15))(image, target, seeded())
    mirrored = labels[:, 0, 0] > labels[:, 0, -1]
    corner = torch.where(mirrored, labels[:, 0, -1], labels[:, 0, 0])
    assert set(corner.tolist()) == {0, 1, W, W + 1}
    assert abs(mirrored.float().mean() - 0.5) < 4 * 0.5 / 400**0.5


def test_flips_are_all_or_none_at_the_extremes() -> None:
    image, target = coded()
    for flip, wanted in ((0.0, image), (1.0, image.flip(-1))):
        cut, labels = Augment(flip=flip)(image, target, seeded())
        assert torch.equal(cut, wanted)
        assert torch.equal(decode(cut), labels)


def test_a_zoom_never_mixes_labels() -> None:
    image, target = coded(30)
    cut, labels = Augment(scale=(0.5, 2.0))(image, target, seeded())
    valid = labels >= 0
    assert set(labels.unique().tolist()) <= {-1, *range(H * W)}
    # the label is the pixel that holds the interpolated place: within a pixel, plus the border
    row, col = labels // W, labels % W
    inner = valid & (row > 0) & (row < H - 1) & (col > 0) & (col < W - 1)
    assert inner.sum() > 1000
    assert (cut[:, 0] * H - row)[inner].abs().max() <= 0.5 + 1e-3
    assert (cut[:, 1] * W - col)[inner].abs().max() <= 0.5 + 1e-3
    assert (~valid).any()


@pytest.mark.parametrize("zoom", [0.4, 1.0, 1.7])
def test_a_zoom_resizes_as_evaluation_does(zoom: float) -> None:
    g = torch.Generator().manual_seed(0)
    image, target = torch.rand(2, 3, 30, 40, generator=g), torch.zeros(2, 30, 40, dtype=torch.int64)
    size = round(30 * zoom), round(40 * zoom)
    seen, _ = Augment(crop=size, flip=0.0, scale=(zoom, zoom))(image, target, g)
    wanted = functional.interpolate(image, size, mode="bilinear", antialias=True)
    torch.testing.assert_close(seen, wanted)
    if zoom < 1:
        # white noise seen smaller is smoother
        assert float(seen.std()) < 0.7 * float(image.std())


def test_depth_is_divided_by_the_zoom() -> None:
    image = torch.full((1, 3, H, W), 0.5)
    depth = torch.full((1, 1, H, W), 8.0)
    depth[..., 0, 0] = torch.nan
    _, near = Augment(scale=(2.0, 2.0), flip=0.0)(image, depth, seeded())
    assert near[near.isfinite()].unique().tolist() == [4.0]
    _, same = Augment(crop=(5, 5), flip=0.0)(image, depth, seeded())
    assert same[same.isfinite()].unique().tolist() == [8.0]
    # predicted at half of the size: seen whole it is as far as it is, at its own size it is near
    for zoom, metres in ((0.5, 8.0), (1.0, 4.0)):
        augment = Augment(crop=(H // 2, W // 2), flip=0.0, scale=(zoom, zoom), true_zoom=0.5)
        _, seen = augment(image, depth, seeded())
        assert seen[seen.isfinite()].unique().tolist() == [metres]


def test_beyond_the_image_is_void() -> None:
    image, target = coded(8)
    depth = torch.ones(8, 1, H, W)
    for values, empty in ((target, lambda t: t == -1), (depth, torch.isnan)):
        cut, out = Augment(crop=(H + 3, W + 5))(image, values, seeded())
        assert out.shape[-2:] == (H + 3, W + 5)
        assert (empty(out).flatten(1).sum(1) == (H + 3) * (W + 5) - H * W).all()
        outside = empty(out) if out.ndim == 3 else empty(out)[:, 0]
        assert cut.movedim(1, -1)[outside].abs().max() < 1e-4


def test_colours_change_within_their_bounds_and_labels_do_not() -> None:
    image, target = coded(50)
    image = image * 0.4 + 0.2
    bright, labels = Augment(flip=0.0, brightness=0.3)(image, target, seeded())
    factor = (bright / image).flatten(1)
    assert (factor.amax(1) - factor.amin(1)).max() < 1e-4
    assert 0.7 <= factor.min() < 0.8
    assert 1.2 < factor.max() <= 1.3
    assert torch.equal(labels, target)


@pytest.mark.parametrize("name", ["contrast", "saturation", "hue"])
def test_every_colour_change_changes_and_stays_in_range(name: str) -> None:
    image, target = coded(8)
    image[:, 2] = 0.1
    changed, labels = Augment(flip=0.0, **{name: 0.4})(image, target, seeded())
    assert ((changed - image).abs().flatten(1).amax(1) > 0.01).sum() >= 6
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert torch.equal(labels, target)
    grey = image.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    recoloured, _ = Augment(flip=0.0, **{name: 0.4})(grey, target, seeded())
    if name != "contrast":
        # grey has no hue and no saturation
        torch.testing.assert_close(recoloured, grey, atol=1e-4, rtol=0)
    else:
        # the mean grey stays
        torch.testing.assert_close(
            recoloured.mean((1, 2, 3)), grey.mean((1, 2, 3)), atol=0.02, rtol=0
        )


def test_randomness_is_the_generators_alone() -> None:
    image, target = coded()
    augment = Augment((7, 9), 0.5, 0.2, 0.2, 0.2, 0.1, (0.8, 1.25))
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first = augment(image, target, seeded(3))
    assert torch.equal(state, torch.random.get_rng_state())
    torch.manual_seed(1)
    again, other = augment(image, target, seeded(3)), augment(image, target, seeded(4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[1], other[1])


def test_bad_arguments_are_refused() -> None:
    for name in ("flip", "brightness", "hue"):
        with pytest.raises(ValueError, match=f"{name} must be in"):
            Augment(**{name: 1.5})
    with pytest.raises(ValueError, match="scale is"):
        Augment(scale=(2.0, 1.0))
    with pytest.raises(ValueError, match="true_zoom must be above 0, got 0"):
        Augment(true_zoom=0.0)
    image, target = coded()
    with pytest.raises(ValueError, match="do not belong"):
        Augment()(image, target[:, 1:], seeded())
