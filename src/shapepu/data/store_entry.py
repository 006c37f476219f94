"""Folders of arrays in the cache: written in private, shown when whole, never trusted when not."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shapepu.console import say
from shapepu.data.cache import writing_to_cache
from shapepu.errors import InputError

PRIVATE = ".building-"

ABANDONED_SECONDS = 24 * 3600
"""A private folder of another machine, whose processes cannot be seen, untouched for so long is nobody's."""

ATTEMPTS = 3

Entry = TypeVar("Entry")


class ArrayWriter:
    """A ``.npy`` file of known shape, written from front to back.

    Written, not mapped: a full disk is then an error that can be explained instead of a killed process.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._written = 0
        self._stream = open(path, "wb")  # noqa: SIM115 -- closed by __exit__
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def append(self, rows: NDArray) -> None:
        """Write the next rows along the first axis."""
        assert rows.shape[1:] == self.shape[1:], (rows.shape, self.shape)
        self._stream.write(np.ascontiguousarray(rows, self.dtype).data)
        self._written += len(rows)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                assert self._written == self.shape[0], (self._written, self.shape)
                self._stream.flush()
                os.fsync(self._stream.fileno())  # a rename must not reach the disk before the bytes do


def write_index(folder: Path, index: dict[str, Any]) -> None:
    with open(folder / "index.json", "w", encoding="utf-8") as stream:
        json.dump(index, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())


def map_entry(place: Path) -> tuple[dict[str, Any], dict[str, NDArray]] | None:
    """The index and the arrays of an entry, or None when it is not whole."""
    try:
        index = json.loads((place / "index.json").read_text(encoding="utf-8"))
        return index, {name: _map(place / f"{name}.npy", *kind) for name, kind in index["arrays"].items()}
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _map(path: Path, shape: list[int], dtype: str) -> NDArray:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    whole = isinstance(array, np.memmap) and path.stat().st_size == array.offset + array.nbytes
    if not whole or list(array.shape) != shape or array.dtype != np.dtype(dtype):
        raise ValueError(f"{path} is not the array its index describes")
    return array


def open_entry(
    folder: Path, key: str, read: Callable[[Path], Entry | None], build: Callable[[Path], None], quiet: bool
) -> Entry:
    """What ``read`` finds in an entry of the cache in ``folder``, after ``build`` where it finds none."""
    place = folder / "stores" / key
    # More than once, because another process may find the same entry damaged and take it away under our eyes.
    for _ in range(ATTEMPTS):
        found = read(place)
        if found is not None:
            return found
        with writing_to_cache(folder):
            if place.exists():
                found = read(place)  # another process may have shown it whole since the first look
                if found is not None:
                    return found
                say(f"{place} is damaged; preparing its data again", quiet=quiet)
                discard(place)
        build(place)
    raise InputError(
        f"{place} cannot be read back after writing it; name another folder with --cache FOLDER."
    )


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """A new folder in ``parent`` that no other process touches; gone after the block unless renamed."""
    parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(parent)
    folder = parent / f"{PRIVATE}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, place: Path) -> None:
    """Rename ``folder`` to ``place``; when another process was first, its entry is as good and stays."""
    try:
        os.rename(folder, place)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def discard(place: Path) -> None:
    """Take an entry out of sight at once, then delete it; processes that have mapped it keep their arrays."""
    with private_folder(place.parent) as trash, suppress(FileNotFoundError):
        os.rename(place, trash / place.name)


def remove_abandoned(parent: Path) -> None:
    """Delete private folders whose process was killed."""
    for folder in parent.glob(f"{PRIVATE}*"):
        host, _, process = folder.name.removeprefix(PRIVATE).rpartition("-")[0].rpartition("-")
        if host == socket.gethostname() and process.isdigit():
            abandoned = not _is_running(int(process))
        else:
            abandoned = time.time() - _last_change(folder) > ABANDONED_SECONDS
        if abandoned:
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _last_change(folder: Path) -> float:
    changes = [0.0]
    for part in (folder, *folder.glob("*")):
        with suppress(OSError):
            changes.append(part.stat().st_mtime)
    return max(changes)
