"""Everything that can be known to be wrong with a data set before an hour is spent on training with it.

Each file is read once. A case that cannot be read is a finding like any other; the rest is still looked at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shapepu import console
from shapepu.data.case import Case, Dataset, Split
from shapepu.data.grid import slice_axis
from shapepu.data.nifti import millimetres
from shapepu.data.volumes import Header, Volume, image_suffix, read_volume, translate_labels, whole_numbers
from shapepu.errors import InputError
from shapepu.labels import LabelSet

Level = Literal["note", "warning", "error"]
LEVELS: tuple[Level, ...] = ("note", "warning", "error")

_SPACING_TOLERANCE = 0.01
_AGREEMENT_EXPECTED = 0.8


@dataclass(frozen=True)
class Finding:
    """One thing a person should know.

    Args:
        level: "error" when training cannot or must not go ahead, "warning" when it deserves a look, "note".
        code: the kind of finding, for programs and for grouping.
        message: one sentence about this very file or data set.
        case: the case it is about; empty for the data set as a whole.
    """

    level: Level
    code: str
    message: str
    case: str = ""


@dataclass(frozen=True)
class CaseReport:
    """What was found in one case.

    Args:
        shape: (Z, Y, X) of the first channel, or of the mask where no image could be read; None without both.
        scribble_voxels: scribbled voxels by class name; empty without a scribble that could be read.
        voxels: all voxels of that scribble, so that a share can be taken.
        slices_without_scribble: slices that no scribble touches.
        agreement: share of the scribbled voxels whose class the dense mask confirms; None without both.
    """

    name: str
    split: Split
    group: str
    shape: tuple[int, int, int] | None = None
    spacing_mm: tuple[float, float, float] | None = None
    scribble_voxels: dict[str, int] = field(default_factory=dict)
    voxels: int = 0
    slices_without_scribble: int = 0
    agreement: float | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def labelled(self) -> int:
        return sum(self.scribble_voxels.values())


@dataclass(frozen=True)
class CheckReport:
    """What was found in a data set; ``findings`` are those about the set as a whole."""

    root: Path
    layout: str
    labels: LabelSet
    cases: tuple[CaseReport, ...]
    findings: tuple[Finding, ...]

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        return self.findings + tuple(finding for case in self.cases for finding in case.findings)

    @property
    def level(self) -> Level:
        """The gravest level found; "note" when nothing was."""
        return max((finding.level for finding in self.all_findings), key=LEVELS.index, default="note")

    @property
    def exit_code(self) -> int:
        """0 fine, 1 warnings, 2 errors."""
        return LEVELS.index(self.level)

    @property
    def scribble_voxels(self) -> dict[str, int]:
        """Scribbled voxels of the training cases by class name."""
        training = [case.scribble_voxels for case in self.cases if case.split == "train"]
        return {name: sum(voxels.get(name, 0) for voxels in training) for name in self.labels.names}

    @property
    def coverage(self) -> float:
        """Share of the voxels of the training scribbles that carry a class."""
        voxels = sum(case.voxels for case in self.cases if case.split == "train")
        return sum(self.scribble_voxels.values()) / max(voxels, 1)

    @property
    def verdict(self) -> str:
        """One line for a person in a hurry."""
        count = {level: sum(f.level == level for f in self.all_findings) for level in LEVELS}
        if count["error"]:
            return f"Not ready: {_plural(count['error'], 'error')} to mend first."
        if count["warning"]:
            kinds = {(f.code, f.case == "") for f in self.all_findings if f.level == "warning"}
            return f"Ready to train; {_plural(len(kinds), 'kind')} of warning above."
        return "Ready to train."

    def as_dict(self) -> dict[str, Any]:
        """For JSON; keys are stable."""
        return {
            "root": str(self.root),
            "layout": self.layout,
            "labels": self.labels.as_dict(),
            "exit_code": self.exit_code,
            "verdict": self.verdict,
            "scribble_voxels": self.scribble_voxels,
            "coverage": self.coverage,
            "findings": [asdict(finding) for finding in self.findings],
            "cases": [asdict(case) for case in self.cases],
        }


def check_dataset(dataset: Dataset, *, quiet: bool = False) -> CheckReport:
    """Read every file of ``dataset`` once and report what is worth knowing; a bad file never stops it."""
    seen: dict[bytes, Case] = {}
    cases = tuple(
        _Examination(case, dataset.labels, seen).report()
        for case in console.progress(dataset.cases, what="checking", unit="case", quiet=quiet)
    )
    notes = [Finding("warning", "reader", note) for note in dataset.notes]
    findings = (*notes, *_leaks(dataset.cases), *_training_findings(dataset, cases))
    return CheckReport(dataset.root, dataset.layout, dataset.labels, cases, findings)


class _Examination:
    """One case while it is looked at: what it was found to be, and the findings so far."""

    def __init__(self, case: Case, labels: LabelSet, seen: dict[bytes, Case]) -> None:
        self.case, self.labels, self.seen = case, labels, seen
        self.findings: list[Finding] = []

    def report(self) -> CaseReport:
        grid = self._examine_images()
        scribble = self._examine_labels(self.case.scribble, grid)
        mask = self._examine_labels(self.case.mask, grid)
        if self.case.split == "val" and not self.case.mask:
            self._add("note", "no-mask", "no dense mask: training does not score it.")
        known: dict[str, Any] = {}
        shown = grid or (mask[0] if mask else None)
        if shown:
            known.update(shape=shown.shape, spacing_mm=shown.spacing_mm)
        if scribble:
            known.update(self._examine_scribble(scribble[1], grid or scribble[0]))
        if scribble and mask and scribble[1].shape == mask[1].shape:
            known.update(agreement=self._agreement(scribble[1], mask[1]))
        if mask and (mask[1] == self.labels.unlabelled).any():
            self._add("note", "mask-unlabelled", f"{_name(self.case.mask)} holds unlabelled voxels.")
        return CaseReport(
            self.case.name, self.case.split, self.case.group, findings=tuple(self.findings), **known
        )

    def _add(self, level: Level, code: str, message: str) -> None:
        self.findings.append(Finding(level, code, message, self.case.name))

    def _read(self, path: Path) -> Volume | None:
        try:
            volume = read_volume(path)
        except InputError as error:
            self._add("error", "unreadable", str(error))
            return None
        except MemoryError:
            self._add("error", "unreadable", f"{path}: too large for the memory of this machine.")
            return None
        for note in volume.notes:
            if path.is_dir():
                self._add("warning", "uneven-slices", f"{_name(path)}: {note}.")
            else:
                self._add("note", "affine-contradicts", f"{_name(path)}: {note}.")
        return volume

    def _examine_images(self) -> Header | None:
        """Read each channel; the grid of the first that can be read."""
        grid: Header | None = None
        for path in self.case.images:
            volume = self._read(path)
            if volume is None:
                continue
            self._examine_intensities(path, volume.array)
            if grid is None:
                grid = volume.header
            else:
                self._compare(path, volume.header, grid)
        return grid

    def _examine_intensities(self, path: Path, array: NDArray[Any]) -> None:
        if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
            message = f"{int((~finite).sum())} of {array.size} voxels are NaN or infinite; replace them."
            self._add("error", "non-finite", f"{_name(path)}: {message}")
        elif array.min() == array.max():
            self._add("warning", "constant-image", f"{_name(path)}: every voxel is {array.flat[0]:g}.")
        else:
            self._examine_copies(path, array)

    def _examine_copies(self, path: Path, array: NDArray[Any]) -> None:
        content = hashlib.sha256(np.ascontiguousarray(array).data).digest()
        other = self.seen.setdefault(content, self.case)
        if other is self.case:
            return
        splits = {other.split, self.case.split}
        # Training on what is scored flatters the score; a repetition within training only costs variety.
        leaks = len(splits) > 1 and splits & {"val", "test"}
        message = f"{_name(path)} ({self.case.split}): the same voxels as {other.name} ({other.split})."
        self._add("error" if leaks else "warning", "duplicate", message)

    def _examine_labels(
        self, path: Path | None, grid: Header | None
    ) -> tuple[Header, NDArray[np.uint8]] | None:
        """Labels 0..K of a scribble or mask with their grid, unless they cannot be used."""
        if path is None or (volume := self._read(path)) is None:
            return None
        if grid is not None and not self._compare(path, volume.header, grid):
            return None
        try:
            values = whole_numbers(volume.array, path)
        except InputError as error:
            self._add("error", "not-whole-numbers", str(error))
            return None
        try:
            return volume.header, translate_labels(values, self.labels, path)
        except InputError as error:
            self._add("error", "unknown-label", str(error))
            return None

    def _compare(self, path: Path, header: Header, grid: Header) -> bool:
        """Whether ``header`` has the shape of the image's ``grid``; differences are reported."""
        if header.shape != grid.shape:
            hint = "; 3D Slicer crops segmentations unless told not to" if _is_slicer(path) else ""
            self._add(
                "error",
                "shape-differs",
                f"{_name(path)}: {_size(header.shape)} voxels, but its image has {_size(grid.shape)}{hint}.",
            )
            return False
        mine, images = millimetres(header.spacing_mm[::-1]), millimetres(grid.spacing_mm[::-1])
        if not np.allclose(header.spacing_mm, grid.spacing_mm, rtol=_SPACING_TOLERANCE, atol=0):
            unset = header.spacing_mm == (1.0, 1.0, 1.0)
            self._add(
                "warning" if unset else "error",
                "spacing-unset" if unset else "spacing-differs",
                f"{_name(path)}: pixel size {mine} mm, but its image has {images} mm.",
            )
        elif differences := header.geometry_differences(grid):
            self._add(
                "warning",
                "geometry-differs",
                f"{_name(path)}: another {' and '.join(differences)} than its image.",
            )
        return True

    def _examine_scribble(self, labels: NDArray[np.uint8], grid: Header) -> dict[str, Any]:
        """Counts by class and slice; findings for scribbles that look forgotten or dense."""
        count = self.labels.count
        voxels = np.bincount(labels.ravel(), minlength=count + 1)
        drawn = labels < count
        # Slices are those of the image, as in training: label files lose their pixel sizes more often.
        stacked = slice_axis(grid.shape, grid.spacing_mm)
        touched = drawn.any(axis=tuple(axis for axis in range(3) if axis != stacked))
        path = _name(self.case.scribble)
        if not drawn.any():
            self._add("warning", "empty-scribble", f"{path}: nothing is scribbled in it.")
        elif voxels[0] == 0:
            self._add("warning", "no-background-scribble", f"{path}: background is not scribbled.")
        if voxels[count] == 0:
            self._add("warning", "dense-scribble", f"{path}: no voxel is unlabelled; is it a dense mask?")
        bare = int((~touched).sum())
        if bare and drawn.any():
            self._add("note", "bare-slices", f"{path}: {bare} of {touched.size} slices have no scribble.")
        by_class = {name: int(voxels[label]) for label, name in enumerate(self.labels.names)}
        return {"scribble_voxels": by_class, "voxels": labels.size, "slices_without_scribble": bare}

    def _agreement(self, scribble: NDArray[np.uint8], mask: NDArray[np.uint8]) -> float | None:
        both = (scribble < self.labels.count) & (mask < self.labels.count)
        if not both.any():
            return None
        agreement = float((scribble == mask)[both].mean())
        if agreement < _AGREEMENT_EXPECTED:
            self._add(
                "warning",
                "scribble-contradicts-mask",
                f"{_name(self.case.scribble)}: {agreement:.0%} of its voxels have the class the mask has "
                f"there; is it flipped, or another case's?",
            )
        return agreement


