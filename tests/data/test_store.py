"""The arrays of a store are the prepared pixels of its cases, and misfitting files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from small_cases import LABELS, SAME_GRID, UNLABELLED, make_case, without_mask, write

from shapepu.data.case import Case
from shapepu.data.intensity import ChannelStatistics
from shapepu.data.preprocess import Preprocessing, fit, prepare_case
from shapepu.data.store import open_store
from shapepu.data.volumes import read_labels, read_volume
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return [
        make_case(tmp_path / "data", "first", seed=1, slices=2),
        make_case(tmp_path / "data", "second", seed=2, slices=3, size=20),
    ]


def test_training_sees_the_same_pixels_as_prediction(cases: list[Case], tmp_path: Path) -> None:
    settings = Preprocessing(spacing_mm=(1.3, 1.6), patch=(16, 16))
    store = open_store(cases, LABELS, settings, tmp_path / "cache", quiet=True)
    for index, case in enumerate(cases):
        prepared = prepare_case([read_volume(case.images[0])], settings)
        stored = store.images[store.slices_of(index)]
        np.testing.assert_array_equal(stored, prepared.images_on(settings.canvas).astype(np.float16))
        assert store.grid_of(index) == prepared.grid


def test_arrays_hold_every_slice_in_the_order_of_the_cases(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True)
    assert len(store) == 5
    assert store.images.shape == (5, 1, 16, 16)
    assert (store.images.dtype, store.labels.dtype) == (np.float16, np.uint8)
    assert store.case_of_slice.tolist() == [0, 0, 1, 1, 1]
    assert list(store.slices_of(1)) == [2, 3, 4]
    assert store.cases == tuple(cases)
    assert store.spacings_mm == ((8.0, 1.0, 1.0),) * 2
    assert store.nbytes == 5 * 16 * 16 * (2 + 1 + 1)
    assert store.masks is not None
    for index, case in enumerate(cases):
        assert case.scribble is not None
        assert case.mask is not None
        scribble, mask = read_labels(case.scribble, LABELS), read_labels(case.mask, LABELS)
        np.testing.assert_array_equal(store.labels[store.slices_of(index)], fit(scribble, (16, 16), OUTSIDE))
        np.testing.assert_array_equal(store.masks[store.slices_of(index)], fit(mask, (16, 16), OUTSIDE))


def test_arrays_are_mapped_and_cannot_be_written_to(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    for array in (store.images, store.labels):
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_what_lies_beyond_an_image_is_outside_or_background_as_asked(
    cases: list[Case], tmp_path: Path
) -> None:
    beyond = np.ones((16, 16), bool)
    beyond[2:14, 2:14] = False
    for padding, expected in (("unlabelled", OUTSIDE), ("background", 0)):
        settings = replace(SAME_GRID, padding=padding)
        store = open_store(cases, LABELS, settings, tmp_path / "cache", want_masks=True, quiet=True)
        assert store.masks is not None
        assert (store.labels[0][beyond] == expected).all()
        assert (store.labels[0][~beyond] != OUTSIDE).all()
        assert (store.masks[0][beyond] == OUTSIDE).all()


def test_labelled_pixels_are_counted_by_class_and_case(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    # first: 12x12, lines of 12, 6 and 2 pixels on 2 slices; second: 20x20 cropped to 16x16, its lines at
    # rows 0, 2 and 10 of 20, 14 and 10 pixels long, on 3 slices.
    assert store.labelled_counts_of(0).tolist() == [24, 12, 4]
    assert store.labelled_counts_of(1).tolist() == [0, 42, 30]
    assert store.labelled_counts.tolist() == [24, 54, 34]
    assert (store.pixels_of(0), store.pixels_of(1)) == (2 * 144, 3 * 256)
    assert store.unlabelled_count == 2 * 144 + 3 * 256 - 24 - 54 - 34


def test_true_ratios_are_the_class_shares_of_unlabelled_pixels(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(cases[:1], LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True)
    # Of each 12x12 slice the ring has 8x8 - 4x4 pixels and the core 4x4; their lines have 6 and 2.
    unlabelled = np.array([144 - 64 - 12, 48 - 6, 16 - 2])
    np.testing.assert_allclose(store.true_ratios(), unlabelled / unlabelled.sum())


def test_true_ratios_are_those_of_the_patch_that_training_sees(cases: list[Case], tmp_path: Path) -> None:
    # Of the canvas of 16x16 the ring and the core fill the middle 8x8, with lines of 6 and 2 pixels.
    small = replace(SAME_GRID, patch=(8, 8), canvas_margin=2.0)
    store = open_store(cases[:1], LABELS, small, tmp_path / "cache", want_masks=True, quiet=True)
    assert store.masks is not None
    assert store.masks.shape[1:] == (16, 16)
    np.testing.assert_allclose(store.true_ratios(), np.array([0, 48 - 6, 16 - 2]) / (64 - 6 - 2))


def test_true_ratios_are_counted_on_the_cases_that_have_a_mask(cases: list[Case], tmp_path: Path) -> None:
    both = [cases[0], without_mask(cases[1])]
    mixed, first = (
        open_store(some, LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True)
        for some in (both, both[:1])
    )
    np.testing.assert_array_equal(mixed.true_ratios(), first.true_ratios())


def test_true_ratios_need_dense_masks(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    with pytest.raises(InputError, match="dense masks"):
        store.true_ratios()


def test_masks_that_are_not_wanted_are_never_opened(cases: list[Case], tmp_path: Path) -> None:
    for case in cases:
        assert case.mask is not None
        case.mask.write_text("not an image")
    store = open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    assert store.masks is None


def test_a_case_without_a_mask_is_unlabelled_in_the_masks_of_others(
    cases: list[Case], tmp_path: Path
) -> None:
    mixed = [cases[0], without_mask(cases[1])]
    store = open_store(mixed, LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True)
    assert store.masks is not None
    assert (store.masks[2:] == UNLABELLED).all()
    neither = [without_mask(case) for case in cases]
    assert open_store(neither, LABELS, SAME_GRID, tmp_path, want_masks=True, quiet=True).masks is None


def test_a_case_without_a_scribble_is_unlabelled_throughout(cases: list[Case], tmp_path: Path) -> None:
    store = open_store(
        [replace(cases[1], scribble=None)], LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True
    )
    assert (store.labels == UNLABELLED).all()
    assert store.labelled_counts.tolist() == [0, 0, 0]
    np.testing.assert_allclose(store.true_ratios().sum(), 1)


def test_every_channel_is_kept(tmp_path: Path) -> None:
    case = make_case(tmp_path / "data", "two", channels=2)
    store = open_store([case], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    assert store.images.shape == (2, 2, 16, 16)
    swapped = open_store(
        [replace(case, images=case.images[::-1])], LABELS, SAME_GRID, tmp_path / "cache", quiet=True
    )
    np.testing.assert_array_equal(swapped.images, store.images[:, ::-1])


def test_ct_statistics_shape_the_stored_values(cases: list[Case], tmp_path: Path) -> None:
    ct = replace(SAME_GRID, intensity="ct", statistics=(ChannelStatistics(-1.0, 1.0, 0.5, 0.25),))
    store = open_store(cases, LABELS, ct, tmp_path / "cache", quiet=True)
    values = read_volume(cases[1].images[0]).array
    expected = (np.clip(values, -1, 1) - 0.5) / 0.25
    np.testing.assert_allclose(store.images[2:, 0], fit(expected, (16, 16), 0), atol=4e-3)


def test_one_voxel_is_enough(tmp_path: Path) -> None:
    case = Case("tiny", (write(tmp_path / "tiny.nii.gz", np.full((1, 1, 1), 7, np.int16)),))
    store = open_store([case], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    assert not store.images.any()
    assert (store.labels != OUTSIDE).sum() == 1


def test_other_integers_in_the_files_become_the_same_labels(cases: list[Case], tmp_path: Path) -> None:
    scribble = read_volume(cases[0].scribble or "").array
    table = np.array([20, 30, 40, 0], np.uint8)
    drawn = write(tmp_path / "data" / "drawn.nii.gz", table[scribble])
    other = replace(LABELS, values=(20, 30, 40), unlabelled_value=0)
    ours = open_store(cases[:1], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    theirs = open_store([replace(cases[0], scribble=drawn)], other, SAME_GRID, tmp_path / "cache", quiet=True)
    np.testing.assert_array_equal(theirs.labels, ours.labels)


def test_a_scribble_of_another_shape_is_refused_naming_both_files(cases: list[Case], tmp_path: Path) -> None:
    crossed = replace(cases[0], scribble=cases[1].scribble)
    with pytest.raises(InputError) as caught:
        open_store([crossed], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    for part in (str(cases[1].scribble), str(cases[0].images[0]), "(3, 20, 20)", "(2, 12, 12)"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_channel_or_a_wanted_mask_of_another_shape_is_refused(cases: list[Case], tmp_path: Path) -> None:
    channels = replace(cases[0], images=(*cases[0].images, *cases[1].images))
    with pytest.raises(InputError, match="second_0000"):
        open_store([channels], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    masked = replace(cases[0], mask=cases[1].mask)
    with pytest.raises(InputError, match="second_mask"):
        open_store([masked], LABELS, SAME_GRID, tmp_path / "cache", want_masks=True, quiet=True)


def test_voxels_that_are_not_numbers_leave_no_store_behind(cases: list[Case], tmp_path: Path) -> None:
    array = np.zeros((1, 5, 5), np.float32)
    array[0, 0, :3] = np.nan
    broken = Case("broken", (write(tmp_path / "data" / "broken.nii.gz", array),))
    with pytest.raises(InputError, match=r"broken\.nii\.gz: 3 of 25 voxels"):
        open_store([*cases, broken], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)
    assert list((tmp_path / "cache" / "stores").iterdir()) == []


def test_a_truncated_image_is_refused_with_its_name(cases: list[Case], tmp_path: Path) -> None:
    whole = cases[0].images[0].read_bytes()
    cases[0].images[0].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="first_0000"):
        open_store(cases, LABELS, SAME_GRID, tmp_path / "cache", quiet=True)


def test_a_spacing_in_the_wrong_unit_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "micro.nii.gz", np.zeros((2, 90, 90), np.int16), (9e3, 1e3, 1e3))
    with pytest.raises(InputError, match="micro"):
        open_store([Case("micro", (path,))], LABELS, SAME_GRID, tmp_path / "cache", quiet=True)


def test_an_empty_data_set_and_unplanned_settings_are_refused(cases: list[Case], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no cases"):
        open_store([], LABELS, SAME_GRID, tmp_path)
    with pytest.raises(InputError, match="not planned"):
        open_store(cases, LABELS, Preprocessing(), tmp_path)


def test_a_volume_stored_on_its_side_gives_the_same_slices(tmp_path: Path) -> None:
    case = make_case(tmp_path / "data", "upright", slices=3)
    array = read_volume(case.images[0]).array
    turned = write(tmp_path / "data" / "turned.nii.gz", np.moveaxis(array, 0, 2), (1.0, 1.0, 8.0))
    assert sitk.ReadImage(str(turned)).GetSize() == (3, 12, 12)
    upright = open_store([replace(case, scribble=None)], LABELS, SAME_GRID, tmp_path / "c", quiet=True)
    on_its_side = open_store([Case("turned", (turned,))], LABELS, SAME_GRID, tmp_path / "c", quiet=True)
    np.testing.assert_array_equal(on_its_side.images, upright.images)
