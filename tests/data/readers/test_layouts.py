from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shapepu.data.readers import LAYOUTS, read_dataset, read_undivided
from shapepu.errors import InputError
from shapepu.labels import plain_labels
from volume_files import plain_folder, random_image, scribbled, write_json, write_nifti


def nnunet_folder(root: Path) -> Path:
    write_nifti(root / "imagesTr" / "a_0000.nii.gz", random_image())
    write_nifti(root / "labelsTr" / "a.nii.gz", scribbled())
    labels = {"background": 0, "rv": 1, "lv": 2, "ignore": 3}
    write_json(
        root / "dataset.json", {"labels": labels, "channel_names": {"0": "MRI"}, "file_ending": ".nii.gz"}
    )
    return root


def acdc_folder(root: Path) -> Path:
    write_nifti(root / "training/patient001/patient001_frame01.nii.gz", random_image())
    write_nifti(root / "scribbles/patient001_frame01_scribble.nii.gz", scribbled(classes=4))
    return root


def mscmr_folder(root: Path) -> Path:
    write_nifti(root / "train/images/subject1_DE.nii.gz", random_image())
    write_nifti(root / "train/labels/subject1_DE_scribble.nii.gz", scribbled(classes=4))
    return root


EXAMPLES: dict[str, Callable[[Path], Path]] = {
    "nnunet": nnunet_folder,
    "acdc": acdc_folder,
    "mscmr": mscmr_folder,
    "folder": plain_folder,
}


def test_every_layout_has_an_example_here() -> None:
    assert EXAMPLES.keys() == LAYOUTS.keys()


@pytest.mark.parametrize("layout", EXAMPLES)
def test_a_layout_is_recognised_by_what_the_folder_holds(tmp_path: Path, layout: str) -> None:
    root = EXAMPLES[layout](tmp_path / "data")
    found = [name for name, reader in LAYOUTS.items() if reader.recognises(root)]
    assert found[0] == layout
    assert read_dataset(root) == read_dataset(root, layout)
    assert read_dataset(root).layout == layout


@pytest.mark.parametrize("layout", EXAMPLES)
def test_given_labels_replace_those_of_the_layout(tmp_path: Path, layout: str) -> None:
    labels = plain_labels(("one", "two", "three"))
    assert read_dataset(EXAMPLES[layout](tmp_path), layout, labels).labels == labels


@pytest.mark.parametrize("layout", EXAMPLES)
def test_a_split_file_works_over_any_layout(tmp_path: Path, layout: str) -> None:
    root = EXAMPLES[layout](tmp_path / "data")
    name = read_dataset(root).cases[0].name
    splits = write_json(tmp_path / "mine.json", [{"train": [], "val": []}, {"train": [], "val": [name]}])
    (case,) = read_dataset(root, splits=splits, fold=1).cases
    assert (case.name, case.split) == (name, "val")


@pytest.mark.parametrize("layout", EXAMPLES)
def test_read_undivided_no_split_file_is_looked_at(tmp_path: Path, layout: str) -> None:
    root = EXAMPLES[layout](tmp_path)
    for name in ("splits.json", "splits_final.json", "my_split.json"):
        write_json(root / name, {"val": ["nobody"]})
    undivided = read_undivided(root)
    assert undivided.layout == layout
    assert {case.split for case in undivided.cases} == {"train"}


def test_an_unknown_folder_lists_what_it_holds_and_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "Dataset001").mkdir()
    with pytest.raises(
        InputError, match=r"it holds Dataset001\. Known are nnunet: .*acdc: .*mscmr: .*folder: "
    ):
        read_dataset(tmp_path)


@pytest.mark.parametrize("asked", ["above", "above/data/images"])
def test_a_folder_beside_the_data_set_is_told_where_it_is(tmp_path: Path, asked: str) -> None:
    root = plain_folder(tmp_path / "above" / "data")
    with pytest.raises(InputError, match=f"{root.resolve()} looks like one; did you mean that"):
        read_dataset(tmp_path / asked)


def test_a_missing_folder_and_a_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing of that name is there"):
        read_dataset(tmp_path / "data")
    (tmp_path / "data").touch()
    with pytest.raises(InputError, match="it is a file"):
        read_dataset(tmp_path / "data")


def test_an_unknown_layout_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"did you mean 'nnunet'\? Known: acdc, auto, folder, mscmr, nnunet"):
        read_dataset(tmp_path, "nnunett")


@pytest.mark.parametrize("layout", EXAMPLES)
def test_a_layout_without_cases_says_what_it_looked_for(tmp_path: Path, layout: str) -> None:
    root = EXAMPLES[layout](tmp_path)
    for image in root.rglob("*.nii.gz"):
        image.unlink()
    with pytest.raises(InputError):
        read_dataset(root, layout)
