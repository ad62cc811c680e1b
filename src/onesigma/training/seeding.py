"""All randomness of a run, as a function of where in the run it is used."""

from __future__ import annotations

from hashlib import blake2b

import torch


def derive_seed(*place: int | str) -> int:
    """A seed for one place of a run: the first 62 bits of a hash of (seed, stage, epoch, step).

    Args:
        place: the run's seed and what distinguishes this use of it from all others.
    """
    digest = blake2b(repr(place).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


def derive_generator(*place: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator seeded by `derive_seed`.

    Args:
        place: see `derive_seed`.
        device: where its numbers are drawn.
    """
    return torch.Generator(device).manual_seed(derive_seed(*place))
