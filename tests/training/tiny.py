"""A recipe so small that a whole run takes a second or two."""

from __future__ import annotations

from typing import Any

from onesigma.training import Recipe, load_recipe

NETWORK: dict[str, Any] = {
    "network.name": "unet",
    "network.options": {"widths": [4, 8], "dropout": 0.2},
    "posterior.rank": 2,
    "trainer.threads": 1,
    "trainer.log_steps": 1,
    "trainer.accelerator": "cpu",
}
STAGES = [
    {
        "epochs": 2,
        "batch": 2,
        "average": 0.7,
        "optimiser": {"name": "adamw", "lr": 0.01, "schedule": "cosine"},
    },
    {
        "epochs": 1,
        "batch": 3,
        "crop": [24, 28],
        "average": 1.0,
        "optimiser": {"name": "sgd", "lr": 0.01},
        "augment": {"flip": 0.5, "brightness": 0.2, "scale": [0.8, 1.2]},
    },
]


def tiny_recipe(name: str = "scenes-segmentation", **overrides: Any) -> Recipe:
    """Scenes of 32 × 32 pixels, a very small network, two stages of 3 + 3 + 2 steps."""
    settings = {
        **NETWORK,
        "data.options": {"size": [32, 32]},
        "data.splits": {"train": {"length": 6}, "val": {"length": 2}, "test": {"length": 3}},
        "stages": STAGES,
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
    return load_recipe(name, settings)
