from __future__ import annotations

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shapepu.data.volumes import Volume, read_volume, write_labels, write_scalar
from shapepu.errors import InputError
from volume_files import random_image, write_dicom, write_itk, write_nifti

LABELS = (random_image() > 500).astype(np.int64) * 3
GEOMETRY = ("pixdim", "sform_code", "qform_code", "xyzt_units", "toffset", "slice_code", "dim_info")
POSE = np.array([[0, -1.5, 0, 7], [1.25, 0, 0, -8], [0, 0, 5, 9], [0, 0, 0, 1.0]])


def image_with(
    folder: Path, *, version: int = 1, endianness: str = "<", sform: int = 1, qform: int = 1
) -> Path:
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    image = kind(random_image().T, None, kind.header_class(endianness=endianness))
    image.set_data_dtype(np.int16)
    image.set_sform(POSE, sform)
    image.set_qform(POSE, qform)
    image.header["pixdim"][1:4] = [1.3, 1.4, 8]
    image.header["pixdim"][4] = 30
    image.header["toffset"] = 2
    image.header.set_xyzt_units("mm", "sec")
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"of the image only"))
    nib.save(image, folder / "image.nii.gz")
    return folder / "image.nii.gz"


@pytest.mark.parametrize(
    "header",
    [
        {"sform": 2, "qform": 0},
        {"sform": 0, "qform": 1},
        {"sform": 4, "qform": 1},
        {"sform": 0, "qform": 0},
        {"version": 2},
        {"endianness": ">"},
        {"endianness": ">", "version": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["labels.nii.gz", "labels.nii"])
def test_labels_beside_a_nifti_image_have_its_geometry_field_by_field(
    tmp_path: Path, header: dict[str, int], name: str
) -> None:
    source = image_with(tmp_path, **header)  # type: ignore[arg-type]
    write_labels(tmp_path / name, LABELS, source)
    image, labels = nib.load(source), nib.load(tmp_path / name)
    assert np.array_equal(labels.affine, image.affine)
    assert np.array_equal(labels.header.get_zooms(), image.header.get_zooms())
    for field in GEOMETRY:
        assert np.array_equal(labels.header[field], image.header[field]), field
    assert type(labels) is type(image)
    assert labels.get_data_dtype() == np.uint8
    assert np.array_equal(labels.get_fdata(), LABELS.T)
    assert not labels.header.extensions


def test_the_same_labels_give_the_same_bytes(tmp_path: Path) -> None:
    source = image_with(tmp_path)
    write_labels(tmp_path / "a.nii.gz", LABELS, source)
    write_labels(tmp_path / "b.nii.gz", LABELS.astype(np.int16), read_volume(source))
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


def test_the_scaling_and_extensions_of_the_image_do_not_reach_the_labels(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Image(random_image().T, POSE), tmp_path / "image.nii")
    content = bytearray((tmp_path / "image.nii").read_bytes())
    content[112:120] = np.array([2.0, 7.0], "<f4").tobytes()
    (tmp_path / "image.nii").write_bytes(content)
    write_labels(tmp_path / "labels.nii", LABELS, tmp_path / "image.nii")
    assert np.array_equal(nib.load(tmp_path / "labels.nii").get_fdata(), LABELS.T)
    assert (tmp_path / "labels.nii").read_bytes()[348:352] == b"\0\0\0\0"


def test_a_fourth_axis_of_one_does_not_reach_the_labels(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Image(random_image().T[..., None], POSE), tmp_path / "image.nii.gz")
    write_labels(tmp_path / "a.nii.gz", LABELS, tmp_path / "image.nii.gz")
    assert nib.load(tmp_path / "a.nii.gz").shape == (6, 8, 3)


@pytest.mark.parametrize("source_name", ["a.nrrd", "a.mha", "a.nii.gz", "dicom"])
@pytest.mark.parametrize("target", ["out.nii.gz", "out.nrrd", "out.mha", "out.seg.nrrd"])
def test_geometry_is_kept_from_any_format_to_any_other(tmp_path: Path, source_name: str, target: str) -> None:
    if source_name == "dicom":
        source = write_dicom(tmp_path / source_name, random_image())
    else:
        source = write_itk(tmp_path / source_name, random_image())
    write_labels(tmp_path / target, LABELS, source)
    image, labels = read_volume(source), read_volume(tmp_path / target)
    assert np.array_equal(labels.array, LABELS)
    assert labels.spacing_mm == pytest.approx(image.spacing_mm)
    assert labels.header.geometry_differences(image.header) == []


def test_a_volume_that_came_from_no_file_can_be_written(tmp_path: Path) -> None:
    grid = Volume(
        random_image(), (5.0, 1.25, 1.5), (1.0, 2.0, 3.0), (1.0, 0, 0, 0, 1, 0, 0, 0, 1), Path("none")
    )
    write_scalar(tmp_path / "a.nii.gz", np.full((3, 8, 6), 0.25), grid)
    written = nib.load(tmp_path / "a.nii.gz")
    assert written.header.get_zooms() == (1.5, 1.25, 5.0)
    assert written.get_data_dtype() == np.float32
    assert (written.get_fdata() == 0.25).all()


@settings(max_examples=20, deadline=None)
@given(labels=arrays(np.int64, (2, 3, 4), elements=st.integers(-40000, 40000)))
def test_any_integers_survive_writing_and_reading(
    labels: np.ndarray, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    write_labels(folder / "a.nii.gz", labels, write_nifti(folder / "image.nii", random_image((2, 3, 4))))
    assert np.array_equal(read_volume(folder / "a.nii.gz").array, labels)


def test_labels_of_another_shape_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = write_nifti(tmp_path / "image.nii.gz", random_image())
    with pytest.raises(InputError, match=r"shape \(2, 8, 6\), the grid it goes with \(3, 8, 6\)"):
        write_labels(tmp_path / "a.nii.gz", LABELS[:2], source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.nii.gz"]


@pytest.mark.parametrize("name", ["a.mhd", "a.png", "a"])
def test_a_name_that_is_not_one_image_file_is_refused(tmp_path: Path, name: str) -> None:
    source = write_nifti(tmp_path / "image.nii.gz", random_image())
    with pytest.raises(InputError, match="must end in one of"):
        write_labels(tmp_path / name, LABELS, source)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_nifti(tmp_path / "image.nii.gz", random_image())
    write_labels(tmp_path / "a.nii.gz", LABELS, source)
    before = (tmp_path / "a.nii.gz").read_bytes()

    def half(path: Path, content: bytes) -> int:
        with open(path, "wb") as stream:
            stream.write(content[: len(content) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(KeyboardInterrupt):
        write_labels(tmp_path / "a.nii.gz", LABELS * 0, source)
    assert (tmp_path / "a.nii.gz").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.nii.gz", "image.nii.gz"]
