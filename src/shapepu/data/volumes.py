"""Image and label files in, label and scalar volumes out: every format, one convention.

Arrays are (Z, Y, X), spacing is (z, y, x) in millimetres and comes from the pixel sizes a header gives, never
from an affine that may contradict them. What cannot be used raises :class:`~shapepu.errors.InputError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from numpy.typing import NDArray

from shapepu.data.dicom import Series, read_series_information, read_series_voxels
from shapepu.data.nifti import (
    NiftiHeader,
    read_nifti,
    read_nifti_header,
    reject_unusable_shape,
    reject_unusable_spacing,
    write_nifti,
)
from shapepu.errors import InputError
from shapepu.files import atomic_path
from shapepu.labels import LabelSet

SUFFIXES = (".nii.gz", ".nii", ".seg.nrrd", ".nrrd", ".mha", ".mhd")
"""Endings of the files that can be read, longest first where one contains another."""

_WRITABLE = (".nii.gz", ".nii", ".nrrd", ".mha")


@dataclass(frozen=True)
class Header:
    """What a file says about its grid; no voxel is read for it.

    Args:
        shape: (Z, Y, X).
        spacing_mm: (z, y, x), from the pixel sizes.
        origin: position of the first voxel, (x, y, z) as SimpleITK has it.
        direction: 3x3 direction cosines row by row, as SimpleITK has them.
        dtype: numpy name of the stored voxels' type.
        notes: peculiarities of the file that a person should know of.
        affine: 3x4, row by row, of a NIfTI file; it may contradict the rest. Empty for other formats.
    """

    shape: tuple[int, int, int]
    spacing_mm: tuple[float, float, float]
    origin: tuple[float, ...]
    direction: tuple[float, ...]
    dtype: str
    notes: tuple[str, ...] = ()
    affine: tuple[float, ...] = ()

    def geometry_differences(self, other: Header) -> list[str]:
        """In what two grids of one shape differ beyond rounding in a file; empty when they lie in one place.

        The affine is compared for the sake of other tools, which may trust it more than the pixel sizes.
        """
        tolerance_mm = 0.05 * min(self.spacing_mm)
        differences = []
        if not np.allclose(self.origin, other.origin, rtol=0, atol=tolerance_mm):
            differences.append("origin")
        if not np.allclose(self.direction, other.direction, rtol=0, atol=1e-2):
            differences.append("direction")
        if self.affine and other.affine and not differences:
            # The last voxel's position differs most when the affines scale differently.
            corners = (self._affine_corner_mm(), other._affine_corner_mm())
            if not np.allclose(*corners, rtol=0, atol=max(1.0, tolerance_mm)):
                differences.append("affine")
        return differences

    def _affine_corner_mm(self) -> NDArray[np.float64]:
        matrix = np.reshape(self.affine, (3, 4))
        return np.asarray(matrix @ [*self.shape[::-1], 1.0])


@dataclass(frozen=True, eq=False)
class Volume:
    """Voxels in the file's own type (scaled where its header says so) and where they lie."""

    array: NDArray[Any]
    spacing_mm: tuple[float, float, float]
    origin: tuple[float, ...]
    direction: tuple[float, ...]
    source: Path
    notes: tuple[str, ...] = ()
    affine: tuple[float, ...] = ()

    @property
    def header(self) -> Header:
        z, y, x = self.array.shape
        grid = (self.spacing_mm, self.origin, self.direction)
        return Header((z, y, x), *grid, self.array.dtype.name, self.notes, self.affine)


def strip_suffix(name: str | Path) -> str:
    """The file name without folder and without ``.nii.gz`` or whichever ending of :data:`SUFFIXES` it has."""
    base = Path(name).name
    suffix = image_suffix(base)
    return base[: len(base) - len(suffix)]


def image_suffix(name: str | Path) -> str:
    """The ending of :data:`SUFFIXES` that ``name`` has, or an empty string."""
    base = Path(name).name.lower()
    return next((suffix for suffix in SUFFIXES if base.endswith(suffix)), "")


def read_header(path: str | Path) -> Header:
    """The grid of an image file or DICOM series folder, without its voxels."""
    path = Path(path)
    with _one_line_errors(path):
        if path.is_dir():
            return _header_of_series(read_series_information(path))
        if _is_nifti(path):
            return _header_of_nifti(read_nifti_header(path))
        return _itk_information(path)


def read_volume(path: str | Path) -> Volume:
    """Voxels and grid of an image file or DICOM series folder."""
    path = Path(path)
    with _one_line_errors(path):
        if path.is_dir():
            series = read_series_information(path)
            return _volume(path, _header_of_series(series), read_series_voxels(series))
        if _is_nifti(path):
            nifti, array = read_nifti(path)
            return _volume(path, _header_of_nifti(nifti), array)
        header = _itk_information(path)
        return _volume(path, header, sitk.GetArrayFromImage(sitk.ReadImage(str(path))).reshape(header.shape))


