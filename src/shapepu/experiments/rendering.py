"""From stored records to everything that people look at: tables, figures and one HTML report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shapepu.experiments.markup import as_latex, as_markdown, runs_csv, scores_csv, tests_csv
from shapepu.experiments.outcome import DataOutcome, Outcome, read_outcome
from shapepu.experiments.tables import Table, fairness_table, published_table, scores_table, tests_table
from shapepu.files import write_text


@dataclass(frozen=True)
class Rendered:
    """What was written.

    Args:
        results: the folder.
        files: all of them, by their path in the folder.
    """

    results: Path
    files: tuple[Path, ...]

    def __str__(self) -> str:
        return f"tables: {self.results / 'tables'}"


def render(results: Path, *, quiet: bool = False) -> Rendered:
    """Write tables and figures of all runs into ``results``; the same records give the same bytes."""
    outcome = read_outcome(results)
    files: dict[Path, str] = {}
    for table in outcome.tables:
        files |= {Path("tables") / name: text for name, text in table_files(outcome, table).items()}
    for path, text in files.items():
        write_text(outcome.results / path, text)
    return Rendered(outcome.results, tuple(files))


def shown_tables(outcome: Outcome, table: DataOutcome) -> list[Table]:
    """The tables of one data set, in the order in which they are read."""
    made = (make(outcome, table) for make in (scores_table, tests_table, published_table, fairness_table))
    return [each for each in made if each is not None]


def table_files(outcome: Outcome, table: DataOutcome) -> dict[str, str]:
    """Names and contents of the files that hold the tables of one data set."""
    shown = shown_tables(outcome, table)
    return {
        f"{table.data}.md": "\n".join(as_markdown(each) for each in shown),
        f"{table.data}.tex": "\n".join(as_latex(each) for each in shown),
        f"{table.data}.csv": scores_csv(outcome, table),
        f"{table.data}-tests.csv": tests_csv(table),
        f"{table.data}-runs.csv": runs_csv(table),
    }
