"""Memory that is freed and taken again thousands of times a second, kept by the process meanwhile."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of settings in glibc's malloc.h."""

NEVER = 2**31 - 1

LARGEST_MMAP_THRESHOLD = 32 * 2**20
"""Bytes; glibc refuses more."""


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep what a step frees; whether it does.

    By default it hands large blocks back to the system after every step, and the next step finds their pages
    missing, one by one; benchmarks/freed_memory.py prints what that costs. What the process holds at most
    stays about the same. Only glibc is known to need this and to have the settings.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {M_MMAP_THRESHOLD: LARGEST_MMAP_THRESHOLD, M_TRIM_THRESHOLD: NEVER}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
