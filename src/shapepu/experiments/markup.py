"""Tables as Markdown, LaTeX and CSV: the same bytes for the same results."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from shapepu.evaluation.statistics import Spread
from shapepu.experiments.outcome import DataOutcome, Outcome, RowOutcome, questions
from shapepu.experiments.records import DIGITS
from shapepu.experiments.tables import BEST, BETTER, SECOND, WORSE, Cell, Column, Line, Table
from shapepu.methods import find_method

SCORES = ("dice", "hd_mm", "hd95_mm", "assd_mm", "volume_error_ml")

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "#": r"\#",
    "$": r"\$",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    BETTER: r"$^{\dagger}$",
    WORSE: r"$^{\downarrow}$",
    "×": r"$\times$",
    "→": r"$\to$",
}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|])")


def as_markdown(table: Table) -> str:
    """For GitHub and its like; the second best is underlined by ``ins``, since Markdown has no underline."""
    letters = table.footnotes
    titles = [f"{column.group} {column.title}".strip() for column in table.columns]
    aligned = [":--", *(":--" if column.left else "--:" for column in table.columns)]
    rows = [[table.first, *map(_for_markdown, titles)], aligned]
    for group, lines in groupby(table.lines, key=lambda line: line.group):
        if group:
            rows.append([f"*{_for_markdown(group)}*", *("" for _ in table.columns)])
        rows += [_markdown_line(line, table, letters) for line in lines]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
    notes = [f"<sup>{letter}</sup> {_for_markdown(note)}" for note, letter in letters.items()]
    notes += [_for_markdown(note) for note in table.notes]
    return "\n\n".join([f"**{_for_markdown(table.caption)}**", text, *notes]) + "\n"


def _markdown_line(line: Line, table: Table, letters: Mapping[str, str]) -> list[str]:
    title = _for_markdown(line.title)
    if line.footnotes:
        title += f" <sup>{', '.join(letters[note] for note in line.footnotes)}</sup>"
    empty = len(table.columns) - len(line.cells)
    instead = [f"*{_for_markdown(line.instead)}*", *("" for _ in range(empty - 1))] if empty else []
    return [title, *instead, *map(_markdown_cell, line.cells)]


def _markdown_cell(cell: Cell) -> str:
    text = _for_markdown(cell.text)
    text = {BEST: f"**{text}**", SECOND: f"<ins>{text}</ins>"}.get(cell.rank, text)
    return f"{text} {_for_markdown(cell.marks)}" if cell.marks else text


def _for_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def as_latex(table: Table) -> str:
    """A ``table`` environment for a document that loads ``booktabs``."""
    letters = table.footnotes
    width = len(table.columns) + 1
    lines = [
        r"\begin{table}[t]",
        rf"\caption{{{_for_latex(table.caption)}.}}",
        rf"\label{{tab:{re.sub(r'[^A-Za-z0-9-]', '-', table.name)}}}",
        r"\centering\small",
        rf"\begin{{tabular}}{{l{''.join('l' if column.left else 'r' for column in table.columns)}}}",
        r"\toprule",
        *_latex_header(table),
        r"\midrule",
    ]
    for place, (group, members) in enumerate(groupby(table.lines, key=lambda line: line.group)):
        if group:
            lines += [r"\addlinespace"] if place else []
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{_for_latex(group)}}}}} \\")
        lines += [f"{_latex_line(line, table, letters)} \\\\" for line in members]
    lines += [r"\bottomrule", r"\end{tabular}"]
    notes = [rf"$^{{\mathrm{{{letter}}}}}$ {_for_latex(note)}" for note, letter in letters.items()]
    notes += [_for_latex(note) for note in table.notes]
    lines += [
        rf"\par\smallskip\begin{{minipage}}{{\linewidth}}\footnotesize {note}\end{{minipage}}"
        for note in notes
    ]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_header(table: Table) -> list[str]:
    titles = " & ".join([_for_latex(table.first), *(_for_latex(column.title) for column in table.columns)])
    groups = grouped(table.columns)
    if not any(title for title, _ in groups):
        return [rf"{titles} \\"]
    cells, rules, before = [""], [], 2
    for title, count in groups:
        cells.append(
            rf"\multicolumn{{{count}}}{{c}}{{{_for_latex(title)}}}" if title else " & " * (count - 1)
        )
        if title:
            rules.append(rf"\cmidrule(lr){{{before}-{before + count - 1}}}")
        before += count
    return [rf"{' & '.join(cells)} \\", "".join(rules), rf"{titles} \\"]


def grouped(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Headings over neighbouring columns, and how many each is over."""
    return [(title, len(list(members))) for title, members in groupby(columns, key=lambda each: each.group)]


