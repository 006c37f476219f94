"""A comparison runs what is left to run, once, and says of everything else why it did not."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_comparisons import (
    command,
    comparison,
    small_experiment,
    small_row,
    what_scores_say,
    worked,
    written,
)

from shapepu import api
from shapepu.claims import claim
from shapepu.cli import main
from shapepu.data.readers import read_dataset
from shapepu.errors import InputError
from shapepu.experiments.definition import Experiment, Row
from shapepu.experiments.records import (
    load_failed,
    load_missing,
    load_records,
    record_path,
    run_folder,
)
from shapepu.experiments.running import SESSION, new_session, open_comparison, same_run
from small_runs import metrics, start, train, visible_files, weights, write_hearts

ONLY_PCE = small_experiment(small_row("pce"))


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hearts(tmp_path_factory.mktemp("running") / "hearts")


@pytest.fixture(scope="module")
def finished(hearts: Path) -> Path:
    """Results with a run of both rows, for tests that change nothing in them."""
    results = hearts.parent / "finished"
    worked(comparison(hearts, results))
    return results


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where training is begun anew from now on."""
    begun: list[str] = []
    begin = api.train

    def noted(*args: Any, output: Path, **more: Any) -> Any:
        begun.append(place(output))
        return begin(*args, output=output, **more)

    monkeypatch.setattr(api, "train", noted)
    return begun


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> list[str]:
    """Let every training end at once in ``error``; where it was tried."""
    tried: list[str] = []

    def fail(*_: Any, output: Path, **__: Any) -> None:
        tried.append(place(output))
        raise error or InputError("no luck.")

    monkeypatch.setattr(api, "train", fail)
    return tried


def place(run: Path) -> str:
    """DATA/ROW/seedN."""
    return "/".join(run.parts[-3:])


def stamps(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in visible_files(folder)}


def test_a_seed_of_every_row_comes_before_the_next_seed_of_any(hearts: Path, tmp_path: Path) -> None:
    made = comparison(hearts, tmp_path, seeds=(1, 0))
    assert [str(job) for job in made.jobs()] == [
        "hearts, pce, seed 1",
        "hearts, entropy, seed 1",
        "hearts, pce, seed 0",
        "hearts, entropy, seed 0",
    ]


def test_data_sets_come_as_they_were_given_and_have_the_rows_that_are_theirs(
    hearts: Path, tmp_path: Path
) -> None:
    rows = small_row("pce"), replace(small_row("entropy"), data=("b", "c"))
    made = comparison(hearts, tmp_path, small_experiment(*rows))
    given = replace(made, data=dict.fromkeys(("b", "a"), made.data["hearts"]))
    assert [str(job) for job in given.jobs()] == ["b, pce, seed 0", "b, entropy, seed 0", "a, pce, seed 0"]
    assert [str(job) for job in given.jobs(["entropy"])] == ["b, entropy, seed 0"]


