"""NIfTI files read from their bytes: a stream known to be whole, and a header that survives a round trip.

The other formats go through SimpleITK. NIfTI does not, because ITK fills a truncated file with zeros in
silence, refuses an affine whose columns are not orthogonal, and rewrites the header, so that the affine of a
prediction would no longer be that of its image wherever sform and pixel sizes disagree (ACDC).
"""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shapepu.errors import InputError
from shapepu.files import atomic_path

# Name, then format and offset in version 1 and in version 2; what is not named here is copied as it is.
_FIELDS = (
    ("dim", "8i2", 40, "8i8", 16),
    ("intent_code", "i2", 68, "i4", 504),
    ("datatype", "i2", 70, "i2", 12),
    ("bitpix", "i2", 72, "i2", 14),
    ("pixdim", "8f4", 76, "8f8", 104),
    ("vox_offset", "f4", 108, "i8", 168),
    ("scl_slope", "f4", 112, "f8", 176),
    ("scl_inter", "f4", 116, "f8", 184),
    ("xyzt_units", "u1", 123, "i4", 500),
    ("cal_max", "f4", 124, "f8", 192),
    ("cal_min", "f4", 128, "f8", 200),
    ("descrip", "S80", 148, "S80", 240),
    ("aux_file", "S24", 228, "S24", 320),
    ("qform_code", "i2", 252, "i4", 344),
    ("sform_code", "i2", 254, "i4", 348),
    ("quatern", "3f4", 256, "3f8", 352),
    ("qoffset", "3f4", 268, "3f8", 376),
    ("srow", "(3,4)f4", 280, "(3,4)f8", 400),
    ("intent_name", "S16", 328, "S16", 508),
    ("magic", "S4", 344, "S8", 4),
)
_NAMES, _FORMATS_1, _OFFSETS_1, _FORMATS_2, _OFFSETS_2 = zip(*_FIELDS, strict=True)


def _layout(bytes_in_header: int, formats: tuple[str, ...], offsets: tuple[int, ...]) -> np.dtype[Any]:
    return np.dtype({"names": _NAMES, "formats": formats, "offsets": offsets, "itemsize": bytes_in_header})


_VERSION_1 = _layout(348, _FORMATS_1, _OFFSETS_1)
_VERSION_2 = _layout(540, _FORMATS_2, _OFFSETS_2)
_VOXEL_TYPES = {
    2: "u1", 256: "i1", 4: "i2", 512: "u2", 8: "i4", 768: "u4", 1024: "i8", 1280: "u8", 16: "f4", 64: "f8",
}  # fmt: skip
_OTHER_TYPES = {
    1: "one-bit", 32: "complex", 128: "colour (RGB)", 1536: "128-bit float", 1792: "complex", 2048: "complex",
    2304: "colour (RGBA)",
}  # fmt: skip
_BYTE_ORDERS: tuple[Literal["<"], Literal[">"]] = ("<", ">")
_MILLIMETRES = {1: 1000.0, 2: 1.0, 3: 0.001}
_CONTRADICTION = 0.01


