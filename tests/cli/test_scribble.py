from __future__ import annotations

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

from shapepu.cli import main
from shapepu.data.readers import read_dataset
from volume_files import write_itk, write_nifti


def disc(value: int = 1, background: int = 0, shape: tuple[int, int, int] = (2, 24, 20)) -> np.ndarray:
    y, x = np.indices(shape[1:])
    inside = np.hypot(y - 12, x - 10) < 7
    return np.repeat(np.where(inside, value, background).astype(np.uint8)[None], shape[0], axis=0)


def scribble(*arguments: object) -> int:
    return main(["scribble", *map(str, arguments)])


def values_in(path: Path) -> set[int]:
    return {int(value) for value in np.unique(np.asarray(nib.load(path).dataobj))}


def array_of(path: Path) -> np.ndarray:
    return np.asarray(nib.load(path).dataobj).T


@pytest.fixture
def masks(tmp_path):
    """Two masks; the structure 2 is in the second only."""
    write_nifti(tmp_path / "masks/a.nii.gz", disc(1))
    write_nifti(tmp_path / "masks/b.nii.gz", disc(2))
    return tmp_path / "masks"


def refused(capsys, out: Path, *arguments: object) -> str:
    """The one line a refusal prints; nothing was written to ``out``."""
    before = sorted(out.rglob("*")) if out.is_dir() else []
    assert scribble(*arguments, "--quiet") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert (sorted(path for path in out.rglob("*") if path.is_file()) if out.is_dir() else []) == before
    return captured.err


def test_scribbles_take_the_names_and_the_geometry_of_the_masks(masks, tmp_path):
    assert scribble(masks, tmp_path / "out") == 0
    for name in ("a.nii.gz", "b.nii.gz"):
        drawn, mask = nib.load(tmp_path / "out" / name), nib.load(masks / name)
        assert np.allclose(drawn.affine, mask.affine)
        assert drawn.header.get_zooms() == mask.header.get_zooms()
        labels, truth = np.asarray(drawn.dataobj), np.asarray(mask.dataobj)
        assert np.array_equal(labels[labels < 3], truth[labels < 3])


def test_other_formats_keep_their_name_and_geometry(tmp_path):
    (tmp_path / "masks").mkdir()
    for name in ("a.nrrd", "b.mha", "c.seg.nrrd"):
        write_itk(tmp_path / "masks" / name, disc())
        assert scribble(tmp_path / "masks" / name, tmp_path / "out", "--overwrite") == 0
        drawn, mask = (sitk.ReadImage(str(tmp_path / folder / name)) for folder in ("out", "masks"))
        assert drawn.GetDirection() == mask.GetDirection()
        assert drawn.GetOrigin() == mask.GetOrigin()
        assert drawn.GetSpacing() == pytest.approx(mask.GetSpacing())


def test_a_meta_image_of_two_files_becomes_one_file(tmp_path):
    (tmp_path / "masks").mkdir()
    write_itk(tmp_path / "masks/a.mhd", disc())
    assert scribble(tmp_path / "masks", tmp_path / "out") == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.mha", "labels.json"]


def test_unlabelled_is_one_above_the_highest_label_of_all_masks_together(masks, tmp_path):
    assert scribble(masks, tmp_path / "out") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 1, 3}
    assert values_in(tmp_path / "out/b.nii.gz") == {0, 2, 3}
    labels = json.loads((tmp_path / "out/labels.json").read_text())
    assert labels == {"background": 0, "class1": 1, "class2": 2, "ignore": 3}


def test_labels_of_any_value_are_kept_and_unlabelled_lies_above_them(tmp_path):
    write_nifti(tmp_path / "masks/a.nii.gz", disc(255))
    write_nifti(tmp_path / "masks/b.nii.gz", disc(85))
    assert scribble(tmp_path / "masks", tmp_path / "out") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 255, 256}
    assert values_in(tmp_path / "out/b.nii.gz") == {0, 85, 256}


def test_whole_numbers_stored_as_floats_are_labels(tmp_path):
    write_nifti(tmp_path / "masks/a.nii.gz", disc().astype(np.float32))
    assert scribble(tmp_path / "masks", tmp_path / "out") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 1, 2}


