"""Generated street scenes with labels, metric depth and the true noise of both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from onesigma.data.base import DEPTH, PixelDataset, Sample, Split, TargetSpec, Task, check_index
from onesigma.data.classes import STREET_CLASSES, STREET_PALETTE, VOID
from onesigma.data.drawing.layout import Scene, draw_layout
from onesigma.data.drawing.render import Rendering, render
from onesigma.data.drawing.sensor import break_sensor
from onesigma.data.truth import SceneNoise

Odd = Literal["objects", "night", "fog", "sensor"]
_SPLITS: tuple[Split, ...] = get_args(Split)
_ODDS: tuple[Odd, ...] = get_args(Odd)
# streams of random numbers of one item; the odd kinds come after these
_LAYOUT, _NOISE, _FIRST_ODD = range(3)


@dataclass(frozen=True)
class Scenes(PixelDataset):
    """Procedurally drawn street scenes; item i depends on (seed, split, i, odd) alone.

    The classes are CamVid's eleven. An odd scene has the geometry of the clean scene with the same
    seed, split and index, so that the two can be compared; its target noise uses the same draws.

    Attributes:
        task: "segmentation" or "depth".
        size: rows and columns; the same scene is drawn at any size.
        length: how many scenes.
        seed: of everything.
        split: "train", "val" or "test": different scenes for each.
        odd: None, or what makes every scene unlike training: "objects" of unseen classes, "night",
            "fog", or a failing "sensor".
        truth: add the true law of the target and the odd pixels to every sample.
        noise: how observed targets differ from the truth.
    """

    task: Task = "segmentation"
    size: tuple[int, int] = (96, 128)
    length: int = 1000
    seed: int = 0
    split: Split = "train"
    odd: Odd | None = None
    truth: bool = False
    noise: SceneNoise = field(default_factory=SceneNoise)

    def __post_init__(self) -> None:
        _ = self.spec
        if self.split not in _SPLITS:
            raise ValueError(f"split is one of {_SPLITS}, got {self.split!r}.")
        if self.odd is not None and self.odd not in _ODDS:
            raise ValueError(f"odd is None or one of {_ODDS}, got {self.odd!r}.")
        if len(self.size) != 2 or min(self.size) < 8:
            raise ValueError(f"size is (rows, columns), each at least 8, got {self.size}.")
        if self.length < 1 or self.seed < 0:
            raise ValueError(
                f"length must be at least 1 and seed not negative, got {self.length}, {self.seed}."
            )

    @property
    def spec(self) -> TargetSpec:
        """Labels of CamVid's classes, or depth in metres."""
        if self.task == "segmentation":
            return TargetSpec("segmentation", STREET_CLASSES, STREET_PALETTE)
        return DEPTH if self.task == "depth" else TargetSpec(self.task)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        index = check_index(index, self.length)
        seen = self.draw(index)
        image = seen.image
        if self.odd == "sensor":
            image = break_sensor(image, self._stream(index, _FIRST_ODD + _ODDS.index("sensor")))
        name = f"{self.split}-{self.odd or 'clean'}-{self.seed}-{index:06d}"
        sample = Sample(image=torch.from_numpy(image), target=torch.empty(0), name=name)
        rng = self._stream(index, _NOISE)
        if self.task == "segmentation":
            self._label(sample, seen, rng)
        else:
            self._measure(sample, seen, rng)
        if self.truth:
            everywhere = self.odd in ("night", "fog", "sensor")
            sample["ood"] = torch.from_numpy((seen.label == VOID) | everywhere)
        return sample

    def draw(self, index: int) -> Rendering:
        """The picture with true labels and depth, before target noise and a failing sensor."""
        return render(self._scene(index), self.size)

    def _scene(self, index: int) -> Scene:
        scene = draw_layout(self._stream(index, _LAYOUT))
        if self.odd is None or self.odd == "sensor":
            return scene
        rng = self._stream(index, _FIRST_ODD + _ODDS.index(self.odd))
        if self.odd == "objects":
            return scene.with_stranger(rng)
        if self.odd == "night":
            return replace(scene, light=scene.light.at_night())
        return replace(scene, light=scene.light.in_fog(1 / float(rng.uniform(8, 20))))

    def _stream(self, index: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, _SPLITS.index(self.split), index, stream])

    def _label(self, sample: Sample, seen: Rendering, rng: np.random.Generator) -> None:
        label = seen.label.astype(np.int64)
        sample["target"] = torch.from_numpy(self.noise.observe_label(label, rng))
        if self.truth:
            law = self.noise.label_law(label, self.num_outputs)
            sample["label_probs"], sample["labels"] = torch.from_numpy(law), torch.from_numpy(label)

    def _measure(self, sample: Sample, seen: Rendering, rng: np.random.Generator) -> None:
        depth = np.where(seen.depth <= self.noise.max_depth, seen.depth, np.float32(np.nan))
        std = self.noise.depth_std(depth, seen.image)
        sample["target"] = _channel(self.noise.observe_depth(depth, std, rng))
        if self.truth:
            sample["depth"], sample["noise"] = _channel(depth), _channel(std)


def _channel(plane: NDArray[np.float32]) -> torch.Tensor:
    return torch.from_numpy(plane[None])
