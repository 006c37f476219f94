from __future__ import annotations

import math

import numpy as np
import pytest
import scoring_oracles as oracles
from hypothesis import given, settings
from hypothesis import strategies as st

from shapepu.errors import InputError
from shapepu.evaluation.metrics import DEFINITIONS, score_volume, surface, surface_distances

ANISOTROPIC_MM = (8.0, 1.5, 0.5)


def cube(shape, start, stop):
    mask = np.zeros(shape, bool)
    mask[tuple(slice(low, high) for low, high in zip(start, stop, strict=True))] = True
    return mask


def as_tuple(distances):
    return distances.hd_mm, distances.hd95_mm, distances.assd_mm


@st.composite
def label_volumes(draw, classes=3):
    shape = draw(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 5)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return tuple(rng.integers(0, classes, shape).astype(np.uint8) for _ in range(2))


def test_two_single_voxels_are_as_far_apart_as_pythagoras_says():
    first, second = np.zeros((2, 2, 3, 5), bool)
    first[0, 0, 0] = second[1, 2, 4] = True
    # 1 x 8 mm, 2 x 1.5 mm, 4 x 0.5 mm
    expected = math.sqrt(64 + 9 + 4)
    assert as_tuple(surface_distances(first, second, ANISOTROPIC_MM)) == pytest.approx((expected,) * 3)


def test_pooled_percentile_and_mean_of_three_distances_worked_by_hand():
    first, second = np.zeros((2, 1, 1, 11), bool)
    first[0, 0, 0] = second[0, 0, 0] = second[0, 0, 10] = True
    # One voxel against two, 2 mm a step: 0 from the first, 0 and 20 from the second. Pooled: 0, 0, 20, whose
    # 95th percentile is nine tenths of the way from 0 to 20. The larger of the two directed percentiles would
    # be 19, the larger of the two directed means 10.
    hd_mm, hd95_mm, assd_mm = as_tuple(surface_distances(first, second, (1, 1, 2)))
    assert (hd_mm, hd95_mm, assd_mm) == pytest.approx((20, 18, 20 / 3))


@pytest.mark.parametrize(("axis", "expected_mm"), [(0, 16), (1, 3), (2, 1)])
def test_a_box_shifted_by_two_voxels_is_two_spacings_away(axis, expected_mm):
    start, stop = [3, 3, 3], [8, 8, 8]
    moved_start, moved_stop = list(start), list(stop)
    moved_start[axis] += 2
    moved_stop[axis] += 2
    first, second = cube((12, 12, 12), start, stop), cube((12, 12, 12), moved_start, moved_stop)
    assert surface_distances(first, second, ANISOTROPIC_MM).hd_mm == pytest.approx(expected_mm)


def test_concentric_spheres_differ_by_their_radii():
    grid = np.stack(np.meshgrid(*[np.arange(-20, 21)] * 3, indexing="ij"))
    radius = np.sqrt((grid**2).sum(axis=0))
    distances = surface_distances(radius <= 10, radius <= 16, (0.5, 0.5, 0.5))
    # 6 voxels of 0.5 mm; the voxel grid blurs each surface by up to a voxel's diagonal.
    assert distances.hd_mm == pytest.approx(3, abs=0.5 * math.sqrt(3))
    assert distances.assd_mm == pytest.approx(3, abs=0.5)


def test_a_shell_inside_a_cube_is_found_where_the_cube_is_thickest():
    whole = cube((7, 7, 7), (0, 0, 0), (7, 7, 7))
    core = cube((7, 7, 7), (3, 3, 3), (4, 4, 4))
    # From the corner of the cube to its centre; where a cube fills the image, its surface is the border.
    assert surface_distances(whole, core, (1, 1, 1)).hd_mm == pytest.approx(3 * math.sqrt(3))


def test_the_image_border_counts_as_surface():
    full = np.ones((3, 3, 3), bool)
    expected = full.copy()
    expected[1, 1, 1] = False
    np.testing.assert_array_equal(surface(full), expected)


