"""Runs the rows of an experiment, one after another or with other processes, and goes on where any stopped.

Every run is an ordinary run folder; its record is written last and is what "finished" means. A process that
wants to run something holds a lock on it, so any number of processes, on one machine or on several that share
a folder, may be given the same command at any time; one that is killed lets go of its lock.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any

from shapepu import api
from shapepu.claims import claim, waiting_claim
from shapepu.data.case import Dataset
from shapepu.data.readers import read_dataset
from shapepu.errors import InputError, unknown_name
from shapepu.evaluation.report.contents import read_metrics
from shapepu.experiments.definition import Experiment, Row, reject_odd_name
from shapepu.experiments.differences import UNSAID, differing_lines, flattened
from shapepu.experiments.gathering import gather
from shapepu.experiments.plan import FILE, Plan, read_plan
from shapepu.experiments.progress import ComparisonProgress
from shapepu.experiments.records import (
    FailedRun,
    MissingRow,
    RunRecord,
    RunsElsewhere,
    failed_path,
    load_failed,
    load_records,
    missing_path,
    read_failed,
    record_path,
    run_folder,
)
from shapepu.files import writable_folder
from shapepu.methods import find_method
from shapepu.prepare import cases_to_learn_from
from shapepu.runfolder import RunFolder
from shapepu.settings import TrainSettings

SESSION = "SHAPEPU_COMPARE_SESSION"
"""Names one command to all processes that it consists of; what failed in it is not tried by them again."""

PLANNED = {
    "preprocessing.spacing_mm": UNSAID,
    "preprocessing.patch": UNSAID,
    "preprocessing.statistics": "[]",
    "data.slices_per_epoch": UNSAID,
    "precision": "auto",
}
"""Settings that a run finds out by itself, from its data or its hardware, and what says that it should."""

MOST_OF_A_RUN = 0.95
"""What training can be of it: the scores are still to come."""


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    data: str
    row: Row
    seed: int

    def __str__(self) -> str:
        return f"{self.data}, {self.row.name}, seed {self.seed}"


@dataclass
class Comparison:
    """A plan, where its data lie and where its results go.

    Args:
        plan: what to run.
        data: the data sets by name; rows on others wait until those are given.
        results: the folder of records, tables, figures and the report.
        cache: where preprocessed slices are kept.
        workers: runs at a time on this machine, for the record.
        quiet: say nothing but errors.
    """

    plan: Plan
    data: Mapping[str, Dataset]
    results: Path
    cache: Path | None = None
    workers: int = 1
    quiet: bool = False
    session: str = field(default_factory=lambda: os.environ.get(SESSION) or new_session())
    _earlier: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self._earlier = frozenset(run.session for run in load_failed(self.results)) - {self.session}

    def jobs(self, rows: Sequence[str] | None = None) -> list[Job]:
        """All runs of rows that can run, one seed of every row before the next seed of any."""
        able = [(data, row) for data, row in self._places(rows) if not self._missing(data, row)]
        return [Job(data, row, seed) for seed in self.plan.seeds for data, row in able]

    def _places(self, rows: Sequence[str] | None) -> Iterator[tuple[str, Row]]:
        for data in self.data:
            for row in self.plan.experiment.rows:
                if (not row.data or data in row.data) and (rows is None or row.name in rows):
                    yield data, row

    def _missing(self, data: str, row: Row) -> bool:
        """Whether the data lack what the row learns from; the reason is kept for the tables."""
        needs, choice = find_method(row.method).needs, self.plan.settings_of(row.name, 0).data
        path = missing_path(self.results, data, row.name)
        try:
            cases_to_learn_from(self.data[data], needs, choice)
        except InputError as error:
            reason = str(error).removeprefix(f"{self.data[data].root}: ")
            MissingRow(self.plan.experiment.name, data, row.name, reason).write(self.results)
            return True
        path.unlink(missing_ok=True)
        return False

    def is_finished(self, job: Job) -> bool:
        return record_path(self.results, job.data, job.row.name, job.seed).is_file()

    def has_failed(self, job: Job) -> bool:
        """Whether it failed since this command began, in whichever process; earlier failures are retried."""
        path = failed_path(self.results, job.data, job.row.name, job.seed)
        return path.is_file() and read_failed(path).session not in self._earlier

    def done(self, job: Job) -> float:
        """How much of it is, from 0 to 1: what a run under way has written tells."""
        if self.is_finished(job) or self.has_failed(job):
            return 1.0
        run = RunFolder(run_folder(self.results, job.data, job.row.name, job.seed))
        try:
            metrics = read_metrics(run.metrics)
        except (OSError, InputError):
            return 0.0
        settings = self.plan.settings_of(job.row.name, job.seed)
        ends = {"epoch": settings.epochs, "minutes": settings.minutes, "step": settings.steps}
        shares = [(metrics.last(name) or 0) / end for name, end in ends.items() if end]
        return min(MOST_OF_A_RUN, max(shares))

    def progress(self, jobs: Sequence[Job]) -> ComparisonProgress:
        """A display of all ``jobs``, whichever process runs them."""
        return ComparisonProgress(
            lambda: [self.done(job) for job in jobs],
            self.plan.minutes,
            at_once=self.workers,
            quiet=self.quiet,
        )

    def work(self, jobs: Sequence[Job]) -> list[Job]:
        """Run whatever nobody else is running, until all is finished or failed; what others still run."""
        with self.progress(jobs) as progress:
            # Once more after any run: meanwhile a process may have died that held another.
            while any(self._try(job, progress) for job in self.left(jobs)):
                pass
        return self.left(jobs)

    def left(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that neither finished nor failed."""
        return [job for job in jobs if not self.is_finished(job) and not self.has_failed(job)]

    def _try(self, job: Job, progress: ComparisonProgress) -> bool:
        """Run a job unless another process does, or did meanwhile; whether it was run."""
        with claim(self.results / "claims" / job.data / f"{job.row.name}-seed{job.seed}") as mine:
            if not mine or not self.left([job]):
                return False
            progress.begins(str(job))
            progress.ended(str(job), self._run(job))
            return True

    def _run(self, job: Job) -> str:
        """Train, score and record one run; in a line, what came of it. A failure must not end the others."""
        run = RunFolder(run_folder(self.results, job.data, job.row.name, job.seed), quiet=True)
        failed = failed_path(self.results, job.data, job.row.name, job.seed)
        try:
            self._train(job, run)
            record = gather(
                run,
                experiment=self.plan.experiment.name,
                data=job.data,
                row=job.row.name,
                workers=self.workers,
                cache=self.cache,
            )
        except Exception as error:
            said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            said = " ".join(said.split())
            name = self.plan.experiment.name
            FailedRun(name, job.data, job.row.name, job.seed, said, self.session).write(self.results)
            return f"failed: {said}"
        record.write(self.results)
        failed.unlink(missing_ok=True)
        return f"Dice {mean_dice(record):.3f} in {record.minutes:.1f} minutes"

    def _train(self, job: Job, run: RunFolder) -> None:
        settings = self.plan.settings_of(job.row.name, job.seed)
        if run.checkpoint.exists():
            self._reject_other_run(run, settings)
            api.resume(run.root, cache=self.cache, quiet=True)
            return
        # What was killed before its first checkpoint has nothing worth keeping.
        rmtree(run.root, ignore_errors=True)
        api.train(self.data[job.data], output=run.root, settings=settings, cache=self.cache, quiet=True)

    def _reject_other_run(self, run: RunFolder, settings: TrainSettings) -> None:
        """What is in the folder must be the run that is asked for, or a table would hold another's scores."""
        _, theirs = api.data_and_settings(run)
        if not same_run(theirs.to_plain(), settings):
            lines = differing_lines(theirs.to_plain(), settings.to_plain())
            said = [line for line in lines if line[2] != PLANNED.get(line[0])]
            told = "; ".join(f"{name} is {old}, not {new}" for name, old, new in said)
            raise InputError(
                f"{run.root}: the run there has other settings ({told}); move it away, or choose another "
                "folder with --runs."
            )

    def reuse(self, jobs: Sequence[Job], others: Sequence[Path]) -> int:
        """Take over records of other results where data, seed and every setting are the same; how many."""
        for folder in others:
            read_plan(folder)  # refuses a folder without results
        found = [record for folder in others for record in load_records(folder)]
        taken = 0
        for job in jobs:
            if self.is_finished(job):
                continue
            settings = self.plan.settings_of(job.row.name, job.seed)
            for record in found:
                if (record.data, record.seed) == (job.data, job.seed) and same_run(record.settings, settings):
                    name = self.plan.experiment.name
                    replace(record, experiment=name, row=job.row.name).write(self.results)
                    taken += 1
                    break
        return taken


