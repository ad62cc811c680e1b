"""A network that predicts a value and its noise, by maximum likelihood (Kendall & Gal, 2017)."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from onesigma.baselines.base import Baseline, average, certain, pixel_head
from onesigma.field import GaussianField
from onesigma.likelihoods.base import Likelihood, mask_regression


class Heteroscedastic(Baseline):
    """Mean f(x) and scale σ(x) of every pixel: L = -mean log p(y | f(x), σ(x)).

    All its uncertainty is aleatoric; `MCDropout` or `DeepEnsemble` around it add the epistemic one.

    Args:
        backbone: a network with `out_channels` features at the images' resolution.
        outputs: c.
        likelihood: `Gaussian()` or `Laplace()`; any other likelihood of values works too.
    """

    def __init__(self, backbone: nn.Module, outputs: int, likelihood: Likelihood) -> None:
        super().__init__()
        self.backbone = backbone
        self.likelihood = likelihood
        self.head = pixel_head(backbone, outputs, scales=outputs)

    def forward(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """Mean and log σ."""
        mean, log_scale = self.head(self.backbone(images)).chunk(2, 1)
        return mean, log_scale

    def loss(
        self,
        images: Float[Tensor, "n k h w"],
        target: Float[Tensor, "n c h w"],
        valid: Bool[Tensor, "n h w"] | None = None,
    ) -> Float[Tensor, ""]:
        """-log p(y | f, σ), summed over outputs, averaged over valid pixels."""
        target, valid = mask_regression(target, valid)
        mean, log_scale = self(images)
        return -average(self.likelihood.log_prob(target, mean, log_scale, valid), valid)

    def marginals(
        self, images: Float[Tensor, "n k h w"]
    ) -> tuple[GaussianField, Float[Tensor, "n c h w"]]:
        """f(x) and log σ(x)."""
        mean, log_scale = self(images)
        return certain(mean), log_scale

    def law(self, f: GaussianField, log_scale: Float[Tensor, "n c h w"]) -> Any:
        """p(y | f(x), σ(x))."""
        return self.likelihood.predict(f, log_scale)
