"""Train a recipe into a run folder, from the start or from where it stopped."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from onesigma.training.assemble import build_method
from onesigma.training.averaging import averaged_steps
from onesigma.training.callbacks import Logs, ProgressBar, Saver, Validation
from onesigma.training.checkpoint import (
    Checkpoint,
    Place,
    newest_checkpoint,
    save_weights,
    state_of,
)
from onesigma.training.checks import check_same_images, check_settings, check_sizes, check_splits
from onesigma.training.components import build_dataset
from onesigma.training.config import Recipe, TrainerConfig
from onesigma.training.errors import RecipeError, RunFolderError
from onesigma.training.folder import RunFolder
from onesigma.training.late import with_late_stages
from onesigma.training.method import Method
from onesigma.training.module import TrainingModule, build_augment
from onesigma.training.resolve import differences, resolve, with_machine_of
from onesigma.training.run import Run, load
from onesigma.training.validation import fit_temperature, validation_nll


def train(
    recipe: Recipe, out: str | Path, resume: bool = False, console: Console | None = None
) -> Run:
    """Train a recipe; the run is the folder.

    Args:
        recipe: see `load_recipe`.
        out: the folder; a new one, unless `resume`.
        resume: go on where a run in this folder stopped; the result is the same as if it had not.
        console: draws a progress bar there; None draws none.
    """
    folder = RunFolder(Path(out))
    check_settings(recipe)
    _check_machine(recipe.trainer)
    folder.check_free(resume)
    with folder.locked():
        if folder.weights.is_file():
            _same_recipe(folder, recipe)
            return load(folder.path)
        resolved = _begin(folder, recipe)
        folder.tidy()
        method = build_method(resolved)
        folder.check_space(_bytes_needed(method))
        checkpoint = newest_checkpoint(folder.checkpoints)
        with _threads(resolved.trainer.threads), _quiet():
            _fit_stages(folder, resolved, method, checkpoint, console)
            temperature = _finish(folder, resolved, method)
    return Run(folder, resolved, method, temperature)


def _begin(folder: RunFolder, recipe: Recipe) -> Recipe:
    """The resolved recipe: the run's own if it has made a step before."""
    if folder.started:
        resumed = with_machine_of(_same_recipe(folder, recipe), recipe)
        check_same_images(folder, resumed)
        return resumed
    resolved = resolve(recipe)
    # what cannot be built is found before the folder becomes a run
    build_method(resolved)
    for stage in resolved.stages:
        build_augment(stage, resolved.data.eval_size)
        averaged_steps(stage.average, stage.epochs)
    check_splits(resolved)
    check_sizes(resolved)
    folder.begin(resolved, build_dataset(resolved.data, "train", None).names)
    return resolved


def _same_recipe(folder: RunFolder, recipe: Recipe) -> Recipe:
    before = folder.read_recipe()
    changed = differences(before, recipe)
    if changed:
        raise RunFolderError(
            f"{folder.path} was begun with other settings ({', '.join(changed[:5])}); resume it "
            "with the same command, or choose another folder with --out."
        )
    return before


def _fit_stages(
    folder: RunFolder,
    recipe: Recipe,
    method: Method,
    checkpoint: Checkpoint | None,
    console: Console | None,
) -> None:
    recipe = with_late_stages(recipe, method)
    place = Place()
    if checkpoint is not None:
        method.load_state_dict(checkpoint.weights)
        place = checkpoint.place
    while True:
        if place.stage < len(recipe.stages) and place.epoch >= recipe.stages[place.stage].epochs:
            place, checkpoint = Place(place.stage + 1, done=place.done), None
        if place.stage >= len(recipe.stages):
            return
        place = _fit_stage(folder, recipe, method, place, checkpoint, console)


def _fit_stage(
    folder: RunFolder,
    recipe: Recipe,
    method: Method,
    place: Place,
    checkpoint: Checkpoint | None,
    console: Console | None,
) -> Place:
    stage = recipe.stages[place.stage]
    dataset = build_dataset(recipe.data, "train", stage.size)
    method.prepare(*(stage.crop or dataset[0]["image"].shape[1:]))
    module = TrainingModule(method, recipe, dataset, place)
    if checkpoint is not None:
        module.average.state.update(checkpoint.average)
    options = recipe.trainer
    saver = Saver(
        folder.checkpoints, options.checkpoint_seconds, options.checkpoint_steps, checkpoint
    )
    callbacks: list[pl.Callback] = [saver, Logs(options.log_steps)]
    if options.validate_epochs:
        nll = partial(validation_nll, recipe, method)
        callbacks.append(Validation(options.validate_epochs, nll))
    if console is not None:
        callbacks.append(ProgressBar(console))
    trainer = pl.Trainer(
        max_epochs=stage.epochs - place.epoch,
        callbacks=callbacks,
        logger=_loggers(folder),
        accelerator=options.accelerator,
        devices=1,
        precision=options.precision,  # type: ignore[arg-type]
        gradient_clip_val=options.clip or None,
        **_PLAIN,
    )
    trainer.fit(module)
    return module.place


_PLAIN: dict[str, Any] = {
    # checkpoints, progress and sampling are ours: no pickle, the run's own epochs and order
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "reload_dataloaders_every_n_epochs": 1,
    "num_sanity_val_steps": 0,
    "limit_val_batches": 0,
}


def _check_machine(options: TrainerConfig) -> None:
    """Refuse what Lightning cannot do here before there is a run."""
    try:
        with _quiet():
            pl.Trainer(
                accelerator=options.accelerator,
                devices=1,
                precision=options.precision,  # type: ignore[arg-type]
                logger=False,
                **_PLAIN,
            )
    except (MisconfigurationException, ValueError, ImportError) as error:
        raise RecipeError(
            f"trainer.accelerator {options.accelerator!r} with trainer.precision "
            f"{options.precision!r} does not work here: {error}"
        ) from error


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice is for those who write Lightning code."""
    loggers = [logging.getLogger(f"lightning.{name}") for name in ("pytorch", "fabric")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def _loggers(folder: RunFolder) -> list[Any]:
    """One more part of the logs: a log that a killed process left is never overwritten."""
    part = f"part-{len(list(folder.logs.glob('part-*'))):03d}"
    return [
        CSVLogger(folder.path, name="logs", version=part, flush_logs_every_n_steps=1),
        TensorBoardLogger(folder.path, name="logs", version=part),
    ]


def _finish(folder: RunFolder, recipe: Recipe, method: Method) -> float | None:
    """Write the weights, whose file is the sign that training has ended; the temperature."""
    method.cpu()
    temperature = fit_temperature(recipe, method) if recipe.method.temperature else None
    header = {"method": recipe.method.name, "temperature": temperature}
    save_weights(folder.weights, state_of(method), header)
    return temperature


def _bytes_needed(method: Method) -> int:
    """Two checkpoints and one in the making, with two moments and a mean, and the weights."""
    size = sum(t.numel() * t.element_size() for t in method.state_dict().values())
    return (3 * 4 + 1) * size
