"""The quirks that the real data brings, met by the readers and by ``check``."""

from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

from shapepu.cli import main
from shapepu.data.check import check_dataset
from shapepu.data.readers import read_dataset
from shapepu.data.volumes import read_header, read_volume, write_labels

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def acdc(real_data: Path) -> Path:
    if not (real_data / "ACDC").is_dir():
        pytest.skip(f"ACDC not found in {real_data}")
    return real_data / "ACDC"


def test_the_spacing_of_every_acdc_image_is_its_pixel_size(acdc: Path) -> None:
    contradicted = 0
    for case in read_dataset(acdc).cases:
        header = read_header(case.images[0])
        zooms = nib.load(case.images[0]).header.get_zooms()
        assert header.spacing_mm == pytest.approx(zooms[::-1])
        assert 0.5 < header.spacing_mm[2] < 2.5
        contradicted += bool(header.notes)
    assert contradicted > 100


def test_voxels_and_geometry_are_those_simpleitk_reads(acdc: Path, real_data: Path) -> None:
    shown = sitk.ProcessObject.GetGlobalWarningDisplay()
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    paths = [
        *sorted(acdc.glob("training/patient00*/*.nii.gz")),
        *real_data.glob("MSCMR_dataset/val/*/*.nii.gz"),
    ]
    for path in paths:
        ours, theirs = read_volume(path), sitk.ReadImage(str(path))
        assert np.array_equal(ours.array, sitk.GetArrayViewFromImage(theirs)), path
        assert ours.array.dtype == sitk.GetArrayViewFromImage(theirs).dtype
        assert ours.spacing_mm == pytest.approx(theirs.GetSpacing()[::-1])
        assert ours.origin == pytest.approx(theirs.GetOrigin(), abs=1e-3)
        assert ours.direction == pytest.approx(theirs.GetDirection(), abs=1e-4)
    sitk.ProcessObject.SetGlobalWarningDisplay(shown)


def test_labels_beside_real_images_have_their_geometry_for_an_independent_reader(
    acdc: Path, real_data: Path, tmp_path: Path
) -> None:
    images = [*sorted(acdc.glob("training/patient00*/*frame01.nii.gz"))[:4]]
    images += sorted(real_data.glob("MSCMR_dataset/val/images/*.nii.gz"))[:2]
    for path in images:
        image = nib.load(path)
        labels = (np.asarray(image.dataobj).T > 100).astype(np.uint8)
        write_labels(tmp_path / path.name, labels, path)
        written = nib.load(tmp_path / path.name)
        assert np.array_equal(written.affine, image.affine)
        for field in ("pixdim", "sform_code", "qform_code", "xyzt_units"):
            assert np.array_equal(written.header[field], image.header[field]), (path.name, field)
        assert np.array_equal(np.asarray(written.dataobj), labels.T)


def test_acdc_is_divided_as_published(acdc: Path) -> None:
    dataset = read_dataset(acdc)
    patients = {
        split: {case.group for case in dataset.split(split)} for split in ("train", "unpaired", "val")
    }
    assert {split: len(groups) for split, groups in patients.items()} == {
        "train": 35,
        "unpaired": 35,
        "val": 15,
    }
    assert all(case.scribble is None for case in dataset.split("unpaired"))
    assert all(case.scribble and case.mask for case in dataset.split("train"))


def test_check_accepts_acdc_with_the_right_warnings(acdc: Path) -> None:
    report = check_dataset(read_dataset(acdc), quiet=True)
    found = {(finding.level, finding.code) for finding in report.all_findings}
    assert found == {
        ("warning", "reader"),
        ("warning", "geometry-differs"),
        ("warning", "spacing-unset"),
        ("warning", "duplicate"),
        ("note", "affine-contradicts"),
    }
    assert report.exit_code == 1
    # Patients 74 and 76 are one scan, annotated twice.
    assert {f.case for f in report.all_findings if f.code == "duplicate"} == {
        "patient076_frame01",
        "patient076_frame12",
    }
    assert report.coverage == pytest.approx(0.011, abs=0.001)
    # Paired by index, as the grids match: pairing by affine would put the scribbles elsewhere.
    assert min(case.agreement for case in report.cases if case.agreement is not None) > 0.99


def test_check_accepts_mscmr(real_data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(real_data / "MSCMR_dataset")]) == 0
    out, err = capfd.readouterr()
    assert "30 cases: 25 train, 5 val" in out
    assert "4.29% of the voxels" in out
    assert out.splitlines()[-1] == "Ready to train."
    assert err.count("\n") == 1
