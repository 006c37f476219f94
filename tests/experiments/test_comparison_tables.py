from __future__ import annotations

import pytest
from comparisons import cases, experiment, record, write

from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.experiments import tables
from shapepu.experiments.definition import Row
from shapepu.experiments.outcome import read_outcome
from shapepu.experiments.tables import (
    BEST,
    SECOND,
    budget_line,
    command_line,
    data_tables,
    differences_table,
    fairness_table,
    scores_table,
    show_count,
)

BETTER = [0.80, 0.82, 0.79, 0.85, 0.90, 0.78, 0.83, 0.81]
BASE = [0.50, 0.52, 0.61, 0.44, 0.58, 0.49, 0.53, 0.57]


def tables_of(results, **dice):
    """The tables of rows that each have the Dice of one structure; distances go against it."""
    rows = experiment(*(Row(name, label=name.upper()) for name in dice))
    write(results, rows, [record(name, cases({"lv": values})) for name, values in dice.items()])
    outcome = read_outcome(results)
    return outcome, outcome.tables[0]


def column(table, place):
    return [line.cells[place] for line in table.lines]


def test_of_three_rows_the_best_is_bold_and_the_second_underlined(tmp_path):
    found = scores_table(*tables_of(tmp_path, pce=[0.5, 0.6], wpce=[0.9, 0.8], shapepu=[0.7, 0.7]))
    assert [cell.rank for cell in column(found, 0)] == [0, BEST, SECOND]
    assert [cell.text for cell in column(found, 0)] == ["0.550 ± 0.071", "0.850 ± 0.071", "0.700 ± 0.000"]
    distances = [cell.rank for cell in column(found, 3)]
    assert distances == [0, BEST, SECOND], "the smallest distance is the best"


def test_what_prints_the_same_ranks_the_same_and_then_nothing_is_second(tmp_path):
    found = scores_table(*tables_of(tmp_path, pce=[0.70001], wpce=[0.69999], shapepu=[0.5]))
    assert [cell.rank for cell in column(found, 0)] == [BEST, BEST, 0]


def test_of_two_rows_none_is_underlined_and_a_single_one_is_not_bold(tmp_path):
    two = scores_table(*tables_of(tmp_path / "two", pce=[0.5], wpce=[0.6]))
    assert [cell.rank for cell in column(two, 0)] == [0, BEST]
    one = scores_table(*tables_of(tmp_path / "one", pce=[0.5]))
    assert [cell.rank for cell in column(one, 0)] == [0]


def test_a_dagger_is_a_significant_gain_and_a_star_one_that_holds_after_correction(tmp_path):
    # Eight volumes that are all better: p = 2 / 2^8, times four tests is still below 0.05.
    found = scores_table(*tables_of(tmp_path, pce=BASE, wpce=BETTER))
    assert [cell.marks for cell in column(found, 0)] == ["", "†*"]
    assert [cell.marks for cell in column(found, 3)] == ["", "†*"], "a smaller distance is better"


def test_six_volumes_give_a_dagger_that_does_not_hold_after_correction(tmp_path):
    # p = 2 / 2^6 = 0.03125; Holm over the four tests of this table makes it 0.125.
    outcome, table = tables_of(tmp_path, pce=BASE[:6], wpce=BETTER[:6])
    assert [cell.marks for cell in column(scores_table(outcome, table), 0)] == ["", "†"]
    line = tables.tests_table(outcome, table).lines[0]
    assert [cell.text for cell in line.cells[3:6]] == ["6 of 6", "0.0312", "0.1250"]


def test_a_significant_loss_is_marked_as_one(tmp_path):
    found = scores_table(*tables_of(tmp_path, pce=BETTER, wpce=BASE))
    assert [cell.marks for cell in column(found, 0)] == ["", "↓*"]
    assert [cell.marks for cell in column(found, 3)] == ["", "↓*"]


def test_marks_go_by_the_ranks_and_a_note_names_means_that_say_the_opposite(tmp_path):
    """One volume is lost altogether and 14 are better: that is what the test found, not the mean."""
    lost = [0.0, *(value + 0.001 * place for place, value in enumerate(BASE[1:] + BASE[1:], start=1))]
    found = scores_table(*tables_of(tmp_path, pce=[0.9, *BASE[1:], *BASE[1:]], wpce=lost))
    assert [cell.text.split()[0] for cell in column(found, 0)] == ["0.559", "0.506"]
    assert column(found, 0)[1].marks.startswith("†")
    [note] = [note for note in found.notes if "against the direction of the means" in note]
    assert "WPCE: Dice LV (better in 14 of 15)" in note


def test_full_supervision_has_all_pixels_labelled(tmp_path):
    rows = experiment(Row("pce"), Row("full"))
    scored = cases({"lv": [0.5, 0.6]})
    records = [record("pce", scored), record("full", scored, method="full", supervision=("masks",))]
    outcome = read_outcome(write(tmp_path, rows, records))
    assert [cell.text for cell in column(fairness_table(outcome, outcome.tables[0]), 3)] == ["1.23", "all"]


