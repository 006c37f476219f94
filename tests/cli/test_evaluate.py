from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

from shapepu.cli import main


def save(path: Path, labels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sitk.WriteImage(sitk.GetImageFromArray(labels), str(path))
    return path


def block(size: int) -> np.ndarray:
    labels = np.zeros((2, 6, 6), np.uint8)
    labels[:, :size] = 1
    return labels


@pytest.fixture
def folders(tmp_path):
    """Predictions ``good`` and ``poor`` of two cases whose masks hold three rows."""
    for name in ("a", "b"):
        save(tmp_path / f"masks/{name}_mask.nii.gz", block(3))
        save(tmp_path / f"good/{name}.nii.gz", block(3))
        save(tmp_path / f"poor/{name}.nii.gz", block(1))
    return tmp_path


def evaluate(*arguments) -> int:
    return main(["evaluate", *map(str, arguments)])


def refused(capsys, *arguments) -> str:
    """The one line a refusal prints; nothing goes to stdout."""
    assert evaluate(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("shapepu evaluate: ")
    assert err.count("\n") == 1
    return err


def test_a_table_goes_to_stdout_and_two_files_beside_the_predictions(folders, capsys):
    assert evaluate(folders / "poor", folders / "masks") == 0
    out, err = capsys.readouterr()
    # Twelve voxels of thirty-six, all right: 24 / (12 + 36).
    assert "0.500 ± 0.000" in out
    assert "Written to" in err
    assert {path.name for path in (folders / "poor").iterdir()} == {
        "a.nii.gz",
        "b.nii.gz",
        "cases.csv",
        "summary.json",
    }


def test_the_output_folder_is_made_and_the_predictions_left_alone(folders, capsys):
    assert evaluate(folders / "good", folders / "masks", "-o", folders / "new/scores") == 0
    assert sorted(path.name for path in (folders / "new/scores").iterdir()) == ["cases.csv", "summary.json"]
    assert len(list((folders / "good").iterdir())) == 2


def test_json_is_the_only_thing_on_stdout(folders, capsys):
    assert evaluate(folders / "good", folders / "masks", "--json", "--against", folders / "poor") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["foreground_mean"]["Dice"] == 1
    assert summary["against"]["rows"][0]["difference"] == pytest.approx(0.5)


def test_json_is_read_by_parsers_that_know_no_nan(folders, capsys):
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    assert evaluate(folders / "good", folders / "masks", "--json", "--against", folders / "poor") == 0
    summary = json.loads(capsys.readouterr().out, parse_constant=refuse)
    average = next(row for row in summary["against"]["rows"] if row["structure"] == "average")
    assert average["p_holm"] is None, "a question of its own, and so never adjusted"


def test_quiet_says_nothing_but_the_table(folders, capsys):
    assert evaluate(folders / "good", folders / "masks", "--quiet") == 0
    out, err = capsys.readouterr()
    assert "Dice" in out
    assert err == ""


def test_against_prints_and_writes_the_comparison(folders, capsys):
    assert (
        evaluate(folders / "good", folders / "masks", "--against", folders / "poor", "-o", folders / "out")
        == 0
    )
    out, err = capsys.readouterr()
    assert "good" in out
    assert "+0.500" in out
    assert "against.json" in err
    assert json.loads((folders / "out/against.json").read_text())["second"] == "poor"


def test_a_label_file_names_the_structures(folders, capsys):
    (folders / "names.json").write_text('{"background": 0, "ventricle": 1}')
    assert evaluate(folders / "good", folders / "masks", "--labels", folders / "names.json") == 0
    assert "ventricle" in capsys.readouterr().out


def test_missing_predictions_are_refused_unless_allowed(folders, capsys):
    (folders / "good/b.nii.gz").unlink()
    line = refused(capsys, folders / "good", folders / "masks")
    assert "1 of 2 references have no prediction: b" in line
    assert not (folders / "good/summary.json").exists()
    assert evaluate(folders / "good", folders / "masks", "--allow-missing") == 0


@pytest.mark.parametrize("absent", ["predictions", "references"])
def test_a_folder_that_does_not_exist_is_named(folders, capsys, absent):
    paths = {"predictions": folders / "good", "references": folders / "masks", absent: folders / "nowhere"}
    assert f"{absent}: {folders / 'nowhere'} does not exist" in refused(capsys, *paths.values())
    assert not (folders / "nowhere").exists()


def test_folders_without_a_common_name_are_refused_showing_both(folders, capsys):
    save(folders / "others/x.nii.gz", block(3))
    line = refused(capsys, folders / "others", folders / "masks")
    assert "predictions are x, references a, b" in line


def test_an_empty_prediction_folder_is_refused(folders, capsys):
    (folders / "empty").mkdir()
    assert "no label map found" in refused(capsys, folders / "empty", folders / "masks")


def test_a_reference_folder_of_no_known_layout_is_refused(folders, capsys):
    (folders / "empty").mkdir()
    assert str(folders / "empty") in refused(capsys, folders / "good", folders / "empty")


def test_shapes_that_differ_are_refused_and_nothing_is_written(folders, capsys):
    save(folders / "good/b.nii.gz", np.zeros((2, 6, 7), np.uint8))
    line = refused(capsys, folders / "good", folders / "masks", "-o", folders / "out")
    assert "(2, 6, 7)" in line
    assert "(2, 6, 6)" in line
    assert not (folders / "out").exists()


@pytest.mark.parametrize("content", [b"", b"not an image", "half"])
def test_a_prediction_that_is_no_image_is_refused_by_name(folders, capsys, content):
    path = folders / "good/b.nii.gz"
    path.write_bytes(path.read_bytes()[:60] if content == "half" else content)
    assert "b.nii.gz" in refused(capsys, folders / "good", folders / "masks")


def test_an_unknown_option_exits_with_two(folders):
    with pytest.raises(SystemExit) as stopped:
        evaluate(folders / "good", folders / "masks", "--nonsense")
    assert stopped.value.code == 2


def test_an_output_that_is_a_file_is_refused_after_the_table(folders, capsys):
    (folders / "taken").write_text("")
    assert evaluate(folders / "good", folders / "masks", "-o", folders / "taken") == 2
    out, err = capsys.readouterr()
    assert "1.000" in out
    assert "it is a file, not a folder" in err


@pytest.mark.real
def test_real_masks_score_perfectly_against_their_data_set(real_data, tmp_path, capsys):
    masks = real_data / "MSCMR_dataset/val/labels"
    assert evaluate(masks, real_data / "MSCMR_dataset", "-o", tmp_path, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["volumes"], summary["groups"]) == (5, 5)
    assert summary["foreground_mean"]["Dice"] == 1
    assert summary["foreground_mean"]["HD"] == 0
    # A left ventricle in late enhancement holds some decilitres, not millilitres or litres.
    volumes = {summary["labels"][value]: mean["volume_ml"] for value, mean in summary["mean"].items()}
    assert all(30 < volume < 400 for volume in volumes.values()), volumes
