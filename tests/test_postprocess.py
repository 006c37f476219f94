"""The largest component, by hand and against a flood fill in plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shapepu.postprocess import keep_largest_component, sureness

small_volumes = arrays.arrays(
    np.uint8, st.tuples(*[st.integers(1, 5)] * 3), elements=st.sampled_from([0, 0, 0, 1, 2])
)


def volume(text: str) -> np.ndarray:
    """Slices separated by blank lines, one character a voxel."""
    return np.array(
        [[[int(c) for c in row] for row in part.split()] for part in text.strip().split("\n\n")], np.uint8
    )


def largest_piece_by_flood_fill(inside: np.ndarray) -> set[tuple[int, ...]]:
    """The slow definition: grow each piece voxel by voxel, keep the first of the largest."""
    left, best = {tuple(map(int, v)) for v in np.argwhere(inside)}, set()
    for seed in map(tuple, np.argwhere(inside)):
        if seed not in left:
            continue
        piece, front = set(), [seed]
        while front:
            here = front.pop()
            if here in left:
                left.discard(here)
                piece.add(here)
                front += [
                    tuple(a + b for a, b in zip(here, step, strict=True))
                    for step in itertools.product((-1, 0, 1), repeat=3)
                ]
        if len(piece) > len(best):
            best = piece
    return best


def test_a_structure_touching_the_heart_stays_though_a_larger_lone_one_of_its_class_exists():
    labels = volume("11101\n11101\n11102\n00002")
    # Union: the left block has 9 voxels, the right column 4.
    expected = volume("11100\n11100\n11100\n00000")
    assert keep_largest_component(labels, "foreground").tolist() == expected.tolist()


def test_a_leak_of_one_structure_does_not_outweigh_the_organ_that_has_all():
    labels = volume("111110\n111110\n000000\n012300\n001300")
    organ = volume("000000\n000000\n000000\n012300\n001300")
    leak = volume("111110\n111110\n000000\n000000\n000000")
    # Of 12, 1 and 2 voxels the leak has 10/12 of log 13; the organ has 2/12 of it, log 2 and log 3.
    assert 10 / 12 * np.log(13) < 2 / 12 * np.log(13) + np.log(2) + np.log(3)
    assert keep_largest_component(labels).tolist() == organ.tolist()
    assert keep_largest_component(labels, "foreground").tolist() == leak.tolist()


def test_a_large_leak_that_the_model_is_not_sure_of_does_not_outweigh_the_organ():
    labels = volume("111222\n111222\n000000\n000012")
    organ = volume("000000\n000000\n000000\n000012")
    sure = sureness(np.where(organ > 0, 0.97, 0.6).astype(np.float32))
    assert keep_largest_component(labels, sure=sure).tolist() == organ.tolist()
    leak = keep_largest_component(labels)
    assert leak.tolist() == (labels - organ).tolist()
    assert keep_largest_component(labels, "foreground", sure).tolist() == leak.tolist(), "as in the paper"


@given(small_volumes, st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_where_the_model_is_equally_sure_of_everything_it_changes_nothing(labels, level):
    equal = np.full(labels.shape, level, np.uint8)
    one = (labels > 0).astype(np.uint8)
    assert keep_largest_component(one, sure=equal).tolist() == keep_largest_component(one).tolist()


def test_sureness_is_the_eighth_power_and_never_nothing():
    probs = np.array([0.0, 0.5, 0.8, 0.95, 1.0], np.float32)
    assert sureness(probs).tolist() == [1, 1, 43, 169, 255]
    assert [max(1, round(255 * float(p) ** 8)) for p in probs] == [1, 1, 43, 169, 255]


def test_the_largest_piece_is_kept_by_a_model_that_is_sure_of_nothing():
    labels = volume("1110\n1110\n0000\n0002")
    expected = volume("1110\n1110\n0000\n0000")
    sure = sureness(np.full(labels.shape, 0.3, np.float32))
    assert keep_largest_component(labels, sure=sure).tolist() == expected.tolist()


def test_a_stray_dot_of_a_rare_structure_does_not_outweigh_the_organ():
    labels = volume("11110\n11110\n11110\n00000\n00002")
    expected = volume("11110\n11110\n11110\n00000\n00000")
    assert keep_largest_component(labels).tolist() == expected.tolist()


@given(small_volumes)
@settings(max_examples=60, deadline=None)
def test_with_one_structure_the_balanced_piece_is_the_largest(labels):
    one = (labels > 0).astype(np.uint8)
    assert keep_largest_component(one).tolist() == keep_largest_component(one, "foreground").tolist()


def test_per_class_keeps_one_piece_of_each_structure():
    labels = volume("11102\n11102\n00002\n20001")
    expected = volume("11102\n11102\n00002\n00000")
    assert keep_largest_component(labels, "per-class").tolist() == expected.tolist()


def test_pieces_in_neighbouring_slices_that_meet_at_a_corner_are_one():
    labels = volume("1000\n0000\n0000\n\n0000\n0100\n0000\n\n0000\n0000\n0001")
    expected = volume("1000\n0000\n0000\n\n0000\n0100\n0000\n\n0000\n0000\n0000")
    assert keep_largest_component(labels).tolist() == expected.tolist()


def test_off_keeps_every_voxel():
    labels = volume("1001\n0000\n2002")
    assert keep_largest_component(labels, "off").tolist() == labels.tolist()


@pytest.mark.parametrize("rule", ["balanced", "foreground", "per-class", "off"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 4, 5)])
def test_a_volume_with_no_structure_stays_empty(rule, shape):
    assert not keep_largest_component(np.zeros(shape, np.uint8), rule).any()


def test_the_input_is_left_as_it_was():
    labels = volume("1101\n0001")
    before = labels.copy()
    for rule in ("balanced", "foreground", "per-class"):
        keep_largest_component(labels, rule)
    assert labels.tolist() == before.tolist()


@given(small_volumes)
@settings(max_examples=60, deadline=None)
def test_the_union_rule_agrees_with_a_flood_fill(labels):
    piece = largest_piece_by_flood_fill(labels > 0)
    expected = np.zeros_like(labels)
    for voxel in piece:
        expected[voxel] = labels[voxel]
    kept = keep_largest_component(labels, "foreground")
    assert kept.dtype == np.uint8
    assert kept.tolist() == expected.tolist()


@given(small_volumes)
@settings(max_examples=60, deadline=None)
def test_the_class_rule_agrees_with_a_flood_fill_of_each_class(labels):
    expected = np.zeros_like(labels)
    for label in (1, 2):
        for voxel in largest_piece_by_flood_fill(labels == label):
            expected[voxel] = label
    assert keep_largest_component(labels, "per-class").tolist() == expected.tolist()
