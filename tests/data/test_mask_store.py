"""An unpaired case lends its mask: its image need not exist, and of one that does no voxel is read."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_cases import LABELS, SAME_GRID, UNLABELLED, make_case, write

from shapepu.data import mask_store
from shapepu.data.case import Case
from shapepu.data.mask_store import UNSET_MM, MaskStore, filed_twice, open_mask_store
from shapepu.data.preprocess import Preprocessing, fit
from shapepu.data.readers import read_dataset
from shapepu.data.store import open_store
from shapepu.data.volumes import read_labels
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    return [
        make_case(tmp_path / "data", "first", slices=2),
        make_case(tmp_path / "data", "second", slices=3, size=20),
    ]


def open_quietly(cases: list[Case], folder: Path, settings: Preprocessing = SAME_GRID) -> MaskStore:
    return open_mask_store(cases, LABELS, settings, folder, quiet=True)


def test_the_masks_are_those_that_a_store_of_the_same_cases_holds(cases: list[Case], tmp_path: Path) -> None:
    settings = Preprocessing(spacing_mm=(1.3, 1.6), patch=(16, 16))
    masks = open_quietly(cases, tmp_path / "cache", settings)
    store = open_store(cases, LABELS, settings, tmp_path / "cache", want_masks=True, quiet=True)
    assert len(masks) == 5
    assert masks.cases == tuple(cases)
    np.testing.assert_array_equal(masks.masks, store.masks)


def test_beyond_the_image_is_outside_and_the_rest_is_the_file(cases: list[Case], tmp_path: Path) -> None:
    masks = open_quietly(cases[:1], tmp_path / "cache").masks
    assert cases[0].mask is not None
    np.testing.assert_array_equal(masks, fit(read_labels(cases[0].mask, LABELS), (16, 16), OUTSIDE))
    assert (masks == OUTSIDE).sum() == 2 * (16 * 16 - 12 * 12)
    assert not (masks == UNLABELLED).any()


@pytest.mark.parametrize("state", ["absent", "garbage", "undeclared"])
def test_an_image_is_not_needed(cases: list[Case], tmp_path: Path, state: str) -> None:
    expected = np.array(open_quietly(cases, tmp_path / "cache").masks)
    for case in cases:
        case.images[0].unlink() if state == "absent" else case.images[0].write_bytes(b"no image")
    if state == "undeclared":
        cases = [replace(case, images=()) for case in cases]
    np.testing.assert_array_equal(open_quietly(cases, tmp_path / "another").masks, expected)


def test_a_mask_without_a_pixel_size_takes_it_from_the_header_of_its_image(
    cases: list[Case], tmp_path: Path
) -> None:
    case, mm = cases[0], (8.0, 2.0, 2.0)
    assert case.mask is not None
    array = read_labels(case.mask, LABELS)
    write(case.mask, array, mm)
    expected = np.array(open_quietly([case], tmp_path / "cache").masks)
    write(case.mask, array, UNSET_MM)
    whole = write(case.images[0], np.random.default_rng(0).normal(size=array.shape), mm).read_bytes()
    # Its header is left, but the voxels can no longer be unpacked.
    case.images[0].write_bytes(whole[: len(whole) // 2])
    np.testing.assert_array_equal(open_quietly([case], tmp_path / "cache").masks, expected)
    on_its_word = open_quietly([replace(case, images=())], tmp_path / "cache").masks
    assert not np.array_equal(on_its_word, expected)


def test_no_pixel_size_at_all_is_refused_naming_mask_and_image(cases: list[Case], tmp_path: Path) -> None:
    unset = with_unset_pixel_size(cases[0])
    unset.images[0].write_bytes(b"no image")
    with pytest.raises(InputError, match=r"first_mask.*no pixel size.*first_0000") as caught:
        open_quietly([unset], tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_header_that_gives_the_pixel_size_must_have_the_shape_of_the_mask(
    cases: list[Case], tmp_path: Path
) -> None:
    unset = replace(with_unset_pixel_size(cases[0]), images=cases[1].images)
    with pytest.raises(InputError, match=r"first_mask.*\(2, 12, 12\).*second_0000.*\(3, 20, 20\)"):
        open_quietly([unset], tmp_path / "cache")


def test_a_second_start_reads_no_mask_and_a_changed_mask_is_read_again(
    cases: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = np.array(open_quietly(cases, tmp_path / "cache").masks)
    with monkeypatch.context() as patched:
        patched.setattr(mask_store, "read_labels", None)
        np.testing.assert_array_equal(open_quietly(cases, tmp_path / "cache").masks, first)
    assert cases[0].mask is not None
    write(cases[0].mask, np.zeros((2, 12, 12), np.uint8))
    assert (open_quietly(cases, tmp_path / "cache").masks[0] != first[0]).any()


def test_a_damaged_entry_is_made_again(cases: list[Case], tmp_path: Path) -> None:
    kept = np.array(open_quietly(cases, tmp_path / "cache").masks)
    [entry] = (tmp_path / "cache" / "stores").iterdir()
    (entry / "masks.npy").write_bytes(b"")
    np.testing.assert_array_equal(open_quietly(cases, tmp_path / "cache").masks, kept)


@pytest.mark.parametrize("suffix", [".nii.gz", ".nii"])
def test_a_scan_that_is_filed_under_two_names_is_found_however_it_was_packed(
    tmp_path: Path, suffix: str
) -> None:
    scans = [make_case(tmp_path / "data", f"scan{seed}", seed=seed) for seed in range(3)]
    learner, lender, another = (with_image_as(scan, scan.name, suffix, packed_at=7) for scan in scans)
    again = with_image_as(scans[0], "again", suffix, packed_at=99)
    unlike_in_bytes = again.images[0].read_bytes() != learner.images[0].read_bytes()
    assert unlike_in_bytes == (suffix == ".nii.gz")
    found = filed_twice([lender, again, another], [learner], tmp_path / "cache")
    assert [case.name for case in found] == ["again"]


@pytest.mark.parametrize("state", ["absent", "garbage", "empty", "undeclared"])
def test_an_image_that_cannot_be_read_is_nobodys(cases: list[Case], tmp_path: Path, state: str) -> None:
    for case in cases:
        case.images[0].write_bytes(b"" if state == "empty" else b"no image")
        if state == "absent":
            case.images[0].unlink()
    lenders = [replace(case, images=()) for case in cases] if state == "undeclared" else cases
    learner = make_case(tmp_path / "data", "learner")
    assert filed_twice(lenders, [learner], tmp_path / "cache") == ()


@pytest.mark.real
def test_patient_76_of_acdc_is_patient_74_and_nobody_else_is_filed_twice(
    real_data: Path, tmp_path: Path
) -> None:
    if not (real_data / "ACDC").is_dir():
        pytest.skip(f"ACDC not found in {real_data}")
    dataset = read_dataset(real_data / "ACDC")
    others = [case for case in dataset.cases if case.split != "unpaired"]
    found = filed_twice(dataset.split("unpaired"), others, tmp_path / "cache")
    assert [case.name for case in found] == ["patient076_frame01", "patient076_frame12"]


def with_image_as(case: Case, name: str, suffix: str, *, packed_at: int) -> Case:
    """The case under another name, with a copy of its image that was packed then, or not at all."""
    voxels = gzip.decompress(case.images[0].read_bytes())
    copy = case.images[0].parent / f"{name}_copy{suffix}"
    copy.write_bytes(gzip.compress(voxels, mtime=packed_at) if suffix == ".nii.gz" else voxels)
    return replace(case, name=name, images=(copy,))


def with_unset_pixel_size(case: Case) -> Case:
    assert case.mask is not None
    write(case.mask, read_labels(case.mask, LABELS), UNSET_MM)
    return case
