"""A lock that only one process has, and that none keeps beyond its life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shapepu import claims
from shapepu.claims import claim, last_holder, waiting_claim
from shapepu.errors import InputError

HOLD = """
import sys
from pathlib import Path
from shapepu.claims import claim
with claim(Path(sys.argv[1])) as mine:
    print("held" if mine else "refused", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Holds ``file``, or was refused it, until it is told to let go."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_one_holds(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "job"
    with other_process(file) as one:
        assert said(one) == "held"
        with claim(file) as mine:
            assert not mine
        with other_process(file) as two:
            assert said(two) == "refused"
        one.communicate("let go\n", timeout=60)
        with claim(file) as mine:
            assert mine


def test_different_files_are_different_claims(tmp_path: Path) -> None:
    with other_process(tmp_path / "one") as one:
        assert said(one) == "held"
        with claim(tmp_path / "other") as mine:
            assert mine


def test_a_holder_that_is_killed_lets_go(tmp_path: Path) -> None:
    file = tmp_path / "job"
    with other_process(file) as holder:
        assert said(holder) == "held"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait(timeout=60)
    assert file.is_file(), "the file stays; what was held was the lock"
    with claim(file) as mine:
        assert mine


def test_what_fails_inside_lets_go(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), claim(tmp_path / "job"):
        raise ZeroDivisionError
    with claim(tmp_path / "job") as mine:
        assert mine


def test_the_last_holder_is_known_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "job"
    assert last_holder(file) is None
    with other_process(file) as holder:
        assert said(holder) == "held"
        assert last_holder(file) == holder.pid
        with claim(file):
            assert last_holder(file) == holder.pid, "whoever is refused leaves no mark"
    with claim(file):
        assert last_holder(file) == os.getpid()


def test_a_waiting_claim_waits_for_whoever_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "tables"
    with other_process(file) as holder:
        assert said(holder) == "held"
        came: list[float] = []

        def wait() -> None:
            with waiting_claim(file):
                came.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(4 * claims.SECONDS_BETWEEN_ATTEMPTS)
        assert not came
        freed = time.monotonic()
        holder.communicate("let go\n", timeout=60)
        thread.join(timeout=10)
    assert came
    assert came[0] > freed


def test_a_file_system_without_locks_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claims, "_try_lock", refuse)
    with pytest.raises(
        InputError, match=r"has no locks \(Function not implemented.*choose a folder on another"
    ):
        claim(tmp_path / "job").__enter__()
