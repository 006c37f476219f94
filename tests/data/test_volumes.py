from __future__ import annotations

import contextlib
import gzip
import warnings
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk
from hypothesis import given, settings
from hypothesis import strategies as st

from shapepu.data import volumes
from shapepu.data.volumes import count_values, read_header, read_labels, read_volume, strip_suffix
from shapepu.errors import InputError
from shapepu.labels import LabelSet, plain_labels
from volume_files import random_image, write_itk, write_nifti

# A short-axis view: rotations that are exactly orthonormal (rows of 3, 4, 5), then pixel sizes and position.
ROTATED = np.eye(4)
ROTATED[:3, :3] = (
    np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]])
    @ np.array([[1, 0, 0], [0, -0.28, 0.96], [0, -0.96, -0.28]])
    @ np.diag([0.75, 0.75, -5.0])
)
ROTATED[:3, 3] = [76.5, 214.75, -148.0]
HEART = plain_labels(("rv", "myo", "lv"))


def save_with_affine(path: Path, affine: np.ndarray | None, sform: int, qform: int) -> Path:
    image = nib.Nifti1Image(random_image().T, affine)
    image.set_sform(affine, sform)
    image.set_qform(affine, qform)
    nib.save(image, path)
    return path


@pytest.mark.parametrize(("sform", "qform"), [(1, 0), (0, 1), (2, 1)])
def test_a_nifti_file_lies_where_simpleitk_says_it_lies(tmp_path: Path, sform: int, qform: int) -> None:
    path = save_with_affine(tmp_path / "rotated.nii.gz", ROTATED, sform, qform)
    ours, theirs = read_volume(path), sitk.ReadImage(str(path))
    assert np.array_equal(ours.array, sitk.GetArrayFromImage(theirs))
    assert ours.spacing_mm == pytest.approx(theirs.GetSpacing()[::-1], rel=1e-5)
    assert ours.origin == pytest.approx(theirs.GetOrigin(), rel=1e-5)
    assert ours.direction == pytest.approx(theirs.GetDirection(), abs=1e-5)


def test_a_nifti_file_without_orientation_lies_where_simpleitk_says_it_lies(tmp_path: Path) -> None:
    image = nib.Nifti1Image(random_image().T, None)
    image.header.set_zooms((1.5, 1.25, 5))
    nib.save(image, tmp_path / "plain.nii")
    ours, theirs = read_header(tmp_path / "plain.nii"), sitk.ReadImage(str(tmp_path / "plain.nii"))
    assert (ours.origin, ours.direction) == (theirs.GetOrigin(), theirs.GetDirection())
    assert ours.spacing_mm == (5.0, 1.25, 1.5)


def test_spacing_comes_from_the_pixel_sizes_when_the_affine_contradicts_them(tmp_path: Path) -> None:
    image = nib.Nifti1Image(random_image().T, np.diag([-1.0, -1.0, 1.0, 1.0]))
    image.header["pixdim"][1:4] = [1.5625, 1.5625, 10]
    nib.save(image, tmp_path / "acdc.nii.gz")
    header = read_header(tmp_path / "acdc.nii.gz")
    assert header.spacing_mm == (10.0, 1.5625, 1.5625)
    assert header.notes == (
        "its affine says 1 x 1 x 1 mm a voxel, its pixel sizes 1.56 x 1.56 x 10 mm, which are used",
    )


def test_an_affine_that_is_not_orthogonal_is_no_reason_to_refuse(tmp_path: Path) -> None:
    sheared = np.diag([2.0, 2.0, 5.0, 1.0])
    sheared[0, 2] = 1.5
    image = nib.Nifti1Image(random_image().T, None)
    image.set_sform(sheared, 1)
    image.header["pixdim"][1:4] = [2, 2, 5]
    nib.save(image, tmp_path / "sheared.nii.gz")
    with pytest.raises(RuntimeError, match="orthonormal"):
        sitk.ReadImage(str(tmp_path / "sheared.nii.gz"))
    assert read_volume(tmp_path / "sheared.nii.gz").spacing_mm == (5.0, 2.0, 2.0)


def test_header_agrees_with_volume_in_every_format(tmp_path: Path) -> None:
    for name in ("a.nii.gz", "b.nii", "c.nrrd", "d.mha", "e.mhd", "f.seg.nrrd"):
        volume = read_volume(write_itk(tmp_path / name, random_image()))
        assert read_header(tmp_path / name) == volume.header
        assert np.array_equal(volume.array, random_image())
        assert volume.spacing_mm == (5.0, 1.25, 1.5)
        assert volume.array.dtype == np.int16


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", ">i2", ">f4"])
@pytest.mark.parametrize("version", [nib.Nifti1Image, nib.Nifti2Image])
def test_voxels_survive_in_every_type_and_byte_order(
    tmp_path: Path, dtype: str, version: type[nib.Nifti1Image]
) -> None:
    array = np.arange(3 * 4 * 5).reshape(3, 4, 5).astype(dtype)
    header = version.header_class(endianness=">" if dtype.startswith(">") else "<")
    header.set_data_dtype(dtype)
    nib.save(version(array.T, np.eye(4), header), tmp_path / "a.nii.gz")
    volume = read_volume(tmp_path / "a.nii.gz")
    assert volume.array.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.array_equal(volume.array, array)


