"""Building a store: look at every header first, then prepare one case after the other."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shapepu.console import progress, say
from shapepu.data.cache import FileRecords, writing_to_cache
from shapepu.data.case import Case
from shapepu.data.grid import SliceGrid
from shapepu.data.preprocess import PreparedCase, Preprocessing, different_shapes, fit, prepare_case
from shapepu.data.store_entry import ArrayWriter, private_folder, publish, write_index
from shapepu.data.volumes import read_labels, read_volume
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE, LabelSet

MOST_WORKERS = 4
"""Cases prepared at once, and so in memory at once; reading and resampling leave Python's lock alone."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class StoredCase:
    """What the index tells of one case; counts are of pixels in the stored arrays.

    Args:
        name: of the case.
        slices: how many it has.
        shape: native (Z, Y, X).
        spacing_mm: native (z, y, x).
        pixels: those that lie in the image.
        labelled: of each class.
        unlabelled: neither labelled nor outside.
    """

    name: str
    slices: int
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    pixels: int
    labelled: tuple[int, ...]
    unlabelled: int


@dataclass(frozen=True)
class Outline:
    """A case whose files are known to fit together, before any voxel is read."""

    case: Case
    grid: SliceGrid
    mask: Path | None
    digests: tuple[str | None, ...]


def outline_cases(
    cases: Sequence[Case],
    preprocessing: Preprocessing,
    records: FileRecords,
    want_masks: bool,
    quiet: bool,
) -> list[Outline]:
    """Every case's grid and digests; the first whose files do not fit together is refused."""
    outline = partial(_outline, preprocessing=preprocessing, records=records, want_masks=want_masks)
    shown = progress(ahead(outline, cases), what="reading files", total=len(cases), unit="case", quiet=quiet)
    return list(shown)


def _outline(case: Case, *, preprocessing: Preprocessing, records: FileRecords, want_masks: bool) -> Outline:
    mask = case.mask if want_masks else None
    paths = [*case.images, case.scribble, mask]
    known = [None if path is None else records.of(path) for path in paths]
    first = known[0]
    assert first is not None
    for path, record in zip(paths, known, strict=True):
        if record is not None and record.header.shape != first.header.shape:
            raise different_shapes(path, record.header.shape, case.images[0], first.header.shape)
    assert preprocessing.spacing_mm is not None, "open_store insists on planned preprocessing"
    native = (first.header.shape, first.header.spacing_mm)
    grid = SliceGrid.of(*native, preprocessing.spacing_mm, source=case.images[0])
    return Outline(case, grid, mask, tuple(None if record is None else record.digest for record in known))


def build_entry(
    place: Path, outlines: Sequence[Outline], labels: LabelSet, preprocessing: Preprocessing, quiet: bool
) -> None:
    """Write the entry at ``place``, one case after the other."""
    slices = sum(outline.grid.slices for outline in outlines)
    size = preprocessing.canvas
    kinds: dict[str, tuple[tuple[int, ...], str]] = {
        "images": ((slices, len(outlines[0].case.images), *size), "<f2"),
        "labels": ((slices, *size), "|u1"),
    }
    if any(outline.mask for outline in outlines):
        kinds["masks"] = kinds["labels"]
    say(f"preparing {len(outlines)} cases, {slices} slices (kept in {place})", quiet=quiet)
    read = ahead(partial(_read, labels=labels, preprocessing=preprocessing), outlines)
    shown = progress(read, what="preparing", total=len(outlines), unit="case", quiet=quiet)

    def rows() -> Iterator[tuple[dict[str, Any], dict[str, NDArray]]]:
        for outline, prepared in zip(outlines, shown, strict=True):
            arrays = _on_canvas(prepared, labels, preprocessing)
            yield asdict(_count(outline, prepared, arrays, labels, size)), arrays

    about = {"labels": labels.as_dict(), "preprocessing": asdict(preprocessing)}
    write_entry(place, kinds, rows(), about)


def write_entry(
    place: Path,
    kinds: dict[str, tuple[tuple[int, ...], str]],
    rows: Iterable[tuple[dict[str, Any], dict[str, NDArray]]],
    about: dict[str, Any],
) -> None:
    """Write an entry, whole or not at all.

    Args:
        place: of the entry.
        kinds: shape and type of each array, by name.
        rows: case by case, what the index says of it and its rows of each array.
        about: what else the index says.
    """
    with writing_to_cache(place.parent), private_folder(place.parent) as private:
        _reject_full_disk(place.parent, kinds)
        described = []
        with ExitStack() as stack:
            writers = {
                name: stack.enter_context(ArrayWriter(private / f"{name}.npy", *kind))
                for name, kind in kinds.items()
            }
            for case, arrays in rows:
                described.append(case)
                for name, writer in writers.items():
                    writer.append(arrays[name])
        write_index(private, {**about, "arrays": kinds, "cases": described})
        publish(private, place)


def _read(outline: Outline, *, labels: LabelSet, preprocessing: Preprocessing) -> PreparedCase:
    scribble = outline.case.scribble
    return prepare_case(
        [read_volume(path) for path in outline.case.images],
        preprocessing,
        scribbles=read_labels(scribble, labels) if scribble else None,
        mask=read_labels(outline.mask, labels) if outline.mask else None,
        unlabelled=labels.unlabelled,
    )


def _on_canvas(prepared: PreparedCase, labels: LabelSet, preprocessing: Preprocessing) -> dict[str, NDArray]:
    """The arrays of one case as they are stored."""
    size = preprocessing.canvas
    nothing = np.full((len(prepared.images), *prepared.grid.size), labels.unlabelled, np.uint8)
    scribbles = nothing if prepared.scribbles is None else prepared.scribbles
    mask = nothing if prepared.mask is None else prepared.mask
    return {
        "images": prepared.images_on(size).astype(np.float16),
        "labels": fit(scribbles, size, 0 if preprocessing.padding == "background" else OUTSIDE),
        "masks": fit(mask, size, OUTSIDE),
    }


def _count(
    outline: Outline,
    prepared: PreparedCase,
    arrays: dict[str, NDArray],
    labels: LabelSet,
    size: tuple[int, int],
) -> StoredCase:
    """What the index says of one case."""
    counts = np.bincount(arrays["labels"].ravel(), minlength=256)
    height, width = (min(pair) for pair in zip(prepared.grid.size, size, strict=True))
    return StoredCase(
        name=outline.case.name,
        slices=outline.grid.slices,
        shape=outline.grid.shape,
        spacing_mm=outline.grid.spacing_mm,
        pixels=outline.grid.slices * height * width,
        labelled=tuple(counts[: labels.count].tolist()),
        unlabelled=int(counts[labels.unlabelled]),
    )


def _reject_full_disk(folder: Path, kinds: dict[str, tuple[tuple[int, ...], str]]) -> None:
    """Known before the work starts, not after half of it."""
    needed = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds.values())
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(
            f"cannot write {folder}: the prepared data takes {needed / 1e6:.0f} MB and "
            f"{free / 1e6:.0f} MB are free there; free some or name another folder with --cache FOLDER."
        )


def ahead(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """``map`` in order, working on a few items at once and never holding more results than that."""
    workers = min(MOST_WORKERS, os.cpu_count() or 1)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
