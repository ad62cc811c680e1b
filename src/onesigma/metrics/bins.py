"""Two kinds of bins: equal ones on [0, 1] with pinned edges, and float-bit bins for any score."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from onesigma.metrics.counting import CountMetric, true_indices

MANTISSA_BITS = 9
"""Leading mantissa bits of a score's bin: neighbouring bins differ by 2⁻⁹, about 0.2 %."""

SCORE_BINS = 2 ** (9 + MANTISSA_BITS)
"""Sign, 8 exponent bits and the leading mantissa bits: every float32 has its bin."""

IMAGE_BITS = 7
"""Leading mantissa bits of the bins that are kept for every image, at most 0.8 % wide."""


def uniform_bins(
    values: Float[Tensor, "p"], bins: int, upper: Float[Tensor, "b"] | None = None
) -> Int[Tensor, "p"]:
    """Index of the interval (k/B, (k+1)/B] that holds each value; 0 falls into the first.

    Edges are the floating-point numbers nearest to k/B in the precision of the values: a value
    equal to an edge belongs to the interval below, the next larger number to the one above.

    Args:
        values: in [0, 1].
        bins: B.
        upper: `uniform_edges(bins, values)`, if they are known.
    """
    upper = uniform_edges(bins, values) if upper is None else upper
    # ⌊v B (1 − ε)⌋ is the interval of v or the one below it
    low = (values * (bins * (1 - 1e-6))).int().clamp_(0, bins - 1)
    return low.add_((values > upper.index_select(0, low)).int())


def uniform_edges(bins: int, like: Tensor) -> Float[Tensor, "b"]:
    """Upper ends of the intervals in this precision; probabilities may round to more than 1."""
    upper = torch.arange(1, bins + 1, dtype=like.dtype, device=like.device) / bins
    upper[-1] = torch.inf
    return upper


def binned_sum(
    index: Int[Tensor, "p"], bins: int, weights: Tensor | None = None
) -> Float[Tensor, "b"]:
    """Number of pixels in each bin, or the float64 sum of their weights."""
    if weights is not None:
        weights = weights.double()
    return torch.bincount(index, weights=weights, minlength=bins).double()


def score_keys(scores: Float[Tensor, "p"], bits: int = MANTISSA_BITS) -> Int[Tensor, "p"]:
    """Bin of a score by sign, exponent and leading mantissa bits of its float32: monotone in it.

    A bin is 0.2 % wide whatever the size of the score. −0 equals 0; NaN ranks above infinity.
    """
    pattern = (scores.float() + 0.0).view(torch.int32)
    # the patterns of negative floats grow with |x|: flip them
    ordered = pattern ^ ((pattern >> 31) & 0x7FFFFFFF)
    return (ordered >> (23 - bits)) + (1 << (8 + bits))


@dataclass(frozen=True, eq=False)
class SparseHistogram:
    """The bins of one image that hold pixels, small enough to keep one for every image.

    Attributes:
        keys: the bins, ascending.
        rows: number of pixels, then the sum of each weight, per bin.
    """

    keys: Int[Tensor, "b"]
    rows: Float[Tensor, "k b"]

    @classmethod
    def point(cls, score: Float[Tensor, ""], weight: int | float) -> SparseHistogram:
        """One entry that ties with its like only; none if the score is undefined."""
        scores = score.reshape(1)[~score.reshape(1).isnan()].cpu()
        rows = torch.tensor([[1.0], [float(weight)]])
        return cls(score_keys(scores, bits=22), rows[:, : len(scores)])


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Counts and weighted sums of the score bins from `offset` on; all other bins are empty.

    Attributes:
        offset: first bin held.
        rows: number of pixels, then the sum of each weight, per bin.
    """

    offset: int
    rows: Float[Tensor, "k b"]

    @classmethod
    def of(cls, scores: Float[Tensor, "p"], *weights: Tensor) -> ScoreHistogram:
        """Histogram of these scores with the sums of these weights."""
        if scores.numel() == 0:
            return cls(0, scores.new_zeros(1 + len(weights), 1, dtype=torch.float64))
        keys = score_keys(scores)
        offset, last = int(keys.min()), int(keys.max())
        index, bins = keys - offset, last - offset + 1
        sums = [binned_sum(index, bins, weight) for weight in (None, *weights)]
        return cls(offset, torch.stack(sums))

    def sparse(self) -> SparseHistogram:
        """The same in the wider bins that are kept for every image."""
        held = true_indices(self.rows[0] > 0)
        wide = (held + self.offset) >> (MANTISSA_BITS - IMAGE_BITS)
        keys, index = wide.unique_consecutive(return_inverse=True)
        rows = self.rows.new_zeros(len(self.rows), len(keys))
        rows.index_add_(1, index, self.rows.index_select(1, held))
        return SparseHistogram(keys.int().cpu(), rows.float().cpu())


class HistogramMetric(CountMetric, ABC):
    """A metric whose state is one or more score histograms.

    Args:
        rows: number of sums (pixels first) of each histogram, by name.
        kwargs: options of `torchmetrics.Metric`.
    """

    def __init__(self, rows: Mapping[str, int], **kwargs: Any) -> None:
        super().__init__({name: (k, SCORE_BINS) for name, k in rows.items()}, **kwargs)

    def add_histograms(self, histograms: Mapping[str, ScoreHistogram]) -> None:
        """Add the histograms of some pixels to the state."""
        for name, part in histograms.items():
            state = getattr(self, name)
            state[:, part.offset : part.offset + part.rows.shape[1]] += part.rows

    def scores_of(self, histograms: Mapping[str, ScoreHistogram]) -> Any:
        """The value of some pixels alone, for instance those of one image."""
        return self.scores({name: part.rows for name, part in histograms.items()})


def occupied(rows: Float[Tensor, "*s k b"]) -> tuple[Float[Tensor, "*s o"], ...]:
    """The rows at the bins that hold pixels, in ascending order of the score.

    Of many sets at once those bins are taken that hold pixels of any of them.
    """
    *sets, _, bins = rows.shape
    held = (rows[..., 0, :] > 0).reshape(math.prod(sets), bins).any(0)
    return rows.index_select(-1, true_indices(held)).unbind(-2)
