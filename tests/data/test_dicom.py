from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from shapepu.data.volumes import read_header, read_volume
from shapepu.errors import InputError
from volume_files import random_image, write_dicom


def test_slices_are_sorted_by_position_not_by_name(tmp_path: Path) -> None:
    folder = write_dicom(tmp_path / "case", random_image())
    volume = read_volume(folder)
    assert np.array_equal(volume.array, random_image())
    assert volume.spacing_mm == (5.0, 1.25, 1.5)
    assert volume.origin == (10.0, 20.0, 0.0)
    assert volume.notes == ()


def test_the_header_is_that_of_the_voxels_as_simpleitk_reads_them(tmp_path: Path) -> None:
    folder = write_dicom(tmp_path / "case", random_image(), positions_mm=[12.0, 4.0, 8.0])
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(folder)))
    image, header = reader.Execute(), read_header(folder)
    assert header.spacing_mm == image.GetSpacing()[::-1]
    assert (header.origin, header.direction) == (image.GetOrigin(), image.GetDirection())
    assert np.array_equal(read_volume(folder).array, random_image()[[1, 2, 0]])


def test_one_slice_is_a_volume(tmp_path: Path) -> None:
    assert read_volume(write_dicom(tmp_path / "case", random_image((1, 8, 6)))).array.shape == (1, 8, 6)


def test_a_gap_is_noted_and_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_dicom(tmp_path / "case", random_image(), positions_mm=[0.0, 5.0, 15.0])
    volume = read_volume(folder)
    assert volume.spacing_mm[0] == 7.5
    assert "5 to 10 mm apart" in volume.notes[0]
    assert capfd.readouterr() == ("", "")


def test_several_series_are_refused_by_name(tmp_path: Path) -> None:
    write_dicom(tmp_path / "case", random_image(), series="1.2.3")
    folder = write_dicom(tmp_path / "case", random_image(), series="1.2.4")
    with pytest.raises(InputError, match=r"one DICOM series expected, got 2: 1\.2\.3.*, 1\.2\.4"):
        read_volume(folder)


def test_time_frames_at_one_position_are_refused(tmp_path: Path) -> None:
    folder = write_dicom(tmp_path / "case", random_image(), positions_mm=[0.0, 5.0, 5.0])
    with pytest.raises(InputError, match="one slice a position expected"):
        read_header(folder)


def test_slices_of_several_sizes_are_refused(tmp_path: Path) -> None:
    folder = write_dicom(tmp_path / "case", random_image((2, 8, 6)))
    other = write_dicom(tmp_path / "other", random_image((1, 9, 6)), positions_mm=[20.0])
    next(other.iterdir()).rename(folder / "odd.dcm")
    with pytest.raises(InputError, match="slices of one size expected"):
        read_volume(folder)


@pytest.mark.parametrize("lost_bytes", [10, 3000, 8500])
def test_a_truncated_slice_is_not_passed_over(
    tmp_path: Path, lost_bytes: int, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_dicom(tmp_path / "case", random_image((3, 64, 64)))
    file = sorted(folder.iterdir())[1]
    file.write_bytes(file.read_bytes()[:-lost_bytes])
    with pytest.raises(InputError, match=f"case: {file.name} is a DICOM file, but cannot be read as a slice"):
        read_volume(folder)
    assert capfd.readouterr() == ("", "")


def test_files_that_are_not_slices_do_not_matter(tmp_path: Path) -> None:
    folder = write_dicom(tmp_path / "case", random_image())
    (folder / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM")
    (folder / "notes.txt").write_text("a fine patient")
    (folder / ".DS_Store").write_bytes(b"\0")
    assert read_volume(folder).array.shape == (3, 8, 6)
