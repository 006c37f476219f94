"""From a data set to what training starts from: the right cases, a plan, and refusals before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data.small_cases import LABELS, SAME_GRID, UNLABELLED, make_case, without_mask, write
from shapepu.data.case import Case, Dataset
from shapepu.errors import InputError
from shapepu.methods.base import Supervision
from shapepu.prepare import Prepared, cases_to_learn_from, describe_data, make_task, prepare
from shapepu.settings import TrainSettings, settings_for

SETTINGS = replace(settings_for("fast", "pce"), preprocessing=SAME_GRID)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Three cases that train, the third with its scribble alone, and one that validates."""
    cases = [make_case(tmp_path / "data", f"case{i}", seed=i) for i in range(4)]
    cases[2] = without_mask(cases[2])
    cases[3] = replace(cases[3], split="val")
    return Dataset(tmp_path / "data", "folder", LABELS, tuple(cases))


def prepared(dataset: Dataset, settings: TrainSettings = SETTINGS) -> Prepared:
    return prepare(dataset, settings, dataset.root.parent / "cache", quiet=True)


def test_every_split_gets_its_store_and_nothing_is_left_to_plan(dataset: Dataset) -> None:
    ready = prepared(dataset, settings_for("fast", "pce"))
    assert [case.name for case in ready.train.cases] == ["case0", "case1", "case2"]
    assert ready.validation is not None
    assert [case.name for case in ready.validation.cases] == ["case3"]
    assert ready.unpaired is None
    assert ready.settings.preprocessing.resolved
    assert ready.train.preprocessing == ready.settings.preprocessing == ready.validation.preprocessing


def test_masks_of_training_cases_stay_closed_to_a_method_that_learns_from_scribbles(dataset: Dataset) -> None:
    for case in dataset.split("train"):
        if case.mask is not None:
            case.mask.write_bytes(b"not to be opened")
    ready = prepared(dataset)
    assert ready.train.masks is None
    assert ready.task.true_ratios is None
    assert ready.validation is not None
    assert ready.validation.masks is not None


def test_a_method_that_learns_from_masks_trains_on_the_cases_that_have_one(dataset: Dataset) -> None:
    ready = prepared(dataset, replace(settings_for("fast", "full"), preprocessing=SAME_GRID))
    assert [case.name for case in ready.train.cases] == ["case0", "case1"]
    assert ready.train.masks is not None


def test_the_task_counts_shares_of_scribbles_and_only_on_request_the_true_ratios(dataset: Dataset) -> None:
    ready = prepared(dataset)
    drawn = np.array([ready.train.labelled_counts_of(i) for i in range(3)]).sum(axis=0)
    assert ready.task.label_shares == pytest.approx(drawn / drawn.sum())
    assert (ready.task.classes, ready.task.channels, ready.task.training_slices) == (3, 1, 6)
    needs: frozenset[Supervision] = frozenset({"scribbles", "true ratios"})
    full = prepared(dataset, replace(settings_for("fast", "full"), preprocessing=SAME_GRID))
    ratios = make_task(dataset, full.train, needs).true_ratios
    assert ratios is not None
    assert sum(ratios) == pytest.approx(1)


def test_coverage_is_counted_for_each_case(dataset: Dataset) -> None:
    described = prepared(dataset).describe()["cases"]
    assert [case["name"] for case in described] == ["case0", "case1", "case2"]
    # A row of 12 background pixels in each of two slices, of 12 x 12 each; see small_cases.
    assert described[0]["labelled"]["background"] == 24
    assert described[0]["pixels"] == 2 * 12 * 12
    assert described[0]["slices"] == 2


def test_the_data_section_of_the_config_finds_the_same_cases_again(dataset: Dataset) -> None:
    described = describe_data(dataset, prepared(dataset).train)
    assert described["path"] == str(dataset.root.resolve())
    assert described["cases"] == {"train": ["case0", "case1", "case2"], "val": ["case3"], "unpaired": []}
    assert described["labels"] == {"background": 0, "ring": 1, "core": 2, "ignore": 3}


@pytest.mark.parametrize(
    ("needs", "change", "message"),
    [
        ({"scribbles"}, {"split": "test"}, "no training case in it; `shapepu check"),
        ({"scribbles"}, {"scribble": None}, "no training case has a scribble; draw some.*--method full"),
        ({"masks"}, {"mask": None}, "needs dense masks of the training cases and there are none"),
        ({"scribbles", "true ratios"}, {"mask": None}, "counted on dense masks of the training cases"),
        ({"scribbles", "unpaired masks"}, {}, 'of other patients and none are declared.*"unpaired_masks"'),
    ],
)
def test_what_a_method_lacks_is_named_with_what_provides_it(
    dataset: Dataset, needs: set[Supervision], change: dict[str, None], message: str
) -> None:
    lacking = replace(dataset, cases=tuple(replace(case, **change) for case in dataset.split("train")))
    with pytest.raises(InputError, match=message):
        cases_to_learn_from(lacking, frozenset(needs))


def test_a_class_scribbled_nowhere_is_refused_by_name(dataset: Dataset) -> None:
    for case in dataset.split("train"):
        redraw(case, {2: UNLABELLED})
    with pytest.raises(
        InputError, match="class 'core' is scribbled in no training case, so it cannot be lea"
    ):
        prepared(dataset)


def test_background_scribbled_nowhere_is_refused_likewise(dataset: Dataset) -> None:
    for case in dataset.split("train"):
        redraw(case, {0: UNLABELLED})
    with pytest.raises(InputError, match="class 'background' is scribbled in no training case"):
        prepared(dataset)


def test_a_class_scribbled_in_one_case_is_enough(dataset: Dataset) -> None:
    for case in dataset.split("train")[1:]:
        redraw(case, {2: UNLABELLED})
    assert prepared(dataset).task.label_shares[2] > 0


def test_empty_scribble_files_are_told_from_missing_ones(dataset: Dataset) -> None:
    for case in dataset.split("train"):
        redraw(case, {0: UNLABELLED, 1: UNLABELLED, 2: UNLABELLED})
    with pytest.raises(InputError, match=r"are empty; draw some scribbles of each class \(background, ring"):
        prepared(dataset)


def redraw(case: Case, exchanged: dict[int, int]) -> None:
    """Write the case's scribble again with some values exchanged."""
    import SimpleITK as sitk

    scribble = sitk.GetArrayFromImage(sitk.ReadImage(str(case.scribble)))
    for old, new in exchanged.items():
        scribble[scribble == old] = new
    assert case.scribble is not None
    write(case.scribble, scribble)
