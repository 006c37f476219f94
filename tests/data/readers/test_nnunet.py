from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shapepu.data.readers import read_dataset
from shapepu.errors import InputError
from shapepu.labels import LabelSet
from volume_files import random_image, scribbled, write_json, write_nifti

LABELS = {"background": 0, "rv": 1, "lv": 2, "ignore": 3}
DESCRIPTION: dict[str, Any] = {
    "labels": LABELS,
    "channel_names": {"0": "MRI"},
    "file_ending": ".nii.gz",
    "numTraining": 2,
}


def nnunet(root: Path, description: dict[str, Any] | None = None, channels: int = 1) -> Path:
    for name in ("a", "b"):
        for channel in range(channels):
            write_nifti(root / "imagesTr" / f"{name}_{channel:04d}.nii.gz", random_image(seed=channel))
        write_nifti(root / "labelsTr" / f"{name}.nii.gz", scribbled())
    write_json(root / "dataset.json", DESCRIPTION if description is None else description)
    return root


def test_labels_with_ignore_are_scribbles(tmp_path: Path) -> None:
    dataset = read_dataset(nnunet(tmp_path))
    assert dataset.labels == LabelSet(("background", "rv", "lv"))
    assert [case.name for case in dataset.cases] == ["a", "b"]
    assert dataset.cases[0].images == (tmp_path / "imagesTr/a_0000.nii.gz",)
    assert dataset.cases[0].scribble == tmp_path / "labelsTr/a.nii.gz"
    assert dataset.cases[0].mask is None
    assert dataset.notes == ()


def test_labels_without_ignore_are_dense_masks_and_this_is_said(tmp_path: Path) -> None:
    labels = {name: value for name, value in LABELS.items() if name != "ignore"}
    dataset = read_dataset(nnunet(tmp_path, {**DESCRIPTION, "labels": labels}))
    assert dataset.cases[0].mask == tmp_path / "labelsTr/a.nii.gz"
    assert dataset.cases[0].scribble is None
    assert "shapepu scribble" in dataset.notes[0]


def test_channels_are_in_the_order_of_dataset_json(tmp_path: Path) -> None:
    names = {"1": "T2", "0": "LGE"}
    dataset = read_dataset(nnunet(tmp_path, {**DESCRIPTION, "channel_names": names}, channels=2))
    assert dataset.channels == ("LGE", "T2")
    assert [path.name for path in dataset.cases[1].images] == ["b_0000.nii.gz", "b_0001.nii.gz"]


def test_a_channel_without_a_name_is_named_by_its_number(tmp_path: Path) -> None:
    names = {"0": "LGE", "1": ""}
    dataset = read_dataset(nnunet(tmp_path, {**DESCRIPTION, "channel_names": names}, channels=2))
    assert dataset.channels == ("LGE", "channel 1")


def test_phases_of_one_patient_are_one_group(tmp_path: Path) -> None:
    for name in ("p1_ED", "p1_ES", "p2_frame01", "p2_frame12", "p3"):
        write_nifti(tmp_path / f"imagesTr/{name}_0000.nii.gz", random_image())
        write_nifti(tmp_path / f"labelsTr/{name}.nii.gz", scribbled())
    write_json(tmp_path / "dataset.json", {**DESCRIPTION, "numTraining": 5})
    assert [case.group for case in read_dataset(tmp_path).cases] == ["p1", "p1", "p2", "p2", "p3"]


def test_version_one_is_understood(tmp_path: Path) -> None:
    labels = {"0": "background", "1": "rv", "2": "lv"}
    dataset = read_dataset(nnunet(tmp_path, {"labels": labels, "modality": {"0": "MRI"}}))
    assert dataset.labels.names == ("background", "rv", "lv")
    assert dataset.channels == ("MRI",)


def test_test_images_are_test_cases_with_or_without_masks(tmp_path: Path) -> None:
    root = nnunet(tmp_path)
    for name in ("c", "d"):
        write_nifti(root / "imagesTs" / f"{name}_0000.nii.gz", random_image())
    write_nifti(root / "labelsTs" / "c.nii.gz", scribbled())
    found = [(case.name, case.mask is not None, case.scribble) for case in read_dataset(root).split("test")]
    assert found == [("c", True, None), ("d", False, None)]


