"""Files that are either whole or absent: write to a temporary name, then rename."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shapepu.errors import InputError

_OUT_OF_REACH = {
    errno.ENOSPC: "no space left there; free some or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some or choose another folder",
    errno.EACCES: "no permission to write there; choose another folder",
    errno.EPERM: "no permission to write there; choose another folder",
    errno.EROFS: "it is read-only; choose another folder",
    errno.ENOTDIR: "part of that path is a file, not a folder; choose another folder",
    errno.EEXIST: "part of that path is a file, not a folder; choose another folder",
    errno.EISDIR: "it is a folder; choose another name",
}


@contextmanager
def explained(target: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write ``target`` into a line that says what to do."""
    try:
        yield
    except OSError as error:
        reason = _OUT_OF_REACH.get(error.errno or 0)
        if reason is None:
            raise
        raise InputError(f"cannot write {target}: {reason}.") from error


@contextmanager
def atomic_path(target: str | Path) -> Iterator[Path]:
    """A temporary path beside ``target`` that becomes ``target`` when the block ends well.

    The temporary name keeps the suffixes, because writers of image formats choose the format by them. When
    the block raises, nothing is left behind; after ``kill -9`` only a hidden file is, never half a target.
    """
    target = Path(target)
    with explained(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(temporary_name(target.name))
        try:
            yield temporary
            _flush_to_disk(temporary)
            os.replace(temporary, target)
        finally:
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)


def temporary_name(name: str) -> str:
    """A hidden name with the suffixes of ``name`` that no other call gives.

    The number of the process is not enough: on machines that share a folder, containers have the same ones.
    """
    return f".{os.getpid()}-{secrets.token_hex(4)}-{name}"


def write_text(target: str | Path, text: str) -> None:
    """Write ``text`` so that ``target`` is never half of it."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def writable_folder(folder: str | Path) -> Path:
    """``folder``, created if need be, after proving that a file can be written in it.

    Called before long work, so that an output that cannot be written is known at the start.
    """
    folder = Path(folder)
    probe, made_here = folder / temporary_name("probe"), not folder.exists()
    with explained(folder):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"cannot write into {folder}: it is a file, not a folder; choose another name.")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(b"shapepu" * 64)
        except OSError:
            probe.unlink(missing_ok=True)
            if made_here:
                folder.rmdir()
            raise
        probe.unlink()
    return folder


def _flush_to_disk(path: Path) -> None:
    """Renaming is atomic, but only flushed bytes survive a power cut."""
    if not path.is_file():
        return
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())
