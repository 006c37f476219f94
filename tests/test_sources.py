"""Which files belong to which case, and what its prediction is called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shapepu.errors import InputError
from shapepu.sources import find_sources

DICOM = bytes(128) + b"DICM"
ONE, TWO = ("image",), ("T2", "LGE")


@pytest.fixture
def folder(tmp_path):
    def make(*names: str) -> Path:
        for name in names:
            path = tmp_path / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(DICOM if "slice" in name else b"")
        return tmp_path / "in"

    return make


def found(images: Path, channels=ONE) -> dict[str, list[str]]:
    """The name of each prediction with the names of its images."""
    sources = find_sources(images, channels)
    return {source.name + source.ending: [path.name for path in source.images] for source in sources}


def test_single_channel_files_lose_the_channel_number_and_keep_their_ending(folder):
    images = folder("b_0000.nii.gz", "a.nii", "c.NRRD", "d.seg.nrrd", "e.mha", "f.mhd")
    assert found(images) == {
        "a.nii": ["a.nii"],
        "b.nii.gz": ["b_0000.nii.gz"],
        "c.nrrd": ["c.NRRD"],
        "d.seg.nrrd": ["d.seg.nrrd"],
        "e.mha": ["e.mha"],
        "f.mha": ["f.mhd"],
    }


def test_four_digits_without_a_channel_0000_are_part_of_the_name(folder):
    assert list(found(folder("scan_2019.nii.gz", "scan_2020.nii.gz"))) == [
        "scan_2019.nii.gz",
        "scan_2020.nii.gz",
    ]


def test_channels_are_grouped_in_their_order(folder):
    images = folder("a_0001.nii.gz", "a_0000.nii.gz", "b_0000.nii.gz", "b_0001.nii.gz")
    assert found(images, TWO) == {
        "a.nii.gz": ["a_0000.nii.gz", "a_0001.nii.gz"],
        "b.nii.gz": ["b_0000.nii.gz", "b_0001.nii.gz"],
    }


def test_hidden_and_foreign_files_are_no_images(folder):
    images = folder("a.nii.gz", ".77-b.nii.gz", "notes.txt", "dataset.json", "sub/c.nii.gz")
    assert list(found(images)) == ["a.nii.gz"]


@pytest.fixture
def locked(monkeypatch):
    """Makes a folder unreadable, to root too."""

    def lock(name: str) -> None:
        listed = Path.iterdir

        def refused(folder: Path) -> Iterator[Path]:
            if folder.name == name:
                raise PermissionError(13, "Permission denied", str(folder))
            return listed(folder)

        monkeypatch.setattr(Path, "iterdir", refused)

    return lock


def test_a_folder_that_nobody_may_read_is_passed_over_and_named(folder, locked, capsys):
    images = folder("a.nii.gz", "lost+found/slice1.dcm", "p1/slice1.dcm")
    locked("lost+found")
    assert list(found(images)) == ["a.nii.gz", "p1.nii.gz"]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"passed over: {images / 'lost+found'}: it cannot be read (Permission denied); allow that if it "
        "holds images."
    ]


def test_images_that_nobody_may_read_are_refused_in_a_line(folder, locked):
    images = folder("a.nii.gz")
    locked(images.name)
    with pytest.raises(InputError, match=r"in: it cannot be read \(Permission denied\); allow that"):
        find_sources(images, ONE)


def test_one_file_is_a_case_with_its_other_channels_beside_it(folder):
    images = folder("a_0000.mha", "a_0001.mha", "b_0000.mha")
    assert found(images / "a_0000.mha", TWO) == {"a.mha": ["a_0000.mha", "a_0001.mha"]}
    assert found(images / "a_0000.mha") == {"a.mha": ["a_0000.mha"]}


def test_a_dicom_folder_is_a_case_and_so_is_each_of_a_folder_of_them(folder):
    images = folder("p1/slice1.dcm", "p1/slice2.dcm", "p2/slice_without_ending", "empty/readme.md")
    assert found(images) == {"p1.nii.gz": ["p1"], "p2.nii.gz": ["p2"]}
    assert found(images / "p2") == {"p2.nii.gz": ["p2"]}


def test_dicom_folders_can_be_channels(folder):
    images = folder("p_0000/slice1.dcm", "p_0001/slice1.dcm")
    assert found(images, TWO) == {"p.nii.gz": ["p_0000", "p_0001"]}
    assert found(images / "p_0000", TWO) == {"p.nii.gz": ["p_0000", "p_0001"]}


def test_a_missing_channel_names_the_expected_ones(folder):
    with pytest.raises(InputError, match=r"2 channels, named a_0000 \(T2\), a_0001 \(LGE\); found a_0000"):
        find_sources(folder("a_0000.nii.gz"), TWO)


def test_two_channels_for_a_model_of_one_are_refused(folder):
    with pytest.raises(InputError, match=r"expects 1 channel \(image\).*found a_0000.nii.gz, a_0001.nii.gz"):
        find_sources(folder("a_0000.nii.gz", "a_0001.nii.gz"), ONE)


def test_one_incomplete_case_among_many_is_left_for_its_turn(folder):
    sources = find_sources(folder("a_0000.nii", "a_0001.nii", "b_0000.nii"), TWO)
    assert [source.name for source in sources] == ["a", "b"]
    assert not sources[0].problem
    assert "b_0001 (LGE)" in sources[1].problem


def test_channels_with_a_gap_in_their_numbers_are_refused(folder):
    with pytest.raises(InputError, match="a_0001"):
        find_sources(folder("a_0000.nii", "a_0002.nii"), TWO)


@pytest.mark.parametrize(
    "names",
    [
        ("a.nii.gz", "a.mha"),
        ("a.nii.gz", "a_0000.nii.gz"),
        ("a_0000.nii", "a_0000.mha"),
        ("a.nii", "a/slice.dcm"),
    ],
)
def test_two_images_with_one_prediction_are_refused(folder, names):
    with pytest.raises(InputError, match="keep one"):
        find_sources(folder(*names), ONE)


def test_a_folder_without_images_points_at_the_one_that_has_them(folder):
    with pytest.raises(InputError, match=r"did you mean .*imagesTs"):
        find_sources(folder("dataset.json", "imagesTs/a_0000.nii.gz"), ONE)
    with pytest.raises(InputError, match="no such file"):
        find_sources(Path("nowhere"), ONE)