def _latex_line(line: Line, table: Table, letters: Mapping[str, str]) -> str:
    title = _for_latex(line.title)
    if line.footnotes:
        title += rf"$^{{\mathrm{{{','.join(letters[note] for note in line.footnotes)}}}}}$"
    # A star or a bracket here would be read as an argument of the line break before it.
    cells = [f"{{}}{title}" if title.startswith(("*", "[")) else title]
    if empty := len(table.columns) - len(line.cells):
        cells.append(rf"\multicolumn{{{empty}}}{{l}}{{\textit{{{_for_latex(line.instead)}}}}}")
    return " & ".join([*cells, *map(_latex_cell, line.cells)])


def _latex_cell(cell: Cell) -> str:
    text = _for_latex(cell.text)
    text = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}"}.get(cell.rank, text)
    marks = "".join({BETTER: r"\dagger", WORSE: r"\downarrow"}.get(mark, mark) for mark in cell.marks)
    return f"{text}$^{{{marks}}}$" if marks else text


def _for_latex(text: str) -> str:
    """Escaped; two hyphens in a row stay two, as in a command, and become no dash."""
    parts = ("".join(_LATEX.get(letter, letter) for letter in part) for part in text.split("--"))
    return "-{}-".join(parts)


def scores_csv(outcome: Outcome, table: DataOutcome) -> str:
    """A line a row with every score as a number, published ones in columns of their own."""
    published = dict.fromkeys(name for row in table.rows for name in row.row.published.get(table.data, {}))
    return _csv([_scores_line(outcome, table, row, tuple(published)) for row in table.rows])


def _scores_line(
    outcome: Outcome, table: DataOutcome, row: RowOutcome, published: tuple[str, ...]
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "data": table.data,
        "row": row.row.name,
        "label": row.row.label,
        "group": row.row.group,
        "method": row.row.method,
        "supervision": " ".join(sorted(find_method(row.row.method).needs)),
        "seeds": " ".join(map(str, row.seeds)),
        "volumes": len(table.cases) if row.records else None,
        "patients": table.patients if row.records else None,
    }
    for metric in SCORES:
        for structure in (*table.structures, None):
            spread = row.spread(metric, structure) if row.records else _NOTHING
            name = f"{metric}_{structure or 'average'}"
            line |= {f"{name}_mean": spread.mean, f"{name}_sd": spread.sd}
    interval = table.interval(row, "dice") if row.records else None
    line["dice_average_low"] = interval.low if interval else None
    line["dice_average_high"] = interval.high if interval else None
    line["dice_average_sd_over_seeds"] = row.over_seeds("dice").sd if row.records else None
    for name in published:
        mean, sd = table.published(row, name) or (None, None)
        heading = name if name == "hd_mm" else f"dice_{name}"
        line |= {f"published_{heading}_mean": mean, f"published_{heading}_sd": sd}
    if published:
        line["published_source"] = outcome.experiment.published_source if row.row.published else ""
    return {**line, "missing": row.missing}


def tests_csv(table: DataOutcome) -> str:
    """Every test of the table: a line for each row and score."""
    lines = []
    for test in table.tests:
        score = test.score
        lines.append(
            {
                "data": table.data,
                "row": test.row,
                "against": test.against,
                "score": score.metric,
                "structure": score.structure,
                "mean": score.first_mean,
                "against_mean": score.second_mean,
                "difference": score.difference,
                "low": score.interval.low,
                "high": score.interval.high,
                "better_in": test.better_in,
                "worse_in": test.worse_in,
                "p": score.test.p_value,
                "p_holm": score.p_holm,
                "p_over_patients": test.patients.p_value,
                "pairs": score.test.pairs,
                "zeros": score.test.zeros,
                "left_out": score.test.left_out,
            }
        )
    return _csv(lines)


def runs_csv(table: DataOutcome) -> str:
    """What every run was given and what came of it: a line a run."""
    lines = []
    for row in table.finished:
        for record in row.records:
            line = {
                "data": table.data,
                "row": record.row,
                "seed": record.seed,
                "method": record.method,
                "supervision": " ".join(record.supervision),
                "recipe": record.recipe,
                "minutes": record.minutes,
                "epochs": record.epochs,
                "steps": record.steps,
                "images_per_second": record.images_per_second,
                "weights_to_predict": record.parameters.prediction,
                "weights_in_all": record.parameters.method,
                "training_volumes": record.training_cases,
                "training_slices": record.training_slices,
                "labelled_share": record.labelled_share,
                "cpu": record.hardware.cpu,
                "gpu": record.hardware.gpu,
                "threads": record.hardware.threads,
                "device": record.hardware.device,
                "workers": record.hardware.workers,
            }
            for metric, structure in questions(table.structures):
                values = row.of_run(record, metric, structure)
                line[f"{metric}_{structure or 'average'}"] = _mean(values)
            lines.append(line)
    return _csv(lines)


_NOTHING = Spread(math.nan, math.nan, 0, 0)


def _mean(values: Iterable[float]) -> float:
    found = [value for value in values if not math.isnan(value)]
    return math.fsum(found) / len(found) if found else math.nan


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """An empty cell is no value; a millionth of a unit is enough for whoever reads it."""
    if not lines:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in line.items()} for line in lines)
    return text.getvalue()


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return round(value, DIGITS) if isinstance(value, float) else value