def test_the_split_file_of_the_folder_gives_its_first_fold(tmp_path: Path) -> None:
    root = nnunet(tmp_path)
    write_nifti(root / "imagesTs" / "c_0000.nii.gz", random_image())
    write_json(root / "splits_final.json", [{"train": ["b"], "val": ["a"]}, {"train": ["a"], "val": ["b"]}])
    assert [case.split for case in read_dataset(root).cases] == ["val", "train", "test"]
    assert [case.split for case in read_dataset(root, fold=1).cases] == ["train", "val", "test"]


def test_what_does_not_pair_is_noted(tmp_path: Path) -> None:
    root = nnunet(tmp_path)
    write_nifti(root / "imagesTr" / "c_0000.nii.gz", random_image())
    write_nifti(root / "imagesTr" / "odd.nii.gz", random_image())
    write_nifti(root / "labelsTr" / "d.nii.gz", scribbled())
    write_json(root / "dataset.json", {**DESCRIPTION, "numTraining": 7})
    dataset = read_dataset(root)
    assert [case.name for case in dataset.cases] == ["a", "b"]
    assert dataset.notes == (
        "images without a file in labelsTr, left out: c.",
        "files in labelsTr without an image, left out: d.",
        "imagesTr holds images that are not CASE_0000, left out: odd.",
        "dataset.json says numTraining 7, but 2 labelled cases are there.",
    )


def test_a_missing_channel_is_named(tmp_path: Path) -> None:
    root = nnunet(tmp_path, {**DESCRIPTION, "channel_names": {"0": "LGE", "1": "T2"}}, channels=2)
    (root / "imagesTr/b_0001.nii.gz").unlink()
    with pytest.raises(InputError, match=r"b needs 2 channels, as dataset\.json says; b_0001 is missing"):
        read_dataset(root)


def test_more_channels_than_declared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a needs 1 channels, as dataset.json says; it has more"):
        read_dataset(nnunet(tmp_path, channels=2))


def changed(**keys: Any) -> dict[str, Any]:
    return {**DESCRIPTION, **keys}


@pytest.mark.parametrize(
    ("description", "phrase"),
    [
        ({}, 'the key "labels" is missing'),
        ([], 'the key "labels" is missing'),
        (changed(labels=[0, 1]), 'the key "labels" is missing or not an object'),
        (changed(labels={**LABELS, "ignore": 5}), '"ignore" must be the highest label, here 3; got 5'),
        (
            changed(labels={**LABELS, "ignore": 2, "lv": 3}),
            r"consecutive \(0, 1, 2, \.\.\.\); got \[0, 1, 3\]",
        ),
        (
            changed(labels={**LABELS, "rv": [1, 2]}),
            r"one integer \(regions are not supported\); got rv: \[1, 2\]",
        ),
        (changed(labels={"rv": 0, "lv": 1}), '"background" must be 0; got None'),
        (changed(labels={"background": 0, "ignore": 1}), r"dataset\.json: .*2 to 250 classes"),
        (changed(file_ending=".png"), r"file_ending '\.png' cannot be read"),
        (changed(channel_names=None), '"channel_names" must number the channels from 0'),
        (changed(channel_names={"1": "MRI"}), '"channel_names" must number the channels from 0'),
    ],
)
def test_a_wrong_dataset_json_is_refused_with_the_reason(
    tmp_path: Path, description: dict[str, Any], phrase: str
) -> None:
    with pytest.raises(InputError, match=phrase):
        read_dataset(nnunet(tmp_path, description))


def test_a_missing_dataset_json_is_asked_for(tmp_path: Path) -> None:
    root = nnunet(tmp_path)
    (root / "dataset.json").unlink()
    with pytest.raises(InputError, match=r"dataset\.json is missing: nnU-Net's layout needs it"):
        read_dataset(root)


def test_broken_json_is_refused_with_its_line(tmp_path: Path) -> None:
    root = nnunet(tmp_path)
    (root / "dataset.json").write_text('{"labels":\n {"background": 0,}\n}')
    with pytest.raises(InputError, match=r"dataset\.json: invalid JSON in line 2, column"):
        read_dataset(root)
    (root / "dataset.json").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="a JSON text file expected"):
        read_dataset(root)
