"""Tiny data sets in the formats of the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

RNG = np.random.default_rng(0)


def write_image(path: Path, rows: int, cols: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RNG.integers(0, 256, (rows, cols, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_camvid(root: Path) -> Path:
    """train/, trainannot/ and train.txt as SegNet published them; 11 is void."""
    for split in ("train", "val", "test"):
        lines = []
        for i in range(4):
            name = f"0001TP_{split}{i}.png"
            write_image(root / split / name, 40, 48)
            labels = RNG.integers(0, 12, (40, 48)).astype(np.uint8)
            (root / f"{split}annot").mkdir(parents=True, exist_ok=True)
            Image.fromarray(labels).save(root / f"{split}annot" / name)
            lines.append(f"/SegNet/CamVid/{split}/{name} /SegNet/CamVid/{split}annot/{name}")
        (root / f"{split}.txt").write_text("\n".join(lines))
    return root


def write_nyuv2(root: Path) -> Path:
    """rgb/ID.jpg, depth/ID.png in millimetres, lists of IDs."""
    for split in ("train", "val"):
        names = [f"{split}{i}" for i in range(4)]
        for name in names:
            write_image(root / "rgb" / f"{name}.jpg", 40, 48)
            depth = RNG.integers(500, 9000, (40, 48)).astype(np.uint16)
            (root / "depth").mkdir(parents=True, exist_ok=True)
            Image.fromarray(depth).save(root / "depth" / f"{name}.png")
        (root / f"{split}.txt").write_text("\n".join(names))
    return root


def write_make3d(root: Path) -> Path:
    """img-NAME.jpg and depth_sph_corr-NAME.mat with a grid of laser points."""
    for images, depths in (("Train400Img", "Train400Depth"), ("Test134", "Test134Depth")):
        for i in range(4):
            write_image(root / images / f"img-p{i}.jpg", 42, 56)
            grid = RNG.uniform(1, 80, (11, 7, 4))
            (root / depths).mkdir(parents=True, exist_ok=True)
            savemat(root / depths / f"depth_sph_corr-p{i}.mat", {"Position3DGrid": grid})
    return root


def write_folder(root: Path) -> Path:
    """images/ and targets/ with equal names, of different sizes; labels 0 to 2, or millimetres."""
    for i in range(20):
        write_image(root / "images" / f"{i}.png", 40 + i, 48)
        (root / "targets").mkdir(parents=True, exist_ok=True)
        labels = RNG.integers(0, 3, (40 + i, 48)).astype(np.uint8)
        Image.fromarray(labels).save(root / "targets" / f"{i}.png")
    return root