def read_labels(path: str | Path, labels: LabelSet) -> NDArray[np.uint8]:
    """A label file as labels 0..K (K is unlabelled); a value that ``labels`` does not know is refused."""
    path = Path(path)
    return translate_labels(whole_numbers(read_volume(path).array, path), labels, path)


def translate_labels(values: NDArray[Any], labels: LabelSet, path: Path) -> NDArray[np.uint8]:
    """Labels 0..K from the whole numbers of the file at ``path``."""
    known = labels.as_dict()
    unexpected = {value: n for value, n in count_values(values).items() if value not in known.values()}
    if unexpected:
        found = [f"{value} ({n} voxel{'s' * (n > 1)})" for value, n in unexpected.items()]
        expected = ", ".join(f"{value} {name}" for name, value in known.items())
        raise InputError(
            f"{path}: it holds the values {', '.join(found[:5])}{', ...' if len(found) > 5 else ''}; "
            f"expected {expected}; correct the file or the label set."
        )
    return labels.from_file(values)


def whole_numbers(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """``array`` as integers when it holds nothing else, in whatever type it was stored."""
    if array.dtype.kind in "iub":
        return array
    with np.errstate(invalid="ignore"):
        fractions = ~(np.isfinite(array) & (array == np.rint(array)))
    if fractions.any():
        example = array[fractions][0]
        raise InputError(
            f"{path}: labels are whole numbers, but {int(fractions.sum())} voxels are not (for example "
            f"{example:g}); it may be an image, or labels resampled with interpolation; export label values."
        )
    return array.astype(np.int64)


def count_values(values: NDArray[Any]) -> dict[int, int]:
    """How often each whole number occurs, in rising order."""
    if values.dtype.kind == "b" or (values.size and values.min() >= 0 and values.max() < 1 << 16):
        # Counting into bins is some twenty times as fast as sorting, and labels are small numbers.
        counts = np.bincount(values.ravel())
        return {int(value): int(counts[value]) for value in np.flatnonzero(counts)}
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def write_labels(path: str | Path, labels: NDArray[Any], like: str | Path | Volume) -> None:
    """Write integer labels (Z, Y, X) on the grid of ``like``, its header kept where the formats agree."""
    smallest, largest = int(labels.min(initial=0)), int(labels.max(initial=0))
    dtypes = (np.uint8, np.int16, np.int32)
    dtype = next(d for d in dtypes if np.iinfo(d).min <= smallest and largest <= np.iinfo(d).max)
    _write(Path(path), labels.astype(dtype), like)


def write_scalar(path: str | Path, array: NDArray[Any], like: str | Path | Volume) -> None:
    """Write one float32 a voxel (Z, Y, X) on the grid of ``like``: a probability, an uncertainty."""
    _write(Path(path), array.astype(np.float32), like)


def _write(path: Path, array: NDArray[Any], like: str | Path | Volume) -> None:
    suffix = image_suffix(path)
    if not suffix.endswith(_WRITABLE):
        raise InputError(f"cannot write {path}: its name must end in one of {', '.join(_WRITABLE)}.")
    source = like.source if isinstance(like, Volume) else Path(like)
    if suffix in (".nii", ".nii.gz") and source.is_file() and _is_nifti(source):
        with _one_line_errors(source):
            template = read_nifti_header(source)
        _reject_other_grid(path, array.shape, template.shape)
        write_nifti(path, array, template)
        return
    header = like.header if isinstance(like, Volume) else read_header(source)
    _reject_other_grid(path, array.shape, header.shape)
    image = sitk.GetImageFromArray(array)
    image.SetSpacing(header.spacing_mm[::-1])
    image.SetOrigin(header.origin)
    image.SetDirection(header.direction)
    with atomic_path(path) as temporary:
        if not _itk_writes(image, temporary):
            raise InputError(
                f"cannot write {path}: it did not arrive whole, as happens when there is no space left; free "
                "some or choose another folder."
            )


def _itk_writes(image: sitk.Image, path: Path) -> bool:
    """Write an image and read it back, because on a full disk ITK writes half an NRRD file without a word."""
    try:
        sitk.WriteImage(image, str(path), useCompression=True, compressionLevel=1)
        arrived = sitk.ReadImage(str(path))
    except RuntimeError:
        return False
    found, wanted = sitk.GetArrayViewFromImage(arrived), sitk.GetArrayViewFromImage(image)
    return np.array_equal(found, wanted, equal_nan=True)


def _reject_other_grid(path: Path, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise InputError(
            f"cannot write {path}: the array has shape {shape}, the grid it goes with {expected}."
        )


def _is_nifti(path: Path) -> bool:
    return image_suffix(path) in (".nii", ".nii.gz")


def _volume(path: Path, header: Header, array: NDArray[Any]) -> Volume:
    grid = (header.spacing_mm, header.origin, header.direction)
    return Volume(array, *grid, path, header.notes, header.affine)


def _header_of_series(series: Series) -> Header:
    reject_unusable_spacing(Path(series.files[0]), np.array(series.spacing_mm))
    return Header(
        series.shape, series.spacing_mm, series.origin, series.direction, series.dtype, series.notes
    )


def _header_of_nifti(nifti: NiftiHeader) -> Header:
    stored = nifti.dtype.newbyteorder("=").name
    affine = tuple(nifti.affine.ravel().tolist())
    return Header(nifti.shape, nifti.spacing_mm, *nifti.origin_and_direction, stored, nifti.notes, affine)


def _itk_information(path: Path) -> Header:
    """The header of an NRRD or MetaImage file, by SimpleITK."""
    meta_image = _meta_image_fields(path) if image_suffix(path) in (".mha", ".mhd") else None
    reader = sitk.ImageFileReader()
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    _reject_layers(path, reader)
    size = list(reader.GetSize())
    dimension = len(size)
    direction = np.reshape(reader.GetDirection(), (dimension, dimension))[:3, :3]
    while len(size) > 3 and size[-1] == 1:
        size.pop()
    reject_unusable_shape(path, size)
    dtype = sitk.GetArrayViewFromImage(sitk.Image([1, 1, 1], reader.GetPixelID())).dtype
    if dtype.kind not in "iuf":
        raise InputError(f"{path}: one number a voxel expected, got {dtype.name}; save a grey-value volume.")
    if meta_image is not None:
        _reject_short_meta_image(path, meta_image, math.prod(size) * dtype.itemsize)
    x_mm, y_mm, z_mm = reader.GetSpacing()[:3]
    reject_unusable_spacing(path, np.array([x_mm, y_mm, z_mm]))
    return Header(
        (size[2], size[1], size[0]),
        (z_mm, y_mm, x_mm),
        reader.GetOrigin()[:3],
        tuple(direction.ravel().tolist()),
        dtype.name,
    )


def _reject_layers(path: Path, reader: sitk.ImageFileReader) -> None:
    components = reader.GetNumberOfComponents()
    if components == 1:
        return
    if image_suffix(path) == ".seg.nrrd":
        raise InputError(
            f"{path}: one label a voxel expected, but the segmentation has {components} layers, because "
            f"segments overlap; in 3D Slicer collapse the layers, or export it as a labelmap."
        )
    raise InputError(
        f"{path}: one number a voxel expected, got {components} (colour or a vector); save each channel as "
        f"a file NAME_0000, NAME_0001, ..."
    )


def _meta_image_fields(path: Path) -> dict[bytes, bytes]:
    """The header of a MetaImage file; what is none is known here, before MetaIO prints to stderr about it."""
    fields: dict[bytes, bytes] = {}
    with open(path, "rb") as stream:
        for line in stream:
            key, _, value = line.partition(b"=")
            fields[key.strip()] = value.strip()
            if key.strip() == b"ElementDataFile":
                fields[b"header bytes"] = str(stream.tell()).encode()
                break
    missing = [key for key in (b"NDims", b"DimSize", b"ElementType", b"ElementDataFile") if key not in fields]
    if missing:
        raise InputError(
            f"{path}: a MetaImage file expected, but it says no {missing[0].decode()}; export it again."
        )
    return fields


def _reject_short_meta_image(path: Path, fields: dict[bytes, bytes], voxel_bytes: int) -> None:
    """Know a truncated file before MetaIO does: it would print to stderr by itself."""
    data_file = fields[b"ElementDataFile"].decode(errors="replace")
    if data_file == "LIST" or "%" in data_file or b"HeaderSize" in fields:
        return
    data_path = path if data_file in ("LOCAL", "Local", "local") else path.parent / data_file
    if not data_path.is_file():
        raise InputError(
            f"{path}: its voxels are in {data_path.name}, which is missing; put it beside the header."
        )
    compressed = fields.get(b"CompressedData", b"").lower() == b"true"
    expected = int(fields.get(b"CompressedDataSize", b"0")) if compressed else voxel_bytes
    start = int(fields[b"header bytes"]) if data_path == path else 0
    present = data_path.stat().st_size - start
    if present < expected:
        raise InputError(
            f"{path}: truncated: its header promises {expected} bytes of voxels, {present} are there; copy "
            f"or export it again."
        )


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Reject what no reader could open, and turn what a reader says into one line.

    ITK's own warnings are kept quiet: what they are about is looked at here and noted in the header instead.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder.")
    if path.is_file() and not image_suffix(path):
        raise InputError(
            f"{path}: not a known image format; expected {', '.join(SUFFIXES)} or a DICOM series folder."
        )
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(
            f"{path}: an image expected, but the file is empty (0 bytes); copy or export it again."
        )
    shown = sitk.ProcessObject.GetGlobalWarningDisplay()
    sitk.ProcessObject.SetGlobalWarningDisplay(False)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            yield
    except InputError:
        raise
    except (RuntimeError, ValueError, OverflowError) as error:
        reason = re.sub(r"\w+\(0x[0-9a-f]+\): ", "", str(error).strip().splitlines()[-1])
        raise InputError(f"{path}: it cannot be read ({reason}); copy or export it again.") from error
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error}).") from error
    finally:
        sitk.ProcessObject.SetGlobalWarningDisplay(shown)
