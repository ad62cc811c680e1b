"""What every data set is: images in [0, 1] with a target for every pixel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.data import Dataset

Task = Literal["segmentation", "depth"]
Split = Literal["train", "val", "test"]
Palette = tuple[tuple[int, int, int], ...]


class Sample(TypedDict):
    """One image with its target; a `DataLoader` collates it key by key.

    Attributes:
        image: RGB in [0, 1].
        target: labels (h, w), −1 where void; or depth (1, h, w) in the data set's unit, NaN where
            there is none.
        name: of the image in its data set.
        label_probs: the true law of the observed label; what is missing to 1 is void.
        labels: the true label, −1 where void.
        depth: the true depth, NaN where the target is.
        noise: the true standard deviation of the observed depth, NaN where the target is.
        ood: where the image is unlike the training images.
    """

    image: Float[Tensor, "3 h w"]
    target: Tensor
    name: str
    label_probs: NotRequired[Float[Tensor, "c h w"]]
    labels: NotRequired[Int[Tensor, "h w"]]
    depth: NotRequired[Float[Tensor, "1 h w"]]
    noise: NotRequired[Float[Tensor, "1 h w"]]
    ood: NotRequired[Bool[Tensor, "h w"]]


@dataclass(frozen=True)
class TargetSpec:
    """What the targets of a data set mean.

    Attributes:
        task: "segmentation" or "depth".
        classes: names of the labels 0, 1, …; empty for depth.
        palette: a display colour for each class, 0 to 255; empty for depth.
        unit: of the target; empty for labels.
    """

    task: Task
    classes: tuple[str, ...] = ()
    palette: Palette = ()
    unit: str = ""

    def __post_init__(self) -> None:
        if self.task not in ("segmentation", "depth"):
            raise ValueError(f'task is "segmentation" or "depth", got {self.task!r}.')
        if (self.task == "segmentation") != bool(self.classes):
            raise ValueError(
                f"A data set for {self.task} got {len(self.classes)} classes; segmentation wants "
                "at least one, depth none. They are named by classes=[...], in a recipe by "
                "data.options.classes."
            )
        twice = [name for name in self.classes if self.classes.count(name) > 1]
        if twice:
            raise ValueError(
                f"The class {twice[0]!r} is named twice; give every class its own name."
            )
        if len(self.palette) != len(self.classes):
            raise ValueError(
                f"{len(self.classes)} classes got {len(self.palette)} colours; give one for each."
            )


DEPTH = TargetSpec("depth", unit="m")


class PixelDataset(Dataset[Sample], ABC):
    """A data set with a target for every pixel.

    Attributes:
        names: of the files of the images in their order, different for different files below one
            root, so that a run can record what it learned from; empty where there are no files.
    """

    # built-in types only: subclasses that are dataclasses resolve this in their own module
    names: list[str] | tuple[str, ...] = ()

    @property
    @abstractmethod
    def spec(self) -> TargetSpec:
        """What its targets mean."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    @property
    def task(self) -> Task:
        """Either "segmentation" or "depth"."""
        return self.spec.task

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the labels; empty for depth."""
        return self.spec.classes

    @property
    def palette(self) -> Palette:
        """A display colour for each class; empty for depth."""
        return self.spec.palette

    @property
    def unit(self) -> str:
        """The unit of the target; empty for labels."""
        return self.spec.unit

    @property
    def num_outputs(self) -> int:
        """How many channels a network needs: one for depth, one for each class."""
        return len(self.classes) or 1


def check_index(index: int, length: int) -> int:
    """A non-negative index, or the IndexError that ends a loop."""
    if not -length <= index < length:
        raise IndexError(f"Index {index} is outside a data set of {length} images.")
    return index % length
