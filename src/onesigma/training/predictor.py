"""What was trained, ready to predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from onesigma.baselines import TemperatureScaled
from onesigma.baselines.base import Prediction
from onesigma.data.base import TargetSpec
from onesigma.data.reading import read_image, read_picture, upright
from onesigma.prediction.regression import RegressionPrediction
from onesigma.prediction.transforms import Transform
from onesigma.training.components import build_transform
from onesigma.training.config import Recipe
from onesigma.training.folder import RunFolder
from onesigma.training.method import Method, Viewed
from onesigma.training.views import evaluation_view

ImageLike = str | Path | Image.Image | NDArray[Any] | Tensor


class Predictor:
    """What was trained, ready to predict in the target's unit.

    Args:
        folder: of the run.
        recipe: resolved.
        method: with its weights, in evaluation mode.
        temperature: of the predictions, in the model's space.
    """

    def __init__(
        self, folder: RunFolder, recipe: Recipe, method: Method, temperature: float | None = None
    ) -> None:
        self.folder, self.recipe, self.method = folder, recipe, method.eval()
        self.transform: Transform | None = build_transform(recipe.transform)
        self.temperature = temperature

    @property
    def path(self) -> Path:
        """The folder."""
        return self.folder.path

    @property
    def spec(self) -> TargetSpec:
        """What is predicted: task, classes, colours, unit."""
        target = self.recipe.target
        assert target.task is not None
        palette = tuple((r, g, b) for r, g, b in target.palette)
        return TargetSpec(target.task, tuple(target.classes), palette, target.unit)

    @property
    def device(self) -> torch.device:
        """Where predictions are made."""
        return next(self.method.parameters()).device

    @property
    def largest_target(self) -> float:
        """About the largest target in training, three deviations above their mean; 1 for labels."""
        if self.transform is None:
            return 1.0
        return float(self.transform.to_unit(torch.full((1, 1, 1, 1), 3.0)))

    @torch.no_grad()
    def predict(self, image: ImageLike, memory_mb: float | None = None) -> Prediction:
        """The predictive law of every pixel of an image, in the target's unit.

        Args:
            image: a path, a PIL image, an array (h, w, 3) of uint8 or of floats in [0, 1], or a
                tensor (3, h, w) or (n, 3, h, w) in [0, 1].
            memory_mb: predict in overlapping tiles where a pass of the network would need more
                memory than this; None predicts images whole.
        """
        images = as_images(image).to(self.device)
        viewed = Viewed(self.method, evaluation_view(self.recipe, memory_mb))
        if self.temperature is None:
            prediction = viewed.predict(images)
        else:
            scaled = TemperatureScaled(viewed)
            scaled.temperature.fill_(self.temperature)
            prediction = scaled.predict(images)
        if self.transform is not None and isinstance(prediction, RegressionPrediction):
            return prediction.in_unit(self.transform)
        return prediction


def as_images(image: ImageLike) -> Float[Tensor, "n 3 h w"]:
    """Any image as a batch of RGB in [0, 1].

    Args:
        image: a path, a PIL image, an array or a tensor.
    """
    if isinstance(image, str | Path):
        return read_image(_file(Path(image)))[None]
    if isinstance(image, Image.Image):
        return read_picture(upright(image), "The picture")[None]
    if isinstance(image, np.ndarray):
        return _from_array(image)[None]
    if not isinstance(image, Tensor):
        raise ValueError(
            f"predict got a {type(image).__name__}; it wants a path, a PIL image, an array or a "
            "tensor. Predict several images one by one, or stack those of one size in a tensor "
            "(n, 3, h, w)."
        )
    images = image[None] if image.ndim == 3 else image
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"predict got a tensor of shape {tuple(image.shape)}; it wants (3, h, w) or "
            "(n, 3, h, w), RGB in [0, 1]."
        )
    return _checked_range(images.float() / (255 if images.dtype == torch.uint8 else 1))


def _file(path: Path) -> Path:
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder; predict wants one image. Predict its files one by one."
        )
    if not path.is_file():
        pattern = any(letter in path.name for letter in "*?[")
        hint = "leave out the quotes around a pattern" if pattern else "check the path"
        raise FileNotFoundError(f"There is no file {path}; {hint}.")
    return path


def _from_array(array: NDArray[Any]) -> Tensor:
    if array.ndim == 2:
        array = np.repeat(array[..., None], 3, axis=-1)
    if array.ndim != 3 or array.shape[-1] not in (3, 4):
        raise ValueError(
            f"predict got an array of shape {array.shape}; it wants (h, w, 3), uint8 or floats in "
            "[0, 1]."
        )
    scale = 255 if array.dtype == np.uint8 else 1
    values = np.ascontiguousarray(array[..., :3].transpose(2, 0, 1), dtype=np.float32) / scale
    return _checked_range(torch.from_numpy(values))


def _checked_range(images: Tensor) -> Tensor:
    if images.numel() == 0:
        raise ValueError(
            f"predict got an image without pixels: shape {tuple(images.shape)}; it wants at least "
            "one row and column."
        )
    low, high = float(images.min()), float(images.max())
    if not (low >= -0.01 and high <= 1.01):
        raise ValueError(
            f"predict got values from {low:g} to {high:g}; images are RGB in [0, 1]. Divide by 255 "
            "or pass uint8."
        )
    return images
