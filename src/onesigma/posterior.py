"""The variational posterior: one pass of a network gives mean, covariance and aleatoric scale.

    q(f) = N(h(x), Σ),  Σ_ij = (1/L) Σ_k g_k(x_i) g_k(x_j) + δ_ij D(x_i)    (paper eq. q_covariance)

h, g, D and log σ are 1 × 1 convolutions of the same feature maps (`heads`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onesigma.covariance import LowRankCovariance, MarginalCovariance
from onesigma.familiarity import Familiarity, ImageScale, watching
from onesigma.field import GaussianField
from onesigma.heads import CovarianceHeads, HeadOptions, Size
from onesigma.modes import evaluating, explaining_lone_values, normalising_apart

ContextStatistics = Literal["running", "joint"]

WARM_STATISTICS = 30


class Pass(NamedTuple):
    """What one pass of the network found.

    Attributes:
        features: may be coarser than the mean, see `CovarianceHeads`.
        mean: of q.
        unfamiliar: what is added to log D of an image, if it is.
        log_scale: of an image, if it has one.
    """

    features: Float[Tensor, "n f a b"]
    mean: Float[Tensor, "n c h w"]
    unfamiliar: Float[Tensor, "n 1 1 1"] | None = None
    log_scale: Float[Tensor, "n 1 1 1"] | None = None

    @property
    def size(self) -> Size:
        """Rows and columns of the mean."""
        return self.mean.shape[2], self.mean.shape[3]

    def followed_by(self, other: Pass) -> Pass:
        """The images of both."""
        features, mean = (torch.cat(pair) for pair in zip(self[:2], other[:2], strict=True))
        numbers = zip(self[2:], other[2:], strict=True)
        joined = (None if a is None or b is None else torch.cat([a, b]) for a, b in numbers)
        return Pass(features, mean, *joined)


class FunctionalPosterior(nn.Module, ABC):
    """q(f) over any batch of images, from any network that yields features and a mean.

    Args:
        heads: from features to covariance and scale.
        network: the one that passes read, watched for `HeadOptions.layer_distances` and the scale
            "image"; subclasses keep it.
        context_statistics: "running" sends context images through the network with the running
            normalisation statistics, so that odd images do not shift them and are seen as they will
            be at test time; "joint" puts them in one batch with the labelled images (the paper's
            code). Layers that are checkpointed (`torch.utils.checkpoint`) and normalise want
            "joint": "running" is over when the backward pass computes them again, and their
            gradients would be wrong.
    """

    steps: Tensor

    def __init__(
        self, heads: CovarianceHeads, network: nn.Module, context_statistics: ContextStatistics
    ) -> None:
        super().__init__()
        if context_statistics not in ("running", "joint"):
            raise ValueError(
                f'context_statistics is "running" or "joint", got {context_statistics!r}.'
            )
        self.heads, self.context_statistics = heads, context_statistics
        # all else starts as it does without
        with torch.random.fork_rng(devices=[]):
            self.familiarity = Familiarity(network) if heads.options.layer_distances else None
            self.image_scale = ImageScale(network) if heads.options.scale == "image" else None
        self.to(**kind_of(network))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @abstractmethod
    def features_and_mean(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[Float[Tensor, "n f a b"], Float[Tensor, "n c h w"]]:
        """One pass of the network."""

    def forward(
        self, images: Float[Tensor, "n k h w"], context: Float[Tensor, "m k h w"] | None = None
    ) -> tuple[GaussianField, Float[Tensor, "b s h w"]]:
        """The field over all n + m images, and log σ of each.

        Args:
            images: labelled images; in training they pass with batch statistics.
            context: further images at which only the divergence is measured.
        """
        found = self._all_images(images, context)
        features, mean, unfamiliar, log_scale = found
        diagonal = self.heads.diagonal(features, unfamiliar, found.size)
        covariance = LowRankCovariance(self.heads.factors(features, found.size), diagonal)
        return GaussianField(mean, covariance), self.heads.scale(features, log_scale, found.size)

    def marginals(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[GaussianField, Float[Tensor, "n s h w"]]:
        """Mean and variance of each image on its own; the factors are never held at full size."""
        found = self._pass(images)
        features, mean, unfamiliar, log_scale = found
        diagonal = self.heads.diagonal(features, unfamiliar, found.size)
        variance = self.heads.factor_variance(features, found.size) + diagonal
        field = GaussianField(mean, MarginalCovariance(variance))
        return field, self.heads.scale(features, log_scale, found.size)

    def _pass(self, images: Tensor) -> Pass:
        # one that is not learned yet need not be asked: watching takes time
        judges = [
            None if judge is None or (self.training and judge.silent) else judge
            for judge in (self.familiarity, self.image_scale)
        ]
        if not any(judges):
            return Pass(*self.features_and_mean(images))
        with watching(self) as found:
            features, mean = self.features_and_mean(images)
        seen = found.stacked(images)
        return Pass(features, mean, *(None if judge is None else judge(seen) for judge in judges))

    def _all_images(self, images: Tensor, context: Tensor | None) -> Pass:
        if context is None:
            return self._pass(images)
        if context.shape[1:] != images.shape[1:]:
            raise ValueError(
                f"The posterior got images of shape {tuple(images.shape)} and context images of "
                f"shape {tuple(context.shape)}; it wants the same channels, rows and columns. Make "
                "the context from the images, e.g. NoisyCopies()(images)."
            )
        if not self.training or self.context_statistics == "joint":
            return self._pass(torch.cat([images, context]))
        labelled = self._pass(images)
        self.steps += 1
        # the first steps' running statistics mean nothing: there, context uses its own
        running = int(self.steps) > WARM_STATISTICS
        with normalising_apart(self, running), explaining_lone_values(context):
            odd = self._pass(context)
        return labelled.followed_by(odd)


class VariationalGP(FunctionalPosterior):
    """The posterior around a network that returns feature maps at the images' size.

    Args:
        backbone: images (n, k, h, w) to features (n, f, h, w).
        outputs: C: 1 for depth, one per class for segmentation.
        rank: L.
        min_diagonal: added to D.
        options: scale, shared or coarse factors, where training starts.
        context_statistics: normalisation statistics of context images, see `FunctionalPosterior`.
        features: channels of the backbone's features; found by one small pass when left out.
    """

    def __init__(
        self,
        backbone: nn.Module,
        outputs: int,
        rank: int = 20,
        min_diagonal: float = 1e-3,
        options: HeadOptions | None = None,
        context_statistics: ContextStatistics = "running",
        features: int | None = None,
    ) -> None:
        options = options or HeadOptions()
        features = feature_channels(backbone) if features is None else features
        heads = CovarianceHeads(features, outputs, rank, min_diagonal, options)
        super().__init__(heads, backbone, context_statistics)
        self.backbone = backbone
        self.mean = nn.Conv2d(features, outputs, 1).to(**kind_of(backbone))
        with torch.no_grad():
            self.mean.bias.copy_(torch.tensor(options.mean))  # type: ignore[union-attr]

    def features_and_mean(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[Float[Tensor, "n f h w"], Float[Tensor, "n c h w"]]:
        """Features of the backbone and their mean head."""
        features = self.backbone(images)
        if features.ndim != 4 or features.shape[2:] != images.shape[2:]:
            raise ValueError(
                f"The backbone turned images of shape {tuple(images.shape)} into "
                f"{tuple(features.shape)}; VariationalGP wants feature maps (n, f, h, w) at the "
                "images' size. Up-sample at its end, or use onesigma.wrap for a finished network."
            )
        return features, self.mean(features)


def feature_channels(backbone: nn.Module) -> int:
    """How many feature maps a backbone returns, by one pass over a small black image."""
    probe = black_image(backbone)
    try:
        with torch.no_grad(), evaluating(backbone):
            return int(backbone(probe).shape[1])
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"The backbone did not accept a black image of shape {tuple(probe.shape)} ({error}); "
            "pass features=<number of its output channels>."
        ) from error


def black_image(network: nn.Module, size: int = 64) -> Float[Tensor, "1 k h w"]:
    """A small one in RGB, or with as many channels as the first convolution takes if it must be."""
    rgb = torch.zeros(1, 3, size, size, **kind_of(network))
    taken = [part.in_channels for part in network.modules() if isinstance(part, nn.Conv2d)]
    if not taken or taken[0] == 3:
        return rgb
    try:
        with torch.no_grad(), evaluating(network), torch.random.fork_rng(devices=[]):
            network(rgb)
    except RuntimeError:
        return rgb.new_zeros(1, taken[0], size, size)
    return rgb


def kind_of(network: nn.Module) -> dict[str, Any]:
    """Type and device of the first parameter, as arguments of `to`; those of torch if none."""
    numbers = (p for p in network.parameters() if p.is_floating_point())
    first = next(numbers, torch.zeros(()))
    return {"dtype": first.dtype, "device": first.device}