def test_class_names_may_be_given_with_and_without_values(masks, tmp_path):
    assert scribble(masks, tmp_path / "one", "--labels", "background", "rv", "lv") == 0
    assert json.loads((tmp_path / "one/labels.json").read_text()) == {
        "background": 0, "rv": 1, "lv": 2, "ignore": 3,
    }  # fmt: skip
    assert scribble(masks, tmp_path / "two", "--labels", "background=0", "lv=2", "rv=1", "scar=7") == 0
    assert json.loads((tmp_path / "two/labels.json").read_text())["ignore"] == 8


def test_labels_declared_beside_the_masks_are_used(tmp_path):
    labels = {"background": 1, "lv": 2, "ignore": 0}
    write_nifti(tmp_path / "masks/a.nii.gz", disc(2, background=1))
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    assert scribble(tmp_path / "masks", tmp_path / "out") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 1, 2}
    assert (array_of(tmp_path / "out/a.nii.gz") == 0).mean() > 0.5
    assert json.loads((tmp_path / "out/labels.json").read_text()) == labels


def test_labels_come_from_the_dataset_json_of_nnunet(tmp_path, capsys):
    write_nifti(tmp_path / "labelsTr/a.nii.gz", disc())
    (tmp_path / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "lv": 1, "scar": 2}}))
    assert scribble(tmp_path / "labelsTr", tmp_path / "out") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 1, 3}
    assert '"ignore": 3 to dataset.json' in capsys.readouterr().out


def test_a_plain_data_set_is_completed_so_that_it_can_be_read(tmp_path, capsys):
    for split in ("train", "val"):
        write_nifti(tmp_path / f"data/{split}/images/{split}a.nii.gz", disc(200))
        write_nifti(tmp_path / f"data/{split}/masks/{split}a_mask.nii.gz", disc(1))
    masks = tmp_path / "data/train/masks"
    (masks / "traina_mask.nii.gz").rename(masks / "traina.nii.gz")
    assert scribble(masks, tmp_path / "data/train/scribbles") == 0
    assert f"shapepu check {tmp_path / 'data'}" in capsys.readouterr().out
    dataset = read_dataset(tmp_path / "data")
    assert dataset.labels.as_dict() == {"background": 0, "class1": 1, "ignore": 2}
    assert dataset.split("train")[0].scribble == tmp_path / "data/train/scribbles/traina.nii.gz"


def test_a_mask_gets_the_same_scribbles_alone_as_among_others(masks, tmp_path):
    assert scribble(masks, tmp_path / "all", "--labels", "background", "rv", "lv") == 0
    alone = (masks / "b.nii.gz", tmp_path / "alone.nii.gz", "--labels", "background", "rv", "lv")
    assert scribble(*alone) == 0
    assert np.array_equal(array_of(tmp_path / "all/b.nii.gz"), array_of(tmp_path / "alone.nii.gz"))


def test_seed_thickness_and_density_change_what_is_drawn(masks, tmp_path):
    def drawn(*options: object) -> np.ndarray:
        assert scribble(masks, tmp_path / "out", "--overwrite", "--quiet", *options) == 0
        return array_of(tmp_path / "out/a.nii.gz")

    usual = drawn()
    assert np.array_equal(usual, drawn("--seed", 0))
    assert not np.array_equal(usual, drawn("--seed", 1))
    assert (drawn("--thickness", 3) < 3).sum() > 1.5 * (usual < 3).sum()
    assert (drawn("--density", 0.2) < 3).sum() < 0.7 * (usual < 3).sum()


def test_slices_follow_the_coarse_axis(tmp_path):
    mask = np.moveaxis(disc(shape=(5, 24, 20)), 0, 2)
    write_nifti(tmp_path / "a.nii.gz", mask, spacing_mm=(1.5, 1.5, 8.0))
    assert scribble(tmp_path / "a.nii.gz", tmp_path / "out.nii.gz") == 0
    drawn = array_of(tmp_path / "out.nii.gz")
    assert np.all((drawn == 1).any(axis=(0, 1)))
    assert np.all((drawn == 1).sum(axis=(0, 1)) < 60)


