from __future__ import annotations

import pytest

from shapepu.cli import main


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "metrics.csv").write_text("epoch,loss\n1,0.5\n2,0.25\n")
    return folder


def test_the_path_of_the_report_is_printed(run, capsys):
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_the_report_goes_where_it_is_asked_to(run, tmp_path, capsys, option):
    target = tmp_path / "new folder" / "page.html"
    assert main(["report", str(run), option, str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.exists()
    assert not (run / "report.html").exists()


@pytest.mark.parametrize("name", ["", "no such folder", "run/metrics.csv"])
def test_what_is_not_a_run_is_refused_in_one_line(run, tmp_path, capsys, name):
    (run / "metrics.csv").rename(run / "other.csv")
    assert main(["report", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("shapepu report: ")
    assert "not a run folder" in err
    assert err.count("\n") == 1


def test_an_output_that_cannot_be_written_is_refused_in_one_line(run, capsys):
    target = run / "metrics.csv" / "folder" / "page.html"
    assert main(["report", str(run), "-o", str(target)]) == 2
    err = capsys.readouterr().err
    assert f"cannot write {target}" in err
    assert err.count("\n") == 1
