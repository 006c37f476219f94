"""``shapepu compare`` as a user meets it: what is printed, what is refused, and with which exit code."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from experiments.small_comparisons import TWO_ROWS, command, rows_of, written
from shapepu.cli import main
from shapepu.cli.arguments import parse
from shapepu.cli.compare import WORKERS, CompareArguments
from shapepu.experiments.definition import shipped_experiments
from shapepu.experiments.records import load_failed, load_records
from shapepu.experiments.running import SESSION
from small_runs import refused, visible_files, write_hearts

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "compare.md"

ONE_FAILS = TWO_ROWS + "  - {name: greedy, method: pce, settings: {data: {cases: 9}}}\n"


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("compare") / "hearts")


@pytest.fixture(scope="module")
def experiment(hearts: Path) -> Path:
    return written(hearts.parent / "small.yaml")


@pytest.fixture(scope="module")
def finished(hearts: Path, experiment: Path) -> Path:
    """Results of the command, for tests that change nothing but what is rendered from them."""
    results = hearts.parent / "finished"
    assert main(command(experiment, hearts, results, "--quiet")) == 0
    return results


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without results to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_list_has_a_line_for_every_shipped_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list"]) == 0
    out, err = capsys.readouterr()
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert list(lines) == list(shipped_experiments())
    for name, experiment in shipped_experiments().items():
        assert experiment.title in lines[name]
        assert f"{len(experiment.rows)} rows" in lines[name]
    assert "ACDC" in lines["table2"]
    assert "any data" in lines["modern"]
    assert err == ""


@pytest.mark.usefixtures("elsewhere")
def test_a_diff_prints_the_settings_in_which_two_rows_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "table1", "--diff", "shapepu-1", "shapepu-2"]) == 0
    out, err = capsys.readouterr()
    told = [line.split() for line in out.splitlines()]
    assert told[0] == ["setting", "shapepu-1", "shapepu-2"]
    assert ["method_options.cutout", "False", "True"] in told
    assert not any(line[0].startswith(("optimisation", "preprocessing")) for line in told)
    assert err == ""


def test_a_diff_of_results_needs_no_definition(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = visible_files(finished)
    assert main(["compare", "-o", str(finished), "--diff", "pce", "entropy"]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["method", "pce", "entropy"] in told
    assert visible_files(finished) == before


@pytest.mark.usefixtures("elsewhere")
def test_a_diff_of_an_unknown_row_lists_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(["compare", "table1", "--diff", "shapepu", "shapepu-9"], capsys)
    assert "unknown row 'shapepu-9'; did you mean" in line
    assert "Known: shapepu, shapepu-1, shapepu-2, shapepu-3, shapepu-4." in line


@pytest.mark.parametrize("option", [["--data", "hearts=nowhere"], ["--diff", "pce", "entropy"], []])
def test_an_unknown_experiment_lists_those_that_are_known(
    option: list[str], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["compare", "tabel1", *option], capsys)
    assert "unknown experiment 'tabel1'; did you mean 'table1'?" in line
    assert f"Known: {', '.join(shipped_experiments())}." in line
    assert "goes by the path of its .yaml file" in line
    assert list(elsewhere.iterdir()) == []


def test_neither_experiment_nor_results_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name an experiment (`shapepu compare --list`)" in refused(["compare"], capsys)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["hearts"], "--data: expected NAME=FOLDER, such as ACDC=ACDC, got 'hearts'."),
        (["=hearts"], "--data: expected NAME=FOLDER, such as ACDC=ACDC, got '=hearts'."),
        (["hearts="], "--data: expected NAME=FOLDER, such as ACDC=ACDC, got 'hearts='."),
        (["a=one", "a=two"], "--data: 'a' is given twice; give each data set a name of its own."),
        (["a/b=one"], "data set 'a/b': a name of letters, digits and . _ + - expected"),
        (["a=nowhere"], "nowhere: a data set folder expected, but nothing of that name is there."),
    ],
)
def test_data_that_cannot_be_are_refused_before_anything_is_made(
    data: list[str],
    message: str,
    experiment: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [word for text in data for word in ("--data", text)]
    assert message in refused(["compare", str(experiment), *given, "--steps-per-run", "4"], capsys)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.usefixtures("elsewhere")
def test_data_that_an_experiment_does_not_name_are_refused(
    hearts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(["compare", "table1", "--data", f"hearts={hearts}"], capsys)
    assert "unknown data set of this experiment 'hearts'. Known: ACDC." in line


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("one", "--seeds: expected whole numbers parted by commas, got 'one'."),
        ("0,,1", "--seeds: expected whole numbers parted by commas, got '0,,1'."),
        ("0.5", "--seeds: expected whole numbers parted by commas, got '0.5'."),
        ("0,1,0", "seeds: different whole numbers expected, got 0, 1, 0."),
        ("0,-1", "seed: expected a whole number from 0"),
    ],
)
def test_seeds_that_cannot_be_are_refused(
    seeds: str,
    message: str,
    hearts: Path,
    experiment: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = command(experiment, hearts, tmp_path / "results", f"--seeds={seeds}")
    assert message in refused(argv, capsys)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("steps", [0, -4])
def test_a_budget_of_nothing_is_refused(
    steps: int, hearts: Path, experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = command(experiment, hearts, tmp_path / "results", f"--steps-per-run={steps}")
    assert f"steps: expected at least 1, got {steps}." in refused(argv, capsys)


def test_rows_that_are_not_there_are_refused_with_those_that_are(
    hearts: Path, experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = command(experiment, hearts, tmp_path / "results", "--rows", "pce, entorpy")
    assert "unknown row 'entorpy'; did you mean 'entropy'? Known: entropy, pce." in refused(argv, capsys)
    assert load_records(tmp_path / "results") == []


def test_another_budget_is_refused_with_what_to_do(
    hearts: Path, experiment: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(command(experiment, hearts, finished, steps=5), capsys)
    assert f"{finished}: row 'pce' was run with other settings (steps was 4 and is 5)" in line
    assert "or another folder with -o" in line


@pytest.mark.parametrize("named", [True, False])
def test_without_data_and_results_there_is_nothing_to_render(
    named: bool, experiment: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["compare", str(experiment)] if named else ["compare", "-o", "results/small"]
    assert "results/small: no results of a comparison (no experiment.yaml in it)." in refused(argv, capsys)
    assert list(elsewhere.iterdir()) == []


def test_without_data_tables_and_report_are_made_again(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, table = finished / "report.html", finished / "tables" / "hearts.csv"
    before = report.read_bytes(), table.read_bytes()
    report.unlink()
    table.unlink()
    assert main(["compare", "-o", str(finished), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert out == f"report: {report}\ntables: {finished / 'tables'}\n"
    assert err == ""
    assert (report.read_bytes(), table.read_bytes()) == before


def test_the_same_command_again_runs_nothing_and_says_where_the_results_are(
    hearts: Path, experiment: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [path.stat().st_mtime_ns for path in sorted(finished.glob("records/*/*/*"))]
    assert main(command(experiment, hearts, finished)) == 0
    out, err = capsys.readouterr()
    assert err == "shapepu compare: loading\n"
    assert out.startswith(f"report: {finished / 'report.html'}\n")
    assert [path.stat().st_mtime_ns for path in sorted(finished.glob("records/*/*/*"))] == records


def test_records_of_other_results_are_taken_over_and_the_rest_is_run(
    hearts: Path, experiment: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    argv = command(experiment, hearts, results, "--reuse", str(finished), "--rows", "pce")
    assert main(argv) == 0
    err = capsys.readouterr().err
    assert f"1 runs taken over from {finished}" in err
    assert "begins" not in err
    assert [record.row for record in load_records(results)] == ["pce"]


def test_a_run_that_fails_ends_in_exit_code_1_with_the_tables_of_the_others(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(SESSION, raising=False)
    results = tmp_path / "results"
    argv = command(written(tmp_path / "small.yaml", ONE_FAILS), hearts, results, "--rows", "greedy,pce")
    assert main(argv) == 1
    out, err = capsys.readouterr()
    assert re.search(r"^hearts, pce, seed 0: Dice \d\.\d{3} in \d+\.\d minutes; 1 of 2 runs done", err, re.M)
    assert "hearts, greedy, seed 0: failed: data.cases: 9 asked for, but 3 training patients" in err
    assert err.endswith("1 runs failed: hearts, greedy, seed 0; the same command tries them again\n")
    assert out.startswith(f"report: {results / 'report.html'}\n")
    lines = {line["row"]: line for line in rows_of(results / "tables" / "hearts.csv")}
    assert float(lines["pce"]["dice_average_mean"]) >= 0
    assert lines["greedy"]["missing"].startswith("data.cases: 9 asked for")
    assert lines["entropy"]["missing"] == "not run yet"
    assert [failed.row for failed in load_failed(results)] == ["greedy"]


@pytest.mark.slow
def test_two_workers_share_the_runs_and_the_command_speaks_once(
    hearts: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    results = tmp_path / "results"
    experiment = written(tmp_path / "small.yaml")
    assert main(command(experiment, hearts, results, "--workers", "2")) == 0
    out, err = capfd.readouterr()
    assert out == f"report: {results / 'report.html'}\ntables: {results / 'tables'}\n"
    assert err.count("loading") == 1
    for row in ("pce", "entropy"):
        assert err.count(f"hearts, {row}, seed 0: begins") == 1
        assert err.count(f"hearts, {row}, seed 0: Dice ") == 1
    records = load_records(results)
    assert [(record.row, record.steps) for record in records] == [("entropy", 4), ("pce", 4)]
    assert {(record.hardware.workers, record.hardware.threads) for record in records} == {(2, 1)}
    assert not {WORKERS, SESSION} & set(os.environ), "what the workers are told is theirs alone"


def guide_commands() -> list[list[str]]:
    """Every ``shapepu compare`` in the blocks of the guide, without the first two words."""
    blocks = re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    starts = [(line, line.index("compare") + 1) for line in words if "compare" in line]
    return [line[start:] for line, start in starts]


def test_every_command_of_the_guide_is_understood() -> None:
    commands = guide_commands()
    assert len(commands) > 8
    for argv in commands:
        arguments = parse(CompareArguments, argv, "compare")
        assert arguments.experiment.endswith(".yaml") or arguments.experiment in ("", *shipped_experiments())


def test_the_guide_tells_of_every_option() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    names = {"as_list": "list", "experiment": "list", "output": "-o"}
    options = [names.get(each.name, each.name).replace("_", "-") for each in fields(CompareArguments)]
    untold = [option for option in options if f"{option if option == '-o' else f'--{option}'}" not in text]
    assert untold == []
