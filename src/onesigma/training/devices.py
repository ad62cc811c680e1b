"""Where a run computes."""

from __future__ import annotations

import torch


def find_device(name: str | None) -> torch.device:
    """The device of that name, or a GPU if there is one.

    Args:
        name: as torch has it, such as cpu or cuda:1.
    """
    cards = torch.cuda.device_count()
    if name is None:
        return torch.device("cuda" if cards else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    # torch raises many kinds for what a machine lacks
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        there = ", ".join(["cpu", *(f"cuda:{i}" for i in range(cards))])
        raise ValueError(f"There is no device {name!r} here; choose from {there}.") from error
    return device