def test_runs_are_done_in_the_order_of_the_jobs(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = failing(monkeypatch)
    worked(comparison(hearts, tmp_path, seeds=(1, 0)))
    assert tried == ["hearts/pce/seed1", "hearts/entropy/seed1", "hearts/pce/seed0", "hearts/entropy/seed0"]


def test_what_has_finished_is_not_run_again(hearts: Path, finished: Path, trained: list[str]) -> None:
    assert [(run.row, run.steps) for run in load_records(finished)] == [("entropy", 4), ("pce", 4)]
    before = stamps(finished / "records") | stamps(finished / "runs")
    again = comparison(hearts, finished)
    assert again.work(again.jobs()) == []
    assert stamps(finished / "records") | stamps(finished / "runs") == before
    assert trained == []


def test_a_seed_that_is_added_is_all_that_is_run(
    hearts: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = shutil.copytree(finished, tmp_path / "results")
    tried = failing(monkeypatch)
    worked(comparison(hearts, results, seeds=(0, 1)), rows=["entropy"])
    assert tried == ["hearts/entropy/seed1"]


def test_a_lost_record_is_made_again_from_the_run_without_training(
    hearts: Path, finished: Path, tmp_path: Path, trained: list[str]
) -> None:
    results = shutil.copytree(finished, tmp_path / "results")
    lost = record_path(results, "hearts", "pce", 0)
    text = lost.read_bytes()
    lost.unlink()
    worked(comparison(hearts, results))
    assert lost.read_bytes() == text
    assert trained == []


def test_what_was_killed_before_its_first_checkpoint_begins_anew(hearts: Path, tmp_path: Path) -> None:
    run = run_folder(tmp_path, "hearts", "pce", 0)
    run.mkdir(parents=True)
    for name in ("config.yaml", "left-over.txt"):
        (run / name).write_text("half of {")
    worked(comparison(hearts, tmp_path, ONLY_PCE))
    assert load_failed(tmp_path) == []
    assert [record.row for record in load_records(tmp_path)] == ["pce"]
    assert not (run / "left-over.txt").exists()


def test_a_run_that_fails_is_recorded_with_its_error_and_the_others_go_on(
    hearts: Path, tmp_path: Path
) -> None:
    rows = small_row("greedy", "pce", data={"cases": 9}), small_row("pce")
    made = worked(comparison(hearts, tmp_path, small_experiment(*rows)))
    [failed] = load_failed(tmp_path)
    assert (failed.experiment, failed.data, failed.row, failed.seed) == ("small", "hearts", "greedy", 0)
    assert failed.error.startswith("data.cases: 9 asked for, but 3 training patients have what the method")
    assert failed.session == made.session
    assert [record.row for record in load_records(tmp_path)] == ["pce"]
    assert [made.has_failed(job) for job in made.jobs()] == [True, False]
    assert made.left(made.jobs()) == []


def test_a_failure_is_tried_again_by_a_new_command_and_by_no_process_of_the_same(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command_of(session: str) -> None:
        worked(comparison(hearts, tmp_path, ONLY_PCE, session=session))

    with monkeypatch.context() as broken:
        tried = failing(broken, RuntimeError("out of\n  luck"))
        command_of("first")
        command_of("first")
        assert len(tried) == 1
        command_of("second")
        assert len(tried) == 2
        [failed] = load_failed(tmp_path)
        assert (failed.error, failed.session) == ("RuntimeError: out of luck", "second")
    command_of("second")
    assert load_records(tmp_path) == []
    command_of("third")
    assert [record.row for record in load_records(tmp_path)] == ["pce"]
    assert load_failed(tmp_path) == [], "what succeeded has not failed"


def test_what_failed_in_another_command_meanwhile_is_left_alone(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = failing(monkeypatch)
    one = comparison(hearts, tmp_path, ONLY_PCE, session="one")
    worked(comparison(hearts, tmp_path, ONLY_PCE, session="other"))
    worked(one)
    assert tried == ["hearts/pce/seed0"]
    assert one.has_failed(one.jobs()[0])


def test_processes_of_one_command_have_its_session_and_others_one_of_their_own(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SESSION, raising=False)
    alone = comparison(hearts, tmp_path).session
    monkeypatch.setenv(SESSION, "of the command")
    assert comparison(hearts, tmp_path).session == "of the command"
    assert alone not in ("", "of the command")


def test_an_interrupted_run_has_not_failed_and_is_let_go(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    made = comparison(hearts, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        worked(made)
    assert load_failed(tmp_path) == []
    assert made.left(made.jobs()) == made.jobs()
    with claim(tmp_path / "claims" / "hearts" / "pce-seed0") as mine:
        assert mine


def test_a_run_that_another_process_holds_is_left_to_it(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = failing(monkeypatch)
    made = comparison(hearts, tmp_path)
    with claim(tmp_path / "claims" / "hearts" / "pce-seed0"):
        others = made.work(made.jobs())
    assert [str(job) for job in others] == ["hearts, pce, seed 0"]
    assert tried == ["hearts/entropy/seed0"]
    assert made.work(others) == []
    assert tried == ["hearts/entropy/seed0", "hearts/pce/seed0"]


def test_a_row_whose_supervision_is_missing_is_not_run_and_its_reason_kept(
    hearts: Path, tmp_path: Path
) -> None:
    made = comparison(hearts, tmp_path / "results", small_experiment(small_row("full"), small_row("pce")))
    assert [job.row.name for job in made.jobs()] == ["pce"]
    [missing] = load_missing(made.results)
    assert (missing.experiment, missing.data, missing.row) == ("small", "hearts", "full")
    assert missing.reason.startswith("the method needs dense masks of the training cases and there are none")
    assert str(hearts) not in missing.reason

    masked = read_dataset(write_hearts(tmp_path / "masked", masks_for_training=True))
    assert [job.row.name for job in replace(made, data={"hearts": masked}).jobs()] == ["full", "pce"]
    assert load_missing(made.results) == [], "masks that were added are found"


@pytest.mark.parametrize(
    ("row", "plan", "taken"),
    [
        (small_row("pce"), {}, 1),
        (small_row("baseline", "pce"), {}, 1),
        (small_row("pce"), {"steps": 5}, 0),
        (small_row("pce"), {"steps": None, "epochs": 4}, 0),
        (small_row("pce"), {"seeds": (1,)}, 0),
        (small_row("pce", augmentation={"noise": 0.5}), {}, 0),
        (small_row("pce", network_options={"widths": [8, 24]}), {}, 0),
        (small_row("pce", preprocessing={"spacing_mm": [9, 9]}), {}, 0),
        (small_row("tv"), {}, 0),
    ],
)
def test_records_are_taken_over_where_seed_and_every_setting_are_equal(
    row: Row, plan: dict[str, Any], taken: int, hearts: Path, finished: Path, tmp_path: Path
) -> None:
    made = comparison(hearts, tmp_path, Experiment((row,), name="other"), **plan)
    assert made.reuse(made.jobs(), [finished]) == taken
    theirs = next(record for record in load_records(finished) if record.row == "pce")
    assert load_records(tmp_path) == [replace(theirs, experiment="other", row=row.name)][:taken]
    assert len(made.left(made.jobs())) == 1 - taken


def test_what_a_run_planned_by_itself_is_equal_when_it_is_said(
    hearts: Path, finished: Path, tmp_path: Path
) -> None:
    [record] = [record for record in load_records(finished) if record.row == "pce"]
    planned = record.settings["preprocessing"]
    said = small_row("pce", preprocessing={name: planned[name] for name in ("spacing_mm", "patch")})
    made = comparison(hearts, tmp_path, small_experiment(said))
    assert made.reuse(made.jobs(), [finished]) == 1


def test_statistics_that_a_run_measured_are_its_own_where_nobody_gave_any() -> None:
    left_open = small_row("pce", preprocessing={"intensity": "ct"}).resolved(steps=4)
    recorded = left_open.to_plain()
    recorded["preprocessing"]["statistics"] = [{"low": 0.0, "high": 9.0, "mean": 4.0, "deviation": 2.0}]
    assert same_run(recorded, left_open)
    recorded["preprocessing"]["intensity"] = "volume"
    assert not same_run(recorded, left_open)


def test_no_two_commands_have_a_session_in_common() -> None:
    assert len({new_session() for _ in range(100)}) == 100


def test_records_of_another_data_set_are_not_taken_over(hearts: Path, finished: Path, tmp_path: Path) -> None:
    made = comparison(hearts, tmp_path)
    other = replace(made, data={"livers": made.data["hearts"]})
    assert other.reuse(other.jobs(), [finished]) == 0
    assert made.reuse(made.jobs(), [finished]) == 2


def test_results_that_are_no_results_cannot_be_reused(hearts: Path, tmp_path: Path) -> None:
    made = comparison(hearts, tmp_path / "results")
    with pytest.raises(InputError, match=f"{tmp_path / 'absent'}: no results of a comparison"):
        made.reuse(made.jobs(), [tmp_path / "absent"])


def test_a_run_folder_of_other_settings_is_refused_and_left_as_it_is(hearts: Path, tmp_path: Path) -> None:
    foreign = train(hearts, run_folder(tmp_path, "hearts", "pce", 0), "--quiet", epochs=1)
    before = stamps(foreign)
    worked(comparison(hearts, tmp_path, ONLY_PCE))
    [failed] = load_failed(tmp_path)
    assert failed.error == (
        f"{foreign}: the run there has other settings (epochs is 1, not None; steps is None, not 4); move it "
        "away, or choose another folder with --runs."
    )
    assert stamps(foreign) == before
    assert load_records(tmp_path) == []


@pytest.mark.parametrize(
    ("written_so_far", "share"),
    [
        ("", 0.0),
        ("epoch,step,minutes\n", 0.0),
        ("epoch,step,minutes\n1,1,0.5\n2,2,0.9\n", 0.5),
        ("epoch,step,minutes\n4,4,2\n", 0.95),
        ("what is this?", 0.0),
    ],
)
def test_how_much_of_a_run_is_done_is_told_by_what_it_has_written(
    written_so_far: str, share: float, hearts: Path, tmp_path: Path
) -> None:
    made = comparison(hearts, tmp_path, ONLY_PCE)
    run = run_folder(tmp_path, "hearts", "pce", 0)
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text(written_so_far)
    assert made.done(made.jobs()[0]) == share


def test_what_finished_or_failed_is_done(
    hearts: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = comparison(hearts, finished)
    assert [made.done(job) for job in made.jobs()] == [1.0, 1.0]
    failing(monkeypatch)
    broken = worked(comparison(hearts, tmp_path))
    assert [broken.done(job) for job in broken.jobs()] == [1.0, 1.0]


def test_what_cannot_be_scored_is_refused_before_the_first_run(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts", val=0)
    with pytest.raises(InputError, match="it has no validation case with a dense mask, so no row could be"):
        open_comparison(small_experiment(), {"hearts": data}, tmp_path / "results", steps=4)
    assert not (tmp_path / "results").exists()


def test_a_data_set_that_no_row_is_for_is_refused_with_those_that_are(hearts: Path, tmp_path: Path) -> None:
    experiment = Experiment((small_row("pce"),), name="small", data=("ACDC", "MSCMR"))
    with pytest.raises(InputError, match=r"unknown data set of this experiment 'hearts'.*Known: ACDC, MSCMR"):
        open_comparison(experiment, {"hearts": hearts}, tmp_path, steps=4)


def test_another_budget_is_refused_and_the_plan_stays(hearts: Path, finished: Path) -> None:
    plan = (finished / "experiment.yaml").read_bytes()
    with pytest.raises(InputError, match=r"row 'pce' was run with other settings \(steps was 4 and is 8\)"):
        open_comparison(small_experiment(), {"hearts": hearts}, finished, steps=8)
    assert (finished / "experiment.yaml").read_bytes() == plan


def test_runs_may_lie_elsewhere_and_later_commands_know_where(hearts: Path, tmp_path: Path) -> None:
    results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
    data = {"hearts": hearts}
    open_comparison(small_experiment(), data, results, runs=elsewhere, steps=4)
    open_comparison(small_experiment(), data, results, steps=4)
    assert run_folder(results, "hearts", "pce", 0) == elsewhere.resolve() / "hearts" / "pce" / "seed0"


@pytest.mark.slow
def test_two_processes_with_one_command_share_its_runs_and_run_none_twice(
    hearts: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    argv = command(written(tmp_path / "small.yaml"), hearts, results, "--seeds", "0,1", steps=40)
    processes = [start(argv), start(argv)]
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    begun = [re.findall(r"^(hearts, .*): begins", text, flags=re.MULTILINE) for text in said]
    runs = [f"hearts, {row}, seed {seed}" for row in ("entropy", "pce") for seed in (0, 1)]
    assert sorted([*begun[0], *begun[1]]) == runs
    assert all(begun), "each had a share"
    assert [f"{run.data}, {run.row}, seed {run.seed}" for run in load_records(results)] == runs
    assert "no run yet" not in (results / "tables" / "hearts.md").read_text(encoding="utf-8")


STEPS = 60

KILLED = ("pce", "entropy")
"""The runs in which the power fails, one after the other."""


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: sums depend on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_comparison_killed_while_it_trains_goes_on_and_ends_with_the_same_tables(
    hearts: Path, tmp_path: Path
) -> None:
    experiment = written(tmp_path / "small.yaml")
    straight, results = tmp_path / "straight", tmp_path / "results"
    assert main(command(experiment, hearts, straight, "--quiet", steps=STEPS)) == 0
    epochs = len(metrics(run_folder(straight, "hearts", "pce", 0)))
    argv = command(experiment, hearts, results, steps=STEPS)
    rng = np.random.default_rng(0)
    for row in KILLED:
        run = run_folder(results, "hearts", row, 0)
        kill_in_training(argv, run, after_epoch=int(rng.integers(1, epochs // 2)), rng=rng)
        assert 0 < epochs_of(run) < epochs
        assert not record_path(results, "hearts", row, 0).exists()
    process = start(argv)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "hearts, pce, seed 0: begins" not in err, "what finished between the kills is not run again"
    for row in KILLED:
        run = run_folder(results, "hearts", row, 0)
        assert "resuming after epoch" in (run / "train.log").read_text(encoding="utf-8")
        assert weights(run) == weights(run_folder(straight, "hearts", row, 0))
    assert what_scores_say(results) == what_scores_say(straight)


def kill_in_training(argv: list[str], run: Path, *, after_epoch: int, rng: np.random.Generator) -> None:
    """Start the command and kill it at some moment after an epoch of ``run`` has ended."""
    process = start(argv)
    while process.poll() is None and epochs_of(run) < after_epoch:
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.1))
    process.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, err


def epochs_of(run: Path) -> int:
    return len(metrics(run)) if (run / "metrics.csv").exists() else 0
