from __future__ import annotations

import math

import pytest
from run_folders import DICE, metric_rows, score_rows, scribbled_case, write_json, write_table

from shapepu.evaluation.report import tables
from shapepu.evaluation.report.contents import read_metrics, read_scores, read_scribbled_cases


@pytest.fixture
def scores_of(tmp_path):
    def write(rows):
        write_table(tmp_path / "cases.csv", rows)
        return read_scores(tmp_path / "cases.csv")

    return write


@pytest.fixture
def coverage_of(tmp_path):
    def write(*cases):
        write_json(tmp_path / "data.json", {"cases": list(cases)})
        return tables.coverage(read_scribbled_cases(tmp_path / "data.json"))

    return write


def texts(row: tables.Row) -> list[str]:
    return [cell.text for cell in row.cells]


def test_means_and_deviations_worked_by_hand(scores_of):
    scores = scores_of(score_rows({"a": (0.8, 0.6, 1.0), "b": (0.6, 0.8, 1.0)}))
    rows = tables.score_rows(scores, tables.present_columns(scores))
    assert [row.title for row in rows] == ["rv", "myo", "lv", "average"]
    # Sample deviation of .8 and .6: sqrt(2 * .1^2 / 1).
    assert texts(rows[0]) == [
        "0.700 ± 0.141",
        "6.0 ± 2.8",
        "3.0 ± 1.4",
        "1.50 ± 0.71",
        "−15.0 ± 7.1",
    ]
    # Both cases have a mean of .8, so their average does not vary.
    assert texts(rows[3])[0] == "0.800 ± 0.000"
    assert [row.count for row in rows] == [2, 2, 2, 2]


def test_a_mean_over_fewer_cases_says_over_how_many_and_why(scores_of):
    rows = score_rows({"a": (0.8, 0.8, 0.8), "b": (0.6, 0.6, 0.6)})
    rows[0] |= {"hd_mm": "", "note": "both empty"}
    scores = scores_of(rows)
    row = tables.score_rows(scores, tables.present_columns(scores))[0]
    assert (row.cells[1].text, row.cells[1].count) == ("8.0", 1)
    assert row.cells[0].count is None
    assert row.note == "1 both empty"


def test_a_single_structure_needs_no_average(scores_of):
    scores = scores_of([row for row in score_rows() if row["structure"] == "lv"])
    assert [row.title for row in tables.score_rows(scores, tables.COLUMNS)] == ["lv"]


def test_scores_that_no_case_has_get_no_column(scores_of):
    scores = scores_of([row | {"hd_mm": "", "assd_mm": ""} for row in score_rows()])
    assert [column.name for column in tables.present_columns(scores)] == [
        "dice",
        "hd95_mm",
        "volume_error_ml",
    ]


def test_a_case_row_holds_its_mean_then_dice_then_distances(scores_of):
    carl = next(row for row in tables.case_rows(scores_of(score_rows())) if row.title == "carl")
    assert texts(carl) == ["0.450", "0.000", "0.600", "0.750", "100.0", "4.0", "2.5"]
    assert carl.note == "rv: prediction empty"


def test_a_case_that_lacks_a_structure_has_a_dash_and_no_number_to_sort_by(scores_of):
    rows = [row for row in score_rows() if (row["case"], row["structure"]) != ("bert", "myo")]
    scores = scores_of(rows)
    bert = next(row for row in tables.case_rows(scores) if row.title == "bert")
    assert (bert.cells[2].text, bert.cells[2].value) == ("–", None)
    assert bert.cells[0].value == pytest.approx(0.955)


def test_the_verdict_names_the_weakest_structure_and_case_and_what_was_missed(scores_of):
    text = tables.verdict(scores_of(score_rows()))
    # rv: (.80 + .95 + .00 + .85 + .82) / 5; the average of the case means is .77.
    assert text.startswith("The structures are found and roughly right")
    assert "Weakest structure: rv (0.684)." in text
    assert "Weakest case: carl (0.450)." in text
    assert "rv is missed altogether in 1 of 5 cases." in text
    assert "With 5 cases this is an indication only." in text


