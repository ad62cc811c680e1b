"""Memory that a process keeps for its next step."""

from __future__ import annotations

import ctypes
import sys

# numbers of mallopt's parameters, malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MOST = 2**31 - 1
_AT_ONCE = 64 * 2**20


def keep_freed_memory() -> bool:
    """Tell glibc to keep what is freed: every step of a training takes the same memory again.

    By default large arrays go back to the system when they are freed and come anew, page by page,
    at the next step. For the whole process, so a matter of programs, not of libraries; true if it
    took effect, false where the C library is another.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    sizes = {_MMAP_THRESHOLD: _MOST, _TRIM_THRESHOLD: _MOST, _TOP_PAD: _AT_ONCE}
    return all(mallopt(parameter, size) == 1 for parameter, size in sizes.items())