def test_five_volumes_cannot_be_significant_and_the_table_says_so(tmp_path):
    found = scores_table(*tables_of(tmp_path, pce=BASE[:5], wpce=BETTER[:5]))
    assert [cell.marks for cell in column(found, 0)] == ["", ""]
    assert "With 5 volumes no p-value can fall below 0.0625." in found.notes


def test_published_figures_stand_in_a_group_of_their_own_and_are_never_ranked(example):
    found = scores_table(*example)
    assert [(each.group, each.title) for each in found.columns][-2:] == [
        ("Published", "Dice"),
        ("Published", "HD (mm)"),
    ]
    assert [cell.text for cell in found.lines[0].cells[-2:]] == ["0.765", "26.9"]
    assert {cell.rank for line in found.lines for cell in line.cells[-2:]} == {0}


def test_the_reason_of_a_row_that_is_not_there_is_a_footnote(example):
    found = scores_table(*example)
    said = {line.title: (line.instead, line.footnotes) for line in found.lines if line.instead}
    assert said == {
        "CRF": ("not run", ("the data set has no validation case.",)),
        "MAAG": ("failed", ("RuntimeError: out of memory",)),
        "ACCL": ("not run yet", ()),
    }
    assert list(found.footnotes.values()) == ["a", "b", "c"]


def test_what_is_not_all_there_is_told_apart_from_what_failed(example):
    notes = scores_table(*example).notes
    expected = "Not all is there: *ShapePU*: L_+ & 100 % has no run yet of seed 1; of Full seed 1 failed."
    assert expected in notes


def test_a_row_without_a_mark_for_want_of_a_row_above_it_is_named(example):
    notes = scores_table(*example).notes
    assert "Not tested, for want of a result of the row to test against: Full." in notes


def test_the_notes_define_every_distance_and_count_what_was_missed(example):
    notes = scores_table(*example).notes
    assert DEFINITIONS in notes
    assert "Structures found by only one of prediction and reference: PCE 2 of 48." in notes


def test_the_fairness_table_tells_hardware_apart_and_averages_over_seeds(example):
    found = fairness_table(*example)
    titles = [each.title for each in found.columns]
    pce = dict(zip(titles, (cell.text for cell in found.lines[0].cells), strict=True))
    assert (pce["minutes"], pce["seeds"], pce["hardware"]) == ("1.6", "0, 1", "1")
    assert pce["labelled pixels, %"] == "1.23"
    assert (
        "Hardware: (1) A processor, 2 threads a run; "
        "(2) A card; A processor, one thread a run, 2 runs at a time."
    ) in found.notes


def test_between_methods_only_options_of_both_are_listed(example):
    outcome, table = example
    found = differences_table(outcome, table)
    lines = [(line.title, *(cell.text for cell in line.cells)) for line in found.lines]
    assert lines == [
        ("*ShapePU*: L_+ & 100 %", "PCE", "method", "pce", "shapepu"),
        ("", "PCE", "data.cases", "None", "5"),
    ]
    assert found.notes


def test_within_a_method_every_difference_is_listed(tmp_path):
    rows = experiment(Row("one", method="pce"), Row("two", method="pce"))
    settings = {"one": {"method": "pce", "weight": 1.0}, "two": {"method": "pce", "weight": 2, "new": True}}
    write(tmp_path, rows, [record("one", cases({"lv": [0.5]}))], settings=settings)
    outcome = read_outcome(tmp_path)
    found = differences_table(outcome, outcome.tables[0])
    assert [[cell.text for cell in line.cells] for line in found.lines] == [
        ["one", "weight", "1", "2"],
        ["one", "new", "-", "True"],
    ]
    assert found.notes == ()


def test_tables_without_a_line_are_left_out(tmp_path):
    found = data_tables(*tables_of(tmp_path, pce=[0.5, 0.6]))
    assert (found.tests, found.published, found.differences) == (None, None, None)
    assert [table.name for table in found.shown] == ["ACDC", "ACDC-fairness"]


def test_budget_and_command_are_told(example):
    outcome, _ = example
    assert budget_line(outcome.plan) == "Recipe fast; 300 steps for every run; seeds 0, 1."
    assert command_line(outcome) == (
        "shapepu compare made --data ACDC=... --steps-per-run 300 --seeds 0,1 -o RESULTS"
    )


def test_footnotes_go_on_after_z(tmp_path):
    rows = experiment(*(Row(f"row{place}", method="pce", note=f"note {place}") for place in range(28)))
    write(tmp_path, rows, [record("row0", cases({"lv": [0.5]}))])
    outcome = read_outcome(tmp_path)
    letters = list(scores_table(outcome, outcome.tables[0]).footnotes.values())
    assert (letters[0], letters[25:]) == ("a", ["z", "aa", "ab"])


@pytest.mark.parametrize(("count", "shown"), [(999, "999"), (1_080_000, "1.08 M"), (17_230, "17.2 k")])
def test_counts_have_three_digits(count, shown):
    assert show_count(count) == shown
