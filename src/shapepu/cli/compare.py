"""``shapepu compare``: a table of runs as one command that goes on wherever it was stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from shapepu.cli.arguments import parse
from shapepu.console import say
from shapepu.errors import InputError

if TYPE_CHECKING:
    from shapepu.experiments.plan import Plan
    from shapepu.experiments.running import Comparison, Job


def _shown(metavar: str, default: str, **more: Any) -> Any:
    hint = f"(default: {default})" if default else ""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, **more)


@dataclass(frozen=True)
class CompareArguments:
    """Train, score and tabulate the rows of an experiment on the same data with the same budget.

    Go on with an interrupted comparison by the same command; finished runs are skipped, and any number of
    processes may be given it at once: each takes what no other has. Without --data, tables, figures and the
    report are made again from the results that are there.
    """

    experiment: Annotated[tyro.conf.Positional[str], _shown("[EXPERIMENT]", "")] = ""
    """Name of a shipped experiment (--list) or path of a YAML file."""
    data: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], _shown("NAME=FOLDER", "")] = ()
    """A data set and its name in the experiment; may be given several times."""
    output: Annotated[Path | None, _shown("RESULTS", "results/EXPERIMENT", aliases=["-o"])] = None
    """Folder of records, tables, figures and report.html."""
    minutes_per_run: Annotated[float | None, _shown("NUMBER", "as the recipe says")] = None
    """Minutes that each run may train."""
    steps_per_run: Annotated[int | None, _shown("NUMBER", "as the recipe says")] = None
    """Batches that each run may train: equal on any hardware."""
    pce_steps_per_run: Annotated[int | None, _shown("NUMBER", "as the recipe says")] = None
    """Batches that pce may train; other methods get as many as take about as long on two CPU cores, by the
    cost of a step that `shapepu methods` tells."""
    epochs_per_run: Annotated[int | None, _shown("NUMBER", "as the recipe says")] = None
    """Passes over the data that each run may train."""
    seeds: str = "0"
    """Seeds, parted by commas: a run of every row for each."""
    rows: Annotated[str, _shown("NAME,NAME", "all")] = ""
    """Only these rows, parted by commas."""
    recipe: str = "fast"
    """Starting point of the settings of all rows: fast, thorough or paper."""
    workers: int = 1
    """Runs at a time on this machine; the processor's cores are divided among them."""
    runs: Annotated[Path | None, _shown("FOLDER", "RESULTS/runs")] = None
    """Where the run folders go: with checkpoints and predictions they take more space than the results."""
    reuse: Annotated[tyro.conf.UseAppendAction[tuple[Path, ...]], _shown("RESULTS", "")] = ()
    """Other results to take records from where data, seed and every setting are the same."""
    cache: Annotated[Path | None, _shown("FOLDER", "the user's cache folder")] = None
    """Where preprocessed slices are kept."""
    diff: Annotated[tuple[str, str] | None, _shown("ROW ROW", "")] = None
    """Print the settings in which two rows differ, and do nothing else."""
    as_list: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="list")] = False
    """List the shipped experiments, and do nothing else."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say nothing but errors and where the results are."""


def run(argv: list[str]) -> int:
    arguments = parse(CompareArguments, argv, "compare")
    if arguments.as_list:
        return _list_experiments()
    if not arguments.quiet and not arguments.diff and WORKERS not in os.environ:
        say("shapepu compare: loading")
    from shapepu.experiments.definition import find_experiment

    if not arguments.experiment and arguments.output is None:
        raise InputError("name an experiment (`shapepu compare --list`), or results with -o to render again.")
    if arguments.diff:
        return _print_differences(_plan(arguments), *arguments.diff)
    if not arguments.data:
        if arguments.experiment and arguments.output is None and not _results(arguments).exists():
            find_experiment(arguments.experiment)  # an unknown name lists the known ones
        return _render(_results(arguments))
    from shapepu.experiments.running import open_comparison

    experiment = find_experiment(arguments.experiment)
    comparison = open_comparison(
        experiment,
        _datasets(arguments.data),
        _results(arguments),
        runs=arguments.runs,
        recipe=arguments.recipe,
        epochs=arguments.epochs_per_run,
        minutes=arguments.minutes_per_run,
        steps=arguments.steps_per_run,
        pce_steps=arguments.pce_steps_per_run,
        seeds=_numbers(arguments.seeds),
        cache=arguments.cache,
        workers=int(os.environ.get(WORKERS) or max(1, arguments.workers)),
        quiet=arguments.quiet,
    )
    jobs = comparison.jobs(_chosen_rows(comparison.plan, arguments.rows))
    taken = comparison.reuse(jobs, arguments.reuse)
    if taken:
        say(f"{taken} runs taken over from {', '.join(map(str, arguments.reuse))}", quiet=arguments.quiet)
    if arguments.workers > 1:
        return _divide(comparison, jobs, argv, arguments.workers)
    others = comparison.work(jobs)
    if os.environ.get(WORKERS):
        return 0  # the process that divided the work shows what came of it
    return _conclude(comparison, jobs, others)


