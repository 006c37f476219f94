"""``kill -9`` at any moment costs the epoch that was under way and nothing else."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from shapepu.cli import main
from shapepu.runfolder import RunFolder
from shapepu.training import Trainer
from small_runs import (
    SHAPEPU_AT_ONCE,
    arguments,
    figures,
    metrics,
    refused,
    resume_arguments,
    start,
    train,
    visible_files,
    weights,
    write_hearts,
)

EPOCHS = 4

MOMENTS = {
    "before the first step": ("shapepu.training:Trainer._steps", 1),
    "while the first checkpoint is written": ("shapepu.checkpoint:torch.save", 1),
    "in the middle of an epoch": ("shapepu.training:Trainer._optimise", 8),
    "while a later checkpoint is written": ("shapepu.checkpoint:torch.save", 3),
    "between a checkpoint and its row of metrics": ("shapepu.training:RunFolder.write_metrics", 2),
    "between the last checkpoint and its row": ("shapepu.training:RunFolder.write_metrics", EPOCHS),
    "before the export": ("shapepu.api:save_bundle", 1),
    "while the model is written": ("shapepu.bundle:_set_aside", 1),
    "between export and scores": ("shapepu.api:score_validation", 1),
    "before the last file": ("shapepu.api:save_bundle", 2),
}
"""The function about to be called when the power fails, and which of its calls that is."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: sums depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("resume") / "hearts")


