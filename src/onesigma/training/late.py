"""Stages after the last of a recipe: what is best learned when all else has been."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from onesigma.context import AlteredCopies
from onesigma.familiarity import Familiarity, ImageScale
from onesigma.heads import CovarianceHeads
from onesigma.training.config import OptimiserConfig, Recipe, StageConfig
from onesigma.training.method import Method

FAMILIAR_EPOCHS = 8
# the rate of a network is too small for a bent line of five numbers: it would end on the way
LINE = OptimiserConfig(name="adam", lr=0.02, weight_decay=0.0, schedule="cosine")


class LateStage(StageConfig, ABC):
    """A stage at the end that teaches some parts of a method, and nothing else.

    It runs in evaluation mode: the fit stays what it was, and images are seen as at test time, also
    in size: neither cropped nor zoomed if the recipe says at which size it predicts.
    """

    @staticmethod
    @abstractmethod
    def parts(method: Method) -> list[nn.Module]:
        """What learns, of all members."""

    def alter(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The labelled images as they are seen, here unchanged."""
        return images


@dataclass(frozen=True)
class NoiseStage(LateStage):
    """Log σ, on images that the mean does not know by heart.

    Attributes:
        strength: how much they are altered.
    """

    strength: float = 1.0

    @staticmethod
    def parts(method: Method) -> list[nn.Module]:
        """The heads of log σ, or what gives that of an image."""
        of_images = _image_scales(method)
        heads = [part for part in method.modules() if isinstance(part, CovarianceHeads)]
        pixels = [p for head in heads for p in (head.log_scale, head.scale_position)]
        return [*of_images, *(part for part in pixels if part is not None)]

    def alter(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Altered so that their targets still hold."""
        return AlteredCopies(strength=self.strength).alter(images, images, generator)


class FamiliarStage(LateStage):
    """What is familiar to the network, see `familiarity`."""

    @staticmethod
    def parts(method: Method) -> list[nn.Module]:
        """All that judge it."""
        return [part for part in method.modules() if isinstance(part, Familiarity)]


def _image_scales(method: Method) -> list[ImageScale]:
    return [part for part in method.modules() if isinstance(part, ImageScale)]


def with_late_stages(recipe: Recipe, method: Method) -> Recipe:
    """The recipe with such stages at its end if the method has parts that learn there."""
    common = {**vars(recipe.stages[-1]), **_as_predicted(recipe), "average": 0.0, "kl_rise": 0.0}
    how = recipe.method
    # the divergence does not see σ
    optimiser = LINE if _image_scales(method) else common["optimiser"]
    noise = {
        "epochs": how.noise_epochs, "strength": how.noise_strength, "optimiser": optimiser,
        "kl_weight": 0.0,
    }  # fmt: skip
    wanted: dict[type[LateStage], dict[str, Any]] = {
        NoiseStage: noise,
        FamiliarStage: {"epochs": FAMILIAR_EPOCHS},
    }
    late = [
        kind(**{**common, **own})
        for kind, own in wanted.items()
        if own["epochs"] and kind.parts(method)
    ]
    return replace(recipe, stages=[*recipe.stages, *late])


def _as_predicted(recipe: Recipe) -> dict[str, Any]:
    """How large images are seen; without a size they may differ, and a batch wants one."""
    if recipe.data.eval_size is None:
        return {}
    augment = {name: how for name, how in recipe.stages[-1].augment.items() if name != "scale"}
    return {"size": recipe.data.eval_size, "crop": None, "augment": augment}
