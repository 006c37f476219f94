"""Shorter scribbles: what is kept of a line, and what is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from shapepu.data.thinning import thin_scribbles
from shapepu.labels import OUTSIDE

UNLABELLED = 3
CORNERS = np.ones((3, 3))


def empty(slices: int = 1, side: int = 24) -> NDArray[np.uint8]:
    return np.full((slices, side, side), UNLABELLED, np.uint8)


def thin(labels: NDArray[np.uint8], share: float, seed: int = 0) -> NDArray[np.uint8]:
    return thin_scribbles(labels, share, unlabelled=UNLABELLED, seed=seed)


def random_curves(seed: int) -> NDArray[np.uint8]:
    """Walks of all classes that may cross, touch and thicken."""
    rng = np.random.default_rng(seed)
    labels = empty(slices=2)
    for index in range(2):
        for label in (0, 1, 2, 1):
            place = rng.integers(4, 20, 2)
            for step in rng.integers(-1, 2, (rng.integers(1, 30), 2)):
                place = np.clip(place + step, 0, 23)
                labels[index, place[0], place[1]] = label
    return labels


def test_a_straight_line_keeps_one_of_its_ends() -> None:
    labels = empty()
    labels[0, 5, 2:12] = 1
    ends = set()
    for seed in range(8):
        kept = np.flatnonzero(thin(labels, 0.4, seed)[0, 5] == 1).tolist()
        assert kept in ([2, 3, 4, 5], [8, 9, 10, 11])
        ends.add(kept[0])
    assert ends == {2, 8}, "the seed draws the end"


def test_each_class_slice_and_piece_is_shortened_by_itself() -> None:
    labels = empty(slices=2)
    labels[0, 3, :10] = 0
    labels[0, 10, :10] = 2
    labels[0, 15, 10:20] = 2
    labels[1, 3, :4] = 0
    kept = thin(labels, 0.5)
    assert [(kept[0, row] < UNLABELLED).sum() for row in (3, 10, 15)] == [5, 5, 5]
    assert (kept[1] == 0).sum() == 2


def test_a_ring_keeps_one_arc() -> None:
    rows, columns = np.mgrid[:24, :24]
    labels = empty()
    labels[0][abs(np.hypot(rows - 12, columns - 12) - 8) < 0.7] = 1
    kept = thin(labels, 0.5)[0] == 1
    _, pieces = ndimage.label(kept, structure=CORNERS)
    assert pieces == 1
    assert kept.sum() == np.ceil((labels == 1).sum() / 2)


def test_a_dot_stays_however_short_lines_become() -> None:
    labels = empty()
    labels[0, 7, 7] = 2
    assert (thin(labels, 0.01) == labels).all()


def test_what_is_no_scribble_stays_and_the_input_is_not_written_to() -> None:
    labels = random_curves(0)
    labels[:, :3] = OUTSIDE
    before = labels.copy()
    kept = thin(labels, 0.2)
    np.testing.assert_array_equal(labels, before)
    np.testing.assert_array_equal(kept == OUTSIDE, labels == OUTSIDE)


@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 1.0), smaller=st.floats(0.01, 1.0))
def test_lines_are_kept_in_one_piece_at_their_share_and_nested(
    seed: int, share: float, smaller: float
) -> None:
    labels = random_curves(seed)
    kept = thin(labels, share)
    changed = kept != labels
    assert (kept[changed] == UNLABELLED).all()
    for index in range(len(labels)):
        for label in range(UNLABELLED):
            pieces, count = ndimage.label(labels[index] == label, structure=CORNERS)
            for number in range(1, count + 1):
                piece = pieces == number
                part = piece & (kept[index] == label)
                assert ndimage.label(part, structure=CORNERS)[1] == 1
                assert part.sum() == max(1, np.ceil(share * piece.sum() - 1e-9))
    less = thin(labels, min(share, smaller))
    assert ((less == kept) | (less == UNLABELLED)).all(), (
        "a smaller share keeps some of what a larger one does"
    )


def test_the_whole_share_changes_nothing() -> None:
    labels = random_curves(3)
    np.testing.assert_array_equal(thin(labels, 1.0), labels)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_gives_the_same_lines(seed: int) -> None:
    labels = random_curves(seed)
    np.testing.assert_array_equal(thin(labels, 0.3, seed), thin(labels, 0.3, seed))