def test_the_scaling_of_the_header_is_applied(tmp_path: Path) -> None:
    image = nib.Nifti1Image(np.zeros((4, 5, 3), np.int16), np.eye(4))
    nib.save(image, tmp_path / "a.nii")
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[112:120] = np.array([0.5, -3.0], "<f4").tobytes()
    content[352:354] = np.array([10], "<i2").tobytes()
    (tmp_path / "a.nii").write_bytes(content)
    array = read_volume(tmp_path / "a.nii").array
    assert array.dtype == np.float32
    assert (array[0, 0, 0], array[0, 0, 1]) == (2.0, -3.0)
    assert np.array_equal(array, nib.load(tmp_path / "a.nii").get_fdata().T)


def test_pixel_sizes_in_metres_become_millimetres(tmp_path: Path) -> None:
    image = nib.Nifti1Image(random_image().T, np.diag([0.002, 0.002, 0.005, 1]))
    image.header.set_xyzt_units("meter")
    nib.save(image, tmp_path / "metres.nii.gz")
    assert read_header(tmp_path / "metres.nii.gz").spacing_mm == pytest.approx((5.0, 2.0, 2.0))


def test_a_fourth_axis_of_one_is_dropped_and_one_slice_kept(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Image(random_image((1, 8, 6)).T[..., None], np.eye(4)), tmp_path / "a.nii.gz")
    assert read_volume(tmp_path / "a.nii.gz").array.shape == (1, 8, 6)
    write_itk(tmp_path / "a.nrrd", random_image((1, 8, 6)))
    assert read_volume(tmp_path / "a.nrrd").array.shape == (1, 8, 6)


def test_compression_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    packed = write_nifti(tmp_path / "a.nii.gz", random_image()).read_bytes()
    (tmp_path / "b.nii").write_bytes(packed)
    (tmp_path / "c.nii.gz").write_bytes(gzip.decompress(packed))
    assert np.array_equal(read_volume(tmp_path / "b.nii").array, random_image())
    assert np.array_equal(read_volume(tmp_path / "c.nii.gz").array, random_image())


def test_suffixes_are_taken_off_whole() -> None:
    names = ["a.nii.gz", "x/a.nii", "a.seg.nrrd", "a.nrrd", "a.mha", "A.NII.GZ", "a.1.nii.gz", "a.txt"]
    assert [strip_suffix(name) for name in names] == ["a", "a", "a", "a", "a", "A", "a.1", "a.txt"]


def _cut(name: str, share: float = 0.5) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        whole = write_itk(folder / name, random_image(), compress=not name.startswith("raw"))
        whole.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
        return whole

    return make