WORKERS = "SHAPEPU_COMPARE_WORKERS"
"""Tells a process that it is one of several which one command has started, and how many they are."""


def _divide(comparison: Comparison, jobs: Sequence[Job], argv: list[str], workers: int) -> int:
    """Several processes with this very command, each with its share of the cores and the next GPU."""
    from shapepu.experiments.running import SESSION

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shared = {
        "OMP_NUM_THREADS": str(max(1, cores // workers)),
        **os.environ,
        WORKERS: str(workers),
        SESSION: comparison.session,
    }
    gpus = _visible_gpus()
    processes: list[subprocess.Popen[str]] = []
    with comparison.progress(jobs), _ended_together(processes):
        for number in range(min(workers, len(comparison.left(jobs)))):
            own = {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if len(gpus) > 1 else {}
            command = [sys.executable, "-m", "shapepu", "compare", *argv, "--workers", "1"]
            # A session of their own: Ctrl-C is this process's to deal with, once and in one line.
            processes.append(
                subprocess.Popen(
                    command, env={**shared, **own}, stderr=subprocess.PIPE, text=True, start_new_session=True
                )
            )
        listeners = [threading.Thread(target=_pass_on, args=(process,)) for process in processes]
        for listener in listeners:
            listener.start()
        codes = [process.wait() for process in processes]
        for listener in listeners:
            listener.join()
    if any(codes) and comparison.left(jobs):
        raise InputError(f"{sum(map(bool, codes))} of {len(codes)} processes ended with an error; see above.")
    return _conclude(comparison, jobs, comparison.left(jobs))


def _pass_on(process: subprocess.Popen[str]) -> None:
    """What a process says, above the one progress display that all of them share."""
    assert process.stderr is not None
    for line in process.stderr:
        say(line.rstrip("\n"))


@contextmanager
def _ended_together(processes: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Nothing goes on when the command is interrupted, or told to end as schedulers do."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end) if _may_catch_signals() else None
    try:
        yield
    finally:
        if _may_catch_signals():
            signal.signal(signal.SIGTERM, before)
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)


def _may_catch_signals() -> bool:
    return threading.current_thread() is threading.main_thread()


def _visible_gpus() -> list[str]:
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def _conclude(comparison: Comparison, jobs: Sequence[Job], others: Sequence[Job]) -> int:
    """Tables, figures and report; exit code 1 where runs failed."""
    if others:
        say(f"{len(others)} runs are in the hands of other processes", quiet=comparison.quiet)
    failed = [job for job in jobs if comparison.has_failed(job)]
    _render(comparison.results)
    if failed:
        say(f"{len(failed)} runs failed: {'; '.join(map(str, failed))}; the same command tries them again")
    return 1 if failed else 0


def _render(results: Path) -> int:
    from shapepu.claims import waiting_claim
    from shapepu.experiments.plan import read_plan
    from shapepu.experiments.rendering import render

    read_plan(results)  # refuses a folder without results before anything is made in it
    with waiting_claim(results / "claims" / "tables"):
        print(render(results))
    return 0


def _results(arguments: CompareArguments) -> Path:
    return arguments.output or Path("results") / Path(arguments.experiment).stem


def _plan(arguments: CompareArguments) -> Plan:
    """What was or would be run."""
    from shapepu.experiments.definition import find_experiment
    from shapepu.experiments.plan import FILE, Plan, read_plan

    if (_results(arguments) / FILE).is_file():
        return read_plan(_results(arguments))
    budget = arguments.epochs_per_run, arguments.minutes_per_run, arguments.steps_per_run
    return Plan(
        find_experiment(arguments.experiment),
        arguments.recipe,
        *budget,
        pce_steps=arguments.pce_steps_per_run,
    )


def _print_differences(plan: Plan, first: str, second: str) -> int:
    from shapepu.experiments.differences import differing_lines

    settings = plan.settings or {}
    found = differing_lines(*(settings[plan.experiment.row(row).name] for row in (first, second)))
    rows = [("setting", first, second), *found]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _list_experiments() -> int:
    from shapepu.experiments.definition import shipped_experiments

    for name, experiment in shipped_experiments().items():
        data = ", ".join(experiment.data) or "any data"
        print(f"{name:<11} {experiment.title} ({data}; {len(experiment.rows)} rows)")
    return 0


def _datasets(given: Sequence[str]) -> dict[str, Path]:
    """Folders by the names of the data sets; each name once."""
    named = [_named(text) for text in given]
    names = [name for name, _ in named]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"--data: {repeated[0]!r} is given twice; give each data set a name of its own.")
    return dict(named)


def _named(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise InputError(f"--data: expected NAME=FOLDER, such as ACDC=ACDC, got {text!r}.")
    return name, Path(folder)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise InputError(f"--seeds: expected whole numbers parted by commas, got {text!r}.") from error


def _chosen_rows(plan: Plan, text: str) -> list[str] | None:
    """Names of rows; an unknown one lists the known ones."""
    return [plan.experiment.row(name.strip()).name for name in text.split(",")] if text else None
