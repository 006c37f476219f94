from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shapepu.data.readers import read_dataset
from shapepu.data.readers.folder import find_images
from shapepu.data.readers.splits import with_validation
from shapepu.errors import InputError
from volume_files import plain_folder, random_image, scribbled, write_dicom, write_json, write_nifti

LABELS = {"background": 0, "heart": 1, "ignore": 2}


def touch(root: Path, *names: str) -> Path:
    """Readers pair by name; with labels.json no file need hold an image."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    write_json(root / "labels.json", LABELS)
    return root


@pytest.mark.parametrize("scribble", ["a", "a_scribble", "a_scribbles"])
@pytest.mark.parametrize("mask", ["a", "a_mask", "a_gt", "a_manual"])
def test_scribbles_and_masks_pair_by_name_with_or_without_ending(
    tmp_path: Path, scribble: str, mask: str
) -> None:
    root = touch(tmp_path, "images/a.nii.gz", f"scribbles/{scribble}.nrrd", f"masks/{mask}.mha")
    (case,) = read_dataset(root).cases
    assert (case.name, case.split) == ("a", "train")
    assert case.images == (root / "images/a.nii.gz",)
    assert case.scribble == root / f"scribbles/{scribble}.nrrd"
    assert case.mask == root / f"masks/{mask}.mha"


def test_subfolders_are_splits(tmp_path: Path) -> None:
    root = touch(
        tmp_path,
        *("train/images/a.nii.gz", "train/scribbles/a.nii.gz", "val/images/b.nii.gz", "val/masks/b.nii.gz"),
        *("test/images/c.nii.gz", "unpaired/masks/d.nii.gz"),
    )
    dataset = read_dataset(root)
    assert {case.name: case.split for case in dataset.cases} == {
        "a": "train",
        "b": "val",
        "c": "test",
        "d": "unpaired",
    }
    assert dataset.split("unpaired")[0].images == ()
    assert dataset.notes == ()


def test_the_split_file_of_the_folder_is_used(tmp_path: Path) -> None:
    root = plain_folder(tmp_path, cases=3)
    write_json(root / "splits.json", {"train": ["case0"], "val": ["case2"]})
    dataset = read_dataset(root)
    assert [(case.name, case.split) for case in dataset.cases] == [("case0", "train"), ("case2", "val")]
    assert dataset.notes == ("splits.json does not name 1 cases, left out: case1.",)


def test_numbered_files_are_the_channels_of_a_case(tmp_path: Path) -> None:
    root = touch(
        tmp_path,
        *("images/a_0001.nii.gz", "images/a_0000.nii.gz", "images/b_0000.nii.gz", "images/b_0001.nii.gz"),
        *("scribbles/a.nii.gz", "scribbles/b_scribble.nii.gz"),
    )
    dataset = read_dataset(root)
    assert [[path.name for path in case.images] for case in dataset.cases] == [
        ["a_0000.nii.gz", "a_0001.nii.gz"],
        ["b_0000.nii.gz", "b_0001.nii.gz"],
    ]
    assert len(dataset.channels) == 2


def test_numbered_files_are_cases_when_their_labels_are_numbered_too(tmp_path: Path) -> None:
    names = [f"a_{number:04d}" for number in range(3)]
    root = touch(
        tmp_path,
        *(f"images/{name}.nii.gz" for name in names),
        *(f"scribbles/{name}_scribble.nii.gz" for name in names),
    )
    assert [case.name for case in read_dataset(root).cases] == names


def test_numbered_files_that_start_above_zero_are_cases(tmp_path: Path) -> None:
    touch(tmp_path, "images/a_0001.nii.gz", "images/a_0002.nii.gz")
    assert list(find_images(tmp_path / "images")) == ["a_0001", "a_0002"]


def test_a_missing_channel_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "images/a_0000.nii.gz", "images/a_0002.nii.gz")
    with pytest.raises(InputError, match="a_0001 is missing, though a has further channels"):
        find_images(tmp_path / "images")


def test_cases_with_fewer_channels_than_others_are_refused(tmp_path: Path) -> None:
    root = touch(tmp_path, "images/a_0000.nii", "images/a_0001.nii", "images/b_0000.nii", "images/c.nii")
    touch(root, *(f"scribbles/{name}.nii" for name in "abc"))
    with pytest.raises(InputError, match="b has 1 channels, others 2"):
        read_dataset(root)


def test_a_case_may_be_a_dicom_folder(tmp_path: Path) -> None:
    write_dicom(tmp_path / "images" / "a", random_image())
    root = touch(tmp_path, "scribbles/a.nii.gz")
    assert read_dataset(root).cases[0].images == (root / "images/a",)


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    root = touch(tmp_path, "images/a.nii.gz", "images/.b.nii.gz", "images/notes.txt", "scribbles/a.nii.gz")
    assert [case.name for case in read_dataset(root).cases] == ["a"]


@pytest.mark.parametrize(
    ("files", "phrase"),
    [
        (["images/a.nii.gz", "images/a.nrrd", "scribbles/a.nrrd"], r"a\.nii\.gz and a\.nrrd have one name"),
        (
            ["images/a.nii", "scribbles/a.nii", "scribbles/a_scribble.nii"],
            r"a\.nii and a_scribble\.nii are for one case",
        ),
        (["images/a.nii", "images/a_0000.nii", "scribbles/a.nii"], r"a\.nii and a_0000\.nii are one case"),
        (["images/a.nii", "train/images/b.nii"], "images/ and train/ are both there"),
        (["images/a.nii", "scribbles/x.nii"], "no image pairs with a scribble or mask by name; got images a"),
        (
            ["train/images/a.nii", "train/scribbles/a.nii", "val/images/a.nii", "val/masks/a.nii"],
            r"must be unique, but these repeat: \['a'\]",
        ),
        (["images/notes.txt"], "no case found"),
    ],
)
def test_ambiguous_folders_are_refused(tmp_path: Path, files: list[str], phrase: str) -> None:
    with pytest.raises(InputError, match=phrase):
        read_dataset(touch(tmp_path, *files))


def test_files_without_a_partner_are_noted(tmp_path: Path) -> None:
    root = touch(tmp_path, "images/a.nii", "images/b.nii", "scribbles/a.nii", "scribbles/c.nii")
    dataset = read_dataset(root)
    assert [case.name for case in dataset.cases] == ["a"]
    assert dataset.notes == (
        "scribbles or masks without an image, left out: c.",
        "images with neither scribble nor mask, left out: b.",
    )


@pytest.mark.parametrize("content", [[1, 2], {"background": "0"}, {"background": 0, "heart": 1.5}])
def test_a_wrong_labels_json_is_refused(tmp_path: Path, content: object) -> None:
    root = plain_folder(tmp_path)
    write_json(root / "labels.json", content)
    with pytest.raises(InputError, match=r"labels\.json: expected \{\"background\": 0"):
        read_dataset(root)


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        ({"background": 0}, "2 to 250 classes"),
        ({"heart": 1, "lung": 2, "unlabelled": 0}, "must be called 'background' or have the value 0"),
        ({"background": 0, "heart": 1, "unlabelled": -1}, "the unlabelled value must be 0 or more"),
        ({"background": 0, "heart": 1, "ignore": 1}, "a value of its own"),
    ],
)
def test_labels_that_cannot_be_are_refused_with_the_name_of_the_file(
    tmp_path: Path, content: dict[str, int], phrase: str
) -> None:
    root = plain_folder(tmp_path)
    write_json(root / "labels.json", content)
    with pytest.raises(InputError, match=rf"labels\.json: .*{phrase}"):
        read_dataset(root)


def test_phases_of_one_patient_are_one_group_that_no_fold_divides(tmp_path: Path) -> None:
    names = [f"p{patient}_{phase}" for patient in range(4) for phase in ("ED", "ES", "frame07")]
    root = touch(
        tmp_path, *(f"{kind}/{name}.nii" for kind in ("images", "scribbles") for name in (*names, "x"))
    )
    dataset = read_dataset(root)
    assert {case.name: case.group for case in dataset.cases} == {"x": "x"} | {
        name: name[:2] for name in names
    }
    for fold in range(5):
        divided = with_validation(dataset, folds=5, fold=fold)
        train, val = ({case.group for case in divided.split(split)} for split in ("train", "val"))
        assert not train & val


def test_without_labels_json_classes_come_from_the_scribbles(tmp_path: Path) -> None:
    root = plain_folder(tmp_path, classes=3)
    (root / "labels.json").unlink()
    dataset = read_dataset(root)
    assert dataset.labels.as_dict() == {"background": 0, "class1": 1, "class2": 2, "ignore": 3}
    assert "assumed from the values in 2 label files" in dataset.notes[0]


def test_without_labels_json_a_scribble_that_cannot_be_read_is_passed_over_and_noted(tmp_path: Path) -> None:
    root = plain_folder(tmp_path, cases=3)
    (root / "labels.json").unlink()
    (root / "scribbles/case1.nii.gz").write_bytes(b"")
    dataset = read_dataset(root)
    assert len(dataset.cases) == 3
    assert dataset.labels.as_dict() == {"background": 0, "class1": 1, "class2": 2, "ignore": 3}
    assert "values in 2 label files (case1.nii.gz cannot be used)" in dataset.notes[0]
    for name in ("case0", "case2"):
        (root / f"scribbles/{name}.nii.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"case0\.nii\.gz: an image expected, but the file is empty"):
        read_dataset(root)


def test_scribbles_that_leave_zero_undrawn_need_labels_json_and_are_shown_one(tmp_path: Path) -> None:
    drawn = np.zeros((3, 8, 6), np.uint8)
    drawn[:, 0, :3], drawn[:, 1, :3] = 1, 2
    write_nifti(tmp_path / "images/a.nii.gz", random_image())
    write_nifti(tmp_path / "scribbles/a.nii.gz", drawn)
    with pytest.raises(InputError, match=r'2, would be, but 0 is the most frequent; .*"ignore": 0}'):
        read_dataset(tmp_path)
    write_json(tmp_path / "labels.json", {"background": 1, "heart": 2, "ignore": 0})
    assert read_dataset(tmp_path).labels.values == (1, 2)


def test_without_scribbles_and_labels_json_classes_are_the_values_of_the_masks(tmp_path: Path) -> None:
    write_nifti(tmp_path / "images/a.nii.gz", random_image())
    write_nifti(tmp_path / "masks/a.nii.gz", np.minimum(scribbled(), 2))
    assert read_dataset(tmp_path).labels.as_dict() == {"background": 0, "class1": 1, "class2": 2, "ignore": 3}


def test_fractions_do_not_become_classes(tmp_path: Path) -> None:
    write_nifti(tmp_path / "images/a.nii.gz", random_image())
    write_nifti(tmp_path / "scribbles/a.nii.gz", scribbled() / np.float32(2))
    with pytest.raises(InputError, match="labels are whole numbers"):
        read_dataset(tmp_path)


def test_scribbles_of_one_value_show_no_structure(tmp_path: Path) -> None:
    write_nifti(tmp_path / "images/a.nii.gz", random_image())
    write_nifti(tmp_path / "scribbles/a.nii.gz", np.ones((3, 8, 6), np.uint8))
    with pytest.raises(InputError, match="shows no structure to learn"):
        read_dataset(tmp_path)
