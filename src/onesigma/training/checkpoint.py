"""Checkpoints as safetensors: tensors and JSON, nothing that could run code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from onesigma.training.errors import NonFiniteLossError, RunFolderError
from onesigma.training.files import write_atomically

KEPT = 2


@dataclass(frozen=True)
class Place:
    """Where in a run training is: the next step to do.

    Attributes:
        stage: its number.
        epoch: of the stage.
        step: of the epoch.
        done: steps of the whole run so far.
    """

    stage: int = 0
    epoch: int = 0
    step: int = 0
    done: int = 0


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that a resumed run needs.

    Attributes:
        place: where it was taken.
        weights: parameters and buffers of the method, by name.
        optimiser: state of the optimiser; empty between stages.
        extra: plain values, such as the state of a gradient scaler.
        average: mean of the weights so far, by name; empty where none is taken.
    """

    place: Place
    weights: dict[str, Tensor]
    optimiser: dict[int, dict[str, Any]]
    extra: dict[str, Any]
    average: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint whole or not at all, and drop all but the newest two.

    Args:
        folder: `checkpoints/` of the run.
        checkpoint: refused if a weight is not finite, so that the last good one stays.
    """
    _check_finite(checkpoint.weights)
    tensors = {f"weights/{name}": tensor for name, tensor in checkpoint.weights.items()}
    tensors |= {f"average/{name}": tensor for name, tensor in checkpoint.average.items()}
    scalars: dict[str, Any] = {}
    for index, state in checkpoint.optimiser.items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser/{index}/{key}"] = value
            else:
                scalars[f"{index}/{key}"] = value
    header = {"place": asdict(checkpoint.place), "optimiser": scalars, "extra": checkpoint.extra}
    path = folder / f"step-{checkpoint.place.done:09d}.safetensors"
    write_atomically(path, _packed(tensors, header))
    for old in _newest_first(folder)[KEPT:]:
        old.unlink()
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; no code in it can run."""
    tensors, header = read_tensors(path)
    states: dict[str, dict[str, Tensor]] = {"weights": {}, "average": {}}
    optimiser: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition("/")
        if kind in states:
            states[kind][rest] = tensor
        else:
            index, _, key = rest.partition("/")
            optimiser.setdefault(int(index), {})[key] = tensor
    for name, value in header["optimiser"].items():
        index, _, key = name.partition("/")
        optimiser.setdefault(int(index), {})[key] = value
    return Checkpoint(
        Place(**header["place"]),
        optimiser=optimiser,
        extra=header["extra"],
        **states,
    )


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest readable checkpoint of a run, or None.

    Args:
        folder: `checkpoints/` of the run.
    """
    damaged: list[str] = []
    for path in _newest_first(folder):
        try:
            return load_checkpoint(path)
        except (RunFolderError, KeyError, ValueError, TypeError) as error:
            damaged.append(f"{path.name}: {error}")
    if damaged:
        raise RunFolderError(f"No checkpoint in {folder} can be read ({'; '.join(damaged)}).")
    return None


def save_weights(path: Path, weights: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write the weights of a run with a JSON header."""
    _check_finite(weights)
    write_atomically(path, _packed(weights, header))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON header of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("onesigma", "{}"))
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, header
    except (SafetensorError, OSError) as error:
        raise RunFolderError(f"{path} cannot be read as safetensors: {error}") from error


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """What the optimiser remembers of each parameter, by its number."""
    state: dict[int, dict[str, Any]] = optimiser.state_dict()["state"]
    return state


def restore_optimiser(optimiser: torch.optim.Optimizer, state: dict[int, dict[str, Any]]) -> None:
    """Give a new optimiser the memory of an old one; rates come from the schedule."""
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, on the CPU, each with memory of its own."""
    return {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in module.state_dict().items()
    }


def _packed(tensors: dict[str, Tensor], header: dict[str, Any]) -> bytes:
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(ready, {"onesigma": json.dumps(header)})


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.safetensors"), reverse=True)


def _check_finite(weights: dict[str, Tensor]) -> None:
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise NonFiniteLossError(
                f"The weights {name!r} are not finite; they were not saved, and the last good "
                "checkpoint was kept. Lower stages.optimiser.lr or trainer.clip."
            )
