"""A finished run: load it, predict with it, evaluate it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onesigma.training.assemble import build_method
from onesigma.training.checkpoint import newest_checkpoint, read_tensors
from onesigma.training.errors import RunFolderError
from onesigma.training.evaluate import evaluate_run, on_data
from onesigma.training.folder import RunFolder
from onesigma.training.predictor import Predictor


class Run(Predictor):
    """A finished run: predict with it, evaluate it."""

    def to(self, device: torch.device | str) -> Run:
        """Move the weights, to predict on a GPU for instance."""
        self.method.to(device)
        return self

    def evaluate(
        self, split: str | None = None, root: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """All metrics over a split, for the set and for each image.

        Args:
            split: default the recipe's `data.evaluate`.
            root: another folder of data in the same format.
            options: further arguments of the data set.
        """
        return evaluate_run(on_data(self, root, options), split)


def load(run: str | Path) -> Run:
    """Load a run from its folder; no code in its weights can run.

    Args:
        run: the folder. A run that is not finished gives its newest checkpoint, with a warning.
    """
    folder = RunFolder(Path(run))
    recipe = folder.read_recipe()
    weights, header = _weights(folder)
    method = build_method(recipe)
    try:
        method.load_state_dict(weights)
    except RuntimeError as error:
        raise RunFolderError(
            f"The weights of {folder.path} do not fit its config.yaml: {error}"
        ) from error
    return Run(folder, recipe, method, header.get("temperature"))


def _weights(folder: RunFolder) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if folder.weights.is_file():
        return read_tensors(folder.weights)
    checkpoint = newest_checkpoint(folder.checkpoints)
    if checkpoint is None:
        raise RunFolderError(
            f"{folder.path} has no weights yet: training stopped before its first checkpoint. "
            "Resume it with `onesigma train ... --resume`."
        )
    warnings.warn(
        f"{folder.path} is not finished; using its checkpoint after {checkpoint.place.done} steps.",
        stacklevel=3,
    )
    return checkpoint.weights, {}
