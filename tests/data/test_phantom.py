from __future__ import annotations

import errno
import filecmp
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from scipy import ndimage

from shapepu.data.phantom import (
    BACKGROUND,
    LV,
    MYO,
    RV,
    Canvas,
    PhantomSettings,
    Plane,
    make_case,
    write_phantom_dataset,
)
from shapepu.data.phantom_scene import PATHOLOGIES, Blob, outline_distance, sector_distance, taper
from shapepu.data.readers import read_dataset
from shapepu.errors import InputError

CLEAN = PhantomSettings(noise=(0, 0), bias=(0, 0), texture=(0, 0), intensity=(1000, 1000))
QUICK = PhantomSettings(size_px=(48, 56), slices=(3, 4), spacing_mm=(4, 4.5))


@pytest.fixture(scope="module")
def cases():
    return [make_case((1, n)) for n in range(16)]


def slices_with(mask: np.ndarray, label: int) -> np.ndarray:
    return np.flatnonzero((mask == label).any(axis=(1, 2)))


def best_threshold_dice(image: np.ndarray, wanted: np.ndarray, steps: int = 60) -> float:
    """Dice of the best interval of intensities, tried one by one."""
    bins = np.searchsorted(np.quantile(image, np.linspace(0, 1, steps)), image.ravel())
    everything = np.cumsum(np.bincount(bins, minlength=steps + 1))
    hits = np.cumsum(np.bincount(bins[wanted.ravel()], minlength=steps + 1))
    everything, hits = np.insert(everything, 0, 0), np.insert(hits, 0, 0)
    return max(
        2 * (hits[high] - hits[low]) / (everything[high] - everything[low] + wanted.sum())
        for low in range(steps + 1)
        for high in range(low + 1, steps + 2)
    )


def test_the_same_seed_gives_the_same_bytes_whatever_was_made_before():
    first = make_case((7, 1), QUICK)
    np.random.default_rng(0).random(100)
    make_case((7, 2), QUICK)
    again = make_case((7, 1), QUICK)
    assert first.image.tobytes() == again.image.tobytes()
    assert first.mask.tobytes() == again.mask.tobytes()
    assert first.spacing_mm == again.spacing_mm


def test_another_seed_gives_another_heart():
    first, second = make_case(0, QUICK), make_case(1, QUICK)
    assert first.image.shape != second.image.shape or not np.array_equal(first.mask, second.mask)


def test_cases_stay_within_their_settings_and_differ_from_each_other(cases):
    for case in cases:
        slices, rows, columns = case.image.shape
        assert 6 <= slices <= 9
        assert 96 <= rows <= 128
        assert 96 <= columns <= 128
        assert 8 <= case.spacing_mm[0] <= 10
        assert 1.8 <= case.spacing_mm[1] == case.spacing_mm[2] <= 2.2
        assert case.image.dtype == np.float32
        assert case.mask.dtype == np.uint8
        assert np.array_equal(case.image, np.round(case.image))
        assert case.image.min() >= 0
    assert len({case.image.shape for case in cases}) > 8
    assert {case.pathology for case in cases} == set(PATHOLOGIES)
    brightest = [float(np.quantile(case.image, 0.99)) for case in cases]
    assert max(brightest) > 4 * min(brightest)


def test_every_case_has_every_structure_and_the_heart_is_a_small_part_of_it(cases):
    for case in cases:
        share = np.bincount(case.mask.ravel(), minlength=4) / case.mask.size
        assert len(share) == 4
        assert np.all(share[1:] > 0.002)
        assert share[BACKGROUND] > 0.85


