"""Who trains, validates and tests: from a file over any layout, or drawn by patient."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from shapepu.data.case import Case, Dataset, Split, groups_of
from shapepu.data.readers.listing import read_json, some
from shapepu.data.volumes import strip_suffix
from shapepu.errors import InputError

_ALIASES: dict[str, Split] = {
    **{split: split for split in get_args(Split)},
    "training": "train",
    "validation": "val",
    "testing": "test",
    "unpaired_masks": "unpaired",
}


def apply_splits(dataset: Dataset, path: Path, fold: int = 0) -> Dataset:
    """``dataset`` divided as the file at ``path`` says.

    The file is nnU-Net's list of ``{"train": [...], "val": [...]}``, of which ``fold`` chooses one, or a
    single object with any of train, val, test and unpaired. An entry names a case, a group (patient), or the
    number at the end of a group's name. Cases named nowhere are left out, except test cases, which such files
    seldom list.
    """
    split_of, absent = _assign(dataset, _read(path, fold), path)
    kept, left_out = [], []
    for case in dataset.cases:
        if case.name in split_of:
            kept.append(_moved(case, split_of[case.name], path))
        elif case.split == "test":
            kept.append(case)
        else:
            left_out.append(case.name)
    notes = list(dataset.notes)
    if absent:
        notes.append(f"{path.name} names {len(absent)} that are not in this folder: {some(absent)}.")
    if left_out:
        notes.append(f"{path.name} does not name {len(left_out)} cases, left out: {some(left_out)}.")
    return replace(dataset, cases=tuple(kept), notes=tuple(notes))


def with_validation(
    dataset: Dataset, *, fraction: float = 0.2, folds: int | None = None, fold: int = 0, seed: int = 0
) -> Dataset:
    """Move some of the training patients to validation when the data set declares no validation cases.

    Whole groups are moved, drawn by ``seed`` alone. With ``folds``, part ``fold`` of that many equal parts is
    moved, so that over all folds every patient validates once; otherwise ``fraction`` of the patients.
    """
    groups = sorted(groups_of(dataset.split("train")))
    if dataset.split("val") or not groups:
        return dataset
    if folds is not None and not (2 <= folds <= len(groups) and 0 <= fold < folds):
        raise InputError(
            f"folds must be 2 to {len(groups)} (the number of training patients) and fold 0 to folds - 1; "
            f"got folds {folds}, fold {fold}."
        )
    if not 0 < fraction < 1:
        raise InputError(f"the validation fraction must lie between 0 and 1; got {fraction}.")
    if len(groups) < 2:
        return replace(
            dataset, notes=(*dataset.notes, "one training patient only: nothing left to validate on.")
        )
    order = np.random.default_rng(seed).permutation(groups)
    count = min(max(1, round(fraction * len(groups))), len(groups) - 1)
    chosen = set(order[:count] if folds is None else order[fold::folds])
    moved: dict[str, Split] = {case.name: "val" for case in dataset.split("train") if case.group in chosen}
    return dataset.with_splits(moved)


def _read(path: Path, fold: int) -> dict[Split, Sequence[str | int]]:
    if not path.is_file():
        raise InputError(f"{path}: no such split file.")
    content = read_json(path)
    if isinstance(content, list):
        if not 0 <= fold < len(content):
            raise InputError(f"{path}: fold {fold} asked for, but it holds folds 0 to {len(content) - 1}.")
        content = content[fold]
    if not isinstance(content, dict) or not content:
        raise InputError(
            f'{path}: expected {{"train": [...], "val": [...]}} or a list of such; got {content!r:.60}.'
        )
    splits: dict[Split, Sequence[str | int]] = {}
    for key, entries in content.items():
        if key not in _ALIASES or not isinstance(entries, list):
            raise InputError(
                f"{path}: expected lists under the keys {', '.join(_ALIASES)}; got {key!r}: {entries!r:.60}."
            )
        splits[_ALIASES[key]] = entries
    return splits


def _assign(
    dataset: Dataset, wanted: dict[Split, Sequence[str | int]], path: Path
) -> tuple[dict[str, Split], list[str]]:
    """The split of each case that is named, by case name, and the entries that name nothing here."""
    named_by = _index(dataset.cases)
    split_of: dict[str, Split] = {}
    absent = []
    for split, entries in wanted.items():
        for entry in entries:
            cases = named_by.get(str(entry)) or named_by.get(strip_suffix(str(entry))) or []
            if not cases:
                absent.append(str(entry))
            for case in cases:
                if split_of.setdefault(case, split) != split:
                    raise InputError(
                        f"{path}: {case} is in two splits, {split_of[case]} and {split}; name it once."
                    )
    if not split_of:
        raise InputError(
            f"{path}: none of its {len(absent)} entries ({some(absent, 3)}) names a case or patient of "
            f"{dataset.root} (for example {dataset.cases[0].name}); is it the split of another data set?"
        )
    return split_of, absent


def _index(cases: Sequence[Case]) -> dict[str, list[str]]:
    """Case names by all that an entry may say: the number of a group, the group, the case; the last wins."""
    by_number: dict[str, list[str]] = {}
    by_group: dict[str, list[str]] = {}
    numbers = {group: re.search(r"(\d+)$", group) for group in groups_of(cases)}
    for case in cases:
        by_group.setdefault(case.group, []).append(case.name)
        if digits := numbers[case.group]:
            by_number.setdefault(str(int(digits[1])), []).append(case.name)
    return by_number | by_group | {case.name: [case.name] for case in cases}


def _moved(case: Case, split: Split, path: Path) -> Case:
    if split == "unpaired" and case.mask is None:
        raise InputError(
            f"{path}: {case.name} is listed as an unpaired mask, but it has no mask; list another."
        )
    return case.moved_to(split)
