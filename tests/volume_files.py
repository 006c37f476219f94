"""Image files for tests, written by nibabel and SimpleITK, so that the package is tested against others."""

from __future__ import annotations

import json
import locale
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import SimpleITK as sitk


def random_image(shape: tuple[int, int, int] = (3, 8, 6), seed: int = 0) -> np.ndarray:
    """(Z, Y, X) int16; another seed gives another patient."""
    return np.random.default_rng(seed).integers(0, 1000, shape).astype(np.int16)


def scribbled(shape: tuple[int, int, int] = (3, 8, 6), classes: int = 3) -> np.ndarray:
    """(Z, Y, X) uint8: a row of each class in every slice, everything else unlabelled (= ``classes``)."""
    labels = np.full(shape, classes, np.uint8)
    for label in range(classes):
        labels[:, label, :4] = label
    return labels


def write_nifti(path: Path, array: np.ndarray, spacing_mm: tuple[float, ...] = (5.0, 1.5, 1.5)) -> Path:
    """(Z, Y, X) and (z, y, x) to a NIfTI file with an orientation like a scanner's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.diag([-spacing_mm[2], -spacing_mm[1], spacing_mm[0], 1.0])
    affine[:3, 3] = [10.0, 20.0, -30.0]
    nib.save(nib.Nifti1Image(array.T, affine), path)
    return path


def write_itk(path: Path, array: np.ndarray, *, vector: bool = False, compress: bool = True) -> Path:
    image = sitk.GetImageFromArray(array, isVector=vector)
    if not vector and array.ndim == 3:
        image.SetSpacing((1.5, 1.25, 5.0))
        image.SetOrigin((10.0, -20.0, 30.0))
        image.SetDirection((0.0, 1.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    sitk.WriteImage(image, str(path), compress)
    return path


@contextmanager
def locale_kept() -> Iterator[None]:
    """Writing DICOM sets the "C" locale of the whole process, and later tests would read files as ASCII."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, before)


@locale_kept()
def write_dicom(
    folder: Path, array: np.ndarray, positions_mm: list[float] | None = None, series: str = "1.2.3"
) -> Path:
    """One file a slice, named so that the order of names is not the order of positions."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = sitk.ImageFileWriter()
    writer.KeepOriginalImageUIDOn()
    for index, slice_ in enumerate(array):
        image = sitk.GetImageFromArray(slice_)
        image.SetSpacing((1.5, 1.25))
        z_mm = positions_mm[index] if positions_mm else 5.0 * index
        tags = {
            "0008|0060": "MR",
            "0020|000e": series,
            "0008|0018": f"{series}.{index}",
            "0020|0032": f"10\\20\\{z_mm}",
            "0020|0037": "1\\0\\0\\0\\1\\0",
        }
        for tag, value in tags.items():
            image.SetMetaData(tag, value)
        writer.SetFileName(str(folder / f"{series}-{len(array) - index:03d}.dcm"))
        writer.Execute(image)
    return folder


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def plain_folder(root: Path, cases: int = 2, *, classes: int = 3) -> Path:
    """A data set that ``check`` finds nothing wrong with: case0, case1, ... and labels.json."""
    for index in range(cases):
        write_nifti(root / "images" / f"case{index}.nii.gz", random_image(seed=index))
        write_nifti(root / "scribbles" / f"case{index}.nii.gz", scribbled(classes=classes))
    names = ["background", *(f"class{label}" for label in range(1, classes))]
    write_json(root / "labels.json", {**{name: value for value, name in enumerate(names)}, "ignore": classes})
    return root
