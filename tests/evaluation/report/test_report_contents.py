from __future__ import annotations

import math

import numpy as np
import pytest
from run_folders import score_rows, write_table

from shapepu.errors import InputError
from shapepu.evaluation.report.contents import (
    read_end_of_log,
    read_metrics,
    read_run,
    read_scores,
    read_validation,
)

PIECES = {
    "config.yaml": "config",
    "metrics.csv": "metrics",
    "validation/cases.csv": "scores",
    "validation/cases.json": "validation",
    "validation/summary.json": "score_notes",
    "data.json": "scribbles",
    "train.log": "log",
}


def test_an_empty_cell_is_nan_and_a_column_of_them_is_absent(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss,validation.dice,ratio.rv\n1,0.5,,\n2,0.25,0.7,\n")
    metrics = read_metrics(path)
    np.testing.assert_array_equal(metrics.get("validation.dice"), [math.nan, 0.7])
    assert metrics.get("ratio.rv") is None
    assert metrics.group("ratio") == {}
    assert metrics.get("no such column") is None


def test_the_last_value_is_that_of_the_last_epoch_that_has_one(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,validation.dice\n1,0.4\n2,0.6\n3,\n")
    assert read_metrics(path).last("validation.dice") == 0.6


def test_a_last_line_cut_short_by_a_kill_is_skipped_or_filled_with_nan(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,loss\n1,0.5\n2\n\n,")
    metrics = read_metrics(path)
    np.testing.assert_array_equal(metrics.columns["epoch"], [1, 2])
    np.testing.assert_array_equal(metrics.columns["loss"], [0.5, math.nan])


def test_structures_are_those_with_a_dice_or_a_ratio_but_not_the_background(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,validation.dice,validation.dice.a,ratio.none,ratio.a,ratio.b\n1,,,,,\n")
    assert read_metrics(path).structures == ("a", "b")


def test_a_table_without_epochs_is_refused_by_name(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"metrics\.csv: no column 'epoch'; found a, b"):
        read_metrics(path)


def test_a_case_mean_leaves_out_missing_values_and_the_average_is_over_cases(tmp_path):
    rows = score_rows({"a": (0.2, 0.4, 0.6), "b": (1.0, 1.0, 1.0)})
    for row in rows[3:5]:
        row["hd_mm"] = ""
    write_table(tmp_path / "cases.csv", rows)
    scores = read_scores(tmp_path / "cases.csv")
    assert scores.case_means("dice") == pytest.approx({"a": 0.4, "b": 1.0})
    # HD of a: 16, 12, 8; of b only that of lv: 0. Pooled over all four it would be 9.
    assert scores.case_means("hd_mm") == pytest.approx({"a": 12.0, "b": 0.0})
    assert scores.average("hd_mm") == pytest.approx(6.0)
    assert scores.of_structure("rv", "hd_mm") == pytest.approx([16.0])
    assert scores.average("no such score") is None


def test_a_structure_is_missed_when_only_the_reference_has_it(tmp_path):
    rows = score_rows({"a": (0.0, 0.5, 0.0)})
    rows[2] |= {"n_pred": 10, "n_ref": 0}
    write_table(tmp_path / "cases.csv", rows)
    assert [row.missed for row in read_scores(tmp_path / "cases.csv").rows] == [True, False, False]


def test_a_whole_run_is_read_without_complaint(run):
    contents = read_run(run)
    assert contents.absent == ()
    assert all(getattr(contents, piece) is not None for piece in PIECES.values())
    assert contents.name == "run"
    assert contents.section("data")["name"] == "hearts"
    assert contents.score_notes == ("2 of 5 cases: spacing differs.",)


@pytest.mark.parametrize("file", PIECES)
def test_a_missing_piece_is_named_and_the_others_are_there(run, file):
    (run / file).unlink()
    contents = read_run(run)
    assert getattr(contents, PIECES[file]) is None
    assert sum(file in line for line in contents.absent) == 1
    depends_on_scores = {"validation", "score_notes"} if file == "validation/cases.csv" else set()
    others = set(PIECES.values()) - {PIECES[file]} - depends_on_scores
    assert all(getattr(contents, piece) is not None for piece in others)


@pytest.mark.parametrize("garbage", [b"", b"\xff\xfe\x00", b"{", b"[1, 2]", b"a,b\n1,2\n", b'{"cases": [3]}'])
@pytest.mark.parametrize("file", [file for file in PIECES if file != "train.log"])
def test_a_damaged_piece_is_named(run, file, garbage):
    (run / file).write_bytes(garbage)
    contents = read_run(run)
    # A mapping is valid YAML, and a summary without notes is a summary.
    if (file, garbage) in {
        ("config.yaml", b'{"cases": [3]}'),
        ("validation/summary.json", b'{"cases": [3]}'),
    }:
        assert contents.absent == ()
        return
    assert getattr(contents, PIECES[file]) is None
    assert sum(file.rsplit("/")[-1] in line for line in contents.absent) == 1


def test_a_folder_without_a_run_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="not a run folder; expected config") as error:
        read_run(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_of_a_log_only_what_was_left_standing_is_shown(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b"first\r\n10 %\r20 %\r30 %\n\n\x1b[31mred\x1b[0m\x07\n\xff\n")
    assert read_end_of_log(path) == ("first", "30 %", "red", "�")


def test_only_the_end_of_a_long_log_is_read(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    lines = read_end_of_log(path)
    assert len(lines) == 25
    assert lines[-1] == "line 99999"


def test_predictions_are_found_in_a_run_that_has_moved(run, tmp_path):
    (run / "validation/cases.json").write_text(
        (run / "validation/cases.json").read_text().replace("predictions/", "/no/such/folder/")
    )
    validation = read_validation(run / "validation/cases.json")
    assert [case.prediction.parent.name for case in validation.cases] == ["predictions"] * 5
    assert all(case.prediction.exists() for case in validation.cases)
