"""Planning, settings and the preparation of one case, shared by training and prediction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shapepu.configuration import from_plain, to_plain
from shapepu.data.case import Case
from shapepu.data.intensity import ChannelStatistics
from shapepu.data.preprocess import Preprocessing, fit, plan, prepare_case, reject_unequal_channels
from shapepu.data.volumes import Header, Volume
from shapepu.errors import InputError


def header(shape: tuple[int, int, int], spacing_mm: tuple[float, float, float]) -> Header:
    return Header(shape, spacing_mm, (0, 0, 0), (1, 0, 0, 0, 1, 0, 0, 0, 1), "int16")


def volume(array: NDArray, spacing_mm: tuple[float, float, float] = (8.0, 1.0, 1.0)) -> Volume:
    return Volume(array, spacing_mm, (0, 0, 0), (1, 0, 0, 0, 1, 0, 0, 0, 1), Path("some_image.nii.gz"))


PLANNED = Preprocessing(spacing_mm=(2.0, 2.0), patch=(32, 32))


def test_a_wide_field_is_coarsened_to_fit_and_the_patch_is_capped() -> None:
    planned = plan([header((15, 480, 480), (5.0, 0.7291, 0.7291))] * 3, Preprocessing())
    assert planned.spacing_mm == (1.367, 1.367)
    assert planned.patch == (224, 224)
    assert planned.resolved


def test_a_small_field_keeps_the_median_pixel() -> None:
    headers = [header((8, 120, 101), (10.0, side, side)) for side in (1.2, 1.5, 1.8)]
    planned = plan(headers, Preprocessing())
    assert planned.spacing_mm == (1.5, 1.5)
    assert planned.patch == (128, 112)  # 120 and 101 pixels, to the next multiple of 16


def test_a_tiny_image_gets_the_smallest_patch() -> None:
    assert plan([header((8, 12, 5), (10.0, 1.0, 1.0))], Preprocessing()).patch == (32, 32)


def test_the_planned_pixel_is_square_even_if_those_of_the_images_are_not() -> None:
    planned = plan([header((8, 100, 50), (10.0, 1.0, 4.0))], Preprocessing())
    assert planned.spacing_mm == (2.0, 2.0)
    assert planned.patch == (64, 112)


def test_the_slice_axis_has_no_say_in_the_planned_spacing() -> None:
    upright = [header((15, 100, 100), (5.0, 1.0, 1.0))]
    sideways = [header((100, 100, 15), (1.0, 1.0, 5.0))]
    assert plan(upright, Preprocessing()) == plan(sideways, Preprocessing())


def test_only_what_is_left_open_is_planned() -> None:
    paper = Preprocessing(spacing_mm=(1.37, 1.37), patch=(212, 212), canvas_margin=1.0)
    assert plan([header((15, 480, 480), (5.0, 0.7291, 0.7291))], paper) == paper
    given_spacing = plan([header((8, 100, 100), (9.0, 1.0, 1.0))], Preprocessing(spacing_mm=(2, 2)))
    assert given_spacing == Preprocessing(spacing_mm=(2.0, 2.0), patch=(64, 64))


def test_planned_numbers_are_short() -> None:
    planned = plan([header((8, 100, 100), (10.0, 0.123456789, 0.123456789))], Preprocessing())
    assert planned.spacing_mm == (0.1235, 0.1235)


def test_planning_without_images_says_so() -> None:
    with pytest.raises(InputError, match="no training images"):
        plan([], Preprocessing())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"spacing_mm": (0, 1)}, "spacing_mm: expected two positive"),
        ({"spacing_mm": (1, float("nan"))}, "spacing_mm"),
        ({"spacing_mm": (1, 1, 5)}, "spacing_mm"),
        ({"patch": (0, 32)}, "patch: expected two positive"),
        ({"canvas_margin": 0.9}, "canvas_margin: expected a number from 1 to 4, got 0.9"),
        ({"intensity": "mri"}, "intensity: expected 'volume' or 'ct', got 'mri'"),
        ({"padding": "black"}, "padding"),
    ],
)
def test_impossible_settings_are_named(wrong: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing(**wrong)


def test_settings_survive_a_config_file() -> None:
    statistics = (ChannelStatistics(-100, 300, 50, 70.5), ChannelStatistics(0, 1, 0.5, 0.1))
    original = Preprocessing((1.4, 1.4), (96, 128), intensity="ct", statistics=statistics)
    assert from_plain(Preprocessing, to_plain(original)) == original


def test_ct_is_not_resolved_before_it_is_measured() -> None:
    assert not Preprocessing((1, 1), (32, 32), intensity="ct").resolved


def test_the_canvas_is_the_patch_or_a_wider_size_that_halves_well() -> None:
    assert Preprocessing(patch=(212, 212), canvas_margin=1.0).canvas == (212, 212)
    assert Preprocessing(patch=(224, 224)).canvas == (256, 256)
    assert Preprocessing(patch=(33, 100), canvas_margin=1.01).canvas == (33, 100)


@given(
    old=st.tuples(st.integers(1, 9), st.integers(1, 9)), new=st.tuples(st.integers(1, 9), st.integers(1, 9))
)
@settings(max_examples=60, deadline=None)
def test_fitting_back_puts_every_pixel_where_it_came_from(old: tuple[int, int], new: tuple[int, int]) -> None:
    original = np.arange(1, 1 + old[0] * old[1]).reshape(1, *old)
    there = fit(original, new, 0)
    back = fit(there, old, -1)
    assert there.shape == (1, *new)
    assert np.count_nonzero(there) == min(old[0], new[0]) * min(old[1], new[1])
    np.testing.assert_array_equal(back[back != -1], original[back != -1])
    assert np.count_nonzero(back != -1) == np.count_nonzero(there)
    lost = [(size - kept) for size, kept in zip(old, np.minimum(old, new), strict=True)]
    if any(lost):  # what remains is the middle
        rows, columns = np.nonzero(back[0] != -1)
        assert abs(rows.min() - (old[0] - 1 - rows.max())) <= 1
        assert abs(columns.min() - (old[1] - 1 - columns.max())) <= 1


def test_fitting_by_hand() -> None:
    assert fit(np.array([[1, 2, 3, 4]]), (2, 3), 0).tolist() == [[1, 2, 3], [0, 0, 0]]
    assert fit(np.array([[1, 2]]), (1, 5), 9).tolist() == [[9, 1, 2, 9, 9]]


def test_a_case_is_prepared_channel_by_channel() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(5, 2, (4, 20, 30)), rng.integers(0, 1000, (4, 20, 30)).astype(np.uint16)
    prepared = prepare_case([volume(first), volume(second)], PLANNED)
    assert prepared.images.shape == (4, 2, 10, 15)
    assert prepared.images.dtype == np.float32
    np.testing.assert_allclose(prepared.images.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(prepared.images.std(axis=(0, 2, 3)), 1, atol=1e-5)
    alone = prepare_case([volume(second)], PLANNED)
    np.testing.assert_array_equal(alone.images[:, 0], prepared.images[:, 1])


def test_an_image_is_continued_by_the_dark_value_of_its_own_channel() -> None:
    array = np.zeros((2, 20, 20))
    array[:, 5:15, 5:15] = 1
    prepared = prepare_case([volume(array), volume(1 - array)], PLANNED)
    canvas = prepared.images_on((16, 12))
    assert (canvas[:, 0, :3] == prepared.images[:, 0].min()).all()
    assert (canvas[:, 1, :3] == prepared.images[:, 1].min()).all()
    np.testing.assert_array_equal(fit(canvas, prepared.grid.size, 0), prepared.images)


def test_a_constant_image_has_no_contrast_after_interpolation_either() -> None:
    prepared = prepare_case([volume(np.full((3, 21, 37), 1234.567, np.float32))], PLANNED)
    assert not prepared.images.any()


def test_scribbles_and_masks_follow_the_image() -> None:
    scribbles = np.full((1, 4, 4), 2, np.uint8)
    scribbles[0, 0, 0] = 1
    mask = np.zeros((1, 4, 4), np.uint8)
    mask[0, :2, :2] = 1
    prepared = prepare_case(
        [volume(np.zeros((1, 4, 4)))], PLANNED, scribbles=scribbles, mask=mask, unlabelled=2
    )
    assert prepared.scribbles is not None
    assert prepared.mask is not None
    assert prepared.scribbles.tolist() == [[[1, 2], [2, 2]]]
    assert prepared.mask.tolist() == [[[1, 0], [0, 0]]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_voxels_that_are_not_numbers_are_counted(value: float) -> None:
    array = np.zeros((1, 4, 4))
    array[0, 1, 1:3] = value
    with pytest.raises(InputError, match=r"some_image\.nii\.gz: 2 of 16 voxels"):
        prepare_case([volume(array)], PLANNED)


def test_a_pixel_size_in_the_wrong_unit_is_refused_with_the_name_of_the_file() -> None:
    with pytest.raises(InputError, match=r"^some_image\.nii\.gz: slices of .* would become 8400x8400"):
        prepare_case([volume(np.zeros((1, 12, 12)), (8000.0, 1400.0, 1400.0))], PLANNED)


def test_channels_of_different_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"\(1, 4, 5\).*\(1, 4, 4\)"):
        prepare_case([volume(np.zeros((1, 4, 4))), volume(np.zeros((1, 4, 5)))], PLANNED)


def test_ct_needs_the_channels_it_was_measured_on() -> None:
    ct = Preprocessing((2, 2), (32, 32), intensity="ct", statistics=(ChannelStatistics(0, 1, 0, 1),))
    images = [volume(np.zeros((1, 4, 4)))] * 2
    with pytest.raises(InputError, match="statistics of 1 channels, but the images have 2"):
        prepare_case(images, ct)


def test_a_case_with_fewer_channels_than_the_first_is_named() -> None:
    cases = [Case("one", (Path("a"), Path("b"))), Case("two", (Path("c"),))]
    with pytest.raises(InputError, match="case two: 1 images"):
        reject_unequal_channels(cases)
