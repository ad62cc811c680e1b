"""NYUv2: indoor images with dense depth."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from jaxtyping import Bool
from torch import Tensor

from onesigma.data.base import DEPTH, PixelDataset, Sample, Split, TargetSpec, check_index
from onesigma.data.lists import read_list
from onesigma.data.reading import IMAGE_SUFFIXES, check_pair, read_depth, read_image

MILLIMETRE = 0.001
# rows and columns of the usual evaluation crop, of an image of 240 x 320
_CROP = ((22, 236), (20, 301))
_CROP_OF = (240, 320)


class NYUv2(PixelDataset):
    """NYUv2 as `rgb/ID.jpg`, `depth/ID.png` (16 bits, millimetres) and lists of IDs.

    Args:
        root: the folder with `train.txt`.
        split: "train", "val" or "test".
        size: rows and columns to resize to; None for the files' own size.
        crop: set depth outside the usual evaluation crop to NaN; None for all splits but train.
        fold: (k, folds) for cross-validation over train and val together: "val" is the k-th of
            equal blocks of their IDs in order, so that a room is on one side, "train" the rest.
    """

    def __init__(
        self,
        root: str | Path,
        split: Split = "train",
        size: tuple[int, int] | None = None,
        crop: bool | None = None,
        fold: tuple[int, int] | None = None,
    ) -> None:
        self.root, self.size = Path(root), size
        self.crop = split != "train" if crop is None else crop
        if fold is None or split == "test":
            self.names = read_list(self.root, split)
        else:
            self.names = self._fold(split, *fold)

    @property
    def spec(self) -> TargetSpec:
        """Depth in metres."""
        return DEPTH

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        name = self.names[check_index(index, len(self))]
        image, target = self._image(name), self.root / "depth" / f"{name}.png"
        check_pair(image, target)
        depth = read_depth(target, MILLIMETRE, self.size)
        if self.crop:
            inside = evaluation_crop(*depth.shape[1:])
            depth = depth.where(inside, torch.full_like(depth, math.nan))
        return Sample(image=read_image(image, self.size), target=depth, name=name)

    def _fold(self, split: str, k: int, folds: int) -> list[str]:
        names = [*read_list(self.root, "train"), *read_list(self.root, "val")]
        names.sort(key=lambda name: (len(name), name))
        if not 2 <= folds <= len(names) or not 0 <= k < folds:
            raise ValueError(
                f"fold=({k}, {folds}) of {len(names)} images; it wants (k, folds) with "
                "2 ≤ folds ≤ images and 0 ≤ k < folds."
            )
        start, stop = k * len(names) // folds, (k + 1) * len(names) // folds
        return names[start:stop] if split == "val" else names[:start] + names[stop:]

    def _image(self, name: str) -> Path:
        paths = [self.root / "rgb" / f"{name}{suffix}" for suffix in IMAGE_SUFFIXES]
        found = next((path for path in paths if path.is_file()), None)
        if found is None:
            raise FileNotFoundError(
                f"{self.root / 'rgb' / name}.jpg does not exist, nor with another image suffix, "
                "but a list names it."
            )
        return found


def evaluation_crop(rows: int, cols: int) -> Bool[Tensor, "rows cols"]:
    """The pixels that NYUv2 is usually scored on: 22:236, 20:301 of 240x320, scaled to the size.

    Args:
        rows: of the image.
        cols: of the image.
    """
    inside = torch.zeros(rows, cols, dtype=torch.bool)
    (top, bottom), (left, right) = (
        (round(low * new / old), round(high * new / old))
        for (low, high), new, old in zip(_CROP, (rows, cols), _CROP_OF, strict=True)
    )
    inside[top:bottom, left:right] = True
    return inside
