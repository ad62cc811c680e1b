"""CamVid: video from a car in Cambridge, eleven classes, in the layout that SegNet published."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

import torch

from onesigma.data.base import PixelDataset, Sample, Split, TargetSpec, check_index
from onesigma.data.classes import STREET_CLASSES, STREET_PALETTE, VOID
from onesigma.data.lists import read_list
from onesigma.data.reading import IMAGE_SUFFIXES, check_pair, read_image, read_labels, void_labels

CAMVID_COUNTS = {"train": 367, "val": 101, "test": 233}
_VOID_IN_FILE = (11, 255)


class CamVid(PixelDataset):
    """CamVid in the SegNet layout: `train/`, `trainannot/`, `train.txt` with pairs of paths.

    PNG or JPEG, any size; a prefix such as `/SegNet/CamVid/` in the lists is ignored. Void is −1.

    Args:
        root: the folder with `train.txt`.
        split: "train", "val" or "test".
        size: rows and columns to resize to; None for the files' own size, which evaluation wants.
        exclude_classes: names of classes whose pixels become void; `ood` says where they were.
        only_sequences: keep images whose name begins with one of these, such as "0006R0".
        without_sequences: drop images whose name begins with one of these.
    """

    def __init__(
        self,
        root: str | Path,
        split: Split = "train",
        size: tuple[int, int] | None = None,
        exclude_classes: str | Collection[str] = (),
        only_sequences: str | Sequence[str] | None = None,
        without_sequences: str | Sequence[str] = (),
    ) -> None:
        self.root, self.size = Path(root), size
        self.excluded = [_class_number(name) for name in _names(exclude_classes)]
        lines = read_list(self.root, split)
        if len(lines) != CAMVID_COUNTS[split]:
            warnings.warn(
                f"{self.root / (split + '.txt')} lists {len(lines)} pairs; the {split} split of "
                f"CamVid has {CAMVID_COUNTS[split]}. Results will not compare with published ones.",
                stacklevel=2,
            )
        pairs = [self._pair(line, split) for line in lines]
        only = _names("" if only_sequences is None else only_sequences)
        without = _names(without_sequences)
        self.pairs = [
            pair
            for pair in pairs
            if pair[0].name.startswith(only) and not pair[0].name.startswith(without)
        ]
        if not self.pairs:
            raise ValueError(
                f"No image of {split} is left: only_sequences={only_sequences}, "
                f"without_sequences={without_sequences}; the sequences here are "
                f"{sorted({image.name.split('_')[0] for image, _ in pairs})}."
            )

        self.names = [f"{image.parent.name}/{image.stem}" for image, _ in self.pairs]

    @property
    def spec(self) -> TargetSpec:
        """The eleven classes, also when some are left out."""
        return TargetSpec("segmentation", STREET_CLASSES, STREET_PALETTE)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Sample:
        image, target = self.pairs[check_index(index, len(self))]
        check_pair(image, target)
        labels = read_labels(target, self.size)
        labels = void_labels(labels, self.num_outputs, _VOID_IN_FILE, target)
        sample = Sample(image=read_image(image, self.size), target=labels, name=image.stem)
        if self.excluded:
            sample["ood"] = torch.isin(labels, torch.tensor(self.excluded))
            sample["target"] = labels.masked_fill(sample["ood"], VOID)
        return sample

    def _pair(self, line: str, split: str) -> tuple[Path, Path]:
        words = line.split()
        if len(words) != 2:
            raise ValueError(
                f"{self.root / (split + '.txt')} has the line {line!r}; it wants two paths, "
                "the image and its labels."
            )
        return self._find(words[0]), self._find(words[1])

    def _find(self, listed: str) -> Path:
        # whatever stands before the last folder is somebody else's root
        path = self.root.joinpath(*Path(listed).parts[-2:])
        if path.is_file():
            return path
        others = (path.with_suffix(suffix) for suffix in IMAGE_SUFFIXES)
        found = next((other for other in others if other.is_file()), None)
        if found is None:
            raise FileNotFoundError(
                f"{path} does not exist (listed as {listed!r}), nor with another image suffix; "
                "the list and the folders do not belong together."
            )
        return found


def _names(given: str | Collection[str]) -> tuple[str, ...]:
    # one name may stand without a list around it
    return (given,) if isinstance(given, str) else tuple(given)


def _class_number(name: str) -> int:
    if name not in STREET_CLASSES:
        raise ValueError(f"{name!r} is not a class of CamVid; choose from {STREET_CLASSES}.")
    return STREET_CLASSES.index(name)
