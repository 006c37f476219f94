"""What the readers of all layouts share: the volumes in a folder, and JSON that says where it is broken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shapepu.data.volumes import image_suffix, strip_suffix
from shapepu.errors import InputError
from shapepu.labels import LabelSet


def volumes_in(folder: Path, *, series: bool = False) -> dict[str, Path]:
    """Image files in ``folder`` by name without ending; with ``series``, DICOM folders count as well.

    Hidden and other files are passed over. Two files of one name are refused: which is meant is unknown.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith(".") or not ((path.is_dir() and series) or image_suffix(path)):
            continue
        if path.is_dir() and image_suffix(path):
            continue
        name = path.name if path.is_dir() else strip_suffix(path)
        if name in found:
            raise InputError(f"{folder}: {found[name].name} and {path.name} have one name; keep one of them.")
        found[name] = path
    return found


def read_json(path: Path) -> Any:
    """The content of a JSON file, or one line naming the place where it is broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}: invalid JSON in line {error.lineno}, column {error.colno}: {error.msg}; correct it."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: a JSON text file expected, got something else; replace it.") from error
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror}).") from error


def label_set(declared: dict[str, int], path: Path) -> LabelSet:
    """The label set that the file at ``path`` declares, or one line naming the file."""
    try:
        return LabelSet.from_dict(declared)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def some(names: Sequence[object], at_most: int = 5) -> str:
    """The first few of ``names`` for a message."""
    shown = ", ".join(str(name) for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"
