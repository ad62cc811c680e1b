"""Images, labels and depth from files; every error names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from onesigma.data.classes import VOID

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
Size = tuple[int, int]


def read_image(path: Path, size: Size | None = None) -> Float[Tensor, "3 h w"]:
    """RGB in [0, 1] from any kind of image: grey, palette, alpha (dropped), 16 bits.

    Args:
        path: the file.
        size: rows and columns to resize to, antialiased; None for the image's own.
    """
    return read_picture(_open(path), path, size)


def read_picture(
    picture: Image.Image, name: Path | str, size: Size | None = None
) -> Float[Tensor, "3 h w"]:
    """The same from a picture that is open and upright.

    Args:
        picture: of any kind.
        name: of it, for the error.
        size: rows and columns to resize to, antialiased; None for the picture's own.
    """
    if picture.mode == "F" or picture.mode.startswith("I"):
        return _deep_grey(picture, name, size)
    picture = picture.convert("RGB")
    if size is not None:
        picture = picture.resize(size[::-1], Image.Resampling.BILINEAR)
    pixels = np.array(picture, np.float32) / 255
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def read_labels(path: Path, size: Size | None = None) -> Int[Tensor, "h w"]:
    """Labels from an image with one channel or an array (.npy), as the numbers in the file.

    Args:
        path: the file.
        size: rows and columns to resize to, by the nearest pixel; None for the file's own.
    """
    if _is_array(path):
        values = _load_array(path)
        if values.dtype.kind not in "iu":
            raise ValueError(
                f"{path} holds {values.dtype} values; labels want whole numbers, one per class."
            )
        return torch.from_numpy(nearest(values.astype(np.int64), size))
    picture = _open(path)
    if len(picture.getbands()) != 1 or picture.mode == "F":
        raise ValueError(
            f"{path} holds {picture.mode} pixels; labels want one channel of whole numbers "
            '(mode "L" or "P"), one number per class. Convert colours to class numbers first.'
        )
    return torch.from_numpy(nearest(np.asarray(picture).astype(np.int64), size))


def read_depth(path: Path, scale: float = 1.0, size: Size | None = None) -> Float[Tensor, "1 h w"]:
    """Depth from a 16-bit PNG, a float TIFF or an array (.npy); NaN where it is 0 or not finite.

    Args:
        path: the file.
        scale: unit of the target per unit of the file: 0.001 for millimetres to metres.
        size: rows and columns to resize to, by the nearest pixel; None for the file's own.
    """
    values = _load_array(path) if _is_array(path) else _depth_picture(path)
    depth = nearest(values.astype(np.float32) * np.float32(scale), size)
    depth = np.where(np.isfinite(depth) & (depth > 0), depth, np.float32(np.nan))
    return torch.from_numpy(depth[None])


def nearest(values: NDArray, size: Size | None) -> NDArray:
    """The pixels nearest to those of a grid of another size; no value is made up."""
    if size is None or values.shape == tuple(size):
        return np.ascontiguousarray(values)
    rows, cols = (
        np.minimum(((np.arange(new) + 0.5) * old / new).astype(np.intp), old - 1)
        for old, new in zip(values.shape, size, strict=True)
    )
    return np.ascontiguousarray(values[rows[:, None], cols])


def void_labels(
    labels: Int[Tensor, "h w"], classes: int, void: tuple[int, ...], path: Path
) -> Int[Tensor, "h w"]:
    """The labels with −1 for void; any other number outside [0, classes) is an error.

    Args:
        labels: as they stand in the file.
        classes: how many.
        void: the numbers that mean void.
        path: the file, for the error.
    """
    empty = torch.isin(labels, torch.tensor(void)) if void else torch.zeros_like(labels).bool()
    wrong = ((labels < 0) | (labels >= classes)) & ~empty
    if bool(wrong.any()):
        row, col = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{path} has the label {int(labels[row, col])} at row {row}, column {col}; labels go "
            f"from 0 to {classes - 1}, and void is {' or '.join(map(str, void)) or 'not used'}."
        )
    return torch.where(empty, torch.full_like(labels, VOID), labels)


def check_pair(image: Path, target: Path) -> None:
    """An error that names both files where their sizes differ."""
    sizes = _shape(image), _shape(target)
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"{image} is {sizes[0][0]}x{sizes[0][1]} (rows x columns) but its target {target} is "
            f"{sizes[1][0]}x{sizes[1][1]}; resize one of the files to match the other."
        )


def _shape(path: Path) -> Size:
    if _is_array(path):
        rows, cols = _load_array(path).shape
        return rows, cols
    with _lazily(path) as picture:
        # the orientation in EXIF may swap the axes; PNG keeps it behind the pixels
        with _named(path):
            turned = picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
        return (picture.width, picture.height) if turned else (picture.height, picture.width)


def _check_exists(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; check the path, or the data set's root and lists."
        )


def _lazily(path: Path) -> Image.Image:
    _check_exists(path)
    with _named(path):
        return Image.open(path)


def _open(path: Path) -> Image.Image:
    with _lazily(path) as picture, _named(path):
        return upright(picture)


def upright(picture: Image.Image) -> Image.Image:
    """The picture, turned as its EXIF data say."""
    return ImageOps.exif_transpose(picture)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the decoder, with the name of the file."""
    try:
        yield
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        # some of them name it themselves
        reason = str(error).replace(f" '{path}'", "").rstrip(":")
        raise ValueError(f"{path} cannot be read as an image: {reason}") from error


def _is_array(path: Path) -> bool:
    return path.suffix.lower() == ".npy"


def _deep_grey(picture: Image.Image, path: Path | str, size: Size | None) -> Float[Tensor, "3 h w"]:
    deepest = np.float32(1 if picture.mode == "F" else 65535)
    values: NDArray[np.float32] = np.asarray(picture).astype(np.float32) / deepest
    if not (values.min() >= 0 and values.max() <= 1):
        raise ValueError(
            f"{path} holds {picture.mode} pixels from {values.min():g} to {values.max():g}; deep "
            "images want 16-bit integers or floats in [0, 1]."
        )
    grey = Image.fromarray(values)
    if size is not None:
        grey = grey.resize(size[::-1], Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(grey)).expand(3, -1, -1).contiguous()


def _depth_picture(path: Path) -> NDArray:
    picture = _open(path)
    if len(picture.getbands()) != 1 or picture.mode in ("P", "1"):
        raise ValueError(
            f"{path} holds {picture.mode} pixels; depth wants one channel: a 16-bit PNG, a float "
            "TIFF, or an array in .npy."
        )
    return np.asarray(picture)


def _load_array(path: Path) -> NDArray:
    _check_exists(path)
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an array: {error}") from error
    if values.ndim == 3 and 1 in (values.shape[0], values.shape[-1]):
        values = values.squeeze(0 if values.shape[0] == 1 else -1)
    if values.ndim != 2:
        raise ValueError(f"{path} holds an array of shape {values.shape}; a target wants (h, w).")
    return values