@pytest.mark.parametrize(
    ("dice", "expected"),
    [
        (0.85, "follow the reference closely"),
        (0.84, "roughly right"),
        (0.74, "found in part"),
        (0.49, "not a segmentation yet"),
        (0.0, "not a segmentation yet"),
    ],
)
def test_the_verdict_goes_with_the_average_dice(scores_of, dice, expected):
    text = tables.verdict(scores_of(score_rows({f"case {n}": (dice, dice, dice) for n in range(10)})))
    assert expected in text
    assert "indication" not in text


@pytest.mark.parametrize(
    ("epochs", "minutes", "expected"),
    [
        (6, None, ""),
        (None, 3.0, ""),
        (6, 60.0, ""),
        (None, None, ""),
        (20, None, "Training has not ended: 6 epochs and 3.0 minutes are done of 20 epochs."),
        (20, 4.5, "Training has not ended: 6 epochs and 3.0 minutes are done of 20 epochs or 4.5 minutes."),
    ],
)
def test_a_run_has_ended_when_its_epochs_or_its_minutes_are_over(tmp_path, epochs, minutes, expected):
    write_table(tmp_path / "metrics.csv", metric_rows(6))
    assert tables.unfinished(read_metrics(tmp_path / "metrics.csv"), epochs, minutes) == expected


@pytest.mark.parametrize(
    ("epochs", "steps", "expected"),
    [
        (None, 60, ""),
        (20, 60, ""),
        (None, 100, "6 epochs, 60 steps and 3.0 minutes are done of 100 steps."),
        (20, 100, "6 epochs, 60 steps and 3.0 minutes are done of 20 epochs or 100 steps."),
    ],
)
def test_a_run_has_ended_when_its_steps_are_over(tmp_path, epochs, steps, expected):
    write_table(tmp_path / "metrics.csv", metric_rows(6))
    said = tables.unfinished(read_metrics(tmp_path / "metrics.csv"), epochs, None, steps)
    assert said.removeprefix("Training has not ended: ") == expected


def test_coverage_worked_by_hand(coverage_of):
    coverage = coverage_of(scribbled_case("a"), scribbled_case("b", background=0, rv=0, myo=10, lv=0))
    shares = {row.title: texts(row) for row in coverage.classes}
    # 410 labelled pixels of 20,000.
    assert shares["background"] == ["300", "73.17 %", "1.50 %", "1 of 2"]
    assert shares["myo"] == ["60", "14.63 %", "0.30 %", "2 of 2"]
    assert texts(coverage.cases[0]) == ["5", "3.00 %", "0.20 %", "0.50 %", "0.30 %", "4.00 %"]
    assert texts(coverage.cases[1])[-1] == "0.10 %"
    assert coverage.longest_percent == "4.00 %"
    assert sum(width for _, _, width in coverage.bars[0]) == pytest.approx(100)
    assert [width for _, _, width in coverage.bars[1]] == pytest.approx([0, 0, 2.5, 0])


def test_a_class_that_nobody_drew_is_named(coverage_of):
    assert coverage_of(scribbled_case("a", rv=0), scribbled_case("b")).never_drawn == ()
    assert coverage_of(scribbled_case("a", rv=0), scribbled_case("b", rv=0)).never_drawn == ("rv",)


def test_nothing_labelled_at_all_is_no_division_by_zero(coverage_of):
    nothing = dict.fromkeys(("background", "rv", "myo", "lv"), 0)
    coverage = coverage_of(scribbled_case("a", **nothing))
    assert len(coverage.never_drawn) == 4
    assert all(math.isfinite(width) for _, _, width in coverage.bars[0])
    assert coverage_of() is None


def test_the_fixture_has_the_means_it_says(scores_of):
    means = scores_of(score_rows(DICE)).case_means("dice")
    assert list(means.values()) == pytest.approx([0.8, 0.92, 0.45, 0.85, 0.83])
