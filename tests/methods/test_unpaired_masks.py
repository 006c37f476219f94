"""Patients who lend a mask lend nothing else, and those who are learnt from do not lend theirs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from shapepu.data.readers import read_dataset
from shapepu.errors import InputError
from shapepu.methods import METHODS
from shapepu.prepare import prepare
from shapepu.settings import settings_for
from small_runs import cache_beside, train, weights, write_hearts

LENT_TO = [name for name, entry in METHODS.items() if "unpaired masks" in entry.needs]

every_borrower = pytest.mark.parametrize("name", LENT_TO)


@pytest.fixture
def hearts(tmp_path: Path) -> Path:
    """Two patients with scribbles and two who lend their masks; all four have image and mask on disk."""
    data = write_hearts(tmp_path / "hearts", train=4, masks_for_training=True)
    declare(data, {"train": ["train000", "train001"], "unpaired_masks": ["train002", "train003"]})
    return data


def declare(data: Path, splits: dict[str, list[str]]) -> None:
    (data / "splits.json").write_text(json.dumps({**splits, "val": ["val000"]}))


def spoil(data: Path, kind: str, *numbers: int) -> None:
    for number in numbers:
        (data / "train" / kind / f"train{number:03d}.nii.gz").write_bytes(b"nothing to read here")


def test_three_methods_borrow_masks() -> None:
    assert set(LENT_TO) == {"postdae", "accl", "maag"}


@every_borrower
def test_training_never_reads_the_images_of_lenders_nor_the_masks_of_those_it_learns_from(
    name: str, hearts: Path, tmp_path: Path
) -> None:
    whole = train(hearts, tmp_path / "whole", "--quiet", method=name, epochs=1)
    spoil(hearts, "images", 2, 3)
    spoil(hearts, "masks", 0, 1)
    spoil(hearts, "scribbles", 2, 3)
    # Nothing that was prepared from the whole files may be found again.
    hearts = hearts.rename(tmp_path / "spoilt")
    spoilt = train(hearts, tmp_path / "run", "--quiet", method=name, epochs=1)
    assert weights(spoilt) == weights(whole)


def test_what_is_lent_decides_what_is_learnt(hearts: Path, tmp_path: Path) -> None:
    """Otherwise the test above would pass for masks that nobody looks at."""
    first = train(hearts, tmp_path / "first", "--quiet", method="accl", epochs=1)
    declare(hearts, {"train": ["train000", "train001"], "unpaired_masks": ["train002"]})
    second = train(hearts, tmp_path / "second", "--quiet", method="accl", epochs=1)
    assert weights(first) != weights(second)


def test_the_masks_that_are_lent_are_those_of_the_lenders_alone(hearts: Path) -> None:
    prepared = prepare(read_dataset(hearts), settings_for("fast", "accl"), cache_beside(hearts), quiet=True)
    assert prepared.unpaired is not None
    assert [case.name for case in prepared.unpaired.cases] == ["train002", "train003"]
    assert [case.name for case in prepared.train.cases] == ["train000", "train001"]
    assert prepared.train.masks is None


@pytest.mark.parametrize("entry", ["train001", "1"])
def test_a_patient_who_is_learnt_from_may_not_lend(entry: str, hearts: Path) -> None:
    declare(hearts, {"train": ["train000", "train001"], "unpaired_masks": ["train002", entry]})
    with pytest.raises(InputError, match="train001 is in two splits, train and unpaired; name it once"):
        read_dataset(hearts)


@every_borrower
def test_without_lenders_the_error_says_where_they_are_declared(name: str, hearts: Path) -> None:
    declare(hearts, {"train": ["train000", "train001"]})
    where = r'dense masks of other patients.*unpaired/masks.*"unpaired_masks".*--splits'
    with pytest.raises(InputError, match=where):
        prepare(read_dataset(hearts), settings_for("fast", name), cache_beside(hearts), quiet=True)


def test_masks_in_a_folder_of_their_own_are_lent_as_the_error_says(hearts: Path) -> None:
    (hearts / "splits.json").unlink()
    (hearts / "unpaired").mkdir()
    shutil.copytree(hearts / "train" / "masks", hearts / "unpaired" / "masks")
    for folder in ("images", "scribbles", "masks"):
        for number in (2, 3):
            (hearts / "train" / folder / f"train{number:03d}.nii.gz").unlink()
    for number in (0, 1):
        (hearts / "unpaired" / "masks" / f"train{number:03d}.nii.gz").unlink()
    prepared = prepare(read_dataset(hearts), settings_for("fast", "accl"), cache_beside(hearts), quiet=True)
    assert prepared.unpaired is not None
    assert [case.name for case in prepared.unpaired.cases] == ["train002", "train003"]


@pytest.mark.parametrize("twin", ["train/images/train001.nii.gz", "val/images/val000.nii.gz"])
def test_who_is_trained_on_or_scored_under_another_name_lends_nothing_and_is_named(
    twin: str, hearts: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(hearts / twin, hearts / "train" / "images" / "train003.nii.gz")
    dataset = read_dataset(hearts)
    prepared = prepare(dataset, settings_for("fast", "accl"), cache_beside(hearts))
    assert prepared.unpaired is not None
    assert [case.name for case in prepared.unpaired.cases] == ["train002"]
    assert [case.name for case in prepared.dataset.split("unpaired")] == ["train002"]
    assert "unpaired masks of scans to train on or to score, left out: train003\n" in capfd.readouterr().err
    assert len(prepare(dataset, settings_for("fast", "pce"), cache_beside(hearts)).train.cases) == 2
    assert "left out" not in capfd.readouterr().err


def test_when_nobody_is_left_to_lend_the_error_says_why(hearts: Path) -> None:
    for twin, number in ((0, 2), (1, 3)):
        images = hearts / "train" / "images"
        shutil.copy(images / f"train{twin:03d}.nii.gz", images / f"train{number:03d}.nii.gz")
    with pytest.raises(InputError, match=r"every unpaired mask \(train002, train003\).*name masks of other"):
        prepare(read_dataset(hearts), settings_for("fast", "accl"), cache_beside(hearts), quiet=True)
