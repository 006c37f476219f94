from __future__ import annotations

import time

import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from shapepu.data.phantom import make_case
from shapepu.data.scribbles import ScribbleSettings, scribble_volume
from shapepu.errors import InputError

STEADY = ScribbleSettings(density=1.0, wobble=0.0)
"""A hand that draws whole curves and never strays."""

ONE_LINE = ScribbleSettings(density=1.0, wobble=0.0, border=1000)
"""Without border arcs: nothing is deep enough to hold one."""


def radius_map(size: int) -> np.ndarray:
    """Distance of each pixel of a square slice from its middle."""
    y, x = np.indices((size, size)) - (size - 1) / 2
    return np.hypot(y, x)


def scribble_slice(labels: np.ndarray, classes: int, how: ScribbleSettings, seed: int = 0) -> np.ndarray:
    return scribble_volume(labels[None], classes, how, seed)[0]


def heart() -> np.ndarray:
    """A disc (2) in a ring (1), three slices."""
    radius = radius_map(64)
    return np.repeat(np.select([radius < 10, radius < 18], [2, 1], 0).astype(np.uint8)[None], 3, axis=0)


def test_a_one_pixel_structure_is_scribbled_on_its_pixel():
    labels = np.zeros((9, 9), np.uint8)
    labels[4, 6] = 1
    assert np.argwhere(scribble_slice(labels, 2, ScribbleSettings()) == 1).tolist() == [[4, 6]]


def test_a_line_one_pixel_wide_is_drawn_from_end_to_end():
    labels = np.zeros((5, 20), np.uint8)
    labels[2, 3:17] = 1
    assert np.array_equal(scribble_slice(labels, 2, STEADY) == 1, labels == 1)


def test_density_is_the_share_of_a_line_that_is_drawn_in_one_piece():
    labels = np.zeros((5, 104), np.uint8)
    labels[2, 2:102] = 1
    columns = np.flatnonzero((scribble_slice(labels, 2, ScribbleSettings(density=0.4, wobble=0)) == 1)[2])
    assert 39 <= len(columns) <= 42
    assert np.all(np.diff(columns) == 1)


def test_the_interior_curve_of_a_disc_is_a_diameter():
    radius = radius_map(61)
    drawn = scribble_slice((radius < 25).astype(np.uint8), 2, ONE_LINE) == 1
    assert radius[drawn].min() < 1.5
    assert 32 <= drawn.sum() <= 42  # about .7 of 50: a hand stops short of the edge
    rows, columns = np.nonzero(drawn)
    assert np.hypot(np.ptp(rows), np.ptp(columns)) > 31


def test_the_interior_curve_of_a_ring_runs_around_its_middle():
    radius = radius_map(61)
    drawn = scribble_slice(((radius > 14) & (radius < 22)).astype(np.uint8), 2, ONE_LINE) == 1
    assert np.all(np.abs(radius[drawn] - 18) < 2.5)
    y, x = np.nonzero(drawn)
    directions = np.sort(np.arctan2(y - 30, x - 30))
    widest_gap = np.diff(directions, append=directions[0] + 2 * np.pi).max()
    assert widest_gap < np.deg2rad(60)


def test_the_interior_curve_of_a_crescent_follows_its_bend():
    y, x = np.indices((64, 64))
    crescent = (np.hypot(y - 32, x - 32) < 26) & (np.hypot(y - 32, x - 44) > 26)
    drawn = scribble_slice(crescent.astype(np.uint8), 2, ONE_LINE) == 1
    middle = np.flatnonzero(drawn[32])
    assert len(middle) > 0
    assert np.all(np.abs(middle - 12) <= 2)  # columns 7 to 17 belong to it in this row
    assert np.ptp(np.nonzero(drawn)[0]) > 25


def test_the_border_arc_lies_at_its_depth_below_the_edge():
    radius = radius_map(81)
    how = ScribbleSettings(density=1.0, wobble=0.0, border=4.0)
    labels = (radius < 30).astype(np.uint8)
    arc = (scribble_slice(labels, 2, how) == 1) & (scribble_slice(labels, 2, ONE_LINE) != 1)
    assert arc.sum() > 100
    assert np.mean(np.abs(radius[arc] - 26) < 2) > 0.9


