from __future__ import annotations

from pathlib import Path

import pytest

from shapepu.data.readers import read_dataset


def mscmr(root: Path, test_folder: str = "test") -> Path:
    names = {
        "train": ("subject2_DE", "_scribble"),
        "val": ("subject30_DE", "_manual"),
        test_folder: ("subject41_DE", "_manual"),
    }
    for folder, (name, ending) in names.items():
        for path in (f"images/{name}.nii.gz", f"labels/{name}{ending}.nii.gz"):
            (root / folder / path).parent.mkdir(parents=True, exist_ok=True)
            (root / folder / path).touch()
    return root


@pytest.mark.parametrize("test_folder", ["test", "TestSet"])
def test_folders_are_splits_and_endings_say_scribble_or_mask(tmp_path: Path, test_folder: str) -> None:
    root = mscmr(tmp_path, test_folder)
    dataset = read_dataset(root)
    train, val, test = dataset.cases
    assert (train.name, train.group, train.split) == ("subject2_DE", "subject2", "train")
    assert (train.scribble, train.mask) == (root / "train/labels/subject2_DE_scribble.nii.gz", None)
    assert (val.scribble, val.mask) == (None, root / "val/labels/subject30_DE_manual.nii.gz")
    assert (test.name, test.split) == ("subject41_DE", "test")
    assert dataset.labels.as_dict() == {"background": 0, "rv": 1, "myo": 2, "lv": 3, "ignore": 4}


def test_what_does_not_pair_is_noted_but_test_images_need_no_labels(tmp_path: Path) -> None:
    root = mscmr(tmp_path)
    (root / "train/images/subject3_DE.nii.gz").touch()
    (root / "train/labels/subject4_DE_scribble.nii.gz").touch()
    (root / "test/images/subject5_DE.nii.gz").touch()
    dataset = read_dataset(root)
    assert [case.name for case in dataset.cases] == [
        "subject2_DE",
        "subject30_DE",
        "subject41_DE",
        "subject5_DE",
    ]
    assert dataset.notes == (
        "train: images with neither _scribble nor _manual, left out: subject3_DE.",
        "train: labels without an image, left out: subject4_DE_scribble.",
    )
