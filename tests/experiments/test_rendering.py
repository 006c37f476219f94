from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

import pytest
from comparisons import cases, experiment, record, write
from stored_example import EXPECTED

from shapepu.experiments.definition import Row
from shapepu.experiments.records import FailedRun
from shapepu.experiments.rendering import render


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", sorted(path.name for path in EXPECTED.iterdir()))
def test_stored_records_give_the_same_tables_byte_for_byte(rendered, name):
    made, expected = rendered.results / "tables" / name, EXPECTED / name
    assert made.read_text(encoding="utf-8").splitlines() == expected.read_text(encoding="utf-8").splitlines()
    assert filecmp.cmp(made, expected, shallow=False)


def test_no_table_is_unexpected(rendered):
    made = {path.name for path in (rendered.results / "tables").iterdir()}
    assert made == {path.name for path in EXPECTED.iterdir()}


def test_rendering_again_or_elsewhere_changes_no_byte(rendered, tmp_path):
    elsewhere = tmp_path / "other" / "place"
    shutil.copytree(rendered.results, elsewhere)
    for name in ("tables", "figures"):
        shutil.rmtree(elsewhere / name)
    (elsewhere / "report.html").unlink()
    render(elsewhere)
    assert files(elsewhere) == files(rendered.results)


def test_what_was_written_is_told(rendered):
    results = rendered.results
    assert str(rendered) == f"report: {results / 'report.html'}\ntables: {results / 'tables'}"
    assert all((results / path).is_file() for path in rendered.files)
    assert Path("figures/ACDC-dice.svg") in rendered.files


def test_a_comparison_of_which_nothing_has_run_renders(tmp_path):
    write(tmp_path, experiment(Row("pce"), Row("shapepu")), [])
    rendered = render(tmp_path)
    assert [str(path) for path in rendered.files] == ["report.html"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "ACDC: not run yet." in page
    assert "No run has ended yet." in page


def test_a_comparison_of_which_every_run_has_failed_renders(tmp_path):
    write(tmp_path, experiment(Row("pce")), [])
    FailedRun("made", "ACDC", "pce", 0, "the disk is full", "session").write(tmp_path)
    assert render(tmp_path).files
    assert "the disk is full" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_comparison_that_has_only_begun_renders_with_its_rows_that_wait(tmp_path):
    rows = experiment(Row("pce", label="PCE"), Row("shapepu", label="ShapePU"))
    write(tmp_path, rows, [record("pce", cases({"lv": [0.5, 0.6]}))], seeds=(0, 1))
    render(tmp_path)
    markdown = (tmp_path / "tables" / "ACDC.md").read_text(encoding="utf-8")
    assert "| ShapePU | *not run yet* |" in markdown
    assert "Not all is there: PCE has no run yet of seed 1." in markdown
    assert "shapepu,ShapePU" in (tmp_path / "tables" / "ACDC.csv").read_text(encoding="utf-8")


def test_every_data_set_has_its_tables_and_figures(tmp_path):
    rows = experiment(Row("pce"), data=("ACDC", "MSCMR"))
    write(tmp_path, rows, [record("pce", cases({"lv": [0.5]}), data=data) for data in rows.data])
    told = {str(path) for path in render(tmp_path).files}
    assert {"tables/ACDC.md", "tables/MSCMR.tex", "figures/ACDC-seeds.svg", "figures/MSCMR-dice.svg"} <= told
