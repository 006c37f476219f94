"""One process at a time: a lock on a file that the operating system lets go when its holder dies.

However a process ends, ``kill -9`` and power cuts included, nothing is left that would have to be cleared
away: the file stays, the lock does not. Processes on several machines see each other where the network file
system has locks, as NFS and most cluster file systems do.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shapepu.errors import InputError
from shapepu.files import explained

SECONDS_BETWEEN_ATTEMPTS = 0.1

_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)


@contextmanager
def claim(file: Path) -> Iterator[bool]:
    """Whether ``file`` is this process's alone until the block ends; False when another holds it.

    The content of the file is the number of the process that held it last.
    """
    with explained(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        held = _lock(descriptor, file)
        if held:
            with explained(file):  # the disk may be full
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0) if hasattr(os, "pwrite") else None
        yield held
    finally:
        os.close(descriptor)  # and with it the lock


@contextmanager
def waiting_claim(file: Path) -> Iterator[None]:
    """As :func:`claim`, after waiting for whoever holds it."""
    while True:
        with claim(file) as mine:
            if mine:
                yield
                return
        time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def last_holder(file: Path) -> int | None:
    """The process that holds ``file``, or held it last."""
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        # Bytes far behind the content, which stays readable.
        os.lseek(descriptor, 2**30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock(descriptor: int, file: Path) -> bool:
    try:
        _try_lock(descriptor)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise InputError(
            f"{file}: the file system there has no locks ({error.strerror}), so processes cannot divide "
            "work; choose a folder on another one."
        ) from error
    return True
