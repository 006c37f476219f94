"""Training on less than there is: whom fewer patients are, and what they leave as it was."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from data.small_cases import LABELS, SAME_GRID, make_case, without_mask
from shapepu.data.case import Case, Dataset, groups_of
from shapepu.data.choice import DataChoice
from shapepu.errors import InputError
from shapepu.prepare import Prepared, prepare
from shapepu.settings import settings_for

CASES = [Case(f"p{patient}_{phase}", (), group=f"p{patient}") for patient in range(6) for phase in "ab"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Four patients that train, with 1 to 4 slices, and one that validates."""
    folder = tmp_path_factory.mktemp("choice") / "data"
    cases = [make_case(folder, f"case{i}", seed=i, slices=i + 1) for i in range(4)]
    cases.append(replace(make_case(folder, "case4", seed=4), split="val"))
    return Dataset(folder, "folder", LABELS, tuple(cases))


def prepared(dataset: Dataset, choice: DataChoice, method: str = "pce", seed: int = 0) -> Prepared:
    settings = replace(settings_for("fast", method), preprocessing=SAME_GRID, data=choice, seed=seed)
    return prepare(dataset, settings, dataset.root.parent / "cache", quiet=True)


@pytest.mark.parametrize("seed", range(4))
def test_fewer_patients_are_some_of_more_and_keep_all_of_their_volumes(seed: int) -> None:
    chosen = [set(groups_of(DataChoice(cases=count).of(CASES, seed))) for count in range(1, 7)]
    assert [len(groups) for groups in chosen] == [1, 2, 3, 4, 5, 6]
    assert all(fewer < more for fewer, more in pairwise(chosen))
    for count in (1, 4):
        cases = DataChoice(cases=count).of(CASES, seed)
        assert len(cases) == 2 * count
        assert list(cases) == [case for case in CASES if case in cases], "in their order"


def test_the_seed_draws_the_patients() -> None:
    drawn = {DataChoice(cases=2).of(CASES, seed) for seed in range(8)}
    assert len(drawn) > 1
    assert DataChoice(cases=2).of(CASES, 3) == DataChoice(cases=2).of(CASES, 3)


def test_all_patients_are_taken_when_nothing_is_said() -> None:
    assert DataChoice().of(CASES, 0) == tuple(CASES)


def test_more_patients_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match=r"data.cases: 7 asked for, but 6 training patients"):
        DataChoice(cases=7).of(CASES, 0)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"cases": 0}, "data.cases: expected 1 or more"),
        ({"scribble_share": 0.0}, "above 0 and at most 1, got 0.0"),
        ({"scribble_share": 1.5}, "above 0 and at most 1, got 1.5"),
        ({"slices_per_epoch": 0}, "data.slices_per_epoch: expected 1 or more"),
    ],
)
def test_what_cannot_be_chosen_is_refused(choice: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DataChoice(**choice)  # type: ignore[arg-type]


def test_an_epoch_of_fewer_patients_is_as_long_as_one_of_all(dataset: Dataset) -> None:
    everyone = prepared(dataset, DataChoice())
    assert (len(everyone.train), everyone.settings.data.slices_per_epoch) == (10, None)
    for seed in range(3):
        ready = prepared(dataset, DataChoice(cases=2), seed=seed)
        assert len(ready.train.cases) == 2
        assert len(ready.train) < 10
        assert ready.settings.data.slices_per_epoch == 10


def test_a_resumed_run_finds_the_same_patients_and_the_same_epoch(dataset: Dataset) -> None:
    first = prepared(dataset, DataChoice(cases=2), seed=1)
    kept = {case.name for case in first.train.cases} | {"case4"}
    seen = replace(dataset, cases=tuple(case for case in dataset.cases if case.name in kept))
    again = prepared(seen, first.settings.data, seed=1)
    assert again.train.cases == first.train.cases
    assert again.settings == first.settings


def test_patients_that_were_not_chosen_do_not_count_as_lacking_something(dataset: Dataset) -> None:
    ready = prepared(dataset, DataChoice(cases=2))
    assert ready.dataset.split("train") == ready.train.cases
    assert [case.name for case in ready.dataset.split("val")] == ["case4"]


def test_shorter_scribbles_are_less_of_the_same_and_the_counts_follow(dataset: Dataset) -> None:
    whole, half = prepared(dataset, DataChoice()), prepared(dataset, DataChoice(scribble_share=0.5))
    short, drawn = np.asarray(half.train.labels), np.asarray(whole.train.labels)
    assert ((short == drawn) | (short == LABELS.unlabelled)).all()
    counted = [np.count_nonzero(short == label) for label in range(LABELS.count)]
    assert half.train.labelled_counts.tolist() == counted
    # Lines of 12, 6 and 2 pixels in each slice; see small_cases.
    assert counted == [10 * 6, 10 * 3, 10 * 1]
    assert half.train.unlabelled_count == np.count_nonzero(short == LABELS.unlabelled)
    assert whole.train.labelled_counts.tolist() == [120, 60, 20], "the cache keeps the whole"
    assert half.task.label_shares == pytest.approx((0.6, 0.3, 0.1))


def test_with_padding_as_background_the_border_is_no_scribble_to_shorten(dataset: Dataset) -> None:
    plan = replace(SAME_GRID, padding="background")
    settings = replace(settings_for("fast", "pce"), preprocessing=plan, data=DataChoice(scribble_share=0.5))
    store = prepare(dataset, settings, dataset.root.parent / "cache", quiet=True).train
    border = np.ones(store.labels.shape[1:], bool)
    border[2:-2, 2:-2] = False  # images of 12 x 12 on a canvas of 16 x 16
    assert (np.asarray(store.labels)[:, border] == 0).all()
    assert (np.asarray(store.labels)[:, ~border] == 0).sum() == 10 * 6


def test_true_ratios_may_be_counted_on_validation_masks_where_no_training_case_has_one(
    dataset: Dataset,
) -> None:
    bare = [without_mask(case) for case in dataset.split("train")]
    unmasked = replace(dataset, cases=(*bare, *dataset.split("val")))
    with pytest.raises(InputError, match=r"--training-data.true-ratios-from val"):
        prepared(unmasked, DataChoice(), "nnpu")
    ready = prepared(unmasked, DataChoice(true_ratios_from="val"), "nnpu")
    assert ready.train.masks is None
    # A square of 8 x 8 around one of 4 x 4, in images of 12 x 12, less the lines of 12, 6 and 2 pixels.
    assert ready.task.true_ratios == pytest.approx((68 / 124, 42 / 124, 14 / 124))
    lacking = replace(unmasked, cases=tuple(bare))
    with pytest.raises(InputError, match=r"validation cases .* none has a dense mask"):
        prepared(lacking, DataChoice(true_ratios_from="val"), "nnpu")
