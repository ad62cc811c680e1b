"""Freed memory is kept for the next step, where the C library can."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from onesigma.training.memory import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def steps():
    before = faults()
    for _ in range(10):
        torch.ones(2**22)  # 16 MiB, 4096 pages
    return faults() - before

before = steps()
assert keep_freed_memory()
steps()
print(before, steps())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_the_second_step_finds_the_memory_of_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 1000
    assert kept < given_back / 10
