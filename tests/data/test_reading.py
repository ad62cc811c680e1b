"""Files of every kind, and errors that name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.data.reading import (
    check_pair,
    nearest,
    read_depth,
    read_image,
    read_labels,
    void_labels,
)

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
GREY = RGB[..., 0]


def saved(path: Path, picture: Image.Image, **options: object) -> Path:
    picture.save(path, **options)
    return path


def test_rgb_is_read_exactly(tmp_path: Path) -> None:
    image = read_image(saved(tmp_path / "a.png", Image.fromarray(RGB)))
    np.testing.assert_allclose(image.numpy(), RGB.transpose(2, 0, 1) / 255, atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_other_modes_become_rgb_in_the_unit_range(tmp_path: Path, mode: str) -> None:
    suffix = "tif" if mode == "CMYK" else "png"
    picture = Image.fromarray(RGB).convert(mode)
    image = read_image(saved(tmp_path / f"a.{suffix}", picture))
    assert image.shape == (3, 6, 8)
    wanted = np.asarray(picture.convert("RGB")).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(image.numpy(), wanted, atol=1e-6)


def test_sixteen_bits_keep_their_precision(tmp_path: Path) -> None:
    deep = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1000
    image = read_image(saved(tmp_path / "a.png", Image.fromarray(deep)))
    np.testing.assert_allclose(image.numpy(), np.stack([deep / 65535] * 3), atol=1e-6)
    assert read_image(tmp_path / "a.png", (3, 4)).shape == (3, 3, 4)


def test_float_images_beyond_one_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tif", Image.fromarray(np.full((4, 4), 7.0, np.float32)))
    with pytest.raises(ValueError, match=r"a\.tif .*\[0, 1\]"):
        read_image(path)


def test_orientation_in_exif_is_followed(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned = saved(tmp_path / "a.png", Image.fromarray(RGB), exif=exif)
    assert read_image(turned).shape == (3, 8, 6)
    wanted = np.rot90(RGB, -1).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(read_image(turned).numpy(), wanted, atol=1e-6)
    upright = saved(tmp_path / "b.png", Image.fromarray(np.rot90(GREY, -1).copy()))
    check_pair(turned, upright)


def test_images_are_resized_with_antialiasing_and_targets_by_the_nearest(tmp_path: Path) -> None:
    stripes = np.zeros((8, 8), np.uint8)
    stripes[:, ::2] = 200
    path = saved(tmp_path / "a.png", Image.fromarray(stripes))
    image = read_image(path, (4, 4))
    # a subsampling would give 0 or 200/255 only
    assert ((image > 0.2) & (image < 0.6)).all()
    assert set(read_labels(path, (4, 4)).unique().tolist()) <= {0, 200}


def test_nearest_is_the_slow_loop() -> None:
    values = np.random.default_rng(0).random((5, 7))
    small = nearest(values, (3, 11))
    for i in range(3):
        for j in range(11):
            assert small[i, j] == values[int((i + 0.5) * 5 / 3), int((j + 0.5) * 7 / 11)]
    assert nearest(values, None) is not None
    assert np.array_equal(nearest(values, (5, 7)), values)


@pytest.mark.parametrize("mode", ["L", "P"])
def test_labels_are_the_numbers_in_the_file(tmp_path: Path, mode: str) -> None:
    picture = Image.fromarray(GREY % 12)
    if mode == "P":
        picture.putpalette([255 - i // 3 for i in range(768)])
    labels = read_labels(saved(tmp_path / "a.png", picture))
    assert labels.dtype == torch.int64
    np.testing.assert_array_equal(labels.numpy(), GREY % 12)


def test_labels_in_colour_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.png holds RGB .*one channel"):
        read_labels(saved(tmp_path / "a.png", Image.fromarray(RGB)))


def test_depth_in_millimetres_becomes_metres_and_zero_is_missing(tmp_path: Path) -> None:
    stored = np.array([[0, 1500], [65535, 10]], np.uint16)
    depth = read_depth(saved(tmp_path / "a.png", Image.fromarray(stored)), 0.001)
    assert depth.shape == (1, 2, 2)
    assert depth.dtype == torch.float32
    np.testing.assert_allclose(depth[0].numpy(), [[np.nan, 1.5], [65.535, 0.01]], rtol=1e-6)


@pytest.mark.parametrize("kind", ["npy", "npy3", "tiff"])
def test_float_depth_keeps_its_values(tmp_path: Path, kind: str) -> None:
    stored = np.array([[np.nan, 2.5, -1.0], [np.inf, 0.0, 1e-3]], np.float32)
    path = tmp_path / f"a.{kind[:3] if kind != 'tiff' else kind}"
    if kind == "tiff":
        Image.fromarray(stored).save(path)
    else:
        np.save(path, stored[..., None] if kind == "npy3" else stored)
    wanted = [[np.nan, 5.0, np.nan], [np.nan, np.nan, 2e-3]]
    np.testing.assert_allclose(read_depth(path, 2.0)[0].numpy(), wanted, rtol=1e-6)


def test_depth_that_is_no_picture_of_depth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.png holds RGB"):
        read_depth(saved(tmp_path / "a.png", Image.fromarray(RGB)))
    np.save(tmp_path / "b.npy", np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match=r"b\.npy .*\(2, 3, 4\)"):
        read_depth(tmp_path / "b.npy")
    np.save(tmp_path / "c.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"c\.npy cannot be read"):
        read_depth(tmp_path / "c.npy")


@pytest.mark.parametrize("content", [b"", b"no image at all", b"\x89PNG\r\n\x1a\nbroken"])
def test_unreadable_images_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(content)
    for read in (read_image, read_labels, read_depth):
        with pytest.raises(ValueError, match=r"broken\.png cannot be read as an image"):
            read(path)


def test_truncated_images_are_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    path = saved(tmp_path / "cut.jpg", Image.fromarray(noise))
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(ValueError, match=r"cut\.jpg cannot be read"):
        read_image(path)


def test_a_png_cut_anywhere_is_named_also_where_sizes_are_compared(tmp_path: Path) -> None:
    path = saved(tmp_path / "cut.png", Image.fromarray(RGB))
    whole = path.read_bytes()
    for end in range(len(whole) - 20):
        path.write_bytes(whole[:end])
        for read in (read_image, lambda cut: check_pair(cut, cut)):
            with pytest.raises(ValueError, match=r"^[^ ]*cut\.png cannot be read[^/]*$"):
                read(path)


@pytest.mark.parametrize("suffix", ["npy", "NPY"])
def test_labels_and_depth_in_arrays(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    with path.open("wb") as file:
        np.save(file, GREY.astype(np.int32) % 12)
    np.testing.assert_array_equal(read_labels(path).numpy(), GREY % 12)
    assert read_depth(path).nan_to_num().max() == (GREY % 12).max()
    check_pair(path, path)
    np.save(tmp_path / "b.npy", np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"b\.npy holds float64 .*whole numbers"):
        read_labels(tmp_path / "b.npy")


@pytest.mark.parametrize("name", ["gone.png", "gone.npy"])
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        read_depth(tmp_path / name)


def test_size_mismatch_names_both_files(tmp_path: Path) -> None:
    image = saved(tmp_path / "a.png", Image.fromarray(RGB))
    target = saved(tmp_path / "b.png", Image.fromarray(GREY[:5]))
    with pytest.raises(ValueError, match=r"a\.png is 6x8 .*b\.png is 5x8"):
        check_pair(image, target)
    np.save(tmp_path / "c.npy", np.zeros((6, 9)))
    with pytest.raises(ValueError, match=r"c\.npy is 6x9"):
        check_pair(image, tmp_path / "c.npy")


def test_labels_out_of_range_name_file_and_place() -> None:
    labels = torch.tensor([[0, 1, 2], [3, 9, 255]])
    with pytest.raises(ValueError, match=r"x\.png has the label 9 at row 1, column 1.*0 to 3.*255"):
        void_labels(labels, 4, (255,), Path("x.png"))
    assert void_labels(labels, 10, (3, 255), Path("x")).tolist() == [[0, 1, 2], [-1, 9, -1]]
    with pytest.raises(ValueError, match="not used"):
        void_labels(labels, 10, (), Path("x"))
