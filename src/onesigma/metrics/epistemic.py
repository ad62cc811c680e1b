"""Is the epistemic uncertainty real? What f carries, and what is lost without it."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onesigma.covariance import MarginalCovariance
from onesigma.divergence import marginal_divergence
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood
from onesigma.metrics.bins import binned_sum
from onesigma.metrics.counting import (
    CountMetric,
    Counts,
    count_of,
    map_and_label_pixels,
    map_pixels,
)
from onesigma.metrics.proper import NLL
from onesigma.priors import Prior

_DECISIONS = ("mean", "scale", "both")


class DecisionShares(CountMetric):
    """Who decides the label: arg max of f, of 1/σ², or of f/σ² (`Boltzmann`'s logits).

    For each: accuracy, and the share of pixels where it says the same as f/σ². If σ alone is as
    right as both, the label is carried by the scales, which pay no KL, and not by q.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"right": (3,), "same": (3,), "pixels": ()}, **kwargs)

    def update(
        self,
        mean: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> None:
        """Add images.

        Args:
            mean: E f under q.
            log_scale: log σ, one for each class or one shared by all.
            target: labels.
            valid: pixels to count, default labels in range.
        """
        self.add(self.count(mean, log_scale, target, valid))

    def count(
        self,
        mean: Float[Tensor, "n c h w"],
        log_scale: Float[Tensor, "n #c h w"],
        target: Int[Tensor, "n h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Counts:
        """Pixels at which each is right, and at which it says the same as f/σ²."""
        f, labels = map_and_label_pixels(mean, target, valid)
        precision = map_and_label_pixels((-2 * log_scale).expand_as(mean), target, valid)[0]
        both = (f * (precision - precision.amax(0)).exp()).max(0).indices
        choices = torch.stack([f.max(0).indices, precision.max(0).indices, both])
        right, same = (choices == labels).sum(1), (choices == both).sum(1)
        # a scale shared by the classes decides nothing
        mute = torch.tensor([0.0, torch.nan if log_scale.shape[1] == 1 else 0.0, 0.0])
        mute = mute.to(right.device)
        return {"right": right + mute, "same": same + mute, "pixels": count_of(labels)}

    def scores(self, counts: Counts) -> dict[str, dict[str, Tensor]]:
        """`accuracy` and `agreement` of `mean`, `scale` and `both`; NaN for a shared scale."""
        pixels = counts["pixels"][..., None]
        right, same = ((counts[name] / pixels).unbind(-1) for name in ("right", "same"))
        return {
            "accuracy": dict(zip(_DECISIONS, right, strict=True)),
            "agreement": dict(zip(_DECISIONS, same, strict=True)),
        }


class KLPerPixel(CountMetric):
    """KL(q ‖ p) in nats per pixel: summed over outputs, divided by the n·h·w pixels."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"total": (), "pixels": ()}, **kwargs)

    def update(self, kl: Float[Tensor, "c h w"], images: int) -> None:
        """Add a batch: `kl_divergence` of its field, which covers all its images at once."""
        self.add(self.count(kl, images))

    def count(self, kl: Float[Tensor, "c h w"], images: int) -> Counts:
        """Nats, and the pixels they are of."""
        return {"total": kl.sum(dtype=torch.float64), "pixels": count_of(kl[0]) * images}

    def scores(self, counts: Counts) -> Tensor:
        """Mean over pixels."""
        return counts["total"] / counts["pixels"]


def decision_shares(
    mean: Float[Tensor, "n c h w"],
    log_scale: Float[Tensor, "n #c h w"],
    target: Int[Tensor, "n h w"],
    valid: Bool[Tensor, "n h w"] | None = None,
) -> dict[str, dict[str, Tensor]]:
    """`DecisionShares` of one batch."""
    metric = DecisionShares()
    metric.update(mean, log_scale, target, valid)
    return metric.compute()


def predictive_nll(
    likelihood: Likelihood,
    q: GaussianField,
    log_scale: Float[Tensor, "n #c h w"] | None,
    target: Tensor,
    valid: Bool[Tensor, "n h w"] | None = None,
) -> Float[Tensor, ""]:
    """Mean −log ∫ p(y | f) q(f) df over valid pixels."""
    metric = NLL()
    metric.update(likelihood.predict(q.marginals(), log_scale), target, valid)
    return metric.compute()


def nll_without_mean(
    likelihood: Likelihood,
    q: GaussianField,
    log_scale: Float[Tensor, "n #c h w"] | None,
    prior_mean: int | float | Float[Tensor, "#n #c #h #w"],
    target: Tensor,
    valid: Bool[Tensor, "n h w"] | None = None,
) -> Float[Tensor, ""]:
    """NLL when q's mean is replaced by the prior's: no worse means q's mean carries nothing."""
    return predictive_nll(likelihood, with_mean(q, prior_mean), log_scale, target, valid)


def nll_with_shuffled_variance(
    likelihood: Likelihood,
    q: GaussianField,
    log_scale: Float[Tensor, "n #c h w"] | None,
    target: Tensor,
    valid: Bool[Tensor, "n h w"] | None = None,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """NLL when every image gets the epistemic variance of another one of the batch.

    No worse than before means that the maps do not know their image.
    """
    return predictive_nll(likelihood, shuffled_variance(q, generator), log_scale, target, valid)


def with_mean(q: GaussianField, mean: int | float | Float[Tensor, "#n #c #h #w"]) -> GaussianField:
    """The marginals of q around another mean."""
    other = torch.as_tensor(mean, dtype=q.mean.dtype, device=q.mean.device).expand_as(q.mean)
    return GaussianField(other, MarginalCovariance(q.variance))


def shuffled_variance(q: GaussianField, generator: torch.Generator | None = None) -> GaussianField:
    """The marginals of q with variances moved between images along one random cycle."""
    if len(q) < 2:
        raise ValueError("shuffled_variance got one image; it wants at least two.")
    order = torch.randperm(len(q), generator=generator)
    source = torch.empty_like(order)
    source[order] = order.roll(1)
    return with_variance(q, q.variance[source.to(q.mean.device)])


def with_variance(q: GaussianField, variance: Float[Tensor, "n c h w"]) -> GaussianField:
    """The mean of q with another variance."""
    return GaussianField(q.mean, MarginalCovariance(variance))


def image_divergence(
    q: GaussianField, prior: Prior, images: Float[Tensor, "n k h w"], step: int = 1
) -> Float[Tensor, "n c y x"]:
    """KL(q(f(x_i)) ‖ p(f(x_i))) of every image x_i on its own, in nats per output and pixel.

    Of one image only means and variances enter. The divergence of several images at once is that
    of no single one: it also measures how they hang together, and grows with those that happen to
    share a batch.

    Args:
        q: the field at the images; marginals are enough.
        prior: p.
        images: RGB in [0, 1].
        step: every how many rows and columns; pixels are independent of each other here.
    """
    _, rows, columns = pixel_grid(step)
    pairs = ((q[i : i + 1], prior(images[i : i + 1])) for i in range(len(images)))
    each = [marginal_divergence(f.at(rows, columns), p.at(rows, columns)) for f, p in pairs]
    return torch.cat(each)


def pixel_grid(step: int) -> tuple[EllipsisType, slice, slice]:
    """The index of every `step`-th row and column of maps, the outermost not over-represented."""
    every = slice(step // 2, None, step)
    return ..., every, every


class NoiseCorrelation(CountMetric):
    """Predicted against true aleatoric noise where the data know it, as standard deviations.

    `pearson` from moments; `spearman` as the correlation of mid-ranks on a grid of 1024 × 1024
    float-bit bins (32 to the octave, from 2⁻²⁰ to 2¹²); `ratio` = mean predicted / mean true.
    """

    _OCTAVES, _BITS, _LOWEST = 32, 5, -20

    def __init__(self, **kwargs: Any) -> None:
        self._bins = self._OCTAVES << self._BITS
        super().__init__({"moments": (6,), "grid": (self._bins, self._bins)}, **kwargs)

    def update(
        self,
        predicted: Float[Tensor, "..."],
        true: Float[Tensor, "..."],
        valid: Bool[Tensor, "..."] | None = None,
    ) -> None:
        """Add pixels: positive maps of one shape; `valid` of that shape or without outputs."""
        self.add(self.count(predicted, true, valid))

    def count(
        self,
        predicted: Float[Tensor, "..."],
        true: Float[Tensor, "..."],
        valid: Bool[Tensor, "..."] | None = None,
    ) -> Counts:
        """Moments and the grid of these pixels."""
        if valid is not None and valid.ndim < true.ndim:
            valid = valid.unsqueeze(1).expand_as(true)
        x, y = map_pixels(valid, predicted, true)
        index = self._octave_bins(x) * self._bins + self._octave_bins(y)
        grid = binned_sum(index, self._bins**2).view(self._bins, self._bins)
        return {"moments": _moments(x.double(), y.double()), "grid": grid}

    def scores(self, counts: Counts) -> dict[str, Tensor]:
        """`pearson`, `spearman`, `ratio`."""
        return {**moment_scores(counts["moments"]), "spearman": grid_spearman(counts["grid"])}

    def _octave_bins(self, values: Float[Tensor, "p"]) -> Int[Tensor, "p"]:
        """Exponent and leading mantissa bits, clipped to the grid."""
        pattern = values.float().view(torch.int32) >> (23 - self._BITS)
        lowest = (127 + self._LOWEST) << self._BITS
        return (pattern - lowest).clamp(0, self._bins - 1).long()


def moment_scores(moments: Float[Tensor, "*s 6"]) -> dict[str, Tensor]:
    """`pearson` and `ratio` from N, Σx, Σy, Σx², Σy², Σxy."""
    pixels, x, y, xx, yy, xy = moments.unbind(-1)
    # (N Σxy − Σx Σy) / √((N Σx² − (Σx)²) (N Σy² − (Σy)²))
    spread = ((pixels * xx - x * x) * (pixels * yy - y * y)).sqrt()
    return {"pearson": (pixels * xy - x * y) / spread, "ratio": x / y}


def grid_spearman(grid: Float[Tensor, "a b"]) -> Float[Tensor, ""]:
    """Correlation of mid-ranks of the pixels counted on a grid."""
    rows, columns = grid.sum(1), grid.sum(0)
    total = rows.sum()
    # mid-rank, centred: (number below) + (number tied)/2 − N/2
    a, b = (x.cumsum(0) - x / 2 - total / 2 for x in (rows, columns))
    return (a @ grid @ b) / ((rows @ a.square()) * (columns @ b.square())).sqrt()


def _moments(x: Float[Tensor, "p"], y: Float[Tensor, "p"]) -> Float[Tensor, "6"]:
    """N, Σx, Σy, Σx², Σy², Σxy."""
    return torch.stack([count_of(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])