def test_the_background_has_an_arc_around_the_structures_and_a_curve_far_from_them():
    radius = radius_map(100)
    how = ScribbleSettings(density=1.0, wobble=0.0, margin=0.06)
    background = scribble_slice((radius < 15).astype(np.uint8), 2, how) == 0
    around = background & (np.abs(radius - 21) < 3)
    y, x = np.nonzero(around)
    assert len(np.unique(np.round(np.arctan2(y - 49.5, x - 49.5), 1))) > 45
    assert (background & (radius > 28)).sum() > 50
    assert radius[background].min() > 17


def test_a_slice_without_structures_gets_a_background_curve():
    drawn = scribble_volume(np.zeros((2, 40, 50), np.uint8), 4)
    assert np.all((drawn == 0).sum(axis=(1, 2)) > 20)
    assert set(np.unique(drawn)) == {0, 4}


def test_both_of_two_regions_are_scribbled_but_not_the_crumb_beside_them():
    labels = np.zeros((40, 40), np.uint8)
    labels[5:15, 5:15], labels[25:35, 25:35], labels[2, 37] = 1, 1, 1
    drawn = scribble_slice(labels, 2, ScribbleSettings()) == 1
    assert drawn[5:15, 5:15].any()
    assert drawn[25:35, 25:35].any()
    assert not drawn[2, 37]


def test_a_thicker_pen_draws_lines_of_that_width():
    labels = np.ones((21, 60), np.uint8)
    for thickness in (1, 2, 3, 5):
        how = ScribbleSettings(thickness=thickness, density=1.0, wobble=0.0)
        drawn = scribble_slice(labels, 2, how) == 1
        assert np.median(drawn[:, 15:45].sum(axis=0)) == thickness


def test_more_density_labels_more_pixels():
    labelled = [
        (scribble_volume(heart(), 3, ScribbleSettings(density=density)) < 3).mean()
        for density in (0.1, 0.4, 0.7, 1.0)
    ]
    assert labelled == sorted(labelled)
    assert labelled[-1] > 3 * labelled[0]


@settings(max_examples=60, deadline=None)
@given(
    mask=arrays(
        np.uint8,
        st.tuples(st.integers(1, 2), st.integers(1, 14), st.integers(1, 14)),
        elements=st.sampled_from([0, 1, 2, 3, 7, 255]),
        fill=st.sampled_from([0, 1, 2]),
    ),
    thickness=st.integers(1, 4),
    density=st.floats(0.01, 1),
    wobble=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_no_pixel_is_ever_labelled_wrongly_and_no_class_is_forgotten(mask, thickness, density, wobble, seed):
    how = ScribbleSettings(thickness=thickness, density=density, wobble=wobble)
    drawn = scribble_volume(mask, 3, how, seed)
    labelled = drawn != 3
    assert np.array_equal(drawn[labelled], mask[labelled])
    for z in range(len(mask)):
        assert set(np.unique(drawn[z])) - {3} == set(np.unique(mask[z])) & {0, 1, 2}


def test_the_same_seed_draws_the_same_and_another_seed_draws_otherwise():
    first, again, other = (scribble_volume(heart(), 3, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first[0], first[1])


def test_changing_one_slice_leaves_the_scribbles_of_the_others_as_they_were():
    mask = heart()
    before = scribble_volume(mask, 3)
    mask[1] = 0
    after = scribble_volume(mask, 3)
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert not np.array_equal(before[1], after[1])


def test_slices_may_be_stacked_along_any_axis():
    mask = heart()
    for axis in (1, 2):
        moved = scribble_volume(np.moveaxis(mask, 0, axis), 3, axis=axis)
        assert np.array_equal(np.moveaxis(moved, axis, 0), scribble_volume(mask, 3))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 1, 9), (1, 9, 1), (3, 1, 1), (1, 2, 2)])
