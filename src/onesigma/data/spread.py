"""Fewer images of a data set, to see how what is learned depends on how many there are."""

from __future__ import annotations

from onesigma.data.base import PixelDataset, Sample, TargetSpec, check_index


class Spread(PixelDataset):
    """`count` images of another data set, evenly spread over it.

    Args:
        data: where they come from.
        count: how many to keep.
    """

    def __init__(self, data: PixelDataset, count: int) -> None:
        if not 1 <= count <= len(data):
            raise ValueError(f"{count} images were asked for of a data set that has {len(data)}.")
        self.data = data
        self.chosen = [i * len(data) // count for i in range(count)]
        self.names = [data.names[i] for i in self.chosen] if data.names else ()

    @property
    def spec(self) -> TargetSpec:
        """That of the whole data set."""
        return self.data.spec

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, index: int) -> Sample:
        return self.data[self.chosen[check_index(index, len(self))]]