@pytest.fixture(scope="module")
def straight(hearts: Path) -> Path:
    """The run that nothing interrupts."""
    return train(hearts, hearts.parent / "straight", *SHAPEPU_AT_ONCE, "--quiet", epochs=EPOCHS)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_at_the_worst_moments_ends_as_if_it_had_not_been(
    moment: str, hearts: Path, straight: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    argv = arguments(hearts, run, *SHAPEPU_AT_ONCE, "--quiet", epochs=EPOCHS)
    assert exit_code_in_child(argv, *MOMENTS[moment]) == -signal.SIGKILL
    assert main(resume_arguments(hearts, run, "--quiet")) == 0
    assert weights(run) == weights(straight)
    assert figures(run) == figures(straight)
    assert visible_files(run) == visible_files(straight)
    assert (run / "validation/cases.csv").read_bytes() == (straight / "validation/cases.csv").read_bytes()


def test_a_run_killed_before_it_began_leaves_no_run(hearts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    argv = arguments(hearts, run, "--quiet", epochs=1)
    assert exit_code_in_child(argv, "shapepu.api:RunFolder.write_config", 1) == -signal.SIGKILL
    assert main(resume_arguments(hearts, run)) == 2
    assert main(argv) == 0, "the same command starts it anew"


@pytest.mark.slow
def test_a_process_killed_at_random_moments_ends_with_the_same_bytes(hearts: Path, tmp_path: Path) -> None:
    epochs, run = 30, tmp_path / "run"
    began = time.monotonic()
    straight = train(hearts, tmp_path / "straight", *SHAPEPU_AT_ONCE, "--quiet", epochs=epochs)
    seconds = time.monotonic() - began
    rng = np.random.default_rng(0)
    kills = 0
    for _ in range(3):
        process = start(next_arguments(hearts, run, epochs))
        kills += killed_while_training(process, after_seconds=rng.uniform(0, seconds / 3))
    process = start(next_arguments(hearts, run, epochs))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert kills >= 2, "nothing was interrupted"
    assert "resuming after epoch" in err
    assert weights(run) == weights(straight)
    assert figures(run) == figures(straight)


def test_a_finished_run_says_so_and_is_left_alone(
    hearts: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (straight / name).stat().st_mtime_ns for name in visible_files(straight) - {"train.log"}}
    for shorter in ((), ("--epochs", "1")):
        assert main(resume_arguments(hearts, straight, *shorter)) == 0
        err = capsys.readouterr().err
        assert f"resuming after epoch {EPOCHS}, 100 % done" in err
        assert "the run is finished already; extend it with --epochs, --minutes or --steps" in err
    after = {name: (straight / name).stat().st_mtime_ns for name in before}
    assert {name for name in before if after[name] != before[name]} <= {"metrics.csv"}
    assert yaml.safe_load((straight / "config.yaml").read_text())["settings"]["epochs"] == EPOCHS


def test_a_finished_run_extended_is_the_longer_run(hearts: Path, tmp_path: Path) -> None:
    steady = ("--optimisation.schedule", "constant", "--optimisation.warmup-share", "0", "--quiet")
    longer = train(hearts, tmp_path / "longer", *steady, epochs=4)
    run = train(hearts, tmp_path / "run", *steady, epochs=2)
    assert weights(run) != weights(longer)
    assert main(resume_arguments(hearts, run, "--epochs", "4", "--quiet")) == 0
    assert weights(run) == weights(longer)
    assert figures(run) == figures(longer)
    assert yaml.safe_load((run / "config.yaml").read_text())["settings"]["epochs"] == 4
    assert json.loads((run / "model/model.json").read_text())["provenance"]["epochs"] == 4


def test_a_run_that_was_extended_and_killed_before_the_export_exports_the_new_weights(
    hearts: Path, tmp_path: Path
) -> None:
    run = train(hearts, tmp_path / "run", "--quiet", epochs=1)
    old = weights(run)
    extend = resume_arguments(hearts, run, "--epochs", "2", "--quiet")
    assert exit_code_in_child(extend, "shapepu.api:save_bundle", 1) == -signal.SIGKILL
    assert weights(run) == old
    assert main(resume_arguments(hearts, run, "--quiet")) == 0
    assert weights(run) != old
    assert json.loads((run / "model/model.json").read_text())["provenance"]["epochs"] == 2


def test_minutes_go_on_from_what_was_spent(hearts: Path, tmp_path: Path) -> None:
    run = train(hearts, tmp_path / "run", "--quiet", epochs=2)
    spent = float(metrics(run)[-1]["minutes"])
    assert main(resume_arguments(hearts, run, "--minutes", str(spent + 0.03), "--quiet")) == 0
    minutes = [float(row["minutes"]) for row in metrics(run)]
    assert minutes == sorted(minutes)
    assert spent + 0.03 <= minutes[-1] < spent + 0.5


def test_a_run_that_is_under_way_is_not_taken_up_beside_it(
    hearts: Path, straight: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    with RunFolder(run, quiet=True).told():
        said = refused(resume_arguments(hearts, run, "--epochs", str(EPOCHS + 1)), capsys)
    assert f"{run}: another process (number {os.getpid()}) is at work on this run; wait until" in said
    assert weights(run) == weights(straight)
    assert len(metrics(run)) == EPOCHS


def test_ctrl_c_says_how_to_go_on(
    hearts: Path,
    straight: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    steps = Trainer._steps

    def interrupted_in_the_second_epoch(trainer: Trainer, watch: Any) -> Any:
        if trainer.state.epoch == 1:
            raise KeyboardInterrupt
        return steps(trainer, watch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_steps", interrupted_in_the_second_epoch)
        assert main(arguments(hearts, run, *SHAPEPU_AT_ONCE, epochs=EPOCHS)) == 130
    assert f"go on with: shapepu train --resume {run}" in capsys.readouterr().err
    assert "stopped: KeyboardInterrupt" in (run / "train.log").read_text()
    assert main(resume_arguments(hearts, run, "--quiet")) == 0
    assert weights(run) == weights(straight)


def test_a_folder_that_is_no_run_is_refused(
    hearts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "not a run folder (no config.yaml in it)" in refused(resume_arguments(hearts, tmp_path), capsys)
    absent = refused(resume_arguments(hearts, tmp_path / "absent"), capsys)
    assert "not a run folder" in absent
    assert not (tmp_path / "absent").exists()


def next_arguments(data: Path, run: Path, epochs: int) -> list[str]:
    """What a person types after a power cut: --resume if there is a run, or else the command again."""
    if (run / "config.yaml").exists():
        return resume_arguments(data, run)
    return arguments(data, run, *SHAPEPU_AT_ONCE, epochs=epochs)


def killed_while_training(process: subprocess.Popen[str], after_seconds: float) -> bool:
    """Kill a process some time after it has told its plan; False if it had ended by then."""
    assert process.stderr is not None
    for line in process.stderr:
        if "M weights on" in line:
            break
    time.sleep(after_seconds)
    process.kill()
    process.communicate(timeout=60)
    return process.returncode == -signal.SIGKILL


def exit_code_in_child(argv: list[str], function: str, call: int) -> int | None:
    """Run the command line in a process that kills itself just before the n-th call of a function."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["shapepu.api", "shapepu.evaluation.report.figures"])
    child = context.Process(target=run_until_killed, args=(argv, function, call))
    child.start()
    child.join(timeout=300)
    return child.exitcode


def run_until_killed(argv: list[str], function: str, call: int) -> None:
    torch.set_num_threads(1)
    module, _, path = function.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, importlib.import_module(module))
    original, calls = getattr(owner, name), iter(range(1, 10**6))

    def counted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, counted)
    main(argv)