@settings(max_examples=40, deadline=None)
@given(label_volumes(classes=2))
def test_distances_agree_with_every_point_against_every_point(volumes):
    first, second = (volume.astype(bool) for volume in volumes)
    if first.any() and second.any():
        expected = oracles.surface_distances(first, second, ANISOTROPIC_MM)
        assert as_tuple(surface_distances(first, second, ANISOTROPIC_MM)) == pytest.approx(expected)


def test_distances_agree_with_medpy_on_large_irregular_shapes():
    binary = pytest.importorskip("medpy.metric.binary")
    rng = np.random.default_rng(5)
    z, y, x = np.meshgrid(np.arange(8), np.arange(60), np.arange(50), indexing="ij")
    body = np.hypot((z - 4) / 4, np.hypot((y - 30) / 22, (x - 25) / 15))
    first = body + 0.1 * rng.standard_normal(body.shape) < 0.8
    second = np.roll(body, (1, 4, -3), axis=(0, 1, 2)) + 0.05 * rng.standard_normal(body.shape) < 0.9
    expected = [f(first, second, ANISOTROPIC_MM) for f in (binary.hd, binary.hd95, binary.assd)]
    assert as_tuple(surface_distances(first, second, ANISOTROPIC_MM)) == pytest.approx(expected, abs=1e-6)


def test_distances_of_an_empty_mask_are_refused():
    with pytest.raises(InputError, match="one is empty"):
        surface_distances(np.zeros((2, 2), bool), np.ones((2, 2), bool), (1, 1))


@settings(max_examples=25, deadline=None)
@given(label_volumes())
def test_swapping_prediction_and_reference_swaps_false_positives_and_negatives_only(volumes):
    forth = score_volume(*volumes, ANISOTROPIC_MM, classes=3)
    back = score_volume(*volumes[::-1], ANISOTROPIC_MM, classes=3)
    for label in (1, 2):
        one, other = forth[label], back[label]
        assert (one.tp, one.fp, one.fn, one.tn) == (other.tp, other.fn, other.fp, other.tn)
        assert one.dice == other.dice
        assert as_tuple(one) == pytest.approx(as_tuple(other), nan_ok=True)
        assert one.volume_error_ml == pytest.approx(-other.volume_error_ml)


@settings(max_examples=15, deadline=None)
@given(label_volumes())
def test_a_volume_scored_against_itself_is_perfect(volumes):
    for scores in score_volume(volumes[0], volumes[0], ANISOTROPIC_MM, classes=3).values():
        assert scores.dice == scores.iou == 1
        assert scores.volume_error_ml == 0
        assert scores.both_empty or as_tuple(scores) == (0, 0, 0)


@settings(max_examples=15, deadline=None)
@given(label_volumes(), st.floats(0.1, 10))
def test_scaling_the_spacing_scales_distances_and_cubes_volumes(volumes, factor):
    plain = score_volume(*volumes, ANISOTROPIC_MM, classes=3)
    scaled = score_volume(*volumes, [factor * size for size in ANISOTROPIC_MM], classes=3)
    for label in (1, 2):
        expected = [factor * distance for distance in as_tuple(plain[label])]
        assert as_tuple(scaled[label]) == pytest.approx(expected, nan_ok=True)
        assert scaled[label].volume_ml == pytest.approx(factor**3 * plain[label].volume_ml)
        assert scaled[label].dice == plain[label].dice


@settings(max_examples=15, deadline=None)
@given(label_volumes(classes=4))
def test_renaming_the_labels_renames_the_scores(volumes):
    table = np.array([0, 3, 1, 2], dtype=np.uint8)
    plain = score_volume(*volumes, ANISOTROPIC_MM, classes=4)
    renamed = score_volume(*(table[volume] for volume in volumes), ANISOTROPIC_MM, classes=4)
    for label in (1, 2, 3):
        # nan is not equal to itself, but both are made alike
        assert repr(renamed[int(table[label])]) == repr(plain[label])


@settings(max_examples=25, deadline=None)
@given(label_volumes(classes=4), st.booleans())
def test_counts_agree_with_going_through_the_voxels(volumes, sparse):
    prediction, reference = np.minimum(volumes[0], 2), volumes[1] if sparse else np.minimum(volumes[1], 2)
    for label, scores in score_volume(prediction, reference, (1, 1, 1), classes=3, ignore=3).items():
        expected = oracles.overlap(prediction, reference, label, ignore=3)
        assert (scores.tp, scores.fp, scores.fn, scores.tn) == expected


