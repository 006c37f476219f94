from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from shapepu.data.case import Dataset
from shapepu.data.check import CheckReport, check_dataset
from shapepu.data.readers import read_dataset
from volume_files import (
    plain_folder,
    random_image,
    scribbled,
    write_dicom,
    write_itk,
    write_json,
    write_nifti,
)


def check(root: Path | Dataset) -> CheckReport:
    return check_dataset(root if isinstance(root, Dataset) else read_dataset(root), quiet=True)


def codes(report: CheckReport) -> list[tuple[str, str, str]]:
    return [(finding.level, finding.code, finding.case) for finding in report.all_findings]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two cases that nothing is wrong with."""
    return plain_folder(tmp_path / "data")


def test_a_good_data_set_is_ready_and_counted(data: Path) -> None:
    report = check(data)
    assert (report.exit_code, report.verdict, report.all_findings) == (0, "Ready to train.", ())
    assert report.scribble_voxels == {"background": 24, "class1": 24, "class2": 24}
    assert report.coverage == 72 / (2 * 3 * 8 * 6)
    case = report.cases[0]
    assert (case.name, case.shape, case.spacing_mm) == ("case0", (3, 8, 6), (5.0, 1.5, 1.5))
    assert case.scribble_voxels == {"background": 12, "class1": 12, "class2": 12}
    assert case.voxels == 144


def test_a_bad_case_does_not_hide_the_others(data: Path) -> None:
    (data / "images/case0.nii.gz").write_bytes(b"")
    report = check(data)
    assert codes(report) == [("error", "unreadable", "case0")]
    assert report.exit_code == 2
    assert [case.labelled for case in report.cases] == [36, 36]


def test_labels_of_another_shape_are_an_error_and_are_not_counted(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", scribbled((3, 7, 6)))
    report = check(data)
    assert codes(report) == [("error", "shape-differs", "case0")]
    assert "6 x 7 x 3 voxels, but its image has 6 x 8 x 3." in report.all_findings[0].message
    assert report.cases[0].voxels == 0


def test_a_cropped_segmentation_of_slicer_is_recognised(data: Path) -> None:
    (data / "scribbles/case0.nii.gz").unlink()
    write_itk(data / "scribbles/case0.seg.nrrd", scribbled((3, 5, 6)))
    (finding,) = check(data).all_findings
    assert (finding.code, "3D Slicer crops" in finding.message) == ("shape-differs", True)


@pytest.mark.parametrize(
    ("spacing_mm", "expected"),
    [
        ((5.0, 1.501, 1.5), []),
        ((5.0, 1.6, 1.5), [("error", "spacing-differs", "case0")]),
        ((1.0, 1.0, 1.0), [("warning", "spacing-unset", "case0")]),
    ],
)
def test_pixel_sizes_must_agree_unless_none_were_saved(
    data: Path, spacing_mm: tuple[float, ...], expected: list[tuple[str, str, str]]
) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", scribbled(), spacing_mm)
    assert codes(check(data)) == expected


def test_another_geometry_is_a_warning_when_the_grids_match(data: Path) -> None:
    affine = np.diag([1.5, 1.5, 5.0, 1.0])
    nib.save(nib.Nifti1Image(scribbled().T, affine), data / "scribbles/case0.nii.gz")
    report = check(data)
    assert codes(report) == [("warning", "geometry-differs", "case0")]
    assert "another origin and direction than its image" in report.all_findings[0].message
    assert report.exit_code == 1
    assert report.cases[0].labelled == 36


def test_an_affine_that_scales_differently_is_noticed(data: Path) -> None:
    image = nib.Nifti1Image(random_image(seed=5).T, None)
    image.set_sform(np.diag([-1.0, -1.0, 1.0, 1.0]), 2)
    image.header["pixdim"][1:4] = [1.5, 1.5, 5]
    nib.save(image, data / "images/case0.nii.gz")
    labels = nib.Nifti1Image(scribbled().T, np.diag([-1.5, -1.5, 5.0, 1.0]))
    nib.save(labels, data / "scribbles/case0.nii.gz")
    assert codes(check(data)) == [
        ("note", "affine-contradicts", "case0"),
        ("warning", "geometry-differs", "case0"),
    ]


def test_values_outside_the_label_set_are_an_error(data: Path) -> None:
    labels = scribbled()
    labels[0, 0, :2] = 9
    write_nifti(data / "scribbles/case0.nii.gz", labels)
    report = check(data)
    assert codes(report) == [("error", "unknown-label", "case0")]
    assert "9 (2 voxels)" in report.all_findings[0].message


def test_fractions_are_an_error_but_whole_floats_are_not(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", scribbled().astype(np.float32))
    write_nifti(data / "scribbles/case1.nii.gz", scribbled() / np.float32(2))
    assert codes(check(data)) == [("error", "not-whole-numbers", "case1")]


def test_nan_and_infinite_voxels_are_counted(data: Path) -> None:
    image = random_image().astype(np.float32)
    image[0, 0, :2], image[1, 1, 1] = np.nan, np.inf
    write_nifti(data / "images/case0.nii.gz", image)
    report = check(data)
    assert codes(report) == [("error", "non-finite", "case0")]
    assert "3 of 144 voxels are NaN or infinite" in report.all_findings[0].message


def test_a_constant_image_is_a_warning(data: Path) -> None:
    write_nifti(data / "images/case0.nii.gz", np.full((3, 8, 6), 7, np.int16))
    assert codes(check(data)) == [("warning", "constant-image", "case0")]


def test_the_same_voxels_under_two_names_are_a_warning_in_one_split(data: Path) -> None:
    write_nifti(data / "images/case1.nii.gz", random_image(seed=0), (5.0, 1.5, 1.5))
    report = check(data)
    assert codes(report) == [("warning", "duplicate", "case1")]
    assert "the same voxels as case0 (train)" in report.all_findings[0].message


def test_the_same_voxels_in_training_and_validation_are_an_error(data: Path) -> None:
    write_nifti(data / "images/case1.nii.gz", random_image(seed=0))
    write_json(data / "splits.json", {"train": ["case0"], "val": ["case1"]})
    assert ("error", "duplicate", "case1") in codes(check(data))


def test_the_same_voxels_twice_in_the_test_split_are_a_warning(data: Path) -> None:
    for name in ("case7", "case8"):
        write_nifti(data / f"test/images/{name}.nii.gz", random_image(seed=7))
    assert codes(check(data)) == [("warning", "duplicate", "case8")]


@pytest.mark.parametrize(("split", "level"), [("val", "error"), ("test", "error"), ("unpaired", "warning")])
def test_a_patient_in_two_splits_leaks(data: Path, split: str, level: str) -> None:
    dataset = read_dataset(data)
    first, second = (replace(case, group="patient1") for case in dataset.cases)
    report = check(replace(dataset, cases=(first, replace(second, split=split))))
    assert (level, "leak", "") in codes(report)
    assert f"patient1 is in several splits: train (case0), {split} (case1)" in report.findings[0].message


def test_a_class_that_no_training_case_scribbles_is_an_error(data: Path) -> None:
    labels = scribbled()
    labels[labels == 2] = 3
    for name in ("case0", "case1"):
        write_nifti(data / f"scribbles/{name}.nii.gz", labels)
    report = check(data)
    assert codes(report) == [("error", "class-never-scribbled", "")]
    assert "'class2'" in report.findings[0].message


def test_a_class_missing_in_one_case_is_normal(data: Path) -> None:
    labels = scribbled()
    labels[labels == 2] = 3
    write_nifti(data / "scribbles/case0.nii.gz", labels)
    assert codes(check(data)) == []


def test_a_class_scribbled_in_validation_only_is_an_error(data: Path) -> None:
    labels = scribbled()
    labels[labels == 2] = 3
    write_nifti(data / "scribbles/case0.nii.gz", labels)
    write_json(data / "splits.json", {"train": ["case0"], "val": ["case1"]})
    assert ("error", "class-never-scribbled", "") in codes(check(data))


def test_background_forgotten_in_one_case_is_a_warning_and_everywhere_an_error(data: Path) -> None:
    labels = scribbled()
    labels[labels == 0] = 3
    write_nifti(data / "scribbles/case0.nii.gz", labels)
    assert codes(check(data)) == [("warning", "no-background-scribble", "case0")]
    write_nifti(data / "scribbles/case1.nii.gz", labels)
    assert ("error", "class-never-scribbled", "") in codes(check(data))


def test_empty_scribbles_everywhere_are_an_error_for_every_class(data: Path) -> None:
    empty = np.full((3, 8, 6), 3, np.uint8)
    write_nifti(data / "scribbles/case0.nii.gz", empty)
    assert codes(check(data)) == [("warning", "empty-scribble", "case0")]
    write_nifti(data / "scribbles/case1.nii.gz", empty)
    never = [finding.code for finding in check(data).findings]
    assert never == ["class-never-scribbled"] * 3


def test_a_scribble_without_unlabelled_voxels_looks_like_a_mask(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", np.minimum(scribbled(), 2))
    assert codes(check(data)) == [("warning", "dense-scribble", "case0")]


def test_slices_without_scribble_are_counted_along_the_thick_axis(data: Path) -> None:
    labels = np.full((8, 3, 6), 3, np.uint8)
    labels[:3, 1] = np.arange(3)[:, None]
    write_nifti(data / "images/case0.nii.gz", random_image((8, 3, 6), seed=9), (1.5, 5.0, 1.5))
    write_nifti(data / "scribbles/case0.nii.gz", labels, (1.5, 5.0, 1.5))
    report = check(data)
    assert codes(report) == [("note", "bare-slices", "case0")]
    assert report.cases[0].slices_without_scribble == 2
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("image_mm", "scribble_mm", "bare"),
    [
        ((1.5, 5.0, 1.5), (1.0, 1.0, 1.0), 2),  # the labels lost their pixel size
        ((1.0, 1.0, 1.2), (1.0, 1.0, 1.2), 5),  # no axis is clearly coarser, so it is the first
    ],
)
def test_slices_are_counted_along_the_axis_on_which_training_cuts_the_image(
    data: Path, image_mm: tuple[float, ...], scribble_mm: tuple[float, ...], bare: int
) -> None:
    labels = np.full((8, 3, 6), 3, np.uint8)
    labels[:3, 1] = np.arange(3)[:, None]
    write_nifti(data / "images/case0.nii.gz", random_image((8, 3, 6), seed=9), image_mm)
    write_nifti(data / "scribbles/case0.nii.gz", labels, scribble_mm)
    assert check(data).cases[0].slices_without_scribble == bare


def test_a_validation_case_without_a_mask_is_noted_as_not_scored(data: Path) -> None:
    write_json(data / "splits.json", {"train": ["case0"], "val": ["case1"]})
    report = check(data)
    assert codes(report) == [("note", "no-mask", "case1")]
    assert report.all_findings[0].message == "no dense mask: training does not score it."


def test_agreement_with_the_mask_finds_a_flipped_scribble(data: Path) -> None:
    mask = np.minimum(scribbled(), 2)
    for name in ("case0", "case1"):
        write_nifti(data / f"masks/{name}.nii.gz", mask)
    write_nifti(data / "scribbles/case1.nii.gz", scribbled()[:, ::-1])
    report = check(data)
    # Turned over, rows 5, 6 and 7 carry classes 2, 1 and 0, where the mask is 2 everywhere.
    assert [case.agreement for case in report.cases] == [1.0, pytest.approx(1 / 3)]
    assert codes(report) == [("warning", "scribble-contradicts-mask", "case1")]


def test_unlabelled_voxels_in_a_mask_are_noted(data: Path) -> None:
    write_nifti(data / "masks/case0.nii.gz", scribbled())
    assert codes(check(data)) == [("note", "mask-unlabelled", "case0")]


def test_masks_without_scribbles_train_fully_supervised_only(data: Path) -> None:
    (data / "scribbles").rename(data / "masks")
    report = check(data)
    assert ("warning", "no-scribbles", "") in codes(report)
    assert report.exit_code == 1


def test_a_training_case_without_scribbles_is_a_warning(data: Path) -> None:
    write_nifti(data / "images/case2.nii.gz", random_image(seed=2))
    write_nifti(data / "masks/case2.nii.gz", np.minimum(scribbled(), 2))
    report = check(data)
    assert codes(report) == [("warning", "no-scribbles", "")]
    assert report.findings[0].message.startswith("1 training case without scribbles")


def test_nothing_to_train_on_is_an_error(data: Path) -> None:
    write_json(data / "splits.json", {"val": ["case0", "case1"]})
    assert ("error", "no-training-cases", "") in codes(check(data))


def test_channels_must_share_a_grid(data: Path) -> None:
    for name, seed in (("case0", 0), ("case1", 1)):
        (data / f"images/{name}.nii.gz").unlink()
        write_nifti(data / f"images/{name}_0000.nii.gz", random_image(seed=seed))
        write_nifti(data / f"images/{name}_0001.nii.gz", random_image((3, 8, 6 - seed), seed=seed + 7))
    assert codes(check(data)) == [("error", "shape-differs", "case1")]


def test_a_dicom_case_with_a_gap_is_a_warning(data: Path) -> None:
    (data / "images/case0.nii.gz").unlink()
    write_dicom(data / "images/case0", random_image(), positions_mm=[0.0, 5.0, 15.0])
    found = {code for _, code, _ in codes(check(data))}
    assert "uneven-slices" in found


def test_an_unpaired_mask_needs_no_image(data: Path) -> None:
    write_nifti(data / "unpaired/masks/case9.nii.gz", np.minimum(scribbled(), 2))
    report = check(data)
    assert report.all_findings == ()
    assert report.cases[-1].shape == (3, 8, 6)


@pytest.mark.parametrize("shape", [(1, 8, 6), (1, 1, 1)])
def test_one_slice_and_one_voxel_are_looked_at_like_any_other(
    data: Path, shape: tuple[int, int, int]
) -> None:
    write_nifti(data / "images/case0.nii.gz", random_image(shape, seed=3))
    write_nifti(data / "scribbles/case0.nii.gz", scribbled((1, 8, 6))[:, : shape[1], : shape[2]])
    report = check(data)
    assert report.cases[0].shape == shape
    assert codes(report) == (
        []
        if shape[1] > 1
        else [
            ("warning", "constant-image", "case0"),
            ("warning", "dense-scribble", "case0"),
        ]
    )


def test_what_the_reader_noticed_is_a_warning(data: Path) -> None:
    write_nifti(data / "images/case7.nii.gz", random_image(seed=7))
    assert codes(check(data)) == [("warning", "reader", "")]


def test_the_report_is_json(data: Path) -> None:
    (data / "images/case0.nii.gz").write_bytes(b"")
    content = json.loads(json.dumps(check(data).as_dict()))
    assert content["exit_code"] == 2
    assert content["labels"] == {"background": 0, "class1": 1, "class2": 2, "ignore": 3}
    assert content["cases"][0]["findings"][0]["code"] == "unreadable"
    assert content["cases"][1]["shape"] == [3, 8, 6]
