"""Batches of a stage: which images, in which order, as a function of (seed, stage, epoch, step)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from onesigma.data.base import Sample
from onesigma.training.seeding import derive_generator

_KEYS = ("image", "target", "name", "noise", "ood")


def steps_per_epoch(images: int, batch: int) -> int:
    """Whole batches only, but at least one."""
    return max(1, images // batch)


def epoch_batches(images: int, batch: int, place: Sequence[int], start: int = 0) -> list[list[int]]:
    """The indices of every step of an epoch, from step `start` on.

    Args:
        images: how many there are.
        batch: images per step.
        place: (seed, stage, epoch), which fixes the order.
        start: steps already done.
    """
    order = torch.randperm(images, generator=derive_generator(*place, "order")).tolist()
    steps = steps_per_epoch(images, batch)
    return [order[i * batch : (i + 1) * batch] for i in range(start, steps)]


def training_loader(
    dataset: Dataset[Sample], batches: list[list[int]], workers: int = 0
) -> DataLoader[Any]:
    """A loader over exactly these batches."""
    return DataLoader(
        dataset, batch_sampler=batches, num_workers=workers, collate_fn=collate,
        generator=torch.Generator(),
    )  # fmt: skip


def evaluation_loader(
    dataset: Dataset[Sample], workers: int = 0, batch: int = 1
) -> DataLoader[Any]:
    """All images in their order."""
    return DataLoader(
        dataset, batch_size=batch, num_workers=workers, collate_fn=collate,
        generator=torch.Generator(),
    )  # fmt: skip


def collate(samples: Sequence[Sample]) -> dict[str, Any]:
    """Images, targets, names and known truth; images of different sizes are refused by name."""
    first = samples[0]
    for sample in samples[1:]:
        if sample["image"].shape != first["image"].shape:
            raise ValueError(
                f"Images {first['name']!r} and {sample['name']!r} of one batch have sizes "
                f"{tuple(first['image'].shape[1:])} and {tuple(sample['image'].shape[1:])}; set "
                "stages.size to resize them, or stages.batch to 1."
            )
    kept = [{key: value for key, value in sample.items() if key in _KEYS} for sample in samples]
    batch: dict[str, Any] = default_collate(kept)
    return batch


def valid_pixels(target: Tensor, outputs: int) -> Tensor:
    """Where there is a target: finite values, labels in range."""
    if target.is_floating_point():
        return target.isfinite().all(1)
    return (target >= 0) & (target < outputs)
