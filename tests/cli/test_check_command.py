"""``shapepu check`` as a user meets it: exit code, what is printed where, and every unreadable input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from shapepu.cli import main
from volume_files import plain_folder, random_image, scribbled, write_json, write_nifti


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return plain_folder(tmp_path / "data")


def test_a_good_data_set_gets_a_row_a_case_and_a_verdict(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(data)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    title = "case   split   size         mm  background  class1  class2  scribbled  findings"
    assert lines[0] == title
    assert lines[1] == "case0  train  6x8x3  1.5x1.5x5          12      12      12     25.00%"
    assert lines[-1] == "Ready to train."
    assert err == "checking data: 2 cases, folder layout\n"


def test_quiet_prints_findings_and_verdict_only(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(data), "--quiet"]) == 0
    assert capsys.readouterr() == ("Ready to train.\n", "")


def test_warnings_of_one_kind_are_told_once_with_their_number(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("case0", "case1"):
        write_nifti(data / f"scribbles/{name}.nii.gz", scribbled(), (1.0, 1.0, 1.0))
    assert main(["check", str(data)]) == 1
    out = capsys.readouterr().out
    assert out.count("carries no pixel size") == 1
    assert "warning  [1] 2 cases: a label file carries no pixel size" in out
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["[1]", "[1]"]
    assert out.splitlines()[-1] == "Ready to train; 1 kind of warning above."


def test_errors_are_all_listed_the_gravest_kind_first(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_nifti(data / "images/case2.nii.gz", np.zeros((3, 8, 6), np.int16))
    write_nifti(data / "scribbles/case2.nii.gz", scribbled())
    for name in ("case0", "case1"):
        (data / f"images/{name}.nii.gz").write_bytes(b"")
    assert main(["check", str(data)]) == 2
    out = capsys.readouterr().out
    assert "error    [1] 2 cases: a file cannot be read" in out
    assert all(
        f"{name}.nii.gz: an image expected, but the file is empty" in out for name in ("case0", "case1")
    )
    assert "warning  [2] case2: an image holds one value everywhere" in out
    assert out.splitlines()[-1] == "Not ready: 2 errors to mend first."


def test_json_is_one_document_and_nothing_else(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "images/case0.nii.gz").write_bytes(b"")
    assert main(["check", str(data), "--json"]) == 2
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert (content["exit_code"], content["cases"][0]["findings"][0]["level"]) == (2, "error")
    assert err == ""


def test_json_also_tells_that_a_folder_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "none"), "--json"]) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == 2
    assert "a data set folder expected" in json.loads(out)["verdict"]
    assert err.startswith("shapepu check: ")


def test_layout_splits_and_fold_reach_the_reader(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = write_json(tmp_path / "s.json", [{"train": []}, {"train": ["case0"], "val": ["case1"]}])
    assert main(["check", str(data), "--splits", str(splits), "--fold", "1", "--layout", "folder"]) == 0
    assert "2 cases: 1 train, 1 val" in capsys.readouterr().out
    assert main(["check", str(data), "--layout", "nnunet"]) == 2
    assert "dataset.json is missing" in capsys.readouterr().err


def test_many_classes_do_not_widen_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = plain_folder(tmp_path / "data")
    names = {f"class{value}": value for value in range(4, 20)}
    write_json(root / "labels.json", {"background": 0, "class1": 1, "class2": 2, **names, "ignore": 3})
    main(["check", str(root)])
    assert "class1" not in capsys.readouterr().out.splitlines()[0]


def _truncate(data: Path) -> None:
    path = data / "images/case0.nii.gz"
    path.write_bytes(path.read_bytes()[:-20])


def _empty(data: Path) -> None:
    (data / "images/case0.nii.gz").write_bytes(b"")


def _text(data: Path) -> None:
    (data / "images/case0.nii.gz").write_text("dear radiologist")


def _two_dimensional(data: Path) -> None:
    nib.save(nib.Nifti1Image(random_image()[0].T, np.eye(4)), data / "images/case0.nii.gz")


def _four_dimensional(data: Path) -> None:
    nib.save(nib.Nifti1Image(np.zeros((6, 8, 3, 2), np.int16), np.eye(4)), data / "images/case0.nii.gz")


def _other_shape(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", scribbled((2, 8, 6)))


def _nan(data: Path) -> None:
    image = random_image().astype(np.float32)
    image[0, 0, 0], image[0, 0, 1] = np.nan, np.inf
    write_nifti(data / "images/case0.nii.gz", image)


def _unknown_label(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", np.where(scribbled() == 3, 7, scribbled()).astype(np.uint8))


def _fractions(data: Path) -> None:
    write_nifti(data / "scribbles/case0.nii.gz", scribbled() * np.float32(0.5))


def _nothing_scribbled(data: Path) -> None:
    for name in ("case0", "case1"):
        write_nifti(data / f"scribbles/{name}.nii.gz", np.full((3, 8, 6), 3, np.uint8))


def _one_class_never(data: Path) -> None:
    for name in ("case0", "case1"):
        labels = scribbled()
        labels[labels == 2] = 3
        write_nifti(data / f"scribbles/{name}.nii.gz", labels)


def _broken_labels_json(data: Path) -> None:
    (data / "labels.json").write_text("{")


def _no_images(data: Path) -> None:
    for path in (data / "images").iterdir():
        path.unlink()


def _one_slice(data: Path) -> None:
    write_nifti(data / "images/case0.nii.gz", random_image((1, 8, 6), seed=4))
    write_nifti(data / "scribbles/case0.nii.gz", scribbled((1, 8, 6)))


def _one_pixel(data: Path) -> None:
    write_nifti(data / "images/case0.nii.gz", random_image((1, 1, 1)))
    write_nifti(data / "scribbles/case0.nii.gz", np.full((1, 1, 1), 3, np.uint8))


BAD: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "truncated": (
        _truncate,
        2,
        "case0.nii.gz: truncated: its compressed stream ends too early; copy or export",
    ),
    "empty": (
        _empty,
        2,
        "case0.nii.gz: an image expected, but the file is empty (0 bytes); copy or export it",
    ),
    "text": (
        _text,
        2,
        "case0.nii.gz: a NIfTI file expected, but its content starts with b'dear radiolo'; export",
    ),
    "2-D": (_two_dimensional, 2, "got 2-D (6 x 8); save a single 2-D image as a volume of one slice"),
    "4-D": (_four_dimensional, 2, "got 4-D (6 x 8 x 3 x 2); save each time frame as a case and each channel"),
    "shape": (_other_shape, 2, "case0.nii.gz: 6 x 8 x 2 voxels, but its image has 6 x 8 x 3"),
    "nan": (_nan, 2, "case0.nii.gz: 2 of 144 voxels are NaN or infinite; replace them"),
    "unknown label": (
        _unknown_label,
        2,
        "it holds the values 7 (108 voxels); expected 0 background, 1 class1",
    ),
    "float labels": (_fractions, 2, "case0.nii.gz: labels are whole numbers, but 120 voxels are not"),
    "no scribbles": (_nothing_scribbled, 2, "class 'class1' is scribbled in no training case"),
    "one class never": (_one_class_never, 2, "class 'class2' is scribbled in no training case"),
    "labels.json": (_broken_labels_json, 2, "labels.json: invalid JSON in line 1, column 2"),
    "no images": (_no_images, 2, "no case found; the folder layout is images/NAME.nii.gz"),
    "one slice": (_one_slice, 0, "Ready to train."),
    "one pixel": (_one_pixel, 1, "every voxel is 850"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_has_an_exit_code_and_a_line_that_says_what_to_do(
    kind: str, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, exit_code, line = BAD[kind]
    spoil(data)
    before = sorted(data.rglob("*"))
    assert main(["check", str(data)]) == exit_code
    out, err = capfd.readouterr()
    assert line in out + err
    assert "Traceback" not in err
    assert sorted(data.rglob("*")) == before


def test_without_labels_json_one_truncated_scribble_does_not_cost_the_table(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "labels.json").unlink()
    path = data / "scribbles/case0.nii.gz"
    path.write_bytes(path.read_bytes()[:-20])
    assert main(["check", str(data)]) == 2
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["case", "case0", "case1"]
    assert "case0.nii.gz: truncated: its compressed stream ends too early" in out
    assert out.splitlines()[-1] == "Not ready: 1 error to mend first."


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "dataset.json is missing: nnU-Net's layout needs it"),
        ('{"labels": ', "dataset.json: invalid JSON in line 1"),
        (
            '{"labels": {"background": 0, "a": 1, "ignore": 5}}',
            '"ignore" must be the highest label, here 2; got 5',
        ),
        ('{"labels": {"background": 0, "a": 1}}', '"channel_names" must number the channels from 0'),
    ],
)
def test_a_missing_or_wrong_dataset_json_is_told_in_one_line(
    tmp_path: Path, content: str | None, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write_nifti(tmp_path / "imagesTr/a_0000.nii.gz", random_image())
    if content is not None:
        (tmp_path / "dataset.json").write_text(content)
    assert main(["check", str(tmp_path)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1
