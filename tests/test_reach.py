"""Where a structure can be, judged by where it was scribbled."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shapepu.labels import OUTSIDE
from shapepu.reach import SMALLEST_RADIUS_PIXELS, within_reach

K, UNLABELLED = 3, 3


def a_slice(*scribbles: tuple[int, int, int], side: int = 64) -> torch.Tensor:
    labels = torch.full((1, side, side), UNLABELLED, dtype=torch.uint8)
    for row, column, label in scribbles:
        labels[0, row, column] = label
    return labels


def test_a_class_reaches_as_far_again_as_its_scribble_is_long() -> None:
    """A line of radius 10 around (32, 32): with reach 1 the class may be up to 20 pixels away."""
    line = a_slice(*((32, column, 1) for column in range(22, 43)))
    allowed = within_reach(line, K, reach=1.0)[0, 1]
    assert allowed[32, 52]
    assert not allowed[32, 53]
    assert allowed[12, 32]
    assert not allowed[11, 32]
    assert allowed[32 + 14, 32 + 14]
    assert not allowed[32 + 15, 32 + 15]


def test_a_dot_does_not_say_that_a_structure_is_small() -> None:
    allowed = within_reach(a_slice((30, 30, 2)), K, reach=0.5)[0, 2]
    assert allowed.any(dim=0).sum() == 2 * int(1.5 * SMALLEST_RADIUS_PIXELS) + 1


def test_a_class_that_is_not_scribbled_in_a_scribbled_slice_is_nowhere() -> None:
    allowed = within_reach(a_slice((5, 5, 0), (30, 30, 1)), K, reach=1.0)
    assert not allowed[0, 2].any()
    assert allowed[0, 1].any()


def test_a_slice_that_nobody_scribbled_says_nothing() -> None:
    labels = a_slice()
    labels[0, :4] = OUTSIDE
    assert within_reach(labels, K, reach=1.0).all()


def test_background_may_be_anywhere() -> None:
    assert within_reach(a_slice((5, 5, 0), (30, 30, 1)), K, reach=0.0)[:, 0].all()


def test_each_slice_of_a_batch_is_judged_by_its_own_scribbles() -> None:
    together = torch.cat([a_slice((10, 10, 1)), a_slice((50, 50, 2)), a_slice()])
    alone = torch.cat([within_reach(labels[None], K, reach=1.0) for labels in together])
    assert torch.equal(within_reach(together, K, reach=1.0), alone)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63), st.integers(0, 2)), min_size=1, max_size=12)
)
def test_scribbles_are_always_within_their_own_reach(scribbles: list[tuple[int, int, int]]) -> None:
    labels = a_slice(*scribbles)
    allowed = within_reach(labels, K, reach=0.0)
    for label in range(K):
        assert allowed[0, label][labels[0] == label].all()
