"""What a reader returns: which files belong to which case. No pixel is read here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from shapepu.errors import InputError
from shapepu.labels import LabelSet

Split = Literal["train", "val", "test", "unpaired"]

GROUP_PATTERN = r"^(.+?)(?:_frame\d+|_ED|_ES)?$"
"""Finds the patient in a case name: by default the name without ACDC's frame or a cardiac phase."""


def patient_in(name: str, pattern: str = GROUP_PATTERN) -> str:
    """The patient that ``pattern`` finds in the name of a case; where it finds none, the name.

    The pattern is a regular expression that is searched in the name; its first bracket, or all of it, is the
    patient.
    """
    match = re.search(pattern, name)
    return (match[1 if match.re.groups else 0] if match else None) or name


@dataclass(frozen=True)
class Case:
    """One volume and what is known about it.

    Args:
        name: unique in its data set; prediction files take it.
        images: one file (or DICOM series folder) a channel.
        scribble: sparse labels, or None.
        mask: dense labels, or None.
        split: the part of the data it belongs to; ``unpaired`` cases lend their mask, never their image.
        group: what must not be divided between splits and is not independent in statistics: the patient,
            whom :func:`patient_in` finds in the name when empty.
    """

    name: str
    images: tuple[Path, ...]
    scribble: Path | None = None
    mask: Path | None = None
    split: Split = "train"
    group: str = ""

    def __post_init__(self) -> None:
        if not self.group:
            object.__setattr__(self, "group", patient_in(self.name))

    def moved_to(self, split: Split) -> Case:
        """The same case in another split.

        Among the ``unpaired`` it has no scribble, though one may lie on disk: training on it would be another
        experiment.
        """
        return replace(self, split=split, scribble=None if split == "unpaired" else self.scribble)


@dataclass(frozen=True)
class Dataset:
    """All cases of a folder with their shared labels and channels."""

    root: Path
    layout: str
    labels: LabelSet
    cases: tuple[Case, ...]
    channels: tuple[str, ...] = ("image",)
    notes: tuple[str, ...] = field(default=())
    """What the reader noticed while pairing files, for ``shapepu check`` to print as warnings."""

    def __post_init__(self) -> None:
        names = [case.name for case in self.cases]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InputError(f"{self.root}: case names must be unique, but these repeat: {repeated}.")

    def split(self, name: Split) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case.split == name)

    def with_splits(self, splits: dict[str, Split]) -> Dataset:
        """The same data set with cases reassigned by name; cases that are not named keep their split."""
        return replace(
            self,
            cases=tuple(case.moved_to(splits.get(case.name, case.split)) for case in self.cases),
        )

    @property
    def name(self) -> str:
        return self.root.resolve().name


def groups_of(cases: Iterable[Case]) -> list[str]:
    """The distinct groups in the order of their first case."""
    return list(dict.fromkeys(case.group for case in cases))
