"""A network trained on a loss: one value, or one softmax, for every pixel."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from onesigma.baselines.base import Baseline, Prediction, certain, pixel_head
from onesigma.baselines.losses import L1Loss, PixelLoss, ReverseHuberLoss, SoftmaxLoss
from onesigma.field import GaussianField

LossName = Literal["l1", "berhu", "cross_entropy", "boltzmann"]


class Deterministic(Baseline):
    """A plain network; what uncertainty it has is aleatoric.

    A regression network gets the law its loss implies, p(y | x) ∝ exp(-loss(y - f(x)) / σ), with
    one σ for all pixels: the maximum-likelihood value over the last training batches. A
    segmentation network has its softmax.

    Args:
        backbone: a network with `out_channels` features at the images' resolution.
        outputs: c.
        loss: "l1", "berhu" (threshold a fifth of the batch's largest residual), "cross_entropy", or
            "boltzmann": cross-entropy of f / σ² with a learned scale per class and pixel.
    """

    def __init__(self, backbone: nn.Module, outputs: int, loss: LossName = "l1") -> None:
        super().__init__()
        self.backbone = backbone
        self.pixel_loss = _pixel_loss(loss)
        scales = outputs if loss == "boltzmann" else 0
        self.head = pixel_head(backbone, outputs, scales)

    def forward(self, images: Float[Tensor, "n k h w"]) -> Float[Tensor, "n d h w"]:
        """What the loss reads: c outputs, for "boltzmann" followed by c log-scales."""
        return self.head(self.backbone(images))

    def loss(
        self,
        images: Float[Tensor, "n k h w"],
        target: Tensor,
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss, summed over outputs, averaged over valid pixels."""
        return self.pixel_loss(self(images), target, valid)

    def marginals(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[GaussianField, Float[Tensor, "n 1 h w"]]:
        """What the loss reads, and zeros."""
        outputs = self(images)
        return certain(outputs), torch.zeros_like(outputs[:, :1])

    def law(self, f: GaussianField, log_scale: Float[Tensor, "n 1 h w"]) -> Prediction:
        """The law that the loss implies, or the softmax."""
        return self.pixel_loss.predict(f.mean)


def _pixel_loss(name: str) -> PixelLoss:
    if name in ("cross_entropy", "boltzmann"):
        return SoftmaxLoss(scaled=name == "boltzmann")
    if name == "l1":
        return L1Loss()
    if name == "berhu":
        return ReverseHuberLoss()
    raise ValueError(
        f"Deterministic got loss={name!r}; it wants 'l1' or 'berhu' for values, 'cross_entropy' or "
        "'boltzmann' for labels."
    )