def test_dice_iou_and_volumes_worked_by_hand():
    reference, prediction = np.zeros((2, 1, 5, 10), np.uint8)
    reference[0, 0, :8] = 1
    prediction[0, 0, 2:10] = 1
    prediction[0, 1, :4] = 1
    scores = score_volume(prediction, reference, (10, 2, 5), classes=2)[1]
    assert (scores.tp, scores.fp, scores.fn, scores.tn) == (6, 6, 2, 36)
    assert scores.dice == pytest.approx(12 / 20)
    assert scores.iou == pytest.approx(6 / 14)
    # A voxel is 100 cubic millimetres, a tenth of a millilitre.
    assert scores.volume_ml == pytest.approx(1.2)
    assert scores.reference_ml == pytest.approx(0.8)
    assert scores.volume_error_ml == pytest.approx(0.4)
    assert scores.volume_error_percent == pytest.approx(50)
    assert (scores.both_empty, scores.one_empty, scores.reason) == (False, False, "")


def test_a_structure_absent_from_both_has_dice_one_and_no_distance():
    empty = np.zeros((2, 3, 4), np.uint8)
    scores = score_volume(empty, empty, (1, 1, 1), classes=2)[1]
    assert scores.both_empty
    assert not scores.one_empty
    assert (scores.dice, scores.iou, scores.tn) == (1, 1, 24)
    assert all(math.isnan(distance) for distance in as_tuple(scores))
    assert scores.volume_error_ml == 0
    assert math.isnan(scores.volume_error_percent)
    assert scores.reason == "both empty"


@pytest.mark.parametrize(
    ("empty", "reason"), [("prediction", "prediction empty"), ("reference", "reference empty")]
)
def test_a_structure_absent_from_one_has_dice_zero_and_the_diagonal_as_distance(empty, reason):
    volumes = {name: np.zeros((3, 4, 6), np.uint8) for name in ("prediction", "reference")}
    next(volume for name, volume in volumes.items() if name != empty)[1, 1, 1] = 1
    scores = score_volume(**volumes, spacing_mm=(4, 4, 2), classes=2)[1]
    assert scores.one_empty
    assert not scores.both_empty
    assert scores.dice == scores.iou == 0
    # 12 x 16 x 12 mm
    assert as_tuple(scores) == pytest.approx((math.sqrt(144 + 256 + 144),) * 3)
    assert scores.reason == reason


def test_unlabelled_voxels_of_the_reference_count_neither_for_nor_against():
    reference = np.array([[[1, 1, 0, 0, 2, 2, 2, 2]]])
    prediction = np.array([[[1, 0, 1, 0, 1, 1, 0, 0]]])
    scores = score_volume(prediction, reference, (1, 1, 1), classes=2, ignore=2)[1]
    assert (scores.tp, scores.fp, scores.fn, scores.tn) == (1, 1, 1, 1)
    assert scores.dice == pytest.approx(0.5)
    assert scores.reason == "reference partly unlabelled"
    assert all(math.isnan(distance) for distance in as_tuple(scores))
    assert math.isnan(scores.volume_ml)
    assert math.isnan(scores.volume_error_percent)


def test_naming_an_ignored_label_changes_nothing_when_no_voxel_has_it():
    rng = np.random.default_rng(0)
    prediction, reference = rng.integers(0, 3, (2, 3, 5, 5))
    plain = score_volume(prediction, reference, (1, 1, 1), classes=3)
    assert score_volume(prediction, reference, (1, 1, 1), classes=3, ignore=3) == plain


def test_different_shapes_are_refused():
    with pytest.raises(InputError, match=r"\(2, 3, 4\) and \(2, 4, 3\)"):
        score_volume(np.zeros((2, 3, 4), int), np.zeros((2, 4, 3), int), (1, 1, 1), classes=2)


def test_the_definitions_name_the_percentile_the_empties_and_the_diagonal():
    for word in ("pooled", "95th percentile", "Dice 1", "Dice 0", "diagonal", "unlabelled"):
        assert word in DEFINITIONS
