"""One face for all methods: a loss with its terms, and predictions in the model's space."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from onesigma.baselines import Baseline, DeepEnsemble, MCDropout
from onesigma.baselines.base import Prediction
from onesigma.context import Context, Strangers
from onesigma.covariance import LowRankCovariance
from onesigma.field import GaussianField
from onesigma.grid import PixelGrid
from onesigma.likelihoods.base import Likelihood
from onesigma.objective import (
    Normalisation,
    functional_elbo,
    noise_weights,
    sparse_expected_log_prob,
    training_divergence,
    unlabelled_divergence,
)
from onesigma.posterior import FunctionalPosterior
from onesigma.priors import Prior
from onesigma.views import View, whole


@dataclass(frozen=True, eq=False)
class Batch:
    """Images with targets in the model's space.

    Attributes:
        images: RGB in [0, 1].
        target: labels "n h w" or values "n c h w".
        valid: pixels with a target.
        names: of the images.
    """

    images: Float[Tensor, "n 3 h w"]
    target: Tensor
    valid: Bool[Tensor, "n h w"]
    names: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Terms:
    """What training minimises, and its parts.

    Attributes:
        loss: the value.
        fit: mean log-probability of the targets, larger is better; for a plain loss, minus it.
        kl: divergence from the prior in nats per pixel; None where there is no prior.
        maps: unreduced terms by name, with pixels last, to find one that is not finite.
    """

    loss: Float[Tensor, ""]
    fit: Float[Tensor, ""]
    kl: Float[Tensor, ""] | None = None
    maps: dict[str, Tensor] = field(default_factory=dict)


class Method(nn.Module, ABC):
    """What the LightningModule trains and a run predicts with."""

    @abstractmethod
    def loss(self, batch: Batch, kl_weight: float, generator: torch.Generator) -> Terms:
        """The terms of one batch.

        Args:
            batch: labelled images.
            kl_weight: what multiplies the divergence, if there is one.
            generator: source of randomness.
        """

    @abstractmethod
    def predict(self, images: Float[Tensor, "n 3 h w"], view: View = whole) -> Prediction:
        """The predictive law of every pixel, in the model's space.

        Args:
            images: RGB in [0, 1].
            view: how the network sees them: whole, resized or in tiles.
        """

    def prepare(self, height: int, width: int) -> None:
        """Get ready for training images of this size."""


class SizedPrior(nn.Module):
    """A prior that follows the size of the images; learned parameters are kept.

    Args:
        factory: makes the prior for (height, width).
    """

    def __init__(self, factory: Callable[[int, int], Prior]) -> None:
        super().__init__()
        self.factory = factory
        self.size = (64, 64)
        self.prior = factory(*self.size)

    def at(self, height: int, width: int) -> Prior:
        """The prior for images of this size."""
        if (height, width) != self.size:
            fresh = self.factory(height, width)
            for name, parameter in self.prior.named_parameters():
                owner, _, leaf = name.rpartition(".")
                setattr(fresh.get_submodule(owner), leaf, parameter)
            self.prior, self.size = fresh, (height, width)
        return self.prior


@dataclass(frozen=True)
class DivergenceOptions:
    """How the divergence is measured.

    Attributes:
        normalisation: see `functional_elbo`.
        stride: measure it at every so-many-th row and column from a random offset: an unbiased
            estimate for a fraction of the time.
        context_weight: what context images add counts so many times.
        unlabelled_weight: that of pixels without a target, each by itself, is added so many times,
            so that things nobody labelled are reported as not known.
        stranger_weight: that of pixels of `Strangers`, pasted in where it is above 0.
    """

    normalisation: Normalisation = "labelled"
    stride: int = 1
    context_weight: float = 1.0
    unlabelled_weight: float = 0.0
    stranger_weight: float = 0.0

    def __post_init__(self) -> None:
        weights = (self.context_weight, self.unlabelled_weight, self.stranger_weight)
        if self.stride < 1 or min(weights) < 0:
            raise ValueError(
                f"method got kl_stride {self.stride}, context_weight {self.context_weight}, "
                f"unlabelled_weight {self.unlabelled_weight} and stranger_weight "
                f"{self.stranger_weight}; it wants a stride of at least 1 and weights of at least "
                "0."
            )


class FunctionalVI(Method):
    """Functional variational inference: L = E_q log p(y | f) - kl_weight · KL(q ‖ p).

    Args:
        posterior: q.
        likelihood: p(y | f).
        prior: p(f).
        context: makes the images at which only the divergence is measured.
        divergence: how it is measured.
        scale_power: pixels count in the fit by σ to this power, see `noise_weights`.
        fit_stride: measure what the variance takes from the fit at every so-many-th row and column,
            see `sparse_expected_log_prob`.
    """

    def __init__(
        self,
        posterior: FunctionalPosterior,
        likelihood: Likelihood,
        prior: SizedPrior,
        context: Context,
        divergence: DivergenceOptions,
        scale_power: float = 0.0,
        fit_stride: int = 1,
    ) -> None:
        super().__init__()
        if fit_stride < 1:
            raise ValueError(f"method got fit_stride {fit_stride}; it wants one of at least 1.")
        self.posterior, self.likelihood, self.prior = posterior, likelihood, prior
        self.context, self.divergence, self.scale_power = context, divergence, scale_power
        self.fit_stride = fit_stride
        self.strangers = Strangers()

    def loss(self, batch: Batch, kl_weight: float, generator: torch.Generator) -> Terms:
        """The negative functional ELBO; a divergence that weighs nothing is not computed."""
        n, extra = len(batch.images), self.context(batch.images, generator) if kl_weight else None
        images, strange = self._with_strangers(batch.images, generator)
        valid = batch.valid & ~strange
        q, log_scale = self.posterior(images, context=extra)
        with torch.autocast(q.mean.device.type, enabled=False):
            q, log_scale = _single(q), log_scale.float()
            fit = sparse_expected_log_prob(
                self.likelihood, batch.target, q[:n], log_scale[:n], valid, self.fit_stride,
                generator,
            )  # fmt: skip
            power, weights = self.scale_power, None
            if power:
                weights = noise_weights(log_scale[:n], power, valid)
            if extra is None:
                elbo = functional_elbo(fit, torch.zeros_like(fit), valid, 0.0, weights=weights)
                return Terms(-elbo.value, elbo.fit, maps={"fit": fit})
            p = self.prior.at(*images.shape[2:])(torch.cat([images, extra]))
            kl = self._divergence(q, p, ~batch.valid, strange, generator)
            normalisation = self.divergence.normalisation
            elbo = functional_elbo(fit, kl, valid, kl_weight, normalisation, weights)
        return Terms(-elbo.value, elbo.fit, elbo.kl, {"fit": fit, "kl": kl})

    def _with_strangers(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        if self.divergence.stranger_weight:
            return self.strangers(images, generator)
        return images, torch.zeros_like(images[:, 0], dtype=torch.bool)

    def _divergence(
        self,
        q: GaussianField,
        p: GaussianField,
        unlabelled: Tensor,
        strange: Tensor,
        generator: torch.Generator,
    ) -> Tensor:
        n, how = len(strange), self.divergence
        grid = PixelGrid.random((q.mean.shape[2], q.mean.shape[3]), how.stride, generator)
        q, p = grid.of(q), grid.of(p)
        kl = training_divergence(q, p, n, how.context_weight)
        for weight, where in ((how.unlabelled_weight, unlabelled), (how.stranger_weight, strange)):
            if weight:
                kl = kl + weight * unlabelled_divergence(q[:n], p[:n], grid.of(where))
        return grid.spread(kl)

    def predict(self, images: Float[Tensor, "n 3 h w"], view: View = whole) -> Prediction:
        """The likelihood's law under the marginals of q: one pass."""
        return self.likelihood.predict(*view(self.posterior.marginals, images))

    def prepare(self, height: int, width: int) -> None:
        """Build the prior for this size."""
        self.prior.at(height, width)