def new_session() -> str:
    """A name that no other command has."""
    return secrets.token_hex(16)


def mean_dice(record: RunRecord) -> float:
    """Over structures and volumes; for a line of progress, tables do their own sums."""
    scores = [score.dice for case in record.cases for score in case.structures.values()]
    return sum(scores) / len(scores)


def same_run(recorded: Mapping[str, Any], settings: TrainSettings) -> bool:
    """Whether a run with ``settings`` would be the one whose settings were ``recorded``."""
    theirs, ours = flattened(recorded), flattened(settings.to_plain())
    for name, left_open in PLANNED.items():
        if ours[name] == left_open:
            theirs[name] = left_open
    return theirs == ours


def open_comparison(
    experiment: Experiment,
    data: Mapping[str, Path],
    results: Path,
    *,
    runs: Path | None = None,
    recipe: str = "fast",
    epochs: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    pce_steps: int | None = None,
    seeds: Sequence[int] = (0,),
    cache: Path | None = None,
    workers: int = 1,
    quiet: bool = False,
) -> Comparison:
    """Check everything that can be checked before the first run, and write down what is to be run."""
    plan = Plan(experiment, recipe, epochs, minutes, steps, tuple(seeds), pce_steps=pce_steps)
    datasets = {name: _dataset(name, path, experiment) for name, path in data.items()}
    writable_folder(results)
    with waiting_claim(results / "claims" / "plan"):
        if (results / FILE).is_file():
            plan = plan.extending(read_plan(results), results)
        plan.write(results)
        if runs is not None:
            RunsElsewhere(str(writable_folder(runs).resolve())).write(results)
    return Comparison(plan, datasets, results, cache, workers, quiet)


def _dataset(name: str, path: Path, experiment: Experiment) -> Dataset:
    reject_odd_name("data set", name)
    named = tuple(dict.fromkeys(slot for row in experiment.rows for slot in row.data))
    if named and all(row.data for row in experiment.rows) and name not in named:
        raise unknown_name("data set of this experiment", name, named)
    dataset = read_dataset(path, "auto")
    if not any(case.mask is not None for case in dataset.split("val")):
        raise InputError(
            f"{path}: it has no validation case with a dense mask, so no row could be scored; add some, or "
            "name validation cases in a splits file."
        )
    return dataset
