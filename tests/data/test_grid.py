"""Resampling keeps places, lines and classes, and its inverse leads back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from shapepu.data import grid as grid_module
from shapepu.data.grid import SliceGrid, slice_axis
from shapepu.errors import InputError


def in_plane(shape: tuple[int, int], size: tuple[int, int], slices: int = 1) -> SliceGrid:
    """A grid that takes slices of ``shape`` pixels to ``size``."""
    target = [old / new for old, new in zip(shape, size, strict=True)]
    grid = SliceGrid.of((slices, *shape), (10.0, 1.0, 1.0), target)
    assert grid.size == size
    return grid


def disc(size: tuple[int, int], centre: tuple[float, float], radius: float) -> NDArray[np.bool_]:
    rows, columns = np.indices(size)
    return (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2


def centroid_mm(image: NDArray, pixel_mm: tuple[float, float]) -> NDArray[np.float64]:
    """Centre of mass measured from the outer edge of the first pixel."""
    return (np.array(ndimage.center_of_mass(image)) + 0.5) * pixel_mm


@pytest.mark.parametrize(
    ("shape", "spacing_mm", "expected"),
    [
        ((15, 480, 480), (5.0, 0.73, 0.73), 0),
        ((480, 480, 15), (0.73, 0.73, 5.0), 2),
        ((480, 15, 480), (0.73, 5.0, 0.73), 1),
        ((64, 64, 64), (1.0, 1.0, 1.0), 0),
        ((64, 64, 64), (1.0, 1.0, 1.4), 0),
        ((64, 64, 64), (1.0, 1.0, 1.5), 2),
        ((64, 64, 64), (0.5, 2.0, 2.0), 0),
        ((64, 1, 64), (1.0, 1.0, 3.0), 1),
        ((1, 64, 64), (1.0, 1.0, 2.0), 0),
        ((1, 1, 1), (1.0, 1.0, 1.0), 0),
    ],
)
def test_slices_lie_along_the_clearly_coarser_axis_or_else_the_first(
    shape: tuple[int, int, int], spacing_mm: tuple[float, float, float], expected: int
) -> None:
    assert slice_axis(shape, spacing_mm) == expected


def test_resampled_slices_show_the_same_field() -> None:
    grid = SliceGrid.of((15, 480, 432), (5.0, 0.7291, 0.7407), (1.367, 1.367))
    assert grid.size == (256, 234)
    for native, native_mm, resampled, pixel_mm in zip(
        grid.native_size, grid.native_pixel_mm, grid.size, grid.pixel_mm, strict=True
    ):
        assert resampled * pixel_mm == pytest.approx(native * native_mm)
    assert grid.pixel_mm == pytest.approx((1.367, 1.367), rel=0.5 / 234)


def test_oblong_pixels_are_resampled_axis_by_axis() -> None:
    assert SliceGrid.of((8, 100, 100), (9.0, 1.0, 2.0), (1.5, 1.5)).size == (67, 133)


def test_a_volume_of_one_voxel_stays_one_pixel() -> None:
    grid = SliceGrid.of((1, 1, 1), (5.0, 0.3, 0.3), (1.4, 1.4))
    assert grid.size == (1, 1)
    assert grid.resample_image(np.full((1, 1, 1), 7)).tolist() == [[[7.0]]]


def test_a_pixel_size_in_the_wrong_unit_is_refused_before_memory_runs_out() -> None:
    with pytest.raises(InputError, match="pixel size in the header"):
        SliceGrid.of((10, 256, 256), (8000.0, 1400.0, 1400.0), (1.4, 1.4))


def test_equal_spacing_changes_no_bit_in_either_direction() -> None:
    rng = np.random.default_rng(0)
    grid = SliceGrid.of((3, 21, 34), (8.0, 1.4, 1.4), (1.4, 1.4))
    image = rng.normal(size=grid.shape).astype(np.float32)
    labels = rng.integers(0, 5, grid.shape).astype(np.uint8)
    probs = rng.random((4, 3, 21, 34)).astype(np.float32)
    np.testing.assert_array_equal(grid.resample_image(image), image)
    np.testing.assert_array_equal(grid.resample_labels(labels), labels)
    np.testing.assert_array_equal(grid.resample_labels(labels, unlabelled=4), labels)
    np.testing.assert_array_equal(grid.restore(probs), probs)
    np.testing.assert_array_equal(grid.restore_labels(probs), probs.argmax(axis=0))


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_results_never_share_memory_with_what_was_given(make: type) -> None:
    probs = np.zeros((2, 1, 4, 4), np.float32)
    restored = in_plane((4, 4), (4, 4)).restore(make(probs))
    restored += 1
    assert not probs.any()


def test_linear_interpolation_by_hand() -> None:
    halved = in_plane((1, 4), (1, 2)).resample_image(np.array([[[0, 1, 2, 7]]]))
    assert halved.tolist() == [[[0.5, 4.5]]]
    doubled = in_plane((1, 2), (1, 4)).resample_image(np.array([[[0, 4]]]))
    assert doubled.tolist() == [[[0.0, 1.0, 3.0, 4.0]]]


def linear_in_loops(line: NDArray, length: int) -> list[float]:
    """Values at pixel centres, the outer pixels going on beyond their centre."""
    values = []
    for pixel in range(length):
        place = min(max((pixel + 0.5) * len(line) / length - 0.5, 0), len(line) - 1)
        left = int(place)
        right = min(left + 1, len(line) - 1)
        values.append((1 - (place - left)) * line[left] + (place - left) * line[right])
    return values


@given(old=st.integers(1, 12), share=st.floats(0.5, 3.0), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_every_line_is_interpolated_between_pixel_centres(old: int, share: float, seed: int) -> None:
    new = max(round(old * share), -(-old // 2))
    image = np.random.default_rng(seed).normal(size=(1, 3, old)).astype(np.float32)
    resampled = in_plane((3, old), (3, new)).resample_image(image)
    expected = [linear_in_loops(line, new) for line in image[0]]
    np.testing.assert_allclose(resampled[0], expected, atol=1e-5)


@pytest.mark.parametrize("new", [40, 31, 21, 20, 13, 9, 5])
def test_no_native_pixel_is_skipped_at_any_factor(new: int) -> None:
    points = np.repeat(np.eye(40, dtype=np.float32)[:, None, :], 3, axis=1)
    sums = in_plane((3, 40), (3, new), slices=40).resample_image(points)[:, 0].sum(axis=1)
    assert sums.min() > 0.1 * new / 40


@pytest.mark.parametrize("native", [(64, 64), (63, 64), (65, 63)])
@pytest.mark.parametrize("size", [(32, 32), (33, 31), (48, 47), (97, 96), (20, 19)])
def test_a_shape_stays_where_it_is(native: tuple[int, int], size: tuple[int, int]) -> None:
    grid = in_plane(native, size)
    rows, columns = np.indices(native)
    blob = np.exp(-((rows - 29.3) ** 2 + (columns - 35.8) ** 2) / 50)[None]
    resampled = grid.resample_image(blob)
    before = centroid_mm(blob[0], grid.native_pixel_mm)
    np.testing.assert_allclose(centroid_mm(resampled[0], grid.pixel_mm), before, atol=0.1)
    restored = grid.restore(resampled[None])[0]
    np.testing.assert_allclose(centroid_mm(restored[0], grid.native_pixel_mm), before, atol=0.1)
    mask = disc(native, (29.3, 35.8), 20.1)
    np.testing.assert_allclose(
        centroid_mm(grid.resample_labels(mask[None])[0], grid.pixel_mm),
        centroid_mm(mask, grid.native_pixel_mm),
        atol=0.15 * max(*grid.pixel_mm, 1),  # a binary edge moves in steps
    )


@pytest.mark.parametrize("size", [(256, 256), (257, 255), (300, 700)])
def test_a_mask_comes_back_nearly_whole(size: tuple[int, int]) -> None:
    mask = disc((480, 480), (200.4, 260.7), 60) & ~disc((480, 480), (190, 270), 30)
    grid = in_plane((480, 480), size)
    resampled = grid.resample_labels(mask[None].astype(np.uint8))
    restored = grid.restore_labels(np.stack([resampled == 0, resampled == 1]).astype(np.float32))[0] == 1
    assert 2 * (restored & mask).sum() / (restored.sum() + mask.sum()) > 0.97


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_slice_axis_may_be_any(axis: int) -> None:
    rng = np.random.default_rng(1)
    stacked = rng.normal(size=(5, 20, 30)).astype(np.float32)
    volume = np.ascontiguousarray(np.moveaxis(stacked, 0, axis))
    spacing_mm = [1.0, 1.0, 1.0]
    spacing_mm[axis] = 8.0
    grid = SliceGrid.of(volume.shape, spacing_mm, (2.0, 1.5))
    assert (grid.axis, grid.slices, grid.native_size, grid.size) == (axis, 5, (20, 30), (10, 20))
    plain = in_plane((20, 30), (10, 20), slices=5)
    resampled = grid.resample_image(volume)
    np.testing.assert_array_equal(resampled, plain.resample_image(stacked))
    restored = grid.restore(resampled[None])
    assert restored.shape == (1, *volume.shape)
    np.testing.assert_array_equal(np.moveaxis(restored[0], axis, 0), plain.restore(resampled[None])[0])
    probs = rng.random((3, *resampled.shape))
    np.testing.assert_array_equal(grid.restore_labels(probs), grid.restore(probs).argmax(axis=0))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_probabilities_of_any_precision_come_back_as_float32(kind: torch.dtype) -> None:
    probs = torch.rand(2, 3, 5, 5).to(kind).requires_grad_()
    restored = in_plane((9, 9), (5, 5), slices=3).restore(probs)
    assert restored.dtype == np.float32
    assert restored.shape == (2, 3, 9, 9)


def test_working_in_small_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    grid = in_plane((31, 29), (17, 40), slices=7)
    image = rng.normal(size=grid.shape)
    mask = rng.integers(0, 4, grid.shape)
    probs = rng.random((4, 7, 17, 40))
    whole = grid.resample_image(image), grid.resample_labels(mask), grid.restore_labels(probs)
    monkeypatch.setattr(grid_module, "CHUNK_BYTES", 1)
    chunked = grid.resample_image(image), grid.resample_labels(mask), grid.restore_labels(probs)
    for one, other in zip(whole, chunked, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_dense_pixel_takes_the_class_with_the_largest_share() -> None:
    mask = np.array([[[1, 1, 2, 2], [2, 1, 0, 0], [3, 3, 4, 0], [3, 3, 4, 4]]])
    resampled = in_plane((4, 4), (2, 2)).resample_labels(mask)
    assert resampled.tolist() == [[[1, 0], [3, 4]]]  # of 0 and 2, equally many, the first


UNLABELLED = 4


@pytest.mark.parametrize("offset", [0, 1, 5, 6])
@pytest.mark.parametrize("size", [20, 21, 23, 31])
def test_a_line_one_pixel_wide_stays_a_line_when_pixels_grow(offset: int, size: int) -> None:
    scribbles = np.full((3, 40, 40), UNLABELLED, np.uint8)
    scribbles[0, 5:35, 10 + offset] = 1
    scribbles[1, 10 + offset, 5:35] = 2
    along = np.arange(5, 33)
    scribbles[2, along, along + offset] = 3
    resampled = in_plane((40, 40), (size, size), slices=3).resample_labels(scribbles, unlabelled=UNLABELLED)
    for drawn, label in zip(resampled, (1, 2, 3), strict=True):
        assert set(np.unique(drawn)) == {label, UNLABELLED}, "no class that was not drawn in this slice"
        _, pieces = ndimage.label(drawn == label, np.ones((3, 3)))
        assert pieces == 1, "unbroken"
    straight = (resampled[0] == 1).sum(axis=1), (resampled[1] == 2).sum(axis=0)
    assert all(width.max() == 1 and abs(width.sum() - 30 * size / 40) < 2 for width in straight)
    assert (resampled[2] == 3).sum(axis=1).max() <= 2


def scribbles_in_loops(slice_: NDArray, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The rule of ``resample_labels`` for one slice that is made smaller along both axes."""
    height, width = size
    totals = {int(label): int((slice_ == label).sum()) for label in np.unique(slice_)}
    votes: dict[tuple[int, int], dict[int, int]] = {}
    for row in range(slice_.shape[0]):
        for column in range(slice_.shape[1]):
            label = int(slice_[row, column])
            if label == UNLABELLED:
                continue
            pixel = int((row + 0.5) * height / slice_.shape[0]), int((column + 0.5) * width / slice_.shape[1])
            found = votes.setdefault(pixel, {})
            found[label] = found.get(label, 0) + 1
    resampled = np.full(size, UNLABELLED, np.uint8)
    for pixel, found in votes.items():
        resampled[pixel] = max(found, key=lambda label: (found[label], -totals[label], label))
    return resampled