def _leaks(cases: Sequence[Case]) -> list[Finding]:
    """Patients in several splits: scores on one of them would flatter."""
    splits: dict[str, dict[str, str]] = {}
    for case in cases:
        splits.setdefault(case.group, {}).setdefault(case.split, case.name)
    return [
        Finding(
            "error" if {"val", "test"} & {*found} else "warning",
            "leak",
            f"{group} is in several splits: "
            + ", ".join(f"{split} ({name})" for split, name in found.items())
            + "; keep a patient in one.",
        )
        for group, found in splits.items()
        if len(found) > 1
    ]


def _training_findings(dataset: Dataset, reports: Sequence[CaseReport]) -> list[Finding]:
    """Whether the training cases together can teach every class."""
    training = dataset.split("train")
    if not training:
        return [Finding("error", "no-training-cases", "no case is in the training split.")]
    scribbled = [case for case in training if case.scribble]
    if not scribbled:
        return [
            Finding(
                "warning",
                "no-scribbles",
                "no training case has scribbles: only fully supervised training is possible; "
                "`shapepu scribble` makes scribbles from masks.",
            )
        ]
    findings = []
    if len(scribbled) < len(training):
        count = len(training) - len(scribbled)
        message = f"{_plural(count, 'training case')} without scribbles: weak supervision cannot use them."
        findings.append(Finding("warning", "no-scribbles", message))
    names = {case.name for case in scribbled}
    read = [report.scribble_voxels for report in reports if report.name in names and report.scribble_voxels]
    for name in dataset.labels.names:
        if not any(voxels[name] for voxels in read):
            message = f"class {name!r} is scribbled in no training case; it cannot be learned."
            findings.append(Finding("error", "class-never-scribbled", message))
    return findings


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _size(shape: tuple[int, ...]) -> str:
    """As people say it: x, y, z."""
    return " x ".join(str(size) for size in shape[::-1])


def _name(path: Path | None) -> str:
    """With its folder, since an image and its labels often share their name."""
    return f"{path.parent.name}/{path.name}" if path else ""


def _is_slicer(path: Path) -> bool:
    return image_suffix(path) == ".seg.nrrd"
