"""Dense masks of patients who lend nothing else: no code here unpacks a voxel of their images."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shapepu.console import progress, say
from shapepu.data.cache import FileRecords, cache_folder
from shapepu.data.case import Case
from shapepu.data.grid import SliceGrid
from shapepu.data.preprocess import Preprocessing, different_shapes, fit
from shapepu.data.store_build import ahead, write_entry
from shapepu.data.store_entry import map_entry, open_entry
from shapepu.data.volumes import Header, read_header, read_labels
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE, LabelSet

FORMAT = 1
"""Part of every entry's name; raised whenever the same files and settings would give other arrays."""

UNSET_MM = (1.0, 1.0, 1.0)
"""What a header says when nobody has told it the pixel size, as the masks of ACDC."""


@dataclass(frozen=True, eq=False)
class MaskStore:
    """Slices of dense masks, mapped from the cache.

    Args:
        masks: (N, H, W) labels, OUTSIDE beyond the image.
        cases: in the order of their slices.
    """

    masks: NDArray[np.uint8]
    cases: tuple[Case, ...]

    def __len__(self) -> int:
        return len(self.masks)


@dataclass(frozen=True)
class _MaskOutline:
    """A mask whose grid is known, before any voxel is read."""

    path: Path
    grid: SliceGrid
    digest: str


def open_mask_store(
    cases: Sequence[Case],
    labels: LabelSet,
    preprocessing: Preprocessing,
    cache: Path | None,
    *,
    quiet: bool = False,
) -> MaskStore:
    """The masks of ``cases``, from the cache when nothing has changed since they were prepared.

    Args:
        cases: whose masks, in this order; their images need not exist.
        labels: what the integers in the files mean.
        preprocessing: with nothing left to plan.
        cache: folder for prepared data, or None for the usual one.
        quiet: no progress bar.
    """
    assert preprocessing.resolved, "planned from the training cases first"
    folder = cache_folder(cache)
    outlines = [_outline(case, preprocessing, FileRecords(folder)) for case in cases]
    size = preprocessing.canvas
    shaped_by = {
        "format": FORMAT,
        "masks": [(outline.digest, asdict(outline.grid)) for outline in outlines],
        "labels": (labels.values, labels.unlabelled_value),
        "canvas": size,
    }
    key = hashlib.sha256(json.dumps(shaped_by, sort_keys=True).encode()).hexdigest()[:32]
    masks = open_entry(
        folder, key, _mapped, partial(_build, outlines, labels=labels, size=size, quiet=quiet), quiet
    )
    return MaskStore(masks, tuple(cases))


def filed_twice(lenders: Sequence[Case], others: Iterable[Case], cache: Path | None) -> tuple[Case, ...]:
    """Those of ``lenders`` with an image of ``others``: one scan under two names is not another patient.

    Of files that can be read; what tells them apart is a checksum, and no voxel is unpacked for it.
    """
    records = FileRecords(cache_folder(cache))
    known = {content for case in others for content in _contents(case, records)}
    return tuple(case for case in lenders if not known.isdisjoint(_contents(case, records)))


def _contents(case: Case, records: FileRecords) -> set[str]:
    contents = set()
    for path in case.images:
        with suppress(OSError, InputError):
            contents.add(_checksum(path, records))
    return contents


def _checksum(path: Path, records: FileRecords) -> str:
    if path.suffix.lower() != ".gz":
        return records.of(path).digest
    # The end of a gzip file: checksum and length of what is packed. Its beginning tells when that was done.
    with open(path, "rb") as stream:
        stream.seek(-8, os.SEEK_END)
        return stream.read().hex()


def _outline(case: Case, preprocessing: Preprocessing, records: FileRecords) -> _MaskOutline:
    assert case.mask is not None, "readers list a case as unpaired only if it has a mask"
    assert preprocessing.spacing_mm is not None, "planned"
    record = records.of(case.mask)
    spacing_mm = _spacing_mm(case, record.header)
    grid = SliceGrid.of(record.header.shape, spacing_mm, preprocessing.spacing_mm, source=case.mask)
    return _MaskOutline(case.mask, grid, record.digest)


def _spacing_mm(case: Case, header: Header) -> tuple[float, float, float]:
    """Of the mask; where it gives none, of the header of its image, which is all that is read of it."""
    if header.spacing_mm != UNSET_MM or not case.images:
        return header.spacing_mm
    try:
        image = read_header(case.images[0])
    except InputError as error:
        raise InputError(
            f"{case.mask}: it gives no pixel size (1 x 1 x 1 mm), and the header of its image, which would, "
            f"cannot be read ({error}) Mend the image or set the pixel size of the mask."
        ) from error
    if image.shape != header.shape:
        raise different_shapes(case.mask, header.shape, case.images[0], image.shape)
    return image.spacing_mm


def _build(
    outlines: Sequence[_MaskOutline], place: Path, *, labels: LabelSet, size: tuple[int, int], quiet: bool
) -> None:
    slices = sum(outline.grid.slices for outline in outlines)
    say(f"preparing {len(outlines)} masks, {slices} slices (kept in {place})", quiet=quiet)
    read = ahead(partial(_read, labels=labels, size=size), outlines)
    shown = progress(read, what="preparing", total=len(outlines), unit="mask", quiet=quiet)

    def rows() -> Iterator[tuple[dict[str, Any], dict[str, NDArray]]]:
        for outline, mask in zip(outlines, shown, strict=True):
            yield {"mask": outline.path.name, "slices": len(mask)}, {"masks": mask}

    write_entry(place, {"masks": ((slices, *size), "|u1")}, rows(), {"labels": labels.as_dict()})


def _read(outline: _MaskOutline, *, labels: LabelSet, size: tuple[int, int]) -> NDArray[np.uint8]:
    return fit(outline.grid.resample_labels(read_labels(outline.path, labels)), size, OUTSIDE)


def _mapped(place: Path) -> NDArray[np.uint8] | None:
    entry = map_entry(place)
    return entry[1].get("masks") if entry else None