@given(
    native=st.tuples(st.integers(2, 14), st.integers(2, 14)),
    seed=st.integers(0, 999),
    share=st.floats(0.3, 1.0),
    scribbled=st.floats(0.0, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_a_scribbled_pixel_takes_the_most_frequent_class_drawn_in_it(
    native: tuple[int, int], seed: int, share: float, scribbled: float
) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 4, native)
    scribbles = np.where(rng.random(native) < scribbled, drawn, UNLABELLED).astype(np.uint8)
    size = max(1, round(native[0] * share)), max(1, round(native[1] * share))
    resampled = in_plane(native, size).resample_labels(scribbles[None], unlabelled=UNLABELLED)
    np.testing.assert_array_equal(resampled[0], scribbles_in_loops(scribbles, size))


def test_between_two_classes_in_one_pixel_the_rarer_survives() -> None:
    scribbles = np.full((1, 8, 8), UNLABELLED, np.uint8)
    scribbles[0, :, 2] = 3
    scribbles[0, 2:6, 3] = 1
    resampled = in_plane((8, 8), (4, 4)).resample_labels(scribbles, unlabelled=UNLABELLED)[0]
    assert resampled[:, 1].tolist() == [3, 1, 1, 3]


def test_finer_pixels_take_the_scribble_under_their_centre() -> None:
    scribbles = np.full((1, 3, 3), UNLABELLED, np.uint8)
    scribbles[0, 1, 1] = 2
    resampled = in_plane((3, 3), (9, 9)).resample_labels(scribbles, unlabelled=UNLABELLED)[0]
    expected = np.full((9, 9), UNLABELLED)
    expected[3:6, 3:6] = 2
    np.testing.assert_array_equal(resampled, expected)


def test_scribbles_may_shrink_along_one_axis_and_grow_along_the_other() -> None:
    scribbles = np.full((1, 4, 2), UNLABELLED, np.uint8)
    scribbles[0, 0, 1] = 0
    resampled = in_plane((4, 2), (2, 4)).resample_labels(scribbles, unlabelled=UNLABELLED)[0]
    assert resampled.tolist() == [[4, 4, 0, 0], [4, 4, 4, 4]]


def test_a_volume_without_scribbles_stays_without() -> None:
    empty = np.full((2, 9, 9), UNLABELLED, np.uint8)
    assert (in_plane((9, 9), (5, 5), 2).resample_labels(empty, unlabelled=UNLABELLED) == UNLABELLED).all()