def test_the_smallest_volumes_are_scribbled(shape):
    for label in (0, 1):
        drawn = scribble_volume(np.full(shape, label, np.uint8), 2)
        assert drawn.shape == shape
        assert np.all((drawn == label).any(axis=(1, 2)))


def test_a_class_that_fills_the_slice_is_scribbled_inside():
    drawn = scribble_slice(np.ones((50, 70), np.uint8), 2, ScribbleSettings())
    assert 0 < (drawn == 1).mean() < 0.1
    assert not (drawn == 0).any()


def test_large_volumes_take_seconds():
    radius = radius_map(512)
    labels = np.select([radius < 60, radius < 90, radius < 130], [3, 2, 1], 0).astype(np.uint8)
    started = time.process_time()
    drawn = scribble_volume(np.repeat(labels[None], 16, axis=0), 4)
    assert time.process_time() - started < 20  # about two; a quadratic search would take many minutes
    assert 0.001 < (drawn < 4).mean() < 0.05


def test_default_scribbles_cover_synthetic_hearts_as_experts_cover_real_ones():
    cases = [make_case((77, n)) for n in range(8)]
    drawn = [scribble_volume(case.mask, 4, seed=n) for n, case in enumerate(cases)]
    for labels in drawn:
        assert 0.01 < (labels < 4).mean() < 0.05
    labels, truth = (
        np.concatenate([a.ravel() for a in arrays]) for arrays in (drawn, [c.mask for c in cases])
    )
    shares = np.array([(labels == k).sum() / (labels < 4).sum() for k in range(4)])
    assert np.all(shares > [0.5, 0.05, 0.08, 0.05])
    assert np.all(shares < [0.8, 0.2, 0.25, 0.2])
    inside = [(labels == k).sum() / (truth == k).sum() for k in (1, 2, 3)]
    assert np.all(np.array(inside) < 0.3)


def test_scribbles_are_thin_curves_not_blots():
    drawn = scribble_volume(make_case(3).mask, 4)
    for label in range(4):
        pixels = drawn == label
        core = ndimage.binary_erosion(pixels, np.ones((1, 3, 3)))
        assert core.sum() < 0.02 * pixels.sum()


@pytest.mark.parametrize(
    ("given_settings", "said"),
    [
        ({"thickness": 0}, "thickness"),
        ({"density": 0.0}, "density"),
        ({"density": 1.5}, "density"),
        ({"density": float("nan")}, "density"),
        ({"wobble": -0.1}, "wobble"),
        ({"border": -1.0}, "border"),
        ({"margin": float("nan")}, "margin"),
    ],
)
def test_impossible_settings_are_refused_by_name(given_settings, said):
    with pytest.raises(InputError, match=said):
        ScribbleSettings(**given_settings)


def test_a_mask_that_is_no_volume_is_refused():
    with pytest.raises(InputError, match=r"\(4, 4\)"):
        scribble_volume(np.zeros((4, 4), np.uint8), 2)
    with pytest.raises(InputError, match="classes"):
        scribble_volume(np.zeros((1, 4, 4), np.uint8), 1)


@pytest.mark.real
def test_scribbles_on_real_masks_are_about_as_dense_as_those_experts_drew_there(real_data):
    expert_pixels, our_pixels = np.zeros(5), np.zeros(5)
    for path in sorted((real_data / "ACDC/scribbles").glob("*_scribble.nii.gz"))[::24]:
        frame = path.name.removesuffix("_scribble.nii.gz")
        mask_path = real_data / "ACDC/training" / frame.split("_")[0] / f"{frame}_gt.nii.gz"
        expert, mask = (sitk.GetArrayFromImage(sitk.ReadImage(str(p))) for p in (path, mask_path))
        ours = scribble_volume(mask, 4)
        assert np.array_equal(ours[ours < 4], mask[ours < 4])
        expert_pixels += np.bincount(expert.ravel().astype(int), minlength=5)
        our_pixels += np.bincount(ours.ravel(), minlength=5)
    ratio = our_pixels[:4] / expert_pixels[:4]
    assert np.all(ratio > 0.6), ratio
    assert np.all(ratio < 1.7), ratio
