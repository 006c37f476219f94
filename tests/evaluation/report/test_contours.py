from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex, to_rgb
from PIL import Image
from run_folders import heart, write_volume

from shapepu.errors import InputError
from shapepu.evaluation.report.contents import ValidationCase
from shapepu.evaluation.report.contours import (
    LARGEST_SIDE,
    SLICES,
    CaseSlices,
    case_figure,
    extremes,
    picture_scribble_to_prediction,
    read_case,
    region_of_interest,
    slices_to_show,
)
from shapepu.evaluation.report.inline_svg import inline_svg
from shapepu.evaluation.report.palette import BACKGROUND, STRUCTURES
from shapepu.labels import plain_labels

HEART = plain_labels(["rv", "myo", "lv"])


def test_best_median_and_worst_of_five_cases():
    means = {"a": 0.8, "b": 0.92, "c": 0.45, "d": 0.85, "e": 0.83}
    assert extremes(means) == {"best": "b", "median": "e", "worst": "c"}


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ({}, {}),
        ({"a": 0.5}, {"only": "a"}),
        ({"a": 0.5, "b": 0.6}, {"best": "b", "worst": "a"}),
        ({"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8}, {"best": "d", "median": "b", "worst": "a"}),
        ({"b": 0.5, "a": 0.5, "c": 0.5}, {"best": "c", "median": "b", "worst": "a"}),
    ],
)
def test_few_and_equal_cases(means, expected):
    assert extremes(means) == expected


def test_slices_are_spread_over_those_with_a_structure():
    foreground = np.array([False] * 3 + [True] * 10 + [False] * 2)
    shown, worst = slices_to_show(foreground, np.zeros(15, int))
    assert shown == [4, 6, 8, 10, 12]
    assert worst is None


def test_the_slice_with_most_wrong_pixels_replaces_the_nearest_of_the_spread():
    foreground = np.array([False] * 3 + [True] * 10 + [False] * 2)
    errors = np.zeros(15, int)
    errors[[3, 6]] = 9, 2
    shown, worst = slices_to_show(foreground, errors)
    assert worst == 3
    assert shown == [3, 6, 8, 10, 12]


