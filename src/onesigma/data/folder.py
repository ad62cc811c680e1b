"""Any folder of pairs: `images/` and `targets/` with matching names."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import get_args

import numpy as np

from onesigma.data.base import (
    DEPTH,
    Palette,
    PixelDataset,
    Sample,
    Split,
    TargetSpec,
    Task,
    check_index,
)
from onesigma.data.lists import read_list
from onesigma.data.reading import (
    IMAGE_SUFFIXES,
    check_pair,
    read_depth,
    read_image,
    read_labels,
    void_labels,
)

_VOID_IN_FILE = (255,)


class Folder(PixelDataset):
    """Pairs of `images/NAME.*` and `targets/NAME.*`.

    Labels are class numbers, 8 bits or .npy, with 255 for void. Depth is a 16-bit PNG, a float TIFF
    or .npy, in metres after `unit_scale`, 0 or not finite where there is none. Splits come from
    `train.txt`, `val.txt` and `test.txt` (one name per line) where `train.txt` is there, and
    otherwise from a seeded shuffle of the names.

    Args:
        root: the folder that holds `images/` and `targets/`.
        task: "segmentation" or "depth".
        split: "train", "val" or "test".
        classes: names of the classes, or how many; for segmentation only.
        unit_scale: metres per unit of the depth files: 0.001 for millimetres.
        fractions: shares of train, val and test, where there are no lists.
        seed: of the shuffle.
        size: rows and columns to resize to; None for the files' own size.
    """

    def __init__(
        self,
        root: str | Path,
        task: Task,
        split: Split = "train",
        classes: Sequence[str] | int = (),
        unit_scale: float = 1.0,
        fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        seed: int = 0,
        size: tuple[int, int] | None = None,
    ) -> None:
        self.root, self.size, self.unit_scale = Path(root), size, unit_scale
        self._spec = _spec(task, classes)
        self.images, self.targets = _stems(self.root / "images"), _stems(self.root / "targets")
        self._check_names()
        if (self.root / "train.txt").is_file():
            self.names = [self._listed(line, split) for line in read_list(self.root, split)]
        else:
            self.names = split_names(sorted(self.images), split, fractions, seed)

    @property
    def spec(self) -> TargetSpec:
        """Labels of the given classes, or depth in metres."""
        return self._spec

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        name = self.names[check_index(index, len(self))]
        image, path = self.images[name], self.targets[name]
        check_pair(image, path)
        if self.task == "depth":
            target = read_depth(path, self.unit_scale, self.size)
        else:
            labels = read_labels(path, self.size)
            target = void_labels(labels, self.num_outputs, _VOID_IN_FILE, path)
        return Sample(image=read_image(image, self.size), target=target, name=name)

    def _check_names(self) -> None:
        for mine, others, where in (
            (self.images, self.targets, "targets"),
            (self.targets, self.images, "images"),
        ):
            alone = sorted(set(mine) - set(others))
            if alone:
                raise FileNotFoundError(
                    f"{mine[alone[0]]} has no partner {alone[0]}.* in {self.root / where} "
                    f"({len(alone)} such files); add the partner or remove the file."
                )

    def _listed(self, line: str, split: str) -> str:
        name = Path(line).name
        for candidate in (name, Path(name).stem):
            if candidate in self.images:
                return candidate
        raise FileNotFoundError(
            f"{self.root / (split + '.txt')} names {line!r}, but {self.root / 'images'} has no "
            "such image."
        )


def split_names(
    names: Sequence[str], split: Split, fractions: tuple[float, float, float], seed: int
) -> list[str]:
    """The names of one split of a seeded shuffle, sorted.

    Args:
        names: all of them.
        split: "train", "val" or "test".
        fractions: shares of the three, summing to 1.
        seed: of the shuffle.
    """
    if min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f"fractions are three shares that sum to 1, got {fractions}.")
    # by hash, not by position: a file more or less moves only names next to the edges
    order = sorted(names, key=lambda name: sha256(f"{seed}/{name}".encode()).digest())
    edges = np.round(np.cumsum((0.0, *fractions)) * len(names)).astype(int)
    which = get_args(Split).index(split)
    chosen = sorted(order[edges[which] : edges[which + 1]])
    if not chosen:
        raise ValueError(
            f"The split {split!r} is empty: fractions {fractions} of {len(names)} images; "
            "give it a larger share or write lists."
        )
    return chosen


def _spec(task: Task, classes: Sequence[str] | int) -> TargetSpec:
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)
    if task == "depth" and not names:
        return DEPTH
    return TargetSpec(task, names, _palette(len(names)))


def _palette(count: int) -> Palette:
    """Each colour as far as can be from all before it."""
    shades = [(0.9, 0.85), (0.5, 1.0), (0.85, 0.5), (0.35, 0.7)]
    # more hues than are needed leave a choice
    hues = np.linspace(0, 1, 18 + count // 2, endpoint=False)
    all_colours = [colorsys.hsv_to_rgb(hue, *shade) for hue in hues for shade in shades]
    colours = np.round(255 * np.array(all_colours)).astype(int)
    chosen, distance = [], np.full(len(colours), np.inf)
    for _ in range(count):
        chosen.append(colours[int(distance.argmax())])
        distance = np.minimum(distance, np.linalg.norm(colours - chosen[-1], axis=1))
    return tuple((int(r), int(g), int(b)) for r, g, b in chosen)


def _stems(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; a Folder wants images/ and targets/.")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        # a name with a dot before it is a system's, such as ._NAME.png of macOS
        if path.name.startswith(".") or path.suffix.lower() not in (*IMAGE_SUFFIXES, ".npy"):
            continue
        if path.stem in found:
            raise ValueError(f"{found[path.stem]} and {path} have the same name; keep one of them.")
        found[path.stem] = path
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no images ({', '.join(IMAGE_SUFFIXES)}); sub-folders are not searched."
        )
    return found
