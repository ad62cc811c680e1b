"""What can go wrong with a run, each with a message that says what to do."""

from __future__ import annotations


class RecipeError(ValueError):
    """A recipe or an override that cannot be used."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be written, is taken, or is not a run."""


class NonFiniteLossError(ArithmeticError):
    """A loss, gradient or weight that is not finite; the last good checkpoint is kept."""


class TrainingInterrupted(RuntimeError):  # noqa: N818 - it is not an error
    """Training was stopped from outside, after saving."""
