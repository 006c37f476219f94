from __future__ import annotations

from pathlib import Path

import pytest

from shapepu.data.readers import read_dataset, read_undivided
from shapepu.errors import InputError
from volume_files import write_json


def touch(path: Path) -> Path:
    """Readers pair by name; for them a file need not hold an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def acdc(root: Path, patients: tuple[int, ...] = (1, 2, 3)) -> Path:
    for patient in patients:
        folder = root / f"training/patient{patient:03d}"
        touch(folder / f"patient{patient:03d}_4d.nii.gz")
        touch(folder / "Info.cfg")
        for frame in ("frame01", "frame12"):
            name = f"patient{patient:03d}_{frame}"
            touch(folder / f"{name}.nii.gz")
            touch(folder / f"{name}_gt.nii.gz")
            touch(root / f"scribbles/{name}_scribble.nii.gz")
    return root


def test_frames_are_cases_and_patients_are_groups(tmp_path: Path) -> None:
    dataset = read_dataset(acdc(tmp_path))
    first = dataset.cases[0]
    assert len(dataset.cases) == 6
    assert (first.name, first.group, first.split) == ("patient001_frame01", "patient001", "train")
    assert first.images == (tmp_path / "training/patient001/patient001_frame01.nii.gz",)
    assert first.scribble == tmp_path / "scribbles/patient001_frame01_scribble.nii.gz"
    assert first.mask == tmp_path / "training/patient001/patient001_frame01_gt.nii.gz"
    assert dataset.labels.names == ("background", "rv", "myo", "lv")
    assert dataset.labels.unlabelled_value == 4


def test_the_split_lists_patient_numbers_and_unpaired_cases_lose_their_scribbles(tmp_path: Path) -> None:
    root = acdc(tmp_path, (1, 2, 13, 14))
    write_json(root / "maag_split.json", {"train": [13], "unpaired_masks": [1], "val": [2], "test": [14, 99]})
    dataset = read_dataset(root)
    splits = {case.group: case.split for case in dataset.cases}
    assert splits == {
        "patient001": "unpaired",
        "patient002": "val",
        "patient013": "train",
        "patient014": "test",
    }
    assert all((case.scribble is None) == (case.split == "unpaired") for case in dataset.cases)
    assert all(case.mask for case in dataset.cases)
    assert dataset.notes == ("maag_split.json names 1 that are not in this folder: 99.",)


def test_without_a_split_file_cases_without_scribbles_lend_their_masks(tmp_path: Path) -> None:
    root = acdc(tmp_path)
    for frame in ("frame01", "frame12"):
        (root / f"scribbles/patient002_{frame}_scribble.nii.gz").unlink()
    dataset = read_dataset(root)
    assert {case.group for case in dataset.split("train")} == {"patient001", "patient003"}
    assert {case.group for case in dataset.split("unpaired")} == {"patient002"}
    assert "patient002_frame01, patient002_frame12" in dataset.notes[0]


def test_without_any_scribbles_everything_trains_fully_supervised(tmp_path: Path) -> None:
    root = acdc(tmp_path)
    for path in (root / "scribbles").iterdir():
        path.unlink()
    dataset = read_dataset(root)
    assert {case.split for case in dataset.cases} == {"train"}
    assert "shapepu scribble" in dataset.notes[0]


def test_the_testing_folder_is_the_test_split(tmp_path: Path) -> None:
    root = acdc(tmp_path)
    touch(root / "testing/patient101/patient101_frame01.nii.gz")
    touch(root / "testing/patient101/patient101_frame01_gt.nii.gz")
    (case,) = read_dataset(root).split("test")
    assert (case.name, case.mask is not None) == ("patient101_frame01", True)


def test_frames_without_labels_and_scribbles_without_frames_are_noted(tmp_path: Path) -> None:
    root = acdc(tmp_path, (1,))
    touch(root / "training/patient005/patient005_frame03.nii.gz")
    touch(root / "scribbles/patient009_frame01_scribble.nii.gz")
    dataset = read_dataset(root)
    assert len(dataset.cases) == 2
    assert dataset.notes == (
        "frames with neither scribble nor mask, left out: patient005_frame03.",
        "scribbles without an image, left out: patient009_frame01.",
    )


def test_two_split_files_need_a_choice(tmp_path: Path) -> None:
    root = acdc(tmp_path)
    mine = write_json(root / "my_split.json", {"train": [1]})
    write_json(root / "maag_split.json", {"train": [2]})
    with pytest.raises(InputError, match=r"maag_split\.json, my_split\.json\); choose one with --splits"):
        read_dataset(root)
    assert {case.group for case in read_dataset(root, splits=mine).cases} == {"patient001"}


def test_read_undivided_all_frames_keep_their_scribbles_whatever_split_files_say(tmp_path: Path) -> None:
    root = acdc(tmp_path)
    write_json(root / "maag_split.json", {"train": [1], "unpaired_masks": [2]})
    write_json(root / "my_split.json", {"train": [2]})
    cases = read_undivided(root).cases
    assert [case.group for case in cases] == [f"patient00{n}" for n in (1, 1, 2, 2, 3, 3)]
    assert {case.split for case in cases} == {"train"}
    assert all(case.scribble and case.mask for case in cases)
