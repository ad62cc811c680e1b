"""The functional evidence lower bound, per pixel so that images of any size compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from onesigma.divergence import kl_divergence, marginal_divergence
from onesigma.field import GaussianField
from onesigma.grid import PixelGrid
from onesigma.likelihoods.base import Likelihood

Normalisation = Literal["labelled", "valid"]


@dataclass(frozen=True, eq=False)
class FunctionalELBO:
    """value = fit - kl_weight · kl, in nats per pixel, the fit weighed if asked; maximise `value`.

    Attributes:
        value: the bound.
        fit: mean of E_q log p(y | f) over the valid pixels.
        kl: KL(q ‖ p) over all images, context included, per pixel of the labelled images.
    """

    value: Float[Tensor, ""]
    fit: Float[Tensor, ""]
    kl: Float[Tensor, ""]


def functional_elbo(
    fit: Float[Tensor, "n h w"],
    kl: Float[Tensor, "c h w"],
    valid: Bool[Tensor, "n h w"] | None = None,
    kl_weight: float | Tensor = 1.0,
    normalisation: Normalisation = "labelled",
    weights: Float[Tensor, "n h w"] | None = None,
) -> FunctionalELBO:
    """L = (1/|V|) Σ_V E_q log p(y | f) - kl_weight · KL(q ‖ p) / (n h w).

    With weight 1 this is the paper's mini-batch bound: its optimum does not depend on how many
    training images there are. `data_weight` gives B/N, the weight of a bound on the whole data set.

    Args:
        fit: expected log-probabilities of the labelled images, 0 where not valid.
        kl: unreduced divergence over labelled and context images.
        valid: pixels that have a target; all when left out.
        kl_weight: what multiplies the divergence.
        normalisation: "labelled" divides the divergence by all pixels of the labelled images,
            "valid" by the pixels with a target only, as the published code does.
        weights: what the fit of a pixel counts in `value`, of mean 1; all alike when left out,
            which alone is a bound. See `noise_weights`.
    """
    if fit.ndim != 3 or kl.ndim != 3 or fit.shape[1:] != kl.shape[1:]:
        raise ValueError(
            f"functional_elbo got a fit of shape {tuple(fit.shape)} and a kl of shape "
            f"{tuple(kl.shape)}; it wants (n, h, w) and (c, h, w) of the same pixels, not reduced."
        )
    for name, maps in (("valid", valid), ("weights", weights)):
        if maps is not None and maps.shape != fit.shape:
            raise ValueError(
                f"functional_elbo got {name} of shape {tuple(maps.shape)}; it wants that of the "
                f"fit, {tuple(fit.shape)}."
            )
    pixels = fit.new_tensor(float(fit.numel()))
    count = pixels if valid is None else valid.sum().to(fit.dtype)
    # no valid pixel in the batch: the fit is an empty sum, 0
    seen = count.clamp_min(1.0)
    if normalisation not in ("labelled", "valid"):
        raise ValueError(f'normalisation is "labelled" or "valid", got {normalisation!r}.')
    mean_fit = fit.sum() / seen
    mean_kl = kl.sum() / (pixels if normalisation == "labelled" else seen)
    counted = mean_fit if weights is None else (fit * weights).sum() / seen
    return FunctionalELBO(counted - kl_weight * mean_kl, mean_fit, mean_kl)


def training_divergence(
    q: GaussianField,
    p: GaussianField,
    labelled: int,
    context_weight: int | float = 1,
    stride: int = 1,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "c h w"]:
    """KL(q ‖ p) as training measures it: context weighed, on a random grid of pixels.

    With labelled images X and context X', weight c and stride s, s² times
    KL(X) + c (KL(X, X') − KL(X)) at every s-th row and column from a random offset, 0 elsewhere:
    its sum over pixels is an unbiased estimate for a fraction of the time.

    Args:
        q: posterior at the labelled images, then the context.
        p: prior at the same.
        labelled: how many of the images are.
        context_weight: c.
        stride: s.
        generator: source of the offset.
    """
    if context_weight < 0:
        raise ValueError(
            f"training_divergence got context_weight {context_weight}; it wants a weight of at "
            "least 0."
        )
    if not 1 <= labelled <= len(q):
        raise ValueError(
            f"training_divergence got labelled={labelled} for a field over {len(q)} images; it "
            f"wants how many of them have a target, from 1 to {len(q)}."
        )
    if stride != 1:
        grid = PixelGrid.random(_size(q.mean), stride, generator)
        sparse = training_divergence(grid.of(q), grid.of(p), labelled, context_weight)
        return grid.spread(sparse)
    kl = kl_divergence(q, p)
    if context_weight == 1:
        return kl
    alone = kl_divergence(q[:labelled], p[:labelled])
    return context_weight * kl + (1 - context_weight) * alone


def unlabelled_divergence(
    q: GaussianField, p: GaussianField, unlabelled: Bool[Tensor, "n h w"]
) -> Float[Tensor, "c h w"]:
    """Σ_i KL(q(f_i) ‖ p(f_i)) over the images in which a pixel has no target, each by itself.

    Where nothing is observed the posterior is the prior. The bound says so too, but at weight B/N
    so softly that a network hardly hears it; adding this term some times over moves no optimum of
    a flexible posterior, it only asks louder.

    Args:
        q: posterior at the labelled images.
        p: prior at the same.
        unlabelled: pixels that have no target.
    """
    pixels = (len(q), *q.mean.shape[2:])
    if tuple(unlabelled.shape) != pixels or q.mean.shape != p.mean.shape:
        raise ValueError(
            f"unlabelled_divergence got q over {tuple(q.mean.shape)}, p over "
            f"{tuple(p.mean.shape)} and a mask of shape {tuple(unlabelled.shape)}; it wants fields "
            f"over the same images and a mask {pixels}. Cut context images off: q[:n] and p[:n]."
        )
    return (marginal_divergence(q, p) * unlabelled[:, None]).sum(0)


def sparse_expected_log_prob(
    likelihood: Likelihood,
    target: Tensor,
    q: GaussianField,
    log_scale: Float[Tensor, "n #c h w"] | None = None,
    valid: Bool[Tensor, "n h w"] | None = None,
    stride: int = 1,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "n h w"]:
    """E_q log p(y | f), what the variance of f takes from it measured on a random grid of pixels.

    With mean m and stride s, log p(y | m) everywhere plus, at every s-th row and column from a
    random offset, s² times E_q log p(y | f) − log p(y | m): unbiased, and the mean, which most of
    the gradient is for, hears every pixel.

    Args:
        likelihood: p(y | f).
        target: labels or values.
        q: the field at the labelled images.
        log_scale: log σ.
        valid: pixels that have a target.
        stride: s; 1 measures everything everywhere.
        generator: source of the offset.
    """
    if stride == 1:
        return likelihood.expected_log_prob(target, q, log_scale, valid)
    grid = PixelGrid.random(_size(q.mean), stride, generator)
    at_mean = likelihood.log_prob(target, q.mean, log_scale, valid)
    others = (None if x is None else grid.of(x) for x in (log_scale, valid))
    expected = likelihood.expected_log_prob(grid.of(target), grid.of(q), *others)
    return at_mean + grid.spread(expected - grid.of(at_mean))


def noise_weights(
    log_scale: Float[Tensor, "n c h w"],
    power: float,
    valid: Bool[Tensor, "n h w"],
) -> Float[Tensor, "n h w"]:
    """What the fit of a pixel counts: σ^power, of mean 1 over valid pixels, without a gradient.

    A log-density divides the residual by σ, so where the noise is said to be large the mean hardly
    learns, and the noise stays large (Seitzer et al., 2022). With power 1 all residuals pull
    alike, as in a network without a scale; the best σ of a pixel stays what it was.

    Args:
        log_scale: log σ; of several outputs the mean counts.
        power: from 0, the bound itself, to 1.
        valid: pixels that have a target.
    """
    if not 0 <= power <= 1:
        raise ValueError(f"noise_weights got the power {power}; it wants one from 0 to 1.")
    weights = (power * log_scale.detach().mean(1)).exp()
    # no valid pixel in the batch: nothing is counted anyway
    return weights * valid.sum() / (weights * valid).sum().clamp_min(torch.finfo().tiny)


def data_weight(
    batch_images: int, training_images: int, correlated_pixels: int | float = 1
) -> float:
    """B / (N A): the divergence is paid once per pass over the N training images.

    With this weight the posterior variance falls as 1/N; with weight 1 it does not depend on N.

    Args:
        batch_images: B.
        training_images: N.
        correlated_pixels: A, how many neighbouring pixels share one unknown. A prior without
            covariance between pixels counts that unknown A times; 1 takes it at its word. Below
            1 where it is the targets that err together: 1/A pixels are one observation.
    """
    if not 0 < batch_images <= training_images:
        raise ValueError(
            f"data_weight got a batch of {batch_images} out of {training_images} training images; "
            "it wants 0 < batch ≤ training."
        )
    if correlated_pixels <= 0:
        raise ValueError(f"correlated_pixels is a number above 0, got {correlated_pixels}.")
    return batch_images / (training_images * correlated_pixels)


def _size(maps: Tensor) -> tuple[int, int]:
    return maps.shape[-2], maps.shape[-1]
