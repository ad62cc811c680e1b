"""A run is a folder; here is what may be done with one."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import yaml

from onesigma.training.config import Recipe
from onesigma.training.errors import RunFolderError
from onesigma.training.files import write_atomically
from onesigma.training.recipes import recipe_from_tree, write_yaml

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system: two runs are told apart by config.yaml
    fcntl = None  # type: ignore[assignment]

SPARE_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class RunFolder:
    """The files of a run.

    Attributes:
        path: of the folder.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.yaml"

    @property
    def weights(self) -> Path:
        """The trained weights; there once training has ended."""
        return self.path / "weights.safetensors"

    @property
    def checkpoints(self) -> Path:
        """Where a run can be resumed."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """What `evaluate` found."""
        return self.path / "metrics.json"

    @property
    def logs(self) -> Path:
        """CSV and TensorBoard logs, one part for each stage and each resumption."""
        return self.path / "logs"

    @property
    def images(self) -> Path:
        """The names of the training images, one per line; not there for generated ones."""
        return self.path / "images.txt"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config.is_file()

    @property
    def started(self) -> bool:
        """Whether a run got so far that there is something to lose or to resume."""
        return self.weights.is_file() or any(self.checkpoints.glob("step-*.safetensors"))

    def read_recipe(self) -> Recipe:
        """The recipe of the run."""
        if not self.exists:
            raise RunFolderError(
                f"{self.path} is not a run: it has no config.yaml. A run is a folder that "
                "`onesigma train` made."
            )
        try:
            return recipe_from_tree(yaml.safe_load(self.config.read_text(encoding="utf-8")))
        except (yaml.YAMLError, ValueError) as error:
            raise RunFolderError(f"{self.config} cannot be read: {error}") from error

    def begin(self, recipe: Recipe, images: Sequence[str] = ()) -> None:
        """Write the resolved recipe, which makes the folder a run, and what it learns from.

        Args:
            recipe: resolved.
            images: names of the training images.
        """
        write_atomically(self.config, write_yaml(recipe))
        self.images.unlink(missing_ok=True)
        if images:
            write_atomically(self.images, "\n".join(images))

    def read_images(self) -> list[str]:
        """The names of the training images; none where they were not recorded."""
        if not self.images.is_file():
            return []
        return self.images.read_text(encoding="utf-8").split("\n")

    def tidy(self) -> None:
        """Make the folder of checkpoints, and drop what a killed process left half written."""
        self.checkpoints.mkdir(exist_ok=True)
        for part in (*self.path.glob(".*.part"), *self.checkpoints.glob(".*.part")):
            part.unlink()

    def check_free(self, resume: bool) -> None:
        """Refuse a folder that holds a run or other things, unless it is to be resumed."""
        if self.path.is_file():
            raise RunFolderError(f"{self.path} is a file; --out wants a folder.")
        if self.started and not resume:
            raise RunFolderError(
                f"{self.path} already holds a run. Resume it with --resume, or choose another "
                "folder with --out."
            )
        if not self.exists and self.path.is_dir() and self._others():
            raise RunFolderError(
                f"{self.path} is not empty and not a run (it holds {self._others()[0]!r}); choose "
                "another folder with --out."
            )

    def check_space(self, needed: int) -> None:
        """Refuse to begin what the disk cannot hold.

        Args:
            needed: bytes.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed + SPARE_BYTES:
            raise RunFolderError(
                f"The disk of {self.path} has {free / 1e6:.0f} MB free; the run's checkpoints and "
                f"logs want {(needed + SPARE_BYTES) / 1e6:.0f} MB. Free some, or choose another "
                "folder with --out."
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder if need be and hold it; a process that dies lets it go."""
        made = [part for part in (self.path, *self.path.parents) if not part.exists()]
        handle = self._lock()
        try:
            yield
        finally:
            handle.close()
            if not self.exists:
                with suppress(OSError):
                    (self.path / ".lock").unlink()
                    for part in made:
                        part.rmdir()

    def _lock(self) -> IO[str]:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("w")
            handle.write(str(os.getpid()))
            handle.flush()
        except OSError as error:
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            raise RunFolderError(
                f"Cannot write into {self.path}: {reason}. Choose another folder with --out."
            ) from error
        if fcntl is not None:
            try:
                # a record lock, which processes that load data do not inherit and outlive us with
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                handle.close()
                raise RunFolderError(
                    f"Another process is training in {self.path}; wait for it or choose another "
                    "folder with --out."
                ) from error
        return handle

    def _others(self) -> list[str]:
        return sorted(p.name for p in self.path.iterdir() if not p.name.startswith("."))
