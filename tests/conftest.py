"""Every test runs with the shapes of public functions checked."""

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jaxtyping
import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("onesigma", "beartype.beartype")

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def as_users_call() -> Iterator[None]:
    """Without shape checks, as outside the tests, to see our own messages for wrong shapes."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
