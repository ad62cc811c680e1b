"""Priors: functions from images to a Gaussian field, closed form or sampled.

Every prior here is the product of its pixel marginals: for each pixel the joint Gaussian over
images, pixels independent of each other. That is what the KL of the paper uses and a legitimate
prior, but not the joint prior of a random convolutional network, whose neighbouring pixels are
almost perfectly correlated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onesigma.covariance import BlockCovariance
from onesigma.field import GaussianField
from onesigma.kernels import KernelState, Layer, Positive


class Prior(nn.Module, ABC):
    """p(f) = N(mean, K(x_i, x_j) + δ_ij noise), one n × n matrix over images for every pixel.

    Args:
        outputs: c, independent and equally distributed around their means.
        mean: one number, or one for every output.
        noise: variance of the white noise on the diagonal.
        learn: which of "mean", "noise" become parameters.
    """

    learnable: ClassVar[tuple[str, ...]] = ("mean", "noise")

    def __init__(
        self,
        outputs: int,
        mean: float | Sequence[float] = 0.0,
        noise: float = 0.1,
        learn: Collection[str] = (),
    ) -> None:
        super().__init__()
        means = [float(mean)] * outputs if isinstance(mean, float | int) else list(mean)
        if outputs < 1 or len(means) != outputs:
            raise ValueError(
                f"A prior got {outputs} outputs and {len(means)} means; it wants at least one "
                "output and one mean, or one for every output."
            )
        if isinstance(learn, str) or set(learn) - set(self.learnable):
            raise ValueError(f"learn got {learn!r}; it wants names among {self.learnable}.")
        self.outputs = outputs
        self.start_mean = means
        self.noise = Positive(noise, "noise")
        self.mean: nn.Parameter | None
        self.register_parameter("mean", None)
        if "mean" in learn:
            self.mean = nn.Parameter(torch.tensor(means))
        if "noise" in learn:
            self.noise.learn()

    @abstractmethod
    def covariance(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n n 1 y x"]:
        """K(x_i, x_j) of every output pixel, without the white noise."""

    def forward(self, images: Float[Tensor, "n k h w"]) -> GaussianField:
        """The prior at these images, white noise included (n, c, h, w)."""
        _check_images(images)
        blocks = self._noisy_covariance(images)
        n, height, width = len(images), *blocks.shape[-2:]
        mean = blocks.new_tensor(self.start_mean) if self.mean is None else self.mean.to(blocks)
        mean = mean.view(1, -1, 1, 1).expand(n, self.outputs, height, width)
        return GaussianField(mean, BlockCovariance(blocks))

    def _noisy_covariance(self, images: Tensor) -> Tensor:
        """K_ij + δ_ij noise, δ by position in the batch."""
        blocks, n = self.covariance(images), len(images)
        white = torch.eye(n, dtype=blocks.dtype, device=blocks.device) * self.noise()
        return blocks + white.view(n, n, 1, 1, 1)


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or len(images) == 0 or not images.is_floating_point():
        raise ValueError(
            f"A prior got images of shape {tuple(images.shape)} and type {images.dtype}; it wants "
            "at least one floating-point image, (n, k, h, w), RGB in [0, 1]."
        )


class CNNGPPrior(Prior):
    """The Gaussian process of an infinitely wide random network: K = scale · kernel(x_i, x_j).

    Args:
        kernel: the network, layer by layer; see `onesigma.kernels`.
        outputs: c, independent and equally distributed around their means.
        mean: one number, or one for every output.
        noise: variance of the white noise on the diagonal.
        scale: factor on the kernel.
        learn: which of "mean", "noise", "scale", "kernel" become parameters; "kernel" is every
            weight and bias variance above 0.
    """

    learnable = ("mean", "noise", "scale", "kernel")

    def __init__(
        self,
        kernel: Layer,
        outputs: int,
        mean: float | Sequence[float] = 0.0,
        noise: float = 0.1,
        scale: float = 1.0,
        learn: Collection[str] = (),
    ) -> None:
        super().__init__(outputs, mean, noise, learn)
        self.kernel = kernel
        self.scale = Positive(scale, "scale")
        learned = [self.scale] if "scale" in learn else []
        if "kernel" in learn:
            learned += [part for part in kernel.modules() if isinstance(part, Positive)]
        for part in learned:
            part.learn()

    def covariance(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n n 1 y x"]:
        """The kernel, unpacked to all ordered pairs."""
        state = self.kernel.propagate(KernelState.of_images(images))
        scale = self.scale()
        # a plain 1 need not be multiplied by; a learned one must, or it stays 1
        plain = not isinstance(scale, Tensor) and scale == 1.0
        maps = state.maps if plain else state.maps * scale
        return state.move(maps).blocks().unsqueeze(2)

    def _noisy_covariance(self, images: Tensor) -> Tensor:
        """In the memory of the blocks, which nobody else holds."""
        blocks = self.covariance(images)
        blocks.diagonal().add_(self.noise())
        return blocks


class SampledPrior(Prior):
    """The covariance of any random network, from samples: K̂ = (1 − λ) S + λ diag(S).

    S is the sample covariance of `samples` random networks, averaged over their outputs. Pooling,
    attention, whatever: what a factory can build has a prior. The same networks are drawn at every
    call (only their seeds are kept), so that K̂ is one function of the images. Networks run in
    evaluation mode; no gradient passes through them. Two-dimensional outputs (n, c) become
    (n, c, 1, 1). Positive definite because λ > 0, unless a pixel has no variance at all.

    Args:
        network_factory: returns a network with new random weights, drawn from torch's global
            generator (which is seeded for it and restored).
        outputs: c, the outputs of the prior; those of the networks are taken as exchangeable.
        mean: one number, or one for every output.
        noise: variance of the white noise on the diagonal.
        samples: how many networks.
        shrinkage: λ in (0, 1]; None estimates it from the sampling error of the correlations,
            Σ (1 − ρ²)² / (samples − 1) / Σ ρ², at least 0.001.
        learn: which of "mean", "noise" become parameters.
        generator: source of the seeds.
    """

    seeds: Tensor

    def __init__(
        self,
        network_factory: Callable[[], nn.Module],
        outputs: int,
        mean: float | Sequence[float] = 0.0,
        noise: float = 0.1,
        samples: int = 100,
        shrinkage: float | None = None,
        learn: Collection[str] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(outputs, mean, noise, learn)
        if samples < 2 or not (shrinkage is None or 0 < shrinkage <= 1):
            raise ValueError(
                f"SampledPrior got {samples} samples and shrinkage {shrinkage}; it wants at least "
                "2 samples and 0 < shrinkage ≤ 1, or None to estimate it."
            )
        self.network_factory = network_factory
        self.shrinkage = shrinkage
        seeds = torch.randint(2**62, (samples,), generator=generator)
        self.register_buffer("seeds", seeds)

    @torch.no_grad()
    def covariance(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n n 1 y x"]:
        """The shrunk sample covariance."""
        sample = self._sample_covariance(images)
        shrinkage = self.shrinkage
        if shrinkage is None:
            shrinkage = _estimated_shrinkage(sample, len(self.seeds))
        eye = torch.eye(len(images), dtype=sample.dtype, device=sample.device)
        # K̂_ij = (1 − λ) S_ij for i ≠ j, K̂_ii = S_ii
        keep = 1 - shrinkage * (1 - eye)
        return (sample * keep[:, :, None, None]).unsqueeze(2)

    def _sample_covariance(self, images: Tensor) -> Tensor:
        """S_ij = mean over c of Σ_s (f_si − f̄_i)(f_sj − f̄_j) / (S − 1), one network at a time."""
        mean: Tensor | float = 0.0
        total: Tensor | float = 0.0
        for count, seed in enumerate(self.seeds.tolist(), start=1):
            f = self._draw(seed, images)
            delta = f - mean
            mean = mean + delta / count
            # Welford: M_s = M_{s−1} + (s − 1)/s δ δᵀ
            total = total + (1 - 1 / count) * KernelState.of_images(delta).maps
        assert isinstance(total, Tensor)
        return KernelState(total / (len(self.seeds) - 1), len(images)).blocks()

    def _draw(self, seed: int, images: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.network_factory()
        f: Tensor = network.to(images).eval()(images)
        if f.ndim == 2:
            f = f[:, :, None, None]
        if f.ndim != 4 or len(f) != len(images):
            raise ValueError(
                f"A sampled network gave shape {tuple(f.shape)} for {len(images)} images; "
                "it wants (n, c, h, w) or (n, c)."
            )
        return f


def _estimated_shrinkage(sample: Tensor, samples: int) -> float:
    correlation = _correlations(sample)
    if not correlation.numel():
        return 1e-3
    # λ = Σ var(ρ̂) / Σ ρ̂², var(ρ̂) ≈ (1 − ρ²)² / (S − 1) for Gaussian outputs
    error = (1 - correlation.square()).square().sum() / (samples - 1)
    ratio = float(error / correlation.square().sum().clamp_min(1e-12))
    return min(max(ratio, 1e-3), 1.0)


def _correlations(blocks: Float[Tensor, "n n h w"]) -> Float[Tensor, " values"]:
    """K_ij / √(K_ii K_jj) of all pairs i < j and all pixels, 0 where a variance is 0."""
    inverse = _inverse_deviation(blocks)
    i, j = torch.triu_indices(len(blocks), len(blocks), offset=1, device=blocks.device)
    return (blocks[i, j] * inverse[i] * inverse[j]).clamp(-1, 1).flatten()


def _inverse_deviation(blocks: Tensor) -> Tensor:
    variance = torch.einsum("iihw->ihw", blocks)
    return torch.where(variance > 0, variance.rsqrt(), 0.0)


@dataclass(frozen=True)
class PriorReport:
    """How much a prior sees of a batch of images; without the white noise.

    Attributes:
        images: n.
        correlation: quantiles of the image-image correlation over pairs and pixels, by level.
        effective_rank: exp of the entropy of the eigenvalues of the n × n correlation matrix,
            averaged over pixels: 1 if all images look alike to the prior, n if all are unrelated.
        variance: quantiles of the prior variance over images and pixels, by level.
    """

    images: int
    correlation: dict[float, float]
    effective_rank: float
    variance: dict[float, float]

    def __str__(self) -> str:
        def row(name: str, quantiles: dict[float, float]) -> str:
            return name + "".join(f"  {100 * q:g} %: {v:.4f}" for q, v in quantiles.items())

        rank = f"effective rank  {self.effective_rank:.2f} of {self.images} images"
        return "\n".join(
            [row("correlation", self.correlation), row("variance   ", self.variance), rank]
        )


_LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@torch.no_grad()
def prior_report(prior: Prior, images: Float[Tensor, "n k h w"]) -> PriorReport:
    """Correlations, effective rank and variances of a prior at these images.

    Args:
        prior: any.
        images: at least two.
    """
    if len(images) < 2:
        raise ValueError(
            f"prior_report got {len(images)} image(s); correlations want at least two."
        )
    blocks = prior.covariance(images).squeeze(2)
    variance = torch.einsum("iihw->ihw", blocks)
    return PriorReport(
        len(images),
        _quantiles(_correlations(blocks)),
        _effective_rank(blocks),
        _quantiles(variance.flatten()),
    )


def _quantiles(values: Float[Tensor, " values"]) -> dict[float, float]:
    ordered = values.sort().values  # torch.quantile refuses more than 16 million values
    return {level: float(ordered[round(level * (len(ordered) - 1))]) for level in _LEVELS}


def _effective_rank(blocks: Float[Tensor, "n n h w"]) -> float:
    inverse = _inverse_deviation(blocks)
    correlation = (blocks * inverse[:, None] * inverse[None]).movedim((0, 1), (-2, -1))
    # exp H(λ / Σ λ)
    share = torch.linalg.eigvalsh(correlation.double()).clamp_min(0)
    share = share / share.sum(-1, keepdim=True).clamp_min(1e-12)
    return float(torch.special.entr(share).sum(-1).exp().mean())
