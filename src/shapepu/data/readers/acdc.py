"""The official tree of ACDC with the published scribbles beside it, divided by patient.

``training/patientNNN/patientNNN_frameFF.nii.gz`` and ``..._gt.nii.gz``, ``scribbles/..._scribble.nii.gz``,
and a JSON file with "split" in its name that lists patient numbers. ``testing/``, where present, holds test
cases.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from shapepu.data.case import Case, Dataset, Split
from shapepu.data.readers.listing import some, volumes_in
from shapepu.data.readers.splits import apply_splits
from shapepu.errors import InputError
from shapepu.labels import LabelSet, plain_labels

LOOKS_LIKE = "training/patientNNN/patientNNN_frameFF.nii.gz and scribbles/patientNNN_frameFF_scribble.nii.gz"

LABELS = plain_labels(("rv", "myo", "lv"))
_FRAME = re.compile(r"(patient\d+)_frame\d+")


def recognises(root: Path) -> bool:
    return any((root / "training").glob("patient*/"))


def read(root: Path, labels: LabelSet | None = None) -> Dataset:
    scribbles = {
        path.name.split("_scribble.")[0]: path for path in sorted(root.rglob("patient*_scribble.nii*"))
    }
    notes: list[str] = []
    cases = _cases(root / "training", "train", scribbles) + _cases(root / "testing", "test", scribbles)
    unlabelled = [case.name for case in cases if not case.scribble and not case.mask]
    cases = [case for case in cases if case.scribble or case.mask]
    if unlabelled:
        notes.append(f"frames with neither scribble nor mask, left out: {some(unlabelled)}.")
    names = {case.name for case in cases}
    if strangers := [name for name in scribbles if name not in names]:
        notes.append(f"scribbles without an image, left out: {some(strangers)}.")
    return Dataset(root, "acdc", labels or LABELS, tuple(cases), ("MRI",), tuple(notes))


def divide(dataset: Dataset, fold: int = 0) -> Dataset:
    own = _own_splits(dataset.root)
    return apply_splits(dataset, own, fold) if own else _by_scribbles(dataset)


def _cases(folder: Path, split: Split, scribbles: dict[str, Path]) -> list[Case]:
    cases = []
    for patient in sorted(folder.glob("patient*/")):
        files = volumes_in(patient)
        for name, image in files.items():
            if match := _FRAME.fullmatch(name):
                mask = files.get(f"{name}_gt")
                cases.append(Case(name, (image,), scribbles.get(name), mask, split, group=match[1]))
    return cases


def _own_splits(root: Path) -> Path | None:
    found = sorted(root.glob("*split*.json"))
    if len(found) > 1:
        raise InputError(
            f"{root}: several split files ({some([path.name for path in found])}); choose one with --splits."
        )
    return found[0] if found else None


def _by_scribbles(dataset: Dataset) -> Dataset:
    """Without a split file: cases with scribbles train, and those with a mask alone lend it."""
    if not any(case.scribble for case in dataset.cases):
        note = "no scribbles found: train fully supervised, or make scribbles with `shapepu scribble`."
        return replace(dataset, notes=(*dataset.notes, note))
    lending = [case.name for case in dataset.split("train") if not case.scribble]
    if not lending:
        return dataset
    note = f"without a split file, cases that have no scribbles lend their mask only: {some(lending)}."
    moved: dict[str, Split] = dict.fromkeys(lending, "unpaired")
    return replace(dataset.with_splits(moved), notes=(*dataset.notes, note))
