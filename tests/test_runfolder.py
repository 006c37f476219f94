"""A run on disk: never overwritten, never half-written, readable by people and by YAML's plain types."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from shapepu import claims, runfolder
from shapepu.claims import claim
from shapepu.errors import InputError
from shapepu.runfolder import RunFolder, commit, versions

WORK = """
import sys
from shapepu.runfolder import RunFolder
with RunFolder(sys.argv[1], quiet=True).told():
    print("at work", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "first", quiet=True)


@pytest.fixture
def at_work(run: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Another process that is at work on the run."""
    run.write_config({})
    argv = [sys.executable, "-c", WORK, str(run.root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        yield process
        process.kill()


def files(run: RunFolder) -> set[str]:
    return {path.name for path in run.root.iterdir()}


def test_a_new_run_gets_its_folder_and_leaves_no_trace_of_the_probe(run: RunFolder) -> None:
    run.create()
    assert run.root.is_dir()
    assert list(run.root.iterdir()) == []


@pytest.mark.parametrize("sign", ["config.yaml", "checkpoint/last.pt"])
def test_a_run_that_is_there_is_never_overwritten(run: RunFolder, sign: str) -> None:
    (run.root / sign).parent.mkdir(parents=True)
    (run.root / sign).write_text("precious")
    with pytest.raises(InputError, match=r"a run is already there; continue it with --resume .*/first"):
        run.create()
    assert (run.root / sign).read_text() == "precious"


def test_a_folder_of_other_things_may_become_a_run(run: RunFolder) -> None:
    run.root.mkdir(parents=True)
    (run.root / "notes.txt").write_text("mine")
    run.create()
    assert (run.root / "notes.txt").read_text() == "mine"


def test_the_config_comes_back_as_it_was_written(run: RunFolder) -> None:
    config = {"data": {"path": "/data/hérz", "cases": ["a"]}, "settings": {"rate": 1e-3, "end": None}}
    run.write_config(config)
    assert run.read_config() == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [1, 2", r"config\.yaml: not readable as YAML"),
        ("- a\n- b\n", r"config\.yaml: expected the settings of a run, got list"),
        ("", r"config\.yaml: expected the settings of a run, got NoneType"),
        ("!!python/object/apply:os.mkdir [owned]", r"config\.yaml: not readable as YAML"),
    ],
)
def test_a_config_of_something_else_is_refused_in_one_line(
    run: RunFolder, content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run.root.mkdir(parents=True)
    run.config.write_text(content)
    with pytest.raises(InputError, match=message) as refusal:
        run.read_config()
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "owned").exists(), "nothing in a config is executed"


def test_a_config_that_is_no_text_is_refused(run: RunFolder) -> None:
    run.root.mkdir(parents=True)
    run.config.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"config\.yaml: not readable"):
        run.read_config()


def test_columns_of_metrics_are_all_names_in_the_order_of_their_first_appearance(run: RunFolder) -> None:
    run.write_metrics([{"epoch": 1, "loss": 0.123456789}, {"epoch": 2, "dice": 1e-12, "loss": None}])
    with open(run.metrics, newline="") as stream:
        assert list(csv.reader(stream)) == [
            ["epoch", "loss", "dice"],
            ["1", "0.123457", ""],
            ["2", "", "1e-12"],
        ]


def test_what_is_said_goes_to_stderr_and_the_log_and_what_is_noted_to_the_log_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(tmp_path / "run")
    run.say("to all")
    run.note("to the log")
    assert capsys.readouterr() == ("", "to all\n")
    assert [line[20:] for line in run.log.read_text().splitlines()] == ["to all", "to the log"]
    run.close()
    run.note("later")
    assert run.log.read_text().endswith("later\n")


def test_the_log_says_what_ended_a_run(run: RunFolder) -> None:
    run.write_config({})
    with pytest.raises(ValueError, match="too bad"), run.told():
        raise ValueError("too bad")
    assert "stopped: ValueError: too bad" in run.log.read_text()


def test_what_never_became_a_run_leaves_nothing(run: RunFolder) -> None:
    run.create()
    run.say("starting")
    with pytest.raises(InputError), run.told():
        raise InputError("no scribbles")
    assert not run.root.exists()


def test_what_never_became_a_run_leaves_a_folder_that_was_there(run: RunFolder) -> None:
    run.root.mkdir(parents=True)
    run.create()
    with pytest.raises(InputError), run.told():
        raise InputError("no scribbles")
    assert list(run.root.iterdir()) == []


def test_a_run_that_another_process_works_on_is_refused_and_left_alone(
    run: RunFolder, at_work: subprocess.Popen[str]
) -> None:
    run.log.write_text("theirs\n")
    with pytest.raises(InputError, match=rf"another process \(number {at_work.pid}\) is at work"), run.told():
        raise AssertionError("let in")
    assert run.log.read_text() == "theirs\n"
    at_work.communicate("enough\n", timeout=60)
    with run.told():
        pass
    assert files(run) == {"config.yaml", "train.log"}


def test_a_process_that_was_killed_at_work_is_in_nobodys_way(
    run: RunFolder, at_work: subprocess.Popen[str]
) -> None:
    at_work.kill()
    at_work.wait(timeout=60)
    with run.told():
        pass
    assert files(run) == {"config.yaml"}


def test_a_new_run_is_refused_beside_one_that_has_written_nothing_yet(run: RunFolder) -> None:
    run.create()
    with run.told():
        late = RunFolder(run.root, quiet=True)
        late.create()
        run.say("starting")
        with pytest.raises(InputError, match="is at work on this run"), late.told():
            raise AssertionError("let in")
        assert run.log.is_file()


def test_a_lock_on_a_file_that_its_last_holder_took_away_is_none(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def late(file: Path) -> Iterator[bool]:
        with claim(file) as mine:
            file.unlink()
            file.write_text("1")  # that of the next process, which came first
            yield mine

    monkeypatch.setattr(runfolder, "claim", late)
    with pytest.raises(InputError, match=r"another process \(number 1\) is at work"), run.told():
        raise AssertionError("let in")


def test_a_file_system_without_locks_is_good_enough_for_one_process(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(claims, "_try_lock", refuse)
    run.write_config({})
    with run.told():
        pass
    assert files(run) == {"config.yaml"}


def test_the_commit_is_that_of_the_checkout_and_of_nothing_around_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "checkout"
    (root / "src" / "shapepu").mkdir(parents=True)
    monkeypatch.setattr(runfolder, "__file__", str(root / "src" / "shapepu" / "runfolder.py"))
    assert commit() == ""
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], [*named, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
    assert commit() == head.stdout[:12]


def test_versions_are_plain_text_so_that_yaml_can_write_them() -> None:
    found = versions()
    assert all(type(version) is str for version in found.values())
    assert yaml.safe_load(yaml.safe_dump(found)) == found
