from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapepu.data.case import Case, Dataset
from shapepu.data.readers.splits import apply_splits, with_validation
from shapepu.errors import InputError
from shapepu.labels import plain_labels
from volume_files import write_json


def patients(count: int, frames: int = 2, **known: Any) -> Dataset:
    cases = [
        Case(f"patient{number:02d}_{frame}", (Path("image"),), group=f"patient{number:02d}", **known)
        for number in range(1, count + 1)
        for frame in range(frames)
    ]
    return Dataset(Path("data"), "folder", plain_labels(("heart",)), tuple(cases))


def splits_of(dataset: Dataset) -> dict[str, str]:
    return {case.name: case.split for case in dataset.cases}


@pytest.mark.parametrize("entry", ["patient02", 2, "2", "patient02_0.nii.gz"])
def test_an_entry_names_a_patient_a_number_or_a_file(tmp_path: Path, entry: str | int) -> None:
    file = write_json(tmp_path / "s.json", {"train": ["patient01"], "val": [entry]})
    found = splits_of(apply_splits(patients(2), file))
    frames = ["0"] if entry == "patient02_0.nii.gz" else ["0", "1"]
    assert found == {"patient01_0": "train", "patient01_1": "train"} | {
        f"patient02_{f}": "val" for f in frames
    }


def test_the_name_of_a_case_wins_over_the_number_of_a_group(tmp_path: Path) -> None:
    cases = (Case("1", (Path("image"),), group="g7"), Case("other", (Path("image"),), group="g1"))
    dataset = Dataset(Path("data"), "folder", plain_labels(("heart",)), cases)
    file = write_json(tmp_path / "s.json", {"val": [1], "train": ["other"]})
    assert splits_of(apply_splits(dataset, file)) == {"1": "val", "other": "train"}


def test_cases_named_nowhere_are_left_out_but_test_cases_stay(tmp_path: Path) -> None:
    dataset = patients(3, frames=1).with_splits({"patient03_0": "test"})
    found = apply_splits(dataset, write_json(tmp_path / "s.json", {"train": [1]}))
    assert splits_of(found) == {"patient01_0": "train", "patient03_0": "test"}
    assert found.notes == ("s.json does not name 1 cases, left out: patient02_0.",)


def test_unpaired_cases_keep_their_mask_and_lose_their_scribble(tmp_path: Path) -> None:
    file = write_json(tmp_path / "s.json", {"train": [1], "unpaired": [2]})
    found = apply_splits(patients(2, frames=1, scribble=Path("scribble"), mask=Path("mask")), file)
    assert [(case.scribble, case.mask) for case in found.cases] == [
        (Path("scribble"), Path("mask")),
        (None, Path("mask")),
    ]
    with pytest.raises(InputError, match="patient02_0 is listed as an unpaired mask, but it has no mask"):
        apply_splits(patients(2, frames=1), file)


@pytest.mark.parametrize(
    ("content", "fold", "phrase"),
    [
        ({"train": [1], "val": ["patient01_1"]}, 0, "patient01_1 is in two splits, train and val"),
        ({"train": ["x", "y"]}, 0, r"none of its 2 entries \(x, y\) names a case .*for example patient01_0"),
        ([{"train": [1]}], 1, "fold 1 asked for, but it holds folds 0 to 0"),
        ([{"train": [1]}], -1, "fold -1 asked for"),
        ({"trian": [1]}, 0, "expected lists under the keys train, val, .*got 'trian'"),
        ({"train": 1}, 0, "expected lists under the keys"),
        ({}, 0, "or a list of such; got {}"),
        ([[1]], 0, r"or a list of such; got \[1\]"),
    ],
)
def test_a_wrong_split_file_is_refused(tmp_path: Path, content: Any, fold: int, phrase: str) -> None:
    with pytest.raises(InputError, match=phrase):
        apply_splits(patients(2), write_json(tmp_path / "s.json", content), fold)


def test_a_missing_split_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such split file"):
        apply_splits(patients(2), tmp_path / "s.json")


@settings(max_examples=50, deadline=None)
@given(count=st.integers(2, 12), fraction=st.floats(0.01, 0.99), seed=st.integers(0, 5))
def test_validation_takes_whole_patients_and_leaves_some(count: int, fraction: float, seed: int) -> None:
    divided = with_validation(patients(count), fraction=fraction, seed=seed)
    train, val = ({case.group for case in divided.split(split)} for split in ("train", "val"))
    assert not train & val
    assert len(train | val) == count
    assert len(val) == min(max(1, round(fraction * count)), count - 1)
    assert divided == with_validation(patients(count), fraction=fraction, seed=seed)


def test_over_all_folds_every_patient_validates_once() -> None:
    chosen = [
        {case.group for case in with_validation(patients(7), folds=3, fold=fold).split("val")}
        for fold in range(3)
    ]
    assert sorted(len(groups) for groups in chosen) == [2, 2, 3]
    assert set().union(*chosen) == {case.group for case in patients(7).cases}


def test_another_seed_draws_other_patients() -> None:
    drawn = {
        tuple(case.group for case in with_validation(patients(9), fraction=0.3, seed=seed).split("val"))
        for seed in range(5)
    }
    assert len(drawn) > 1


def test_declared_validation_cases_are_left_alone() -> None:
    dataset = patients(3).with_splits({"patient01_0": "val"})
    assert with_validation(dataset, fraction=0.5) is dataset


def test_one_patient_is_not_divided_and_this_is_noted() -> None:
    divided = with_validation(patients(1))
    assert len(divided.split("train")) == 2
    assert divided.notes == ("one training patient only: nothing left to validate on.",)


@pytest.mark.parametrize("wrong", [{"folds": 4}, {"folds": 1}, {"folds": 3, "fold": 3}, {"fraction": 1.0}])
def test_impossible_divisions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"fold|fraction"):
        with_validation(patients(3), **wrong)
