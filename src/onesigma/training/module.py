"""The one LightningModule, for every method."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from onesigma.data import Augment
from onesigma.data.base import PixelDataset
from onesigma.divergence import NotPositiveDefiniteError
from onesigma.likelihoods import Likelihood
from onesigma.objective import data_weight
from onesigma.prediction.transforms import Transform
from onesigma.training.assemble import num_outputs
from onesigma.training.averaging import WeightAverage, averaged_steps
from onesigma.training.checkpoint import Place
from onesigma.training.components import build, build_transform
from onesigma.training.config import Component, Recipe, Size, StageConfig
from onesigma.training.errors import NonFiniteLossError
from onesigma.training.late import LateStage
from onesigma.training.loading import (
    epoch_batches,
    steps_per_epoch,
    training_loader,
    valid_pixels,
)
from onesigma.training.locate import describe_non_finite
from onesigma.training.method import Batch, Method, Terms
from onesigma.training.schedule import build_optimiser, learning_rate, risen
from onesigma.training.seeding import derive_generator, derive_seed


class TrainingModule(pl.LightningModule):
    """Trains a method through one stage, from any of its steps on.

    Args:
        method: what is trained.
        recipe: resolved.
        dataset: of the stage.
        place: the step to begin with.
    """

    def __init__(self, method: Method, recipe: Recipe, dataset: PixelDataset, place: Place) -> None:
        super().__init__()
        self.method, self.recipe, self.dataset, self.place = method, recipe, dataset, place
        self.outputs = num_outputs(recipe)
        self.steps = steps_per_epoch(len(dataset), self.stage.batch)
        self.target_transform: Transform | None = build_transform(recipe.transform)
        self.augment = build_augment(self.stage, recipe.data.eval_size)
        self.full_kl_weight = _kl_weight(self.stage, len(dataset))
        self.average = WeightAverage()
        self.averaged = averaged_steps(self.stage.average, self.steps * self.stage.epochs)
        self.terms: Terms | None = None
        self.late = self.stage if isinstance(self.stage, LateStage) else None
        if self.late is not None:
            method.requires_grad_(False)
            for part in self.late.parts(method):
                part.requires_grad_(True)

    @property
    def stage(self) -> StageConfig:
        """The settings of the stage."""
        return self.recipe.stages[self.place.stage]

    @property
    def here(self) -> tuple[int, int, int, int]:
        """(seed, stage, epoch, step)."""
        return self.recipe.seed, self.place.stage, self.place.epoch, self.place.step

    @property
    def progress(self) -> float:
        """Share of the current epoch that is done, half of the next step included."""
        return (self.place.step + 0.5) / self.steps

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return learning_rate(
            self.stage.optimiser, self.place.epoch, self.progress, self.stage.epochs
        )

    @property
    def kl_weight(self) -> float:
        """What multiplies the divergence in the next step."""
        return self.full_kl_weight * risen(self.place.epoch + self.progress, self.stage.kl_rise)

    def advance(self) -> bool:
        """Count one step, averaged if it is one of the last; true if it ended an epoch."""
        place = self.place
        step, ends = place.step + 1, place.step + 1 >= self.steps
        self.place = replace(
            place,
            epoch=place.epoch + ends,
            step=0 if ends else step,
            done=place.done + 1,
        )
        left = (self.stage.epochs - self.place.epoch) * self.steps - self.place.step
        if left < self.averaged:
            self.average.add(self.method, self.averaged - left)
            if left == 0:
                self.method.load_state_dict(self.average.state)
        return ends

    def configure_optimizers(self) -> Optimizer:
        """The optimiser of the stage; its rate is set before every step."""
        parameters = [p for p in self.method.parameters() if p.requires_grad]
        return build_optimiser(self.stage.optimiser, parameters)

    def train_dataloader(self) -> DataLoader[Any]:
        """What is left of the current epoch."""
        seed, stage, epoch, step = self.here
        batches = epoch_batches(len(self.dataset), self.stage.batch, (seed, stage, epoch), step)
        return training_loader(self.dataset, batches, self.recipe.data.workers)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the learning rate, and the seed of whatever draws from global generators."""
        if self.late is not None:
            self.method.eval()
        if self.place.step == 0:
            for part in self.method.modules():
                if isinstance(part, Likelihood):
                    part.start_epoch()
        torch.manual_seed(derive_seed(*self.here))
        optimiser = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimiser, Optimizer)
        for group in optimiser.param_groups:
            group["lr"] = self.lr

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one batch; refuses one that is not finite."""
        ready = self.ready(batch, derive_generator(*self.here, "augment"))
        if self.late is not None:
            altering = derive_generator(*self.here, "alter", device=ready.images.device)
            ready = replace(ready, images=self.late.alter(ready.images, altering))
        generator = derive_generator(*self.here, "method", device=ready.images.device)
        try:
            terms = self.method.loss(ready, self.kl_weight, generator)
        except NotPositiveDefiniteError as error:
            raise NonFiniteLossError(self._says(describe_non_finite(ready, None, error))) from error
        if not bool(terms.loss.isfinite()):
            raise NonFiniteLossError(self._says(describe_non_finite(ready, terms)))
        kl = None if terms.kl is None else terms.kl.detach()
        self.terms = Terms(terms.loss.detach(), terms.fit.detach(), kl)
        return terms.loss

    def ready(self, batch: dict[str, Any], generator: torch.Generator) -> Batch:
        """Augmented images, with targets in the model's space."""
        images, target = self.augment(batch["image"], batch["target"], generator)
        if self.target_transform is not None:
            target = self.target_transform.to_model(target)
        return Batch(images, target, valid_pixels(target, self.outputs), batch["name"])

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Refuse a gradient that is not finite, before it reaches the weights."""
        if self.recipe.trainer.precision.startswith("16"):
            return  # a scaler skips such steps by design
        for name, parameter in self.method.named_parameters():
            if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
                raise NonFiniteLossError(
                    self._says(f"the gradient of the weights {name!r} is not finite")
                )

    def _says(self, what: str) -> str:
        _, stage, epoch, step = self.here
        return (
            f"Stage {stage}, epoch {epoch}, step {step}: {what}. The last good checkpoint was "
            "kept. Look at the image and its target, or lower stages.optimiser.lr."
        )


def build_augment(stage: StageConfig, predicted: Size | None) -> Augment:
    """The augmentation of a stage.

    Args:
        stage: its settings.
        predicted: rows and columns of the images at prediction, if a recipe says so.
    """
    options: dict[str, Any] = {}
    if stage.size is not None and predicted is not None:
        # where sides shrink differently, the mean of the two
        options["true_zoom"] = math.sqrt(math.prod(predicted) / math.prod(stage.size))
    options.update(stage.augment)
    if stage.crop is not None:
        options["crop"] = stage.crop
    part = Component(class_path="onesigma.data.Augment", options=options)
    augment: Augment = build(part, {}, Augment, "stages.augment")
    return augment


def _kl_weight(stage: StageConfig, images: int) -> float:
    if stage.kl_weight == "data":
        return data_weight(min(stage.batch, images), images, stage.correlated_pixels)
    return float(stage.kl_weight)
