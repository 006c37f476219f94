"""The label convention, and the translation between files and the package."""

from __future__ import annotations

import numpy as np
import pytest

from shapepu.errors import InputError
from shapepu.labels import LabelSet, plain_labels


def test_plain_labels_are_numbered_and_the_next_integer_is_unlabelled() -> None:
    labels = plain_labels(("rv", "myo", "lv"))
    assert labels.names == ("background", "rv", "myo", "lv")
    assert labels.count == labels.unlabelled == labels.unlabelled_value == 4
    assert labels.foreground == ("rv", "myo", "lv")
    assert labels.is_plain


def test_a_drawing_tool_may_use_zero_for_not_drawn_yet() -> None:
    labels = LabelSet.from_dict({"unlabelled": 0, "background": 1, "lesion": 7})
    assert labels.from_file(np.array([0, 1, 7])).tolist() == [2, 0, 1]
    assert labels.to_file(np.array([2, 0, 1])).tolist() == [0, 1, 7]
    assert not labels.is_plain


@pytest.mark.parametrize(
    ("values", "kind"),
    [((0, 255), np.uint8), ((0, 300), np.int16), ((-3, 1), np.int16), ((0, 70_000), np.int32)],
)
def test_values_of_files_are_written_in_a_type_that_holds_them(values: tuple[int, int], kind: type) -> None:
    labels = LabelSet(("background", "lesion"), values, unlabelled_value=9)
    written = labels.to_file(np.array([0, 1]))
    assert written.tolist() == list(values)
    assert written.dtype == kind


def test_the_background_comes_first_wherever_the_file_names_it() -> None:
    assert LabelSet.from_dict({"lesion": 1, "background": 0, "ignore": 2}).names == ("background", "lesion")


@pytest.mark.parametrize(
    "declared",
    [
        {"liver": 2, "Background": 1, "unlabelled": 0},
        {"liver": 2, "zero": 0, "BACKGROUND": 1, "ignore": 5},
        {"liver": 1, "tissue": 0, "ignore": 2},
        {"liver": 0, "background": 1},
    ],
)
def test_the_background_is_the_class_called_so_or_else_the_one_with_the_value_zero(
    declared: dict[str, int],
) -> None:
    labels = LabelSet.from_dict(declared)
    assert labels.names[0].lower() in ("background", "tissue")
    assert {**dict(zip(labels.names, labels.values, strict=True))}.items() <= declared.items()


def test_without_a_background_a_label_set_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"must be called 'background' or have the value 0.*are liver 1, tumour 2;"
    ):
        LabelSet.from_dict({"unlabelled": 0, "liver": 1, "tumour": 2})


def test_an_unlabelled_value_that_is_declared_is_never_replaced_by_another() -> None:
    with pytest.raises(InputError, match="the unlabelled value must be 0 or more, got -1"):
        LabelSet.from_dict({"background": 0, "liver": 1, "unlabelled": -1})


def test_a_round_trip_through_a_dict_gives_the_same_set() -> None:
    labels = LabelSet(("background", "a", "b"), (3, 5, 9), 0)
    assert LabelSet.from_dict(labels.as_dict()) == labels


def test_values_that_stand_for_nothing_are_listed() -> None:
    assert plain_labels(("lesion",)).unexpected(np.array([0, 1, 2, 3, 1.5])) == [1.5, 3.0]


@pytest.mark.parametrize(
    ("names", "values", "unlabelled", "message"),
    [
        (("background",), (), -1, "needs 2 to 250 classes"),
        (("background", "a"), (0, 0), -1, "a value of its own"),
        (("background", "a"), (0, 1), 1, "a value of its own"),
        (("background", "a"), (0, 1, 2), -1, "2 class names but 3 values"),
    ],
)
def test_label_sets_that_cannot_be_are_refused(
    names: tuple[str, ...], values: tuple[int, ...], unlabelled: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        LabelSet(names, values, unlabelled)
