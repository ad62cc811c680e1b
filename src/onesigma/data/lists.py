"""Text files that list the images of a split, one per line."""

from __future__ import annotations

from pathlib import Path


def read_list(root: Path, split: str) -> list[str]:
    """The lines of `root/split.txt` that are not empty.

    Args:
        root: the folder of the data set.
        split: the name of the list.
    """
    path = root / f"{split}.txt"
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give the root of the data set.")
    if not path.is_file():
        known = sorted(other.name for other in root.glob("*.txt"))
        raise FileNotFoundError(
            f"{path} does not exist, so there is no split {split!r} here; "
            f"{root} has {', '.join(known) or 'no lists at all'}."
        )
    lines = [line.strip() for line in path.read_text().splitlines()]
    lines = [line for line in lines if line]
    if not lines:
        raise ValueError(f"{path} is empty; it wants one image per line.")
    return lines