def test_the_pool_lies_inside_a_closed_ring_of_myocardium_in_the_middle_of_the_heart(cases):
    for case in cases:
        heart = slices_with(case.mask, MYO)
        labels = case.mask[heart[len(heart) // 2]]
        pool = labels == LV
        around = ndimage.binary_dilation(pool) & ~pool
        assert pool.any()
        assert np.all(labels[around] == MYO)


def test_the_ventricles_never_touch_each_other(cases):
    for case in cases:
        for labels in case.mask:
            assert not (ndimage.binary_dilation(labels == RV) & (labels == LV)).any()


def test_near_the_base_the_ring_is_open_in_some_cases(cases):
    def open_at_top(case) -> bool:
        ring = case.mask[slices_with(case.mask, MYO)[0]] == MYO
        return bool(np.array_equal(ndimage.binary_fill_holes(ring), ring))

    assert 3 <= sum(open_at_top(case) for case in cases) < len(cases)


def test_the_heart_narrows_to_the_apex_where_the_right_ventricle_has_ended_first(cases):
    for case in cases:
        area = np.array([[(labels == k).sum() for k in range(4)] for labels in case.mask])
        heart = slices_with(case.mask, MYO)
        whole = area[:, MYO] + area[:, LV]
        assert whole[heart[-1]] < 0.6 * whole.max()
        assert area[heart[-1], RV] < 0.1 * area[:, RV].max()


def test_first_and_last_slices_often_hold_no_heart(cases):
    first = [not case.mask[0].any() for case in cases]
    last = [not case.mask[-1].any() for case in cases]
    assert 0.3 < np.mean(first) < 1
    assert 0.3 < np.mean(last) < 1


def test_walls_are_thick_in_hypertrophy_and_thin_in_dilation():
    def wall_to_pool(pathology: str, seed: int) -> float:
        mask = make_case(seed, PhantomSettings(pathologies=(pathology,))).mask
        return float((mask == MYO).sum() / (mask == LV).sum())

    ratios = {
        name: [wall_to_pool(name, n) for n in range(3)] for name in ("hypertrophic", "normal", "dilated")
    }
    assert min(ratios["hypertrophic"]) > max(ratios["normal"])
    assert min(ratios["normal"]) > max(ratios["dilated"])


def test_an_infarct_brightens_part_of_the_wall_and_remains_myocardium():
    plain, scarred = (
        make_case(4, PhantomSettings(**{**vars(CLEAN), "pathologies": (name,)}))
        for name in ("normal", "infarct")
    )
    assert np.mean(_bright_wall(plain)) < 0.05
    assert 0.05 < np.mean(_bright_wall(scarred)) < 0.6


def _bright_wall(case) -> np.ndarray:
    """Of the inner wall in the middle of the heart: which pixels are nearer to blood than to muscle."""
    heart = slices_with(case.mask, MYO)
    middle = heart[len(heart) // 2]
    wall = ndimage.binary_erosion(case.mask[middle] == MYO)
    blood = np.median(case.image[middle][case.mask[middle] == LV])
    muscle = np.quantile(case.image[middle][wall], 0.25)
    return case.image[middle][wall] > (blood + muscle) / 2


def test_papillary_muscles_are_dark_within_the_pool_and_labelled_as_pool():
    case = make_case(2, PhantomSettings(**{**vars(CLEAN), "pathologies": ("normal",)}))
    heart = slices_with(case.mask, MYO)
    middle = heart[len(heart) // 2]
    inner = ndimage.binary_erosion(case.mask[middle] == LV, iterations=2)
    pool = case.image[middle][inner]
    assert 0.01 < np.mean(pool < 0.75 * np.median(pool)) < 0.3


def test_no_interval_of_intensities_segments_any_structure(cases):
    for label in (RV, MYO, LV):
        dice = [best_threshold_dice(case.image, case.mask == label) for case in cases[:6]]
        assert max(dice) < 0.6


def test_what_defeats_a_threshold_are_the_neighbours():
    alone = PhantomSettings(neighbours=False)
    for seed in range(3):
        with_others, without = make_case(seed), make_case(seed, alone)
        assert np.array_equal(with_others.mask, without.mask)
        heart = with_others.mask > 0
        assert best_threshold_dice(without.image, heart) > 0.85
        assert best_threshold_dice(with_others.image, heart) < 0.6


def test_background_touching_the_heart_shares_the_intensity_of_the_myocardium(cases):
    """Otherwise partial cross-entropy would have nowhere to leak to."""
    leaks = 0
    for case in cases:
        wall = case.image[case.mask == MYO]
        low, high = np.quantile(wall, [0.1, 0.75])
        alike = (case.image >= low) & (case.image <= high) & (case.mask == BACKGROUND)
        leaks += alike.sum() > 3 * (case.mask == MYO).sum()
        beside = ndimage.binary_dilation(case.mask == MYO, iterations=2) & alike
        assert beside.any()
    assert leaks == len(cases)


def test_noise_is_of_rice_kind():
    noisy = PhantomSettings(
        **{**vars(CLEAN), "noise": (0.05, 0.05), "neighbours": False, "intensity": (10_000, 10_000)}
    )
    case = make_case(0, noisy)
    air = case.image[:, :12, :12].ravel()
    # Without signal a magnitude of two Gaussian channels follows Rayleigh: mean s*sqrt(pi/2), sd/mean = .523.
    assert air.mean() == pytest.approx(500 * np.sqrt(np.pi / 2), rel=0.06)
    assert air.std() / air.mean() == pytest.approx(np.sqrt(4 / np.pi - 1), abs=0.03)


def test_the_bias_field_is_smooth_and_of_the_strength_asked_for():
    flat, biased = (
        make_case(3, PhantomSettings(**{**vars(CLEAN), "bias": (bias, bias), "intensity": (10_000, 10_000)}))
        for bias in (0.0, 0.4)
    )
    field = np.log(np.maximum(biased.image, 1) / np.maximum(flat.image, 1))[flat.image > 500]
    assert 0.2 < np.ptp(field) < 1.6
    ratio = np.where(flat.image > 500, biased.image / np.maximum(flat.image, 1), np.nan)
    assert np.nanmax(np.abs(np.diff(ratio, axis=2))) < 0.05


def test_distances_to_circles_ellipses_and_sectors_are_as_worked_by_hand():
    y, x = np.array([[3.0, 0.0, 0.0]]), np.array([[4.0, 0.0, 6.0]])
    assert outline_distance(y, x, (0, 0), (2, 2)) == pytest.approx(np.array([[3.0, -2.0, 4.0]]), abs=1e-6)
    assert outline_distance(y, x, (0, 0), (1, 5))[0, 2] == pytest.approx(1.0)
    assert outline_distance(y, x, (0, 0), (1, 5), angle=np.pi / 2)[0, 2] == pytest.approx(5.0)
    # One wave of two periods in phase with x lengthens the radius there by its strength.
    assert outline_distance(y, x, (0, 0), (2, 2), waves=((0.5, 0.0),))[0, 2] == pytest.approx(3.0)
    sector = sector_distance(np.array([[0.0, 0.0]]), np.array([[2.0, -2.0]]), (0, 0), 0.0, 0.5)
    assert sector == pytest.approx(np.array([[-1.0, 2 * (np.pi - 0.5)]]))
    assert (taper(-1), taper(0), taper(1)) == (1, 1, 0)


def test_painting_within_a_window_equals_painting_the_whole_plane():
    plane = Plane.of(40, 50, 2.0, turn=0.4, shift_mm=np.array([3.0, -5.0]))
    for centre in ((0.0, 0.0), (30.0, -45.0), (-70.0, 60.0)):
        blob = Blob("blood", centre, (9, 17), angle=0.7, waves=((0.08, 1.0), (0.05, 2.0)), wall_mm=3)
        windowed, whole = Canvas(plane, {"blood": 1.0, "myo": 0.4}), Canvas(plane, {"blood": 1.0, "myo": 0.4})
        windowed.paint_blob(blob, 0.3)
        distance = blob.distance(plane.y, plane.x, 0.3)
        whole.paint(distance - 3, "myo")
        whole.paint(distance, "blood")
        assert np.allclose(windowed.image, whole.image)


def files_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_data_set_shows_each_split_what_it_may_show(tmp_path):
    write_phantom_dataset(tmp_path, train=2, val=1, test=1, settings=QUICK, quiet=True)
    assert files_in(tmp_path) == [
        "labels.json",
        "test/images/test000.nii.gz",
        "test/masks/test000.nii.gz",
        "train/images/train000.nii.gz",
        "train/images/train001.nii.gz",
        "train/scribbles/train000.nii.gz",
        "train/scribbles/train001.nii.gz",
        "val/images/val000.nii.gz",
        "val/masks/val000.nii.gz",
    ]
    labels = json.loads((tmp_path / "labels.json").read_text())
    assert labels == {"background": 0, "rv": 1, "myo": 2, "lv": 3, "ignore": 4}


def test_the_reader_of_plain_folders_reads_it(tmp_path):
    write_phantom_dataset(tmp_path, train=2, val=1, test=1, settings=QUICK, quiet=True)
    dataset = read_dataset(tmp_path)
    assert [len(dataset.split(name)) for name in ("train", "val", "test")] == [2, 1, 1]
    assert dataset.labels.names == ("background", "rv", "myo", "lv")
    assert all(case.scribble and not case.mask for case in dataset.split("train"))


def test_files_hold_the_case_its_spacing_and_scribbles_that_agree_with_the_mask(tmp_path):
    write_phantom_dataset(
        tmp_path, train=1, val=0, test=0, seed=5, settings=QUICK, masks_for_training=True, quiet=True
    )
    case = make_case((5, 0, 0), QUICK)
    grid = sitk.ReadImage(str(tmp_path / "train/images/train000.nii.gz"))
    assert grid.GetSpacing()[::-1] == pytest.approx(case.spacing_mm, rel=1e-5)
    assert grid.GetDirection() == pytest.approx((1, 0, 0, 0, 1, 0, 0, 0, 1))
    image, scribble, mask = (
        nib.load(tmp_path / f"train/{kind}/train000.nii.gz") for kind in ("images", "scribbles", "masks")
    )
    assert np.array_equal(np.asarray(image.dataobj).T, case.image)
    assert np.array_equal(np.asarray(mask.dataobj).T, case.mask)
    assert image.header.get_zooms()[::-1] == pytest.approx(case.spacing_mm, rel=1e-5)
    drawn = np.asarray(scribble.dataobj).T
    assert set(np.unique(drawn)) == {0, 1, 2, 3, 4}
    assert np.array_equal(drawn[drawn < 4], case.mask[drawn < 4])


def test_writing_twice_gives_the_same_bytes_and_a_larger_set_contains_the_smaller(tmp_path):
    write_phantom_dataset(tmp_path / "small", train=1, val=1, test=0, settings=QUICK, quiet=True)
    write_phantom_dataset(tmp_path / "large", train=2, val=1, test=1, settings=QUICK, quiet=True)
    names = files_in(tmp_path / "small")
    same, different, missing = filecmp.cmpfiles(tmp_path / "small", tmp_path / "large", names, shallow=False)
    assert (sorted(same), different, missing) == (names, [], [])
    assert len(files_in(tmp_path / "large")) == len(names) + 4


@pytest.mark.parametrize(
    ("given_settings", "said"),
    [
        ({"size_px": (0, 10)}, "size_px"),
        ({"slices": (9, 6)}, "slices"),
        ({"noise": (-0.1, 0.1)}, "noise"),
        ({"pathologies": ()}, "pathologies"),
        ({"pathologies": ("dilatd",)}, "dilated"),
    ],
)
def test_impossible_settings_are_refused_by_name(given_settings, said):
    with pytest.raises(InputError, match=said):
        PhantomSettings(**given_settings)


@pytest.mark.parametrize("numbers", [{"train": -1}, {"seed": -1}])
def test_negative_numbers_are_refused_and_nothing_is_written(tmp_path, numbers):
    with pytest.raises(InputError, match="0 or more"):
        write_phantom_dataset(tmp_path / "data", **{"train": 0, "val": 0, "test": 0, **numbers})
    assert not (tmp_path / "data").exists()


def test_a_full_disk_is_explained(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="cannot write"):
        write_phantom_dataset(tmp_path, train=1, val=0, test=0, settings=QUICK, quiet=True)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("size", [(1, 1), (2, 200)])
def test_unusual_sizes_are_made_too(size):
    case = make_case(0, PhantomSettings(size_px=size, slices=(1, 2)))
    assert case.image.shape == case.mask.shape
    assert np.isfinite(case.image).all()
