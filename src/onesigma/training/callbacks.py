"""What happens around the steps: saving, stopping, logging, and one tidy progress bar."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from onesigma.training.checkpoint import (
    Checkpoint,
    optimiser_state,
    restore_optimiser,
    save_checkpoint,
    state_of,
)
from onesigma.training.errors import RunFolderError, TrainingInterrupted
from onesigma.training.module import TrainingModule


class Saver(pl.Callback):
    """Counts steps, saves between them, and turns Ctrl-C into a saved stop.

    Args:
        folder: `checkpoints/` of the run.
        seconds: at most so long between checkpoints.
        steps: at most so many steps between checkpoints; 0 for no such limit.
        resumed: the checkpoint to go on from, if any.
    """

    def __init__(
        self, folder: Path, seconds: float, steps: int = 0, resumed: Checkpoint | None = None
    ) -> None:
        self.folder, self.seconds, self.steps, self.resumed = folder, seconds, steps, resumed
        self.saved_at = time.monotonic()
        self.unsaved = 0
        self.stop = False
        self.before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the optimiser its memory back, and listen for Ctrl-C."""
        if self.resumed is not None and self.resumed.optimiser:
            restore_optimiser(trainer.optimizers[0], self.resumed.optimiser)
            scaler = self.resumed.extra.get("precision")
            if scaler:
                trainer.precision_plugin.load_state_dict(scaler)
        self.saved_at = time.monotonic()
        self._listen()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Count the step; save when it is time, at the end of an epoch, or to stop."""
        assert isinstance(pl_module, TrainingModule)
        ended = pl_module.advance()
        self.unsaved += 1
        late = time.monotonic() - self.saved_at >= self.seconds
        many = 0 < self.steps <= self.unsaved
        if ended or late or many or self.stop:
            self.save(trainer, pl_module)
        if self.stop:
            raise TrainingInterrupted(
                f"Stopped after step {pl_module.place.done}; everything so far is saved."
            )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Let others handle signals again."""
        self._deaf()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """The same when training stops early."""
        self._deaf()

    def _deaf(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before.clear()

    def save(self, trainer: pl.Trainer, module: TrainingModule) -> None:
        """Write a checkpoint."""
        over = module.place.epoch >= module.stage.epochs
        memory = {} if over else optimiser_state(trainer.optimizers[0])
        extra = {"precision": trainer.precision_plugin.state_dict()}
        average = {} if over else module.average.state
        checkpoint = Checkpoint(module.place, state_of(module.method), memory, extra, average)
        try:
            save_checkpoint(self.folder, checkpoint)
        except OSError as error:
            raise RunFolderError(
                f"Cannot write a checkpoint into {self.folder}: {error.strerror}. The last one was "
                "kept; mend that and go on with --resume."
            ) from error
        self.saved_at, self.unsaved = time.monotonic(), 0

    def _listen(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """The first signal stops at the end of the step, a second one at once."""
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True


class Logs(pl.Callback):
    """Rows of the CSV and TensorBoard logs, by the step of the whole run.

    Args:
        steps: between two rows.
    """

    def __init__(self, steps: int) -> None:
        self.steps = max(1, steps)
        self.clock, self.counted = time.monotonic(), 0

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Write the terms of the step."""
        assert isinstance(pl_module, TrainingModule)
        self.counted += 1
        terms, place = pl_module.terms, pl_module.place
        # the first and the last step too, so that a short stage has a curve
        edge = place.done == 1 or place.epoch >= pl_module.stage.epochs
        if terms is None or (place.done % self.steps and not edge):
            return
        row = {
            "loss": float(terms.loss),
            "fit": float(terms.fit),
            **({} if terms.kl is None else {"kl": float(terms.kl)}),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "stage": float(place.stage),
            "epoch": float(place.epoch),
            "seconds_per_step": (time.monotonic() - self.clock) / self.counted,
        }
        self.clock, self.counted = time.monotonic(), 0
        for logger in trainer.loggers:
            logger.log_metrics(row, step=place.done)


class Validation(pl.Callback):
    """The negative log-likelihood of held-out targets, in the model's space, for the logs.

    Args:
        epochs: between two looks.
        nll: measures it.
    """

    def __init__(self, epochs: int, nll: Callable[[], float]) -> None:
        self.epochs, self.nll = epochs, nll

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Look, if it is time."""
        assert isinstance(pl_module, TrainingModule)
        if pl_module.place.epoch % self.epochs == 0:
            row = {"val_nll": self.nll()}
            for logger in trainer.loggers:
                logger.log_metrics(row, step=pl_module.place.done)


class ProgressBar(pl.Callback):
    """One bar for a stage, with fit and KL.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
            console=console,
        )
        self.task: TaskID | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the bar where the stage stands."""
        assert isinstance(pl_module, TrainingModule)
        place = pl_module.place
        self.task = self.bar.add_task(
            f"stage {place.stage + 1}/{len(pl_module.recipe.stages)}",
            total=pl_module.stage.epochs * pl_module.steps,
            completed=place.epoch * pl_module.steps + place.step,
            terms="",
        )
        self.bar.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """One step further."""
        assert isinstance(pl_module, TrainingModule)
        assert self.task is not None
        terms, place = pl_module.terms, pl_module.place
        if terms is None:
            return
        kl = "" if terms.kl is None else f"  kl {float(terms.kl):.3f}"
        self.bar.update(
            self.task,
            completed=place.epoch * pl_module.steps + place.step,
            terms=f"epoch {place.epoch}/{pl_module.stage.epochs}  fit {float(terms.fit):.3f}{kl}",
        )

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the finished bar behind."""
        self.bar.stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the bar behind where it stands."""
        self.bar.stop()
