"""Where prepared data is kept, and what is already known about each file of a data set.

Everything in the cache can be deleted at any time: it is made again when it is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shapepu.data.volumes import Header, read_header
from shapepu.errors import InputError
from shapepu.files import explained, temporary_name

SETTLED_NS = 2 * 10**9
"""A file written less than this before it was read may have changed once more within the same time stamp."""

RECORD_FORMAT = 1


def cache_folder(chosen: str | Path | None) -> Path:
    """``chosen``, else $SHAPEPU_CACHE, else where this user's programs keep what can be made again."""
    if chosen is not None:
        return Path(chosen).expanduser()
    if os.environ.get("SHAPEPU_CACHE"):
        return Path(os.environ["SHAPEPU_CACHE"]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "shapepu"


@contextmanager
def writing_to_cache(folder: Path) -> Iterator[None]:
    """Say that the cache can be elsewhere when the operating system refuses to write it to ``folder``."""
    try:
        yield
    except OSError as error:
        try:
            with explained(folder):
                raise
        except InputError as explanation:
            raise InputError(f"{explanation} Name a folder for prepared data with --cache FOLDER.") from error


@dataclass(frozen=True)
class FileRecord:
    """What is known of one file (or DICOM folder) since it was last read.

    Args:
        stamp: sizes and times of its files, as far as ``stat`` tells.
        digest: SHA-256 of its bytes.
        header: its grid.
    """

    stamp: str
    digest: str
    header: Header


class FileRecords:
    """Digests and headers of image files, remembered in the cache so that unchanged files are not read again.

    Args:
        folder: of the cache.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"

    def of(self, path: Path) -> FileRecord:
        """What is known of ``path``; it is read only if it may have changed since."""
        parts = _parts(path)
        stamp, changed_ns = _stamp(parts)
        place = self._place(path)
        remembered = _remembered(place, stamp)
        if remembered is not None:
            return remembered
        header = read_header(
            path
        )  # first: it has a better word than "not found" for what is wrong with a file
        record = FileRecord(stamp, _digest(parts), header)
        if time.time_ns() - changed_ns > SETTLED_NS:
            _remember(place, path, record)
        return record

    def _place(self, path: Path) -> Path:
        name = hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:32]
        return self._folder / f"{name}.json"


def _parts(path: Path) -> list[Path]:
    """The files that hold the bytes of an image: itself, a folder's slices, or a header and its data file."""
    if path.is_dir():
        return sorted(part for part in path.iterdir() if part.is_file())
    if path.suffix.lower() == ".mhd" and path.is_file():
        lines = path.read_bytes().splitlines()
        names = [line.partition(b"=")[2].strip() for line in lines if line.startswith(b"ElementDataFile")]
        data_files = [path.parent / os.fsdecode(name) for name in names]
        return [path, *(part for part in data_files if part.is_file())]
    return [path]


def _stamp(parts: list[Path]) -> tuple[str, int]:
    """Name, size and times of change of each file; and when the content of any was last changed."""
    entries, changed_ns = [], 0
    for part in parts:
        with suppress(OSError):
            found = part.stat()
            entries.append(f"{part.name}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}")
            changed_ns = max(changed_ns, found.st_mtime_ns)
    return "|".join(entries), changed_ns


def _digest(parts: list[Path]) -> str:
    if len(parts) == 1:
        return _digest_of_file(parts[0])
    listing = "".join(f"{part.name} {_digest_of_file(part)}\n" for part in parts)
    return hashlib.sha256(listing.encode()).hexdigest()


def _digest_of_file(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remembered(place: Path, stamp: str) -> FileRecord | None:
    try:
        plain = json.loads(place.read_text(encoding="utf-8"))
        if plain["format"] != RECORD_FORMAT or plain["stamp"] != stamp:
            return None
        return FileRecord(plain["stamp"], plain["digest"], _header(plain["header"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(place: Path, path: Path, record: FileRecord) -> None:
    """Without a word when the cache cannot be written: then the file is read again next time."""
    plain = {"format": RECORD_FORMAT, "path": os.path.abspath(path), **asdict(record)}
    with suppress(OSError):
        write_json(place, plain)


def write_json(place: Path, plain: dict[str, Any]) -> None:
    """Write a small file whole or not at all; it may be lost in a power cut, since it can be made again."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(temporary_name(place.name))
    try:
        temporary.write_text(json.dumps(plain, indent=1), encoding="utf-8")
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def _header(plain: dict[str, Any]) -> Header:
    """A header from JSON, where tuples have become lists."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return Header(**values)
