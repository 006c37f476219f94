"""``shapepu`` itself: help at once, one line for what is wrong, and exit codes."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shapepu import __version__
from shapepu.cli import VERBS, main
from shapepu.errors import InputError
from small_runs import start

HEAVY = ("torch", "SimpleITK", "matplotlib", "scipy", "numpy", "yaml", "tyro", "lightning_fabric", "jinja2")


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"], [], ["--version"], ["tarin"]])
def test_answers_before_anything_heavy_could_be_imported(argv: list[str]) -> None:
    code = (
        "import sys; from shapepu.cli import main; code = main(sys.argv[1:]); "
        f"print(*sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr); sys.exit(code)"
    )
    found = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert found.returncode == (2 if argv == ["tarin"] else 0)
    assert found.stderr.splitlines()[-1] == ""


def test_help_answers_in_under_half_a_second() -> None:
    """The best of a few: what else the machine does is not the command's fault."""

    def seconds() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "shapepu", "--help"], stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize(
    "argv", [["train", "{absent}"], ["predict", "{absent}", "{absent}", "out"], ["demo", "-o", "{absent}"]]
)
def test_the_first_line_comes_within_five_seconds(argv: list[str], tmp_path: Path) -> None:
    began = time.perf_counter()
    process = start([word.format(absent=tmp_path / "absent") for word in argv])
    assert process.stderr is not None
    line = process.stderr.readline()
    seconds = time.perf_counter() - began
    process.kill()
    process.communicate(timeout=60)
    assert line.startswith(f"shapepu {argv[0]}: ")
    assert seconds < 5


def test_help_lists_every_verb_and_where_to_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    for verb, summary in VERBS.items():
        assert f"  {verb}" in out
        assert summary in out
    assert "shapepu check DATA && shapepu train DATA -o RUN && shapepu predict RUN IMAGES OUT" in out
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_help_of_its_own(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    out, err = capsys.readouterr()
    assert f"usage: shapepu {verb}" in out
    assert err == ""


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == main(["-V"]) == 0
    assert capsys.readouterr().out == f"shapepu {__version__}\n" * 2


def test_a_verb_that_is_not_known_lists_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tarin"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "shapepu tarin: unknown verb 'tarin'; did you mean 'train'? Known: check, compare, demo, "
    )
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (
            InputError("labels.json: broken; correct it."),
            2,
            "shapepu check: labels.json: broken; correct it.\n",
        ),
        (KeyboardInterrupt(), 130, "shapepu check: interrupted.\n"),
    ],
)
def test_what_a_user_can_do_something_about_is_one_line_and_an_exit_code(
    raised: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(argv: list[str]) -> int:
        raise raised

    monkeypatch.setattr(importlib.import_module("shapepu.cli.check"), "run", run)
    assert main(["check", "DATA"]) == code
    assert capsys.readouterr() == ("", message)


def test_a_defect_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(importlib.import_module("shapepu.cli.check"), "run", run)
    with pytest.raises(ZeroDivisionError):
        main(["check", "DATA"])


def test_python_m_shapepu_is_the_command() -> None:
    process = start(["--version"])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, f"shapepu {__version__}\n", "")


def test_a_reader_of_a_pipe_that_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m shapepu train --help | head -n 1"
    found = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert found.stdout.startswith("usage: shapepu train")
    assert found.stderr == ""