def test_the_next_command_and_what_was_left_out_are_said(masks, tmp_path, capsys):
    (masks / "notes.txt").write_text("drawn by two people")
    assert scribble(masks, tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "shapepu check" in captured.out
    assert "notes.txt" in captured.err
    assert scribble(masks, tmp_path / "out", "--overwrite", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_masks_that_look_like_scribbles_raise_a_warning(tmp_path, capsys):
    write_nifti(tmp_path / "masks/a.nii.gz", disc(0, background=2) * np.uint8(1))
    assert scribble(tmp_path / "masks", tmp_path / "out") == 0
    assert "scribbles already" in capsys.readouterr().err


def test_existing_scribbles_are_replaced_only_when_told(masks, tmp_path, capsys):
    write_nifti(tmp_path / "out/a.nii.gz", np.full((2, 24, 20), 9, np.uint8))
    assert "--overwrite" in refused(capsys, tmp_path / "out/none", masks, tmp_path / "out")
    assert values_in(tmp_path / "out/a.nii.gz") == {9}
    assert not (tmp_path / "out/b.nii.gz").exists()
    assert scribble(masks, tmp_path / "out", "--overwrite") == 0
    assert values_in(tmp_path / "out/a.nii.gz") == {0, 1, 3}


def test_a_mask_is_never_replaced_by_its_scribbles(masks, capsys):
    before = (masks / "a.nii.gz").read_bytes()
    assert "replace its own mask" in refused(capsys, masks / "none", masks, masks, "--overwrite")
    assert (masks / "a.nii.gz").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (disc().astype(np.float32) * 0.5, "whole numbers"),
        (np.zeros((2, 24, 20), np.uint8), "empty"),
        (np.ones((2, 24, 20), np.uint8), "background"),
        (np.arange(960, dtype=np.int16).reshape(2, 24, 20), "give masks, not images"),
        (disc().astype(np.int16) * np.int16(-1), "give masks, not images"),
    ],
)
def test_what_is_no_mask_is_refused_before_anything_is_written(tmp_path, capsys, content, said):
    write_nifti(tmp_path / "masks/a.nii.gz", content)
    out = tmp_path / "out"
    message = refused(capsys, out, tmp_path / "masks", out)
    assert said in message
    assert "masks" in message


def test_one_bad_mask_stops_the_whole_before_anything_is_written(masks, tmp_path, capsys):
    whole = (masks / "b.nii.gz").read_bytes()
    (masks / "b.nii.gz").write_bytes(whole[: len(whole) // 2])
    assert "b.nii.gz" in refused(capsys, tmp_path / "out", masks, tmp_path / "out")


def test_a_label_outside_the_declared_set_is_refused(masks, tmp_path, capsys):
    out = tmp_path / "out"
    message = refused(capsys, out, masks, out, "--labels", "background", "rv")
    assert "b.nii.gz" in message
    assert "2" in message


def test_pixels_declared_as_ignored_stay_unlabelled(masks, tmp_path):
    assert scribble(masks, tmp_path / "out", "--labels", "background", "rv", "ignore=2") == 0
    drawn, mask = array_of(tmp_path / "out/b.nii.gz"), array_of(masks / "b.nii.gz")
    assert np.all(drawn[mask == 2] == 2)
    assert (drawn[mask == 0] == 0).any()


def test_other_labels_declared_at_the_output_are_refused(masks, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/labels.json").write_text('{"background": 0, "rv": 1, "ignore": 2}')
    labels = ("--labels", "background", "rv", "lv")
    assert "labels.json" in refused(capsys, tmp_path / "out/none", masks, tmp_path / "out", *labels)
    assert not (tmp_path / "out/a.nii.gz").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--thickness", "0"), "thickness"),
        (("--density", "0"), "density"),
        (("--seed=-1",), "seed"),
        (("--labels", "background=x", "rv=1"), "NAME=VALUE"),
        (("--labels", "background"), "2 to"),
        (("--labels", "background", "rv", "rv"), "differ"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(masks, tmp_path, capsys, options, said):
    assert said in refused(capsys, tmp_path / "out", masks, tmp_path / "out", *options)


def test_missing_and_empty_folders_are_refused(tmp_path, capsys):
    assert "no such" in refused(capsys, tmp_path / "out", tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    assert "no mask" in refused(capsys, tmp_path / "out", tmp_path / "empty", tmp_path / "out")


def test_an_output_that_cannot_be_a_folder_is_refused(masks, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert "is a file" in refused(capsys, tmp_path / "out", masks, tmp_path / "out")
    assert (tmp_path / "out").read_text() == "a file"
