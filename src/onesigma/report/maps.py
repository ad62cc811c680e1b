"""The maps of a prediction, as arrays, pixels and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from onesigma.prediction.regression import RegressionPrediction
from onesigma.report.figures import Panel, save_map
from onesigma.report.scales import ColourScale, MapScales, Pixels, Scale, Values

MapName = Literal["prediction", "total", "epistemic", "aleatoric"]
MAP_NAMES: tuple[MapName, ...] = ("prediction", "total", "epistemic", "aleatoric")


def map_arrays(prediction: Any) -> dict[str, NDArray[Any]]:
    """The four maps of one image by name, for labels the probabilities, for values the median.

    Segmentation: `prediction` are labels, `total` = `aleatoric` + `epistemic` are entropies in
    nats: H(E p), E H(p) and their difference, the mutual information. Regression: `prediction` is
    the mean, and the others are standard deviations in its unit, total² = epistemic² + aleatoric².
    Larger means less sure.

    Args:
        prediction: of one image.
    """
    if isinstance(prediction, RegressionPrediction):
        return _regression_arrays(prediction)
    _check_single(len(prediction.label))
    return {
        "prediction": _array(prediction.label[0]).astype(np.int16),
        "total": _array(prediction.entropy[0]),
        "epistemic": _array(prediction.epistemic[0]),
        "aleatoric": _array(prediction.aleatoric[0]),
        "probs": _array(prediction.probs[0]),
    }


def _regression_arrays(prediction: RegressionPrediction) -> dict[str, NDArray[Any]]:
    mean = prediction.mean
    _check_single(len(mean))
    if mean.shape[1] != 1:
        raise ValueError(
            f"Maps draw one output, this prediction has {mean.shape[1]}; predict them one by one."
        )
    return {
        "prediction": _array(mean[0, 0]),
        "median": _array(prediction.median[0, 0]),
        "total": _array(prediction.variance[0, 0].sqrt()),
        "epistemic": _array(prediction.epistemic[0, 0].sqrt()),
        "aleatoric": _array(prediction.aleatoric[0, 0].sqrt()),
    }


def _check_single(images: int) -> None:
    if images != 1:
        raise ValueError(
            f"Maps are of one image, this prediction has {images}; cut it: out[i:i+1]."
        )


def _array(values: Tensor) -> NDArray[Any]:
    return np.asarray(values.detach().cpu())


def save_maps(prediction: Any, name: str, out_dir: Path, scales: MapScales) -> list[Path]:
    """NAME_prediction.png, NAME_total.png, NAME_epistemic.png, NAME_aleatoric.png and NAME.npz.

    The pictures carry their colour scale; the arrays are those of `map_arrays`.

    Args:
        prediction: of one image, in the unit of the target.
        name: of the image, without a suffix.
        out_dir: made if missing.
        scales: the same for all images of a call.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    arrays = map_arrays(prediction)
    paths = []
    for kind in MAP_NAMES:
        scale = getattr(scales, kind)
        path = out_dir / f"{name}_{kind}.png"
        save_map(path, scale.pixels(arrays[kind]), f"{name} · {kind}", scale)
        paths.append(path)
    path = out_dir / f"{name}.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return [*paths, path]


def panels(
    prediction: Any,
    image: Float[Tensor, "3 h w"],
    scales: MapScales,
    truth: Tensor | None = None,
    total: bool = False,
) -> list[Panel]:
    """Image, truth, prediction, epistemic, aleatoric and error, side by side.

    Args:
        prediction: of one image, in the unit of the target.
        image: RGB in [0, 1].
        scales: the same for all images.
        truth: labels (h, w), -1 where void, or values (1, h, w), NaN where there is none.
        total: show the total uncertainty too, before its parts.
    """
    arrays = map_arrays(prediction)
    out = [Panel("image", photograph(image))]
    if truth is not None:
        target = np.squeeze(_array(truth))
        out.append(Panel("truth", scales.prediction.pixels(target), scales.prediction))
    for kind in (name for name in MAP_NAMES if total or name != "total"):
        scale = getattr(scales, kind)
        out.append(Panel(kind, scale.pixels(arrays[kind]), scale))
    if truth is not None:
        error = _error(arrays["prediction"], target, scales.prediction)
        out.append(Panel("error", scales.error.pixels(error), scales.error))
    return out


def photograph(image: Float[Tensor, "3 h w"]) -> Pixels:
    """An RGB image in [0, 1] as pixels (h, w, 3)."""
    return _array((image.clamp(0, 1) * 255).round()).astype(np.uint8).transpose(1, 2, 0)


def _error(prediction: Values, truth: Values, scale: Scale) -> Values:
    if isinstance(scale, ColourScale):
        return np.abs(prediction.astype(np.float64) - truth)
    return np.where(truth < 0, -1, prediction != truth)
