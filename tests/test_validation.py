"""Dice while training goes on: known answers, and a plain loop to agree with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from shapepu.data.store import SliceStore
from shapepu.labels import OUTSIDE
from shapepu.validation import validation_dice
from toys import LABELS, toy_store

CPU = torch.device("cpu")


def predicting(store: SliceStore, answers: np.ndarray) -> object:
    """A network that knows its answer for each slice of ``store`` by looking the image up."""
    images = torch.from_numpy(store.images.astype(np.float32))

    def predict(batch: Tensor) -> Tensor:
        found = [int((images == image).all(dim=(1, 2, 3)).nonzero()[0]) for image in batch]
        return functional.one_hot(torch.from_numpy(answers[found]).long(), 3).movedim(-1, 1).float()

    return predict


def dice_of(store: SliceStore, answers: np.ndarray, batch_size: int = 5) -> dict[str, float]:
    return validation_dice(predicting(store, answers), store, CPU, batch_size)  # type: ignore[arg-type]


@pytest.fixture
def store() -> SliceStore:
    return toy_store()


def reference(store: SliceStore) -> np.ndarray:
    assert store.masks is not None
    return np.where(store.masks == OUTSIDE, 0, store.masks)


def test_a_perfect_prediction_scores_one(store: SliceStore) -> None:
    assert dice_of(store, reference(store)) == {"dice": 1.0, "dice.ring": 1.0, "dice.disc": 1.0}


def test_background_everywhere_scores_zero(store: SliceStore) -> None:
    assert dice_of(store, np.zeros_like(reference(store))) == {
        "dice": 0.0,
        "dice.ring": 0.0,
        "dice.disc": 0.0,
    }


def test_what_is_said_beyond_the_image_does_not_count(store: SliceStore) -> None:
    answers = reference(store)
    answers[:, :2] = 2
    assert dice_of(store, answers)["dice"] == 1.0


@pytest.mark.parametrize("batch_size", [1, 5, 64])
def test_any_prediction_scores_as_in_plain_loops_over_volumes(store: SliceStore, batch_size: int) -> None:
    answers = np.random.default_rng(0).integers(0, 3, reference(store).shape)
    assert store.masks is not None
    expected = {"ring": [], "disc": []}
    for volume in (range(6), range(6, 12)):
        for label, name in ((1, "ring"), (2, "disc")):
            inside = store.masks[volume] != OUTSIDE
            ours, theirs = (answers[volume] == label) & inside, store.masks[volume] == label
            expected[name].append(2 * (ours & theirs).sum() / (ours.sum() + theirs.sum()))
    found = dice_of(store, answers, batch_size)
    assert found["dice.ring"] == pytest.approx(np.mean(expected["ring"]))
    assert found["dice.disc"] == pytest.approx(np.mean(expected["disc"]))
    assert found["dice"] == pytest.approx((found["dice.ring"] + found["dice.disc"]) / 2)


def test_volumes_weigh_the_same_however_many_slices_they_have(store: SliceStore) -> None:
    first, second = store.stored
    uneven = replace(store, stored=(replace(first, slices=1), replace(second, slices=11)))
    answers = reference(store)
    answers[0] = 0
    assert dice_of(uneven, answers) == {"dice": 0.5, "dice.ring": 0.5, "dice.disc": 0.5}


def test_a_structure_that_neither_has_scores_one_and_one_that_only_one_has_zero(store: SliceStore) -> None:
    without = np.where(reference(store) == 2, 0, reference(store)).astype(np.uint8)
    bare = replace(store, masks=np.where(store.masks == OUTSIDE, OUTSIDE, without))
    assert dice_of(bare, without)["dice.disc"] == 1.0
    assert dice_of(bare, reference(store))["dice.disc"] == 0.0


@pytest.mark.parametrize("said", [0, 1, 2])
def test_what_is_said_where_the_mask_is_unlabelled_does_not_count(store: SliceStore, said: int) -> None:
    masks, answers = reference(store), reference(store)
    masks[:, 12:16] = LABELS.unlabelled
    answers[:, 12:16] = said
    answers[:, 16] = 0
    without_these_rows = replace(
        store, images=np.delete(store.images, np.s_[12:16], 2), masks=np.delete(masks, np.s_[12:16], 1)
    )
    expected = dice_of(without_these_rows, np.delete(answers, np.s_[12:16], 1))
    assert 0.5 < expected["dice"] < 1
    assert dice_of(replace(store, masks=masks), answers) == expected
