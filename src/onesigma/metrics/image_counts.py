"""Counts of every image, to recompute a value of the whole set on images drawn with replacement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.metrics.bins import SparseHistogram
from onesigma.metrics.counting import Counts

ImageCounts = Mapping[str, Tensor | SparseHistogram]
"""Sums over the pixels of one image: a fixed number, or no more than there are bins."""

SetValues = Callable[[Counts], Mapping[str, Tensor]]
"""From summed counts, sets in the first axis, to the values of each set."""

_SETS = 250  # at once: their histograms stay below some 50 MB


def drawn_values(
    images: Sequence[ImageCounts], values: SetValues, weights: Float[Tensor, "b n"]
) -> dict[str, Float[Tensor, "b"]]:
    """The values of sets in which image i occurs weights[b, i] times.

    Exactly what the metric is for these images, up to the width of the histograms' bins: counts
    are summed over the drawn images first, counts_b = Σ_i w_bi counts_i, then turned into values.

    Args:
        images: counts of each image.
        values: turns counts into values.
        weights: how often each image occurs in each set.
    """
    if not images:
        return {}
    stacked = {name: _stack([counts[name] for counts in images]) for name in images[0]}
    parts = [
        values({name: torch.tensordot(some, rows, 1) for name, rows in stacked.items()})
        for some in weights.split(_SETS)
    ]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _stack(images: Sequence[Tensor | SparseHistogram]) -> Float[Tensor, "n ..."]:
    """Counts of all images as one float64 tensor, histograms on the bins that any of them holds."""
    sparse = [x for x in images if isinstance(x, SparseHistogram)]
    if not sparse:
        return torch.stack([x.double().cpu() for x in images if isinstance(x, Tensor)])
    bins = torch.cat([x.keys for x in sparse]).unique()
    dense = torch.zeros(len(sparse), len(sparse[0].rows), len(bins), dtype=torch.float64)
    for row, image in zip(dense, sparse, strict=True):
        row[:, torch.searchsorted(bins, image.keys)] = image.rows.double()
    return dense
