"""What the C library is told about freed memory."""

from __future__ import annotations

import ctypes
import resource
import subprocess
import sys

import pytest

from shapepu.memory import keep_freed_memory

FAULTS_OF_TEN_ROUNDS = """
import resource, torch
from shapepu.memory import keep_freed_memory
if {kept}:
    assert keep_freed_memory()
def rounds(count):
    for _ in range(count):
        pieces = [torch.ones(2**20) for _ in range(20)]
rounds(3)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
rounds(10)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc_only = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="only glibc has the settings",
)


def faults(*, kept: bool) -> int:
    """Pages that were missing while 80 MB were freed and taken again ten times."""
    code = FAULTS_OF_TEN_ROUNDS.format(kept=kept)
    return int(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    )


@glibc_only
def test_freed_memory_is_there_when_it_is_taken_again() -> None:
    taken = 10 * 80 * 2**20 // resource.getpagesize()
    returned, kept = faults(kept=False), faults(kept=True)
    assert kept < 0.05 * taken
    assert returned > 5 * kept, "there would be nothing to gain: a new C library?"


@glibc_only
def test_the_c_library_takes_the_settings_and_once_is_enough() -> None:
    assert keep_freed_memory()
    assert keep_freed_memory()


def test_elsewhere_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory.__wrapped__() is False