def _bytes(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def _nifti(shape: tuple[int, ...], dtype: str = "i2") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        nib.save(nib.Nifti1Image(np.zeros(shape, dtype), np.eye(4)), folder / "a.nii.gz")
        return folder / "a.nii.gz"

    return make


def _flipped_byte(folder: Path) -> Path:
    path = write_nifti(folder / "a.nii.gz", random_image())
    content = bytearray(path.read_bytes())
    content[-6] ^= 0xFF
    path.write_bytes(content)
    return path


def _no_pixel_size(folder: Path) -> Path:
    path = write_nifti(folder / "a.nii", random_image())
    content = bytearray(path.read_bytes())
    content[80:84] = np.array([np.nan], "<f4").tobytes()
    path.write_bytes(content)
    return path


def _header_without_voxels(folder: Path) -> Path:
    write_itk(folder / "a.mhd", random_image(), compress=False)
    (folder / "a.raw").unlink()
    return folder / "a.mhd"


def _two_numbers_a_voxel(folder: Path) -> Path:
    return write_itk(folder / "a.mha", np.zeros((3, 8, 6, 2), np.uint8), vector=True)


def _overlapping_segments(folder: Path) -> Path:
    return write_itk(folder / "a.seg.nrrd", np.zeros((3, 8, 6, 2), np.uint8), vector=True)


RGB = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")]).descr
BAD_FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda folder: folder / "a.nii.gz", "no such file"),
    "empty": (_bytes("a.nii.gz", b""), "empty"),
    "text": (_bytes("a.nii.gz", b"not an image " * 50), "NIfTI file expected"),
    "short text": (_bytes("a.nii", b"x"), "NIfTI file expected"),
    "text in a gzip": (_bytes("a.nii.gz", gzip.compress(b"not an image " * 50)), "NIfTI file expected"),
    "text named nrrd": (_bytes("a.nrrd", b"not an image " * 50), "cannot be read"),
    "text named mha": (_bytes("a.mha", b"not an image\n" * 50), "a MetaImage file expected"),
    "unknown format": (_bytes("a.png", b"\x89PNG"), "not a known image format"),
    "truncated nii.gz": (_cut("a.nii.gz"), "truncated"),
    "truncated nii": (_cut("raw.nii", 0.9), "truncated"),
    "truncated nrrd": (_cut("a.nrrd", 0.8), "cannot be read"),
    "truncated mha": (_cut("a.mha", 0.9), "truncated"),
    "truncated raw mha": (_cut("raw.mha", 0.9), "truncated"),
    "wrong checksum": (_flipped_byte, "damaged"),
    "voxel file missing": (_header_without_voxels, "a.raw, which is missing"),
    "2-D": (_nifti((6, 8)), "got 2-D"),
    "4-D": (_nifti((6, 8, 3, 2)), "got 4-D"),
    "no voxels": (_nifti((6, 0, 3)), "no voxels"),
    "complex": (_nifti((6, 8, 3), "c8"), "complex"),
    "colour": (_nifti((6, 8, 3), RGB), "colour"),  # type: ignore[arg-type]
    "vector": (_two_numbers_a_voxel, "got 2"),
    "2-D nrrd": (lambda folder: write_itk(folder / "a.nrrd", np.zeros((8, 6), np.uint8)), "got 2-D"),
    "overlapping segments": (_overlapping_segments, "2 layers"),
    "no pixel size": (_no_pixel_size, "pixel sizes above 0 mm expected"),
    "folder without DICOM": (lambda folder: folder, "no DICOM series"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_refused_in_one_line_and_nothing_else_is_printed(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make, phrase = BAD_FILES[kind]
    path = make(tmp_path)
    with pytest.raises(InputError, match=phrase) as caught:
        read_volume(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0.0, 0.999))
def test_no_truncation_of_a_compressed_file_goes_unnoticed(
    share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.nii.gz"
    content = write_nifti(path, random_image()).read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError):
        read_volume(path)


@settings(max_examples=100, deadline=None)
@given(damage=st.lists(st.tuples(st.integers(0, 351), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_header_is_refused_or_read_but_nothing_else_happens(
    damage: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write_nifti(tmp_path_factory.mktemp("damage") / "a.nii", random_image())
    content = bytearray(path.read_bytes())
    for position, value in damage:
        content[position] = value
    path.write_bytes(content)
    with contextlib.suppress(InputError), warnings.catch_warnings():
        warnings.simplefilter("error")
        volume = read_volume(path)
        assert volume.header.shape == read_header(path).shape


def test_reading_leaves_itk_warnings_as_they_were(tmp_path: Path) -> None:
    path = write_itk(tmp_path / "a.nrrd", random_image())
    for shown in (True, False):
        sitk.ProcessObject.SetGlobalWarningDisplay(shown)
        read_volume(path)
        assert sitk.ProcessObject.GetGlobalWarningDisplay() == shown
    sitk.ProcessObject.SetGlobalWarningDisplay(True)


def test_labels_of_a_file_are_translated_to_classes(tmp_path: Path) -> None:
    drawn = LabelSet(("background", "heart"), (5, 2), unlabelled_value=0)
    path = write_nifti(tmp_path / "a.nii.gz", np.array([[[0, 2, 5, 2]]], np.int16))
    assert read_labels(path, drawn).tolist() == [[[2, 1, 0, 1]]]


def test_labels_stored_as_whole_floats_are_labels(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", np.array([[[0.0, 1.0, 4.0, 3.0]]], np.float64))
    assert read_labels(path, HEART).tolist() == [[[0, 1, 4, 3]]]


def test_fractions_and_nan_in_a_label_file_are_refused_with_their_number(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", np.array([[[0.0, 1.5, np.nan, np.inf]]], np.float32))
    with pytest.raises(InputError, match=r"a\.nii\.gz: .* whole numbers, but 3 voxels are not .*1\.5"):
        read_labels(path, HEART)


def test_values_outside_the_label_set_are_refused_with_their_counts(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", np.array([[[0, 7, 7, -1]]], np.int16))
    with pytest.raises(InputError, match=r"values -1 \(1 voxel\), 7 \(2 voxels\); expected 0 background"):
        read_labels(path, HEART)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-3, 300), max_size=40))
def test_counting_values_agrees_with_a_plain_count(values: list[int]) -> None:
    plain = {value: values.count(value) for value in sorted({*values})}
    assert count_values(np.array(values, np.int64)) == plain


def test_a_reader_that_prints_a_pointer_does_not_show_it_to_the_user(tmp_path: Path) -> None:
    (tmp_path / "a.nrrd").write_bytes(b"NRRD0004\ntype: nonsense\n")
    with pytest.raises(InputError) as caught:
        volumes.read_volume(tmp_path / "a.nrrd")
    assert "0x" not in str(caught.value)
