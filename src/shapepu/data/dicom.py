"""A folder of DICOM slices as one volume: sorted by position, and refused when it is not one volume."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from shapepu.errors import InputError

_UNEVEN = 0.05


@dataclass(frozen=True)
class Series:
    """The files of one volume in the order of their position, and the grid they make."""

    files: tuple[str, ...]
    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    origin: tuple[float, ...]
    direction: tuple[float, ...]
    dtype: str
    notes: tuple[str, ...]


def read_series_information(folder: Path) -> Series:
    """The grid of the one series in ``folder``, from the headers of its slices."""
    files = _files_of_the_series(folder)
    slices = [_information(file) for file in files]
    first = slices[0]
    if first.GetNumberOfComponents() != 1:
        raise InputError(f"{folder}: grey values expected, got colour slices; export the original series.")
    if {reader.GetSize() for reader in slices} != {first.GetSize()} or len(first.GetSize()) != 3:
        raise InputError(
            f"{folder}: slices of one size expected, got {sorted({r.GetSize() for r in slices})}; keep one "
            f"series."
        )
    columns, rows, frames = first.GetSize()
    if frames > 1 and len(files) > 1:
        raise InputError(
            f"{folder}: one multi-frame file or single-slice files expected, got both; keep one."
        )
    x_mm, y_mm, z_mm = first.GetSpacing()
    direction = first.GetDirection()
    notes: tuple[str, ...] = ()
    if len(files) > 1:
        z_mm, slice_axis, notes = _stacking(folder, slices)
        # The frame may be left-handed along the slices: what counts is the way the positions go.
        direction = tuple(
            np.column_stack([np.reshape(direction, (3, 3))[:, :2], slice_axis]).ravel().tolist()
        )
    dtype = sitk.GetArrayViewFromImage(sitk.Image([1, 1, 1], first.GetPixelID())).dtype.name
    shape = (max(frames, len(files)), rows, columns)
    return Series(files, shape, (z_mm, y_mm, x_mm), first.GetOrigin(), direction, dtype, notes)


def read_series_voxels(series: Series) -> NDArray:
    """(Z, Y, X), rescaled to the modality's units as each slice says."""
    if len(series.files) == 1:
        return np.asarray(sitk.GetArrayFromImage(sitk.ReadImage(series.files[0])))
    reader = sitk.ImageSeriesReader()
    reader.SetFileNames(series.files)
    return np.asarray(sitk.GetArrayFromImage(reader.Execute()))


def _files_of_the_series(folder: Path) -> tuple[str, ...]:
    names = sitk.ImageSeriesReader.GetGDCMSeriesIDs(str(folder))
    if not names:
        raise InputError(f"{folder}: a folder of DICOM slices expected, but no DICOM series is in it.")
    if len(names) > 1:
        raise InputError(
            f"{folder}: one DICOM series expected, got {len(names)}: {', '.join(names)}; put each into "
            f"a folder of its own."
        )
    files = tuple(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(folder), names[0]))
    _reject_unreadable_slices(folder, files)
    return files


def _reject_unreadable_slices(folder: Path, files: tuple[str, ...]) -> None:
    """GDCM passes over a file that ends too early, and the volume would lack a slice without a word."""
    known = {"DICOMDIR", *(Path(file).name for file in files)}
    for path in sorted(folder.iterdir()):
        if not path.is_file() or path.name in known:
            continue
        with open(path, "rb") as stream:
            if stream.read(132)[128:] == b"DICM":
                raise InputError(
                    f"{folder}: {path.name} is a DICOM file, but cannot be read as a slice (truncated?); "
                    f"copy it again, or move it elsewhere."
                )


def _information(file: str) -> sitk.ImageFileReader:
    reader = sitk.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(file)
    reader.ReadImageInformation()
    return reader


def _stacking(
    folder: Path, slices: list[sitk.ImageFileReader]
) -> tuple[float, NDArray[np.float64], tuple[str, ...]]:
    """Mean distance between slices, the axis they follow, and what a person should know about their steps."""
    directions = np.array([reader.GetDirection() for reader in slices])
    if np.abs(directions - directions[0]).max() > 1e-3:
        raise InputError(
            f"{folder}: parallel slices expected, but they are tilted to each other; keep one stack."
        )
    positions = np.array([reader.GetOrigin() for reader in slices])
    path = positions[-1] - positions[0]
    length_mm = float(np.linalg.norm(path))
    steps_mm = np.linalg.norm(np.diff(positions, axis=0), axis=1)
    if steps_mm.min() <= 1e-3 * max(steps_mm.max(), 1e-3):
        raise InputError(
            f"{folder}: one slice a position expected, but several share one, as time frames or echoes do; "
            f"put each frame into a folder of its own."
        )
    notes: tuple[str, ...] = ()
    if steps_mm.max() - steps_mm.min() > _UNEVEN * np.median(steps_mm):
        notes = (
            f"its slices lie {steps_mm.min():.4g} to {steps_mm.max():.4g} mm apart (one may be missing); "
            f"volumes and distances are computed with the mean, {length_mm / len(steps_mm):.4g} mm",
        )
    return length_mm / len(steps_mm), path / length_mm, notes
