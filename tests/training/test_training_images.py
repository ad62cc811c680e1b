"""What `predict` takes as an image, and what it says of anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onesigma.training.predictor import as_images

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
GREY = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1000


@pytest.mark.parametrize("kind", ["turned", "sixteen bits", "palette"])
def test_a_picture_is_seen_as_its_file_is(kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = Image.fromarray(GREY if kind == "sixteen bits" else RGB)
    if kind == "palette":
        picture = picture.convert("P")
    path = tmp_path / "a.png"
    picture.save(path, exif=exif if kind == "turned" else Image.Exif())
    with Image.open(path) as opened:
        assert torch.equal(as_images(opened), as_images(path))


@pytest.mark.usefixtures("as_users_call")
@pytest.mark.parametrize(
    ("image", "says"),
    [
        ([RGB, RGB], r"a list; .*one by one, or stack"),
        (None, "a NoneType; it wants a path"),
        (b"png", "a bytes"),
        (np.zeros((0, 8, 3), np.uint8), "without pixels"),
        (torch.zeros(3, 0, 0), "without pixels"),
        ("photos/*.png", r"no file photos/\*\.png; leave out the quotes"),
        ("gone.png", r"no file gone\.png; check the path\.$"),
        (".", "is a folder; .*one by one"),
    ],
)
def test_what_is_no_image_is_told(image: Any, says: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=says):
        as_images(image)
