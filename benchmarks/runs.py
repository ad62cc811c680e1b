"""Runs that several benchmarks train: by the command line, as a user would, and gone on with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from onesigma.cli import main as onesigma
from onesigma.training import Run, load


def train(recipe: str, out: Path, settings: Mapping[str, Any]) -> Run:
    """Train a recipe with settings changed, or what is missing of it."""
    settings = {"trainer.threads": torch.get_num_threads(), **settings}
    if not (out / "weights.safetensors").is_file():
        words = [word for key, value in settings.items() for word in (f"--{key}", _text(value))]
        resume = ["--resume"] if (out / "config.yaml").is_file() else []
        if onesigma(["train", recipe, "--out", str(out), *words, *resume, "--quiet"]):
            raise SystemExit(f"Training {out.name} failed.")
    return load(out)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
