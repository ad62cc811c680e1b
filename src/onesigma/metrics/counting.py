"""The base of all metrics: sums of counts over valid pixels, whatever their number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchmetrics import Metric

from onesigma.likelihoods.base import mask_labels, mask_regression
from onesigma.precision import at_least_single

Counts = Mapping[str, Tensor]

# by which a probability in half precision may leave [0, 1]
_ROUNDING = 1e-2


class CountMetric(Metric, ABC):
    """A metric that is a function of sums over pixels: score(Σ counts).

    The state is a fixed set of float64 sums, so it does not grow with the pixels and merges over
    processes by addition. `count` methods turn pixels into counts, `scores` turns counts into
    values; the same pair serves one image and the whole set.

    Args:
        shapes: shape of each sum, by name.
        kwargs: options of `torchmetrics.Metric`.
    """

    full_state_update = False

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, shape in shapes.items():
            zeros = torch.zeros(shape, dtype=torch.float64)
            self.add_state(name, zeros, dist_reduce_fx="sum")

    def add(self, counts: Counts) -> None:
        """Add the counts of some pixels to the state."""
        for name, value in counts.items():
            getattr(self, name).add_(value)

    def compute(self) -> Any:
        """The value over everything seen so far; NaN where nothing defines it."""
        return self.scores(self.totals())

    def totals(self) -> Counts:
        """The sums over everything seen so far."""
        return {name: getattr(self, name) for name in self.metric_state}

    @abstractmethod
    def scores(self, counts: Counts) -> Any:
        """The value that follows from these counts; of many sets at once if they stand first."""


class PixelMean(CountMetric, ABC):
    """Mean of a value over valid pixels, (1/N) Σ v."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"total": (), "pixels": ()}, **kwargs)

    def count(self, values: Float[Tensor, "..."]) -> Counts:
        """Sum and number of the values, in float64."""
        return {"total": values.sum(dtype=torch.float64), "pixels": count_of(values)}

    def scores(self, counts: Counts) -> Tensor:
        """Total over number; NaN without pixels."""
        return counts["total"] / counts["pixels"]


def count_of(values: Tensor) -> Tensor:
    """The number of entries, as a float64 scalar on the same device."""
    return torch.tensor(values.numel(), dtype=torch.float64, device=values.device)


def label_pixels(
    probs: Float[Tensor, "n c h w"],
    target: Int[Tensor, "n h w"],
    valid: Bool[Tensor, "n h w"] | None,
) -> tuple[Float[Tensor, "c p"], Int[Tensor, "p"]]:
    """Probabilities and labels of the valid pixels (default: labels in range), flat."""
    flat, labels = map_and_label_pixels(probs, target, valid)
    # one class is enough to tell logits from probabilities
    if flat.numel() and bool((flat[0].amin() < -_ROUNDING) | (flat[0].amax() > 1 + _ROUNDING)):
        raise ValueError(
            f"The probabilities of the first class go from {float(flat[0].amin()):.4g} to "
            f"{float(flat[0].amax()):.4g}; they want to be in [0, 1]. Of logits take softmax(1)."
        )
    return flat, labels


def map_and_label_pixels(
    maps: Float[Tensor, "n c h w"],
    target: Int[Tensor, "n h w"],
    valid: Bool[Tensor, "n h w"] | None,
) -> tuple[Float[Tensor, "c p"], Int[Tensor, "p"]]:
    """A map of each class, and labels, at the valid pixels (default: labels in range), flat."""
    check_classes(maps)
    labels, mask = mask_labels(target, maps.shape[1], valid, maps.shape)
    index = true_indices(mask.flatten())
    return class_pixels(maps, index), labels.flatten().index_select(0, index)


def check_classes(maps: Float[Tensor, "n c h w"], classes: int | None = None) -> None:
    """Raise unless these are maps of so many classes, or of at least two."""
    if maps.ndim == 4 and (maps.shape[1] > 1 if classes is None else maps.shape[1] == classes):
        return
    wanted = "at least two" if classes is None else str(classes)
    raise ValueError(
        f"The probabilities have the shape {tuple(maps.shape)}; this metric wants (n, c, h, w) "
        f"with one channel for each class, {wanted}. A yes or no with probability p is "
        "torch.cat([1 - p, p], 1)."
    )


def class_pixels(probs: Float[Tensor, "n c h w"], index: Int[Tensor, "p"]) -> Float[Tensor, "c p"]:
    """Probabilities at these of the flattened pixels."""
    return at_least_single(probs.movedim(1, 0).flatten(1).index_select(1, index))


def true_indices(mask: Bool[Tensor, "p"]) -> Int[Tensor, "i"]:
    """Where a mask is true; by numpy on a CPU, where torch's `nonzero` is several times slower."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().squeeze(1)


def top_class(flat: Float[Tensor, "c p"]) -> tuple[Float[Tensor, "p"], Int[Tensor, "p"]]:
    """The largest probability of each pixel and its class, the first of equal ones.

    Twice as fast on a CPU as `max(0)`, whose reduction with indices is not vectorised.
    """
    classes, top = flat.shape[0], flat.amax(0)
    if bool(top.isnan().any()):
        raise ValueError(
            f"The probabilities of {int(top.isnan().sum())} valid pixels are not numbers (NaN); "
            "clear these pixels in `valid`, or look for the image that makes the network fail."
        )
    countdown = torch.arange(classes, 0, -1, dtype=torch.int16, device=flat.device)
    return top, classes - ((flat == top) * countdown[:, None]).amax(0).long()


def target_mask(
    target: Float[Tensor, "n c h w"], valid: Bool[Tensor, "n h w"] | None
) -> Bool[Tensor, "n h w"]:
    """The pixels to count (default: all outputs finite); a valid pixel must be finite."""
    return mask_regression(target, valid)[1]


def fill_invalid(
    target: Float[Tensor, "n c h w"],
    mask: Bool[Tensor, "n h w"],
    harmless: Float[Tensor, "n c h w"],
) -> Float[Tensor, "n c h w"]:
    """The target with a harmless value, inside the law's support, where it is not valid."""
    if target.shape != harmless.shape:
        raise ValueError(
            f"The target has the shape {tuple(target.shape)} and the prediction "
            f"{tuple(harmless.shape)}; metrics want the same, (n, c, h, w)."
        )
    return torch.where(mask[:, None], target, harmless.to(target.dtype))


def output_pixels(
    mask: Bool[Tensor, "n h w"], *maps: Float[Tensor, "n c h w"]
) -> tuple[Float[Tensor, "p"], ...]:
    """Maps at the masked pixels, outputs pooled, flat."""
    shapes = [tuple(x.shape) for x in maps]
    if any(len(shape) != 4 or (shape[0], *shape[2:]) != tuple(mask.shape) for shape in shapes):
        raise ValueError(
            f"The maps have the shapes {shapes} and the pixels to count {tuple(mask.shape)}; "
            "metrics want (n, c, h, w) and (n, h, w)."
        )
    index = true_indices(mask.flatten())
    return tuple(class_pixels(x, index).flatten() for x in maps)


def map_pixels(valid: Bool[Tensor, "..."] | None, *maps: Tensor) -> tuple[Tensor, ...]:
    """Maps of the shape of `valid` at the valid pixels (default: all), flat."""
    if valid is None:
        return tuple(x.flatten() for x in maps)
    index = true_indices(valid.flatten())
    return tuple(x.flatten().index_select(0, index) for x in maps)