@dataclass(frozen=True)
class NiftiHeader:
    """The header as stored; properties say what of it this package uses."""

    path: Path
    raw: bytes
    layout: np.dtype[Any]
    order: Literal["<", ">"]

    @property
    def fields(self) -> NDArray[Any]:
        return np.frombuffer(self.raw, self.layout, 1).reshape(())

    @property
    def shape(self) -> tuple[int, int, int]:
        """(Z, Y, X): NIfTI stores x fastest, so a C-ordered array has its axes reversed."""
        dimensions = [int(size) for size in self.fields["dim"][1 : 1 + int(self.fields["dim"][0])]]
        while len(dimensions) > 3 and dimensions[-1] == 1:
            dimensions.pop()
        reject_unusable_shape(self.path, dimensions)
        x, y, z = dimensions
        return z, y, x

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored voxels, in the byte order of the file."""
        code = int(self.fields["datatype"])
        if code not in _VOXEL_TYPES:
            kind = _OTHER_TYPES.get(code, f"of unknown type {code}")
            raise InputError(
                f"{self.path}: one number a voxel expected, but the voxels are {kind}; save it as "
                f"a grey-value or label volume."
            )
        return np.dtype(_VOXEL_TYPES[code]).newbyteorder(self.order)

    @property
    def scaling(self) -> tuple[float, float] | None:
        """Slope and intercept of the stored numbers, or None when they are the values themselves."""
        slope, intercept = float(self.fields["scl_slope"]), float(self.fields["scl_inter"])
        if not math.isfinite(slope) or slope == 0:
            return None
        intercept = intercept if math.isfinite(intercept) else 0.0
        return None if (slope, intercept) == (1.0, 0.0) else (slope, intercept)

    @property
    def spacing_mm(self) -> tuple[float, float, float]:
        """(z, y, x) from the pixel sizes; the affine is not asked."""
        sizes = np.abs(self.fields["pixdim"][1:4].astype(float)) * self._unit_mm
        # Tools that wrap a single 2-D image often leave the size of the one-voxel axis at 0.
        sizes[(sizes == 0) & (np.array(self.shape[::-1]) == 1)] = 1.0
        reject_unusable_spacing(self.path, sizes)
        x, y, z = (float(size) for size in sizes)
        return z, y, x

    @property
    def affine(self) -> NDArray[np.float64]:
        """(3, 4), voxel (i, j, k) to millimetres in NIfTI's axes (right, anterior, superior)."""
        if self.fields["sform_code"] > 0:
            return np.asarray(self.fields["srow"].astype(float) * self._unit_mm)
        sizes = np.array(self.spacing_mm[::-1])
        if self.fields["qform_code"] <= 0:
            # Nothing is known of the pose; the axes are taken to run as ITK takes them to.
            return np.column_stack([np.diag(sizes * [-1, -1, 1]), np.zeros(3)])
        if self.fields["pixdim"][0] < 0:
            sizes[2] = -sizes[2]
        offset = self.fields["qoffset"].astype(float) * self._unit_mm
        return np.column_stack([_rotation(*self.fields["quatern"].astype(float)) * sizes, offset])

    @property
    def origin_and_direction(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """In SimpleITK's terms: x, y, z towards left, posterior, superior; direction row by row."""
        to_itk = np.array([-1.0, -1.0, 1.0])
        axes = self.affine[:, :3]
        lengths = np.linalg.norm(axes, axis=0)
        direction = axes / lengths if np.isfinite(lengths).all() and lengths.all() else np.eye(3)
        origin = self.affine[:, 3] * to_itk
        return tuple(origin.tolist()), tuple((direction * to_itk[:, None]).ravel().tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """An affine that contradicts the pixel sizes; such files are usable, and common (ACDC)."""
        if self.fields["sform_code"] <= 0:
            return ()
        sizes = np.array(self.spacing_mm[::-1])
        lengths = np.linalg.norm(self.affine[:, :3], axis=0)
        if np.allclose(lengths, sizes, rtol=_CONTRADICTION, atol=0):
            return ()
        return (
            f"its affine says {millimetres(lengths)} mm a voxel, its pixel sizes {millimetres(sizes)} mm, "
            f"which are used",
        )

    @property
    def _unit_mm(self) -> float:
        return _MILLIMETRES.get(int(self.fields["xyzt_units"]) & 7, 1.0)


def read_nifti_header(path: Path) -> NiftiHeader:
    """The header alone; of a compressed file only its beginning is unpacked."""
    with open(path, "rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path, "rb") if compressed else open(path, "rb") as stream:
            return _parse(path, stream.read(_VERSION_2.itemsize))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, error) from error


def read_nifti(path: Path) -> tuple[NiftiHeader, NDArray[Any]]:
    """Header and voxels (Z, Y, X), scaled as the header says, from a stream that was seen to be whole."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _damaged(path, error) from error
    header = _parse(path, content)
    shape, dtype = header.shape, header.dtype
    offset = max(int(header.fields["vox_offset"]), header.layout.itemsize + 4)
    expected = math.prod(shape) * dtype.itemsize
    if len(content) - offset < expected:
        raise InputError(
            f"{path}: truncated: its header promises {expected} bytes of voxels, "
            f"{max(len(content) - offset, 0)} are there; copy or export it again."
        )
    stored = np.frombuffer(content, dtype, math.prod(shape), offset).reshape(shape)
    return header, _scaled(stored, header.scaling)


def plain_header(spacing_mm: tuple[float, float, float]) -> NiftiHeader:
    """For voxels that come from no file: pixel sizes (z, y, x), and axes that run as ITK takes them to."""
    layout = _VERSION_1.newbyteorder("<")
    buffer = bytearray(layout.itemsize.to_bytes(4, "little").ljust(layout.itemsize, b"\0"))
    fields = np.frombuffer(buffer, layout).reshape(())
    fields["pixdim"] = [1, *spacing_mm[::-1], 0, 0, 0, 0]
    fields["xyzt_units"] = 2
    # Half a turn about z: NIfTI's x and y run to the right and the front, ITK's to the left and the back.
    fields["qform_code"], fields["quatern"] = 1, [0, 0, 1]
    fields["magic"] = b"n+1"
    return NiftiHeader(Path("plain header"), bytes(buffer), layout, "<")


def write_nifti(path: Path, array: NDArray[Any], like: NiftiHeader) -> None:
    """Write ``array`` with the geometry of ``like``, field by field; equal input gives equal bytes."""
    buffer = bytearray(like.raw)
    fields = np.frombuffer(buffer, like.layout).reshape(())
    stored = array.astype(array.dtype.newbyteorder(like.order))
    start = like.layout.itemsize + 4
    fields["dim"] = [3, *array.shape[::-1], 1, 1, 1, 1]
    fields["datatype"] = next(code for code, name in _VOXEL_TYPES.items() if np.dtype(name) == array.dtype)
    fields["bitpix"] = array.dtype.itemsize * 8
    fields["vox_offset"] = start
    fields["scl_slope"], fields["scl_inter"] = 1, 0
    fields["cal_max"] = fields["cal_min"] = fields["intent_code"] = 0
    fields["intent_name"] = fields["aux_file"] = b""
    fields["descrip"] = b"shapepu"
    # Four zero bytes say that no header extension follows: those of `like` describe another image's voxels.
    content = bytes(buffer).ljust(start, b"\0") + stored.tobytes()
    if path.name.lower().endswith(".gz"):
        content = gzip.compress(content, compresslevel=1, mtime=0)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def reject_unusable_shape(path: Path, dimensions: list[int]) -> None:
    """Raise unless ``dimensions`` (x, y, z, ...) are those of one volume."""
    size = " x ".join(str(dimension) for dimension in dimensions)
    if len(dimensions) < 3:
        raise InputError(
            f"{path}: a 3-D volume expected, got {len(dimensions)}-D ({size}); save a single 2-D "
            f"image as a volume of one slice."
        )
    if len(dimensions) > 3:
        raise InputError(
            f"{path}: a 3-D volume expected, got {len(dimensions)}-D ({size}); save each time frame "
            f"as a case and each channel as NAME_0000, NAME_0001, ..."
        )
    if min(dimensions) < 1:
        raise InputError(f"{path}: it holds no voxels ({size}); export it again.")


def reject_unusable_spacing(path: Path, sizes_mm: NDArray[Any]) -> None:
    """Raise unless every pixel size is a positive number."""
    if not (np.isfinite(sizes_mm).all() and (sizes_mm > 0).all()):
        raise InputError(
            f"{path}: pixel sizes above 0 mm expected in its header, got {millimetres(sizes_mm)}; "
            f"set them and save it again."
        )


def millimetres(sizes_mm: NDArray[Any] | tuple[float, ...]) -> str:
    """Sizes as a person writes them: ``1.56 x 1.56 x 10``."""
    return " x ".join(f"{float(size):.3g}" for size in sizes_mm)


def _parse(path: Path, content: bytes) -> NiftiHeader:
    for version in (_VERSION_1, _VERSION_2):
        size = version.itemsize
        for order in _BYTE_ORDERS:
            if len(content) < size or np.frombuffer(content, f"{order}i4", 1)[0] != size:
                continue
            header = NiftiHeader(path, content[:size], version.newbyteorder(order), order)
            if header.fields["magic"].item()[:3] in (b"n+1", b"n+2") and 0 < header.fields["dim"][0] < 8:
                return header
    looks = f"starts with {content[:12]!r}" if content else "is empty"
    raise InputError(f"{path}: a NIfTI file expected, but its content {looks}; export it again as NIfTI.")


def _scaled(stored: NDArray[Any], scaling: tuple[float, float] | None) -> NDArray[Any]:
    native = stored.dtype.newbyteorder("=")
    if scaling is None:
        return stored.astype(native)
    wide = native.itemsize > 4 or (native.itemsize == 4 and native.kind != "f")
    values: NDArray[np.floating] = stored.astype(np.float64 if wide else np.float32)
    return values * scaling[0] + scaling[1]


def _rotation(b: float, c: float, d: float) -> NDArray[np.float64]:
    """The rotation of a unit quaternion of which NIfTI stores three of four parts."""
    a = math.sqrt(max(0.0, 1 - b * b - c * c - d * d))
    if a == 0:
        length = math.sqrt(b * b + c * c + d * d)
        b, c, d = b / length, c / length, d / length
    return np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
    )


def _damaged(path: Path, error: Exception) -> InputError:
    if isinstance(error, EOFError):
        return InputError(
            f"{path}: truncated: its compressed stream ends too early; copy or export it again."
        )
    return InputError(f"{path}: damaged: its compressed stream does not unpack; copy or export it again.")