class Supervised(Method):
    """A baseline."""

    def __init__(self, model: Baseline) -> None:
        super().__init__()
        self.model = model

    def loss(self, batch: Batch, kl_weight: float, generator: torch.Generator) -> Terms:
        """The baseline's loss."""
        loss = self.model.loss(batch.images, batch.target, batch.valid)
        maps = {} if bool(loss.isfinite()) else {"fit": self._log_prob(batch)}
        return Terms(loss, -loss, maps=maps)

    def predict(self, images: Float[Tensor, "n 3 h w"], view: View = whole) -> Prediction:
        """The baseline's law."""
        return self.model.predict(images, view)

    @torch.no_grad()
    def _log_prob(self, batch: Batch) -> Float[Tensor, "n h w"]:
        """Of every pixel, to find one that is not finite; 0 where there is no target."""
        model = self.model.model if isinstance(self.model, MCDropout) else self.model
        target = torch.where(full_mask(batch.valid, batch.target), batch.target, 0)
        values = model.predict(batch.images).log_prob(target)
        return torch.where(batch.valid, values.sum(1) if values.ndim == 4 else values, 0.0)


class Viewed:
    """A method that always looks at images in one way.

    Args:
        method: any.
        view: whole, resized or in tiles.
    """

    def __init__(self, method: Method, view: View) -> None:
        self.method, self.view = method, view

    def predict(self, images: Float[Tensor, "n 3 h w"]) -> Prediction:
        """The predictive law of every pixel, in the model's space."""
        return self.method.predict(images, self.view)


class SideBySide(Method):
    """An ensemble whose members are trained on the same batches, each from its own start.

    Args:
        members: two or more.
    """

    def __init__(self, members: Sequence[Method]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def loss(self, batch: Batch, kl_weight: float, generator: torch.Generator) -> Terms:
        """The sum of the members' losses, so that each sees its own gradient; terms averaged."""
        parts = [self._member(m).loss(batch, kl_weight, generator) for m in self.members]
        kls = [part.kl for part in parts if part.kl is not None]
        maps = {f"{key} of member {i}": v for i, p in enumerate(parts) for key, v in p.maps.items()}
        return Terms(
            torch.stack([part.loss for part in parts]).sum(),
            torch.stack([part.fit for part in parts]).mean(),
            torch.stack(kls).mean() if kls else None,
            maps,
        )

    def predict(self, images: Float[Tensor, "n 3 h w"], view: View = whole) -> Prediction:
        """The mixture of the members."""
        members = [Viewed(self._member(m), view) for m in self.members]
        return DeepEnsemble(members).predict(images)

    def prepare(self, height: int, width: int) -> None:
        """Prepare all members."""
        for member in self.members:
            self._member(member).prepare(height, width)

    @staticmethod
    def _member(module: nn.Module) -> Method:
        assert isinstance(module, Method)
        return module


def full_mask(valid: Bool[Tensor, "n h w"], like: Tensor) -> Tensor:
    """The mask with an axis of outputs where `like` has one."""
    return valid if like.ndim == 3 else valid[:, None].expand_as(like)


def _single(q: GaussianField) -> GaussianField:
    """The field in single precision, where divergences are computed."""
    if q.mean.dtype == torch.float32 or not isinstance(q.covariance, LowRankCovariance):
        return q
    covariance = LowRankCovariance(q.covariance.factor.float(), q.covariance.diagonal.float())
    return GaussianField(q.mean.float(), covariance)
