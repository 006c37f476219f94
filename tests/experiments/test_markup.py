from __future__ import annotations

import csv
import io

import pytest
from stored_example import VOLUMES

from shapepu.experiments.markup import as_latex, as_markdown, runs_csv, scores_csv, tests_csv
from shapepu.experiments.tables import BEST, SECOND, Cell, Column, Line, Table, data_tables

# pytest would take a function of that name for a test.
lines_of_tests = tests_csv
del tests_csv


DICE = (Column("Dice"),)


def table(*lines: Line, columns=DICE, notes=(), caption="A table") -> Table:
    return Table("name", caption, columns, lines, notes)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("100 % & more_of #1", r"100 \% \& more\_of \#1"),
        (r"a\b {c} $d$", r"a\textbackslash{}b \{c\} \$d\$"),
        ("x^2 ~ y", r"x\textasciicircum{}2 \textasciitilde{} y"),
        ("p < 0.05 > 0", r"p $<$ 0.05 $>$ 0"),
        ("−0.1 ± 0.2", r"$-$0.1 $\pm$ 0.2"),
        ("† ↓ – ×", r"$^{\dagger}$ $^{\downarrow}$ -- $\times$"),
        ("shapepu --data A", "shapepu -{}-data A"),
    ],
)
def test_nothing_that_latex_would_read_as_a_command_is_left(text, latex):
    assert rf"\caption{{{latex}.}}" in as_latex(table(caption=text))
    assert rf"\footnotesize {latex}\end{{minipage}}" in as_latex(table(notes=(text,)))


@pytest.mark.parametrize("title", ["*starred", "[bracketed]"])
def test_a_title_is_no_argument_of_the_line_break_before_it(title):
    text = as_latex(table(Line("one", (Cell("1"),)), Line(title, (Cell("2"),))))
    assert f"\\\\\n{{}}{title} & 2 \\\\" in text


def test_ranks_and_marks_in_latex():
    line = Line("row", (Cell("0.9", BEST, "†*"), Cell("0.8", SECOND, "↓"), Cell("0.7")))
    text = as_latex(table(line, columns=(Column("a"), Column("b"), Column("c"))))
    assert r"row & \textbf{0.9}$^{\dagger*}$ & \underline{0.8}$^{\downarrow}$ & 0.7 \\" in text


def test_ranks_and_marks_in_markdown():
    line = Line("row", (Cell("0.9", BEST, "†*"), Cell("0.8", SECOND, "↓"), Cell("0.7")))
    text = as_markdown(table(line, columns=(Column("a"), Column("b"), Column("c"))))
    assert "| row | **0.9** †\\* | <ins>0.8</ins> ↓ | 0.7 |" in text


def test_a_name_in_markdown_cannot_break_the_table_or_become_markup():
    text = as_markdown(table(Line("a|b *c* <d> [e](f)", (Cell("1"),))))
    assert r"| a\|b \*c\* \<d\> \[e\](f) | 1 |" in text


def test_every_line_of_a_table_has_all_columns(example):
    outcome, of_data = example
    for each in data_tables(outcome, of_data).shown:
        columns = len(each.columns) + 1
        markdown = [line for line in as_markdown(each).splitlines() if line.startswith("|")]
        assert {line.replace(r"\|", "").count("|") for line in markdown} == {columns + 1}
        body = as_latex(each).split(r"\midrule")[1].split(r"\bottomrule")[0]
        for line in (line for line in body.splitlines() if line.endswith(r"\\")):
            cells = line.replace(r"\&", "").split(" & ")
            spans = [
                int(cell.split("{")[1].rstrip("}")) for cell in cells if cell.startswith(r"\multicolumn")
            ]
            assert len(cells) - len(spans) + sum(spans) == columns


def test_headings_span_the_columns_they_stand_over():
    columns = (Column("LV", "Dice"), Column("MYO", "Dice"), Column("n"), Column("Dice", "Published"))
    text = as_latex(table(Line("row", tuple(map(Cell, "1234"))), columns=columns))
    assert r" & \multicolumn{2}{c}{Dice} &  & \multicolumn{1}{c}{Published} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){5-5}" in text
    assert "| row | Dice LV | Dice MYO | n | Published Dice |" in as_markdown(
        table(Line("row", tuple(map(Cell, "1234"))), columns=columns)
    )


def test_the_csv_keeps_published_and_own_figures_apart_and_says_why_a_row_is_missing(example):
    found = {row["row"]: row for row in rows(scores_csv(*example))}
    assert float(found["shapepu"]["dice_lv_mean"]) == pytest.approx(0.8 + 0.015 * 3.5)
    assert found["shapepu"]["published_dice_lv_mean"] == "0.86"
    assert found["shapepu"]["published_hd_mm_mean"] == "12.6"
    assert found["full"]["published_dice_lv_mean"] == ""
    assert (found["crf"]["dice_lv_mean"], found["crf"]["missing"]) == (
        "",
        "the data set has no validation case.",
    )
    assert (found["maag"]["missing"], found["accl"]["missing"]) == (
        "RuntimeError: out of memory",
        "not run yet",
    )
    assert (found["pce"]["seeds"], found["pce"]["volumes"], found["pce"]["patients"]) == ("0 1", "8", "4")


def test_the_csv_of_tests_has_a_line_for_each_question_and_both_means(example):
    found = rows(lines_of_tests(example[1]))
    assert len(found) == 6  # three structures and three averages, of the one row that has a row above it
    lv = found[0]
    assert (lv["row"], lv["against"], lv["structure"], lv["pairs"]) == ("shapepu", "pce", "lv", str(VOLUMES))
    assert float(lv["difference"]) == pytest.approx(float(lv["mean"]) - float(lv["against_mean"]), abs=2e-6)


def test_the_csv_of_runs_has_a_line_a_run(example):
    found = rows(runs_csv(example[1]))
    assert [(row["row"], row["seed"]) for row in found] == [
        ("pce", "0"),
        ("pce", "1"),
        ("shapepu", "0"),
        ("full", "0"),
    ]
    assert float(found[0]["dice_lv"]) == pytest.approx(0.6 + 0.01 * 3.5)