def test_of_a_case_without_any_structure_the_middle_slice_is_shown():
    assert slices_to_show(np.zeros(7, bool), np.zeros(7, int)) == ([3], None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_no_empty_slice_is_shown_and_the_worst_always_is(errors):
    wrong = np.array(errors)
    foreground = wrong > 0
    shown, worst = slices_to_show(foreground, wrong)
    if foreground.any():
        assert 1 <= len(shown) <= SLICES
        assert foreground[shown].all()
        assert worst in shown
        assert wrong[worst] == wrong.max()
        assert len(shown) == min(SLICES, foreground.sum())


def test_the_region_is_the_structures_with_a_margin_inside_the_image():
    foreground = np.zeros((2, 100, 60), bool)
    foreground[0, 40:60, 3:23] = True
    foreground[1, 50:70, 5:10] = True
    rows, columns = region_of_interest(foreground, (2.0, 1.0))
    # 30 rows: a fifth is 6 on each side. 20 columns: a fifth is 4, but the least margin is 8 mm.
    assert (rows.start, rows.stop) == (34, 76)
    assert (columns.start, columns.stop) == (0, 31)


def test_without_structures_the_region_is_the_whole_image():
    assert region_of_interest(np.zeros((2, 10, 12), bool), (1.0, 1.0)) == (slice(0, 10), slice(0, 12))


def case(prediction: np.ndarray, reference: np.ndarray, pixel_mm=(1.0, 1.0)) -> CaseSlices:
    return CaseSlices(np.ones(reference.shape, np.float32), prediction, reference, pixel_mm)


def outlines(axes) -> dict[tuple[str, bool], np.ndarray]:
    """The points of each contour on ``axes`` by colour and whether it is dashed."""
    return {
        (to_hex(drawn.get_edgecolor()[0]), drawn.get_linestyle()[0][1] is not None): np.concatenate(
            [path.vertices for path in drawn.get_paths() if len(path.vertices)]
        )
        for drawn in axes.collections
    }


def test_contours_go_around_the_structure_in_millimetres():
    labels = np.zeros((1, 40, 40), np.uint8)
    labels[0, 10:20, 12:30] = 3
    axes = case_figure(case(labels, labels, (2.0, 1.0)), HEART).axes[0]
    drawn = outlines(axes)
    assert set(drawn) == {(STRUCTURES[2], False), (STRUCTURES[2], True)}
    # Cropped to rows 6..24 (a fifth of 10, but at least 8 mm = 4) and columns 4..38.
    for points in drawn.values():
        assert points.min(axis=0) == pytest.approx([12 - 4, (10 - 6) * 2.0])
        assert points.max(axis=0) == pytest.approx([30 - 4, (20 - 6) * 2.0])


def test_the_prediction_is_solid_and_the_reference_dashed():
    prediction, reference = heart(shift=3), heart()
    figure = case_figure(case(prediction, reference), HEART)
    drawn = outlines(figure.axes[0])
    assert set(drawn) == {(colour, dashed) for colour in STRUCTURES[:3] for dashed in (False, True)}
    for colour in STRUCTURES[:3]:
        moved = drawn[colour, False].mean(axis=0) - drawn[colour, True].mean(axis=0)
        assert moved == pytest.approx([0, 3], abs=0.3)


def test_a_structure_at_the_border_of_the_image_has_a_closed_contour():
    labels = np.ones((1, 12, 12), np.uint8)
    drawn = outlines(case_figure(case(labels, np.zeros_like(labels)), HEART).axes[0])
    points = drawn[STRUCTURES[0], False]
    assert points.min(axis=0) == pytest.approx([0, 0])
    assert points.max(axis=0) == pytest.approx([12, 12])


def test_pixels_that_are_not_square_are_shown_as_they_are():
    axes = case_figure(case(heart(), heart(), (3.0, 1.0)), HEART).axes[0]
    (image,) = axes.images
    rows, columns = image.get_array().shape
    left, right, bottom, top = image.get_extent()
    assert (right - left, bottom - top) == pytest.approx((columns * 1.0, rows * 3.0))
    assert axes.get_aspect() == 1.0


def test_the_slice_with_most_wrong_pixels_says_so():
    reference = heart()
    prediction = reference.copy()
    prediction[4, 9:12, 5:8] = 0
    titles = [axes.get_title(loc="left") for axes in case_figure(case(prediction, reference), HEART).axes]
    assert titles == [f"slice {n} of 6" + (" · most wrong pixels" if n == 5 else "") for n in (2, 3, 4, 5, 6)]


def test_unlabelled_pixels_of_a_reference_are_neither_wrong_nor_outlined():
    reference = np.full((3, 20, 20), HEART.unlabelled, np.uint8)
    reference[1, 5:9, 5:9] = 1
    figure = case_figure(case(np.where(reference == 1, 1, 0).astype(np.uint8), reference), HEART)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == ["slice 2 of 3"]
    assert set(outlines(figure.axes[0])) == {(STRUCTURES[0], False), (STRUCTURES[0], True)}


def test_a_constant_or_non_finite_image_can_be_drawn():
    broken = CaseSlices(np.full((6, 24, 24), np.nan), heart(), heart(), (1.0, 1.0))
    for drawn in (case(heart(), heart()), broken):
        inline_svg(case_figure(drawn, HEART), "case", "")


def test_large_slices_are_thinned_out_so_that_a_report_stays_small():
    shape = (SLICES, 700, 500)
    labels = np.ones(shape, np.uint8)
    image = np.random.default_rng(0).normal(size=shape)
    figure = case_figure(CaseSlices(image, labels, labels, (1.0, 1.0)), HEART)
    sizes = [max(axes.images[0].get_array().shape) for axes in figure.axes]
    assert max(sizes) <= LARGEST_SIDE
    assert len(inline_svg(figure, "case", "")) < 1_500_000


def test_thinned_out_contours_lie_where_the_structure_is():
    labels = np.zeros((1, 1000, 1000), np.uint8)
    labels[0, 200:800, 300:900] = 1
    figure = case_figure(case(labels, labels, (0.5, 0.5)), HEART)
    assert max(figure.axes[0].images[0].get_array().shape) <= LARGEST_SIDE
    points = outlines(figure.axes[0])[STRUCTURES[0], False]
    # Cropped to rows 80.. and columns 180.., every fourth pixel is left.
    assert points.min(axis=0) == pytest.approx([60, 60], abs=1.0)
    assert points.max(axis=0) == pytest.approx([360, 360], abs=1.0)


def test_a_prediction_of_noise_is_filled_and_the_report_stays_small():
    shape = (SLICES, 300, 300)
    noise = np.random.default_rng(0).integers(0, 4, shape).astype(np.uint8)
    reference = np.zeros_like(noise)
    reference[:, 100:200, 100:200] = 2
    figure = case_figure(case(noise, reference), HEART)
    assert set(outlines(figure.axes[0])) == {(STRUCTURES[1], True)}
    assert len(figure.axes[0].images) == 4
    assert len(inline_svg(figure, "case", "")) < 3_000_000


def test_slices_of_a_sagittal_volume_are_cut_along_its_coarse_axis(tmp_path):
    labels = np.moveaxis(heart(), 0, 2)
    image = write_volume(tmp_path / "image.nii.gz", labels.astype(np.float32), (1.0, 2.0, 9.0))
    mask = write_volume(tmp_path / "mask.nii.gz", labels, (1.0, 2.0, 9.0))
    found = read_case(ValidationCase("a", image, mask, mask), HEART)
    np.testing.assert_array_equal(found.reference, heart())
    assert found.pixel_mm == pytest.approx((1.0, 2.0))


def test_a_prediction_of_another_shape_is_refused_by_name(tmp_path):
    image = write_volume(tmp_path / "image.nii.gz", np.ones((6, 24, 24), np.float32))
    mask = write_volume(tmp_path / "mask.nii.gz", heart())
    other = write_volume(tmp_path / "other.nii.gz", heart(shape=(5, 24, 24)))
    with pytest.raises(
        InputError, match=r"other\.nii\.gz: has shape \(5, 24, 24\), but the image \(6, 24, 24\)"
    ):
        read_case(ValidationCase("a", image, mask, other), HEART)


def test_the_readme_picture_shows_scribbles_prediction_and_reference(tmp_path):
    image = np.zeros((40, 40))
    reference = np.zeros((40, 40), np.uint8)
    reference[10:30, 10:30] = 3
    prediction = np.where(reference == 3, 2, 0).astype(np.uint8)
    scribble = np.full((40, 40), 4, np.uint8)
    scribble[18:22, 15:25] = 1
    scribble[2:4, 5:35] = 0
    target = tmp_path / "picture.png"
    picture_scribble_to_prediction(image, scribble, prediction, reference, target)
    with Image.open(target) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    body = pixels[: int(0.85 * len(pixels))]  # without the legend
    thirds = np.array_split(body, 3, axis=1)

    def holds(part: np.ndarray, colour: str) -> bool:
        return bool((np.abs(part - np.array(to_rgb(colour)) * 255).max(axis=2) < 3).any())

    strokes = [[holds(part, colour) for part in thirds] for colour in (*STRUCTURES[:3], BACKGROUND)]
    assert strokes == [[True, False, False], [False, True, False], [False, False, True], [True, False, False]]
