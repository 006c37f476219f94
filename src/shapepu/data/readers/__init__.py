"""From a folder to a :class:`~shapepu.data.case.Dataset`: one file a layout, listed in :data:`LAYOUTS`.

A layout is a module with ``recognises(root)``, ``read(root, labels)`` and ``LOOKS_LIKE``, a line for the
person whose folder is recognised by none; and, where such a folder may say who validates, ``divide(dataset,
fold)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shapepu.data.case import Dataset
from shapepu.data.readers import acdc, folder, mscmr, nnunet
from shapepu.data.readers.listing import some
from shapepu.data.readers.splits import apply_splits, with_validation
from shapepu.errors import InputError, unknown_name
from shapepu.labels import LabelSet

__all__ = ["LAYOUTS", "Reader", "apply_splits", "read_dataset", "read_undivided", "with_validation"]


def _as_it_lies(dataset: Dataset, fold: int) -> Dataset:
    """For layouts whose folders are the splits."""
    return dataset


@dataclass(frozen=True)
class Reader:
    """How one layout is recognised, read and divided.

    Args:
        recognises: whether a folder looks like this layout.
        read: from root and labels (None: the layout's own) to a data set of all cases; no split file is read.
        looks_like: what such a folder holds, in a line.
        divide: what the layout's own split file makes of that data set, or its rule where there is none.
    """

    recognises: Callable[[Path], bool]
    read: Callable[[Path, LabelSet | None], Dataset]
    looks_like: str
    divide: Callable[[Dataset, int], Dataset] = _as_it_lies


LAYOUTS: dict[str, Reader] = {
    "nnunet": Reader(nnunet.recognises, nnunet.read, nnunet.LOOKS_LIKE, nnunet.divide),
    "acdc": Reader(acdc.recognises, acdc.read, acdc.LOOKS_LIKE, acdc.divide),
    "mscmr": Reader(mscmr.recognises, mscmr.read, mscmr.LOOKS_LIKE),
    "folder": Reader(folder.recognises, folder.read, folder.LOOKS_LIKE, folder.divide),
}
"""Readers by name, in the order in which ``auto`` tries them."""


def read_dataset(
    path: str | Path,
    layout: str = "auto",
    labels: LabelSet | None = None,
    splits: str | Path | None = None,
    fold: int = 0,
) -> Dataset:
    """The cases of a data set folder; no voxel of an image is read.

    Args:
        path: the folder.
        layout: a name in :data:`LAYOUTS`, or "auto" to recognise it by what the folder holds.
        labels: classes and their values, in place of those the folder declares.
        splits: a split file in place of the folder's own; :func:`apply_splits` says what it may hold.
        fold: which entry of a split file that lists several.
    """
    dataset = read_undivided(path, layout, labels)
    if splits:
        return apply_splits(dataset, Path(splits), fold)
    return LAYOUTS[dataset.layout].divide(dataset, fold)


def read_undivided(path: str | Path, layout: str = "auto", labels: LabelSet | None = None) -> Dataset:
    """All cases of a data set folder as they lie in it, whatever split files say."""
    root = Path(path)
    if not root.is_dir():
        came = "it is a file" if root.exists() else "nothing of that name is there"
        raise InputError(f"{root}: a data set folder expected, but {came}.")
    reader = _recognised(root) if layout == "auto" else LAYOUTS.get(layout)
    if reader is None:
        raise unknown_name("layout", layout, ("auto", *LAYOUTS))
    dataset = reader.read(root, labels)
    if not dataset.cases:
        raise InputError(f"{root}: no case found; the {dataset.layout} layout is {reader.looks_like}.")
    return dataset


def _recognised(root: Path) -> Reader:
    for reader in LAYOUTS.values():
        if reader.recognises(root):
            return reader
    for near in (root.resolve().parent, *sorted(entry for entry in root.iterdir() if entry.is_dir())):
        if any(reader.recognises(near) for reader in LAYOUTS.values()):
            raise InputError(f"{root}: no data set, but {near} looks like one; did you mean that?")
    found = sorted(entry.name for entry in root.iterdir())
    known = "; ".join(f"{name}: {reader.looks_like}" for name, reader in LAYOUTS.items())
    raise InputError(f"{root}: no known layout; it holds {some(found, 4) or 'nothing'}. Known are {known}.")
