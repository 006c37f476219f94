"""From stored records to everything that people look at: tables, figures and one HTML report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shapepu.experiments.figures import drawings
from shapepu.experiments.figures.cases import compared_cases
from shapepu.experiments.figures.drawing import svg_file
from shapepu.experiments.markup import as_latex, as_markdown, runs_csv, scores_csv, tests_csv
from shapepu.experiments.outcome import DataOutcome, Outcome, read_outcome
from shapepu.experiments.page import Section, page
from shapepu.experiments.tables import DataTables, data_tables
from shapepu.files import write_text

REPORT = Path("report.html")

TABLES, FIGURES = Path("tables"), Path("figures")

FOLDERS = (TABLES, FIGURES)

LISTING = Path("rendered.txt")
"""Names the files that were made, so that they can be told from other people's."""


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
        return f"report: {self.results / REPORT}\ntables: {self.results / TABLES}"


def render(results: Path) -> Rendered:
    """Write tables, figures and the report into ``results``; the same records give the same bytes.

    Pictures of cases are the one thing that needs more than the records: the run folders and the images.
    What an earlier call made and this one does not is removed; other files are left alone.
    """
    outcome = read_outcome(results)
    sections = [_section(outcome, table) for table in outcome.tables]
    files: dict[Path, str] = {}
    for section in sections:
        files |= table_files(outcome, section.table, section.tables) | figure_files(section)
    files[REPORT] = page(outcome, sections)
    for path, text in files.items():
        write_text(outcome.results / path, text)
    _remove_outdated(outcome.results, files)
    return Rendered(outcome.results, tuple(files))


def _remove_outdated(results: Path, files: Iterable[Path]) -> None:
    """A table of a data set that is no longer in the results would look like one of them."""
    listing, now = results / LISTING, {path.as_posix() for path in files}
    before = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    for name in before:
        if name not in now and Path(name).parent in FOLDERS:
            (results / name).unlink(missing_ok=True)
    write_text(listing, "".join(f"{name}\n" for name in sorted(now)))


def _section(outcome: Outcome, table: DataOutcome) -> Section:
    return Section(
        table=table,
        tables=data_tables(outcome, table),
        drawings=drawings(outcome, table),
        cases=compared_cases(outcome.results, table),
    )


def table_files(outcome: Outcome, table: DataOutcome, tables: DataTables) -> dict[Path, str]:
    """The files that hold the tables of one data set, by their path in the folder."""
    contents = {
        f"{table.data}.md": "\n".join(as_markdown(each) for each in tables.shown),
        f"{table.data}.tex": "\n".join(as_latex(each) for each in tables.shown),
        f"{table.data}.csv": scores_csv(outcome, table),
        f"{table.data}-tests.csv": tests_csv(table),
        f"{table.data}-runs.csv": runs_csv(table),
    }
    return {TABLES / name: text for name, text in contents.items()}


def figure_files(section: Section) -> dict[Path, str]:
    """The figures of one data set, by their path in the folder."""
    drawn = [*section.drawings, *(case.drawing for case in section.cases if case.drawing)]
    return {FIGURES / f"{drawing.name}.svg": svg_file(drawing.figure) for drawing in drawn}
