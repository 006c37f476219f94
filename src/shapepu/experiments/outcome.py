"""What a folder of results says in numbers: rows paired by volume, seeds averaged first, tests between rows.

Tables and figures arrange what is here and compute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shapepu.errors import InputError
from shapepu.evaluation.comparison import ComparedScore, compare_values
from shapepu.evaluation.statistics import (
    Interval,
    PairedTest,
    Spread,
    bootstrap_interval,
    group_means,
    holm,
    mean_over_runs,
    mean_sd,
    wilcoxon,
)
from shapepu.experiments.definition import Experiment, Row
from shapepu.experiments.plan import Plan, read_plan
from shapepu.experiments.records import (
    FailedRun,
    MissingRow,
    RunRecord,
    load_failed,
    load_missing,
    load_records,
)

SIGNIFICANT = 0.05

NOT_YET = "not run yet"

Question = tuple[str, str | None]
"""A score and a structure; None is the average over structures."""


@dataclass(frozen=True)
class RowTest:
    """A row against the one it is tested against, in one score.

    Args:
        against: the name of that row.
        score: the paired comparison over volumes, after averaging the seeds that both rows have; ``p_holm``
            is adjusted for all tests of the table.
        patients: the same test over patients, each the mean of its volumes.
    """

    row: str
    against: str
    score: ComparedScore
    patients: PairedTest

    @property
    def question(self) -> Question:
        name = self.score.structure
        return self.score.metric, None if name == "average" else name

    @property
    def better(self) -> bool:
        """Whether the row is better by what was tested: the ranks of the differences, not their mean."""
        return self._favours(self.score.test.rank_biserial)

    @property
    def mean_disagrees(self) -> bool:
        """Whether the row with the better ranks has the worse mean: a few volumes differ by much."""
        difference = self.score.difference
        return difference != 0 and self._favours(difference) != self.better

    @property
    def better_in(self) -> int:
        """Volumes in which the row is better."""
        test = self.score.test
        return test.higher if self.score.metric == "dice" else test.pairs - test.zeros - test.higher

    @property
    def worse_in(self) -> int:
        test = self.score.test
        return test.pairs - test.zeros - self.better_in

    def _favours(self, difference: float) -> bool:
        return difference > 0 if self.score.metric == "dice" else difference < 0


@dataclass(frozen=True)
class RowOutcome:
    """A row on one data set.

    Args:
        row: as it was defined.
        cases: the volumes of the data set, in the order of all arrays.
        records: the finished runs, by seed.
        missing: why there is none; empty when there is one.
        failed: whether it was tried and ended in an error.
    """

    row: Row
    cases: tuple[str, ...]
    records: tuple[RunRecord, ...] = ()
    missing: str = ""
    failed: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(record.seed for record in self.records)

    def of_run(self, record: RunRecord, metric: str, structure: str | None = None) -> NDArray[np.float64]:
        """One value a volume, nan where there is none. Without a structure, each volume's mean over those
        that have a value."""
        if structure is None:
            return mean_over_runs([self.of_run(record, metric, name) for name in record.structures])
        found = {case.case: getattr(case.structures[structure], metric) for case in record.cases}
        values = [found.get(case) for case in self.cases]
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    def values(
        self, metric: str, structure: str | None = None, seeds: Collection[int] | None = None
    ) -> NDArray[np.float64]:
        """One value a volume, averaged over seeds, or over some of them."""
        records = [record for record in self.records if seeds is None or record.seed in seeds]
        if not records:
            return np.full(len(self.cases), math.nan)
        return mean_over_runs([self.of_run(record, metric, structure) for record in records])

    def spread(self, metric: str, structure: str | None = None) -> Spread:
        """Mean and sd over volumes."""
        return mean_sd(self.values(metric, structure))

    def over_seeds(self, metric: str, structure: str | None = None) -> Spread:
        """Mean and sd of the runs' means: how much luck there is in one run."""
        return mean_sd([mean_sd(self.of_run(record, metric, structure)).mean for record in self.records])

    def count(self, claim: str) -> tuple[int, int]:
        """How often ``both_empty`` or ``one_empty`` holds, and of how many structures of all runs."""
        claims = [
            getattr(score, claim)
            for record in self.records
            for case in record.cases
            for score in case.structures.values()
        ]
        return sum(claims), len(claims)


@dataclass(frozen=True)
class DataOutcome:
    """One table: all rows on one data set.

    Args:
        data: its name.
        cases: the volumes that any row was scored on.
        groups: the patient of each.
        structures: in the order of the tables.
        rows: in the order of the experiment.
        tests: all questions of all rows that are tested, adjusted together.
    """

    data: str
    cases: tuple[str, ...]
    groups: tuple[str, ...]
    structures: tuple[str, ...]
    rows: tuple[RowOutcome, ...]
    tests: tuple[RowTest, ...] = ()

    @property
    def finished(self) -> tuple[RowOutcome, ...]:
        """Rows of which a run is there."""
        return tuple(row for row in self.rows if row.records)

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(record for row in self.rows for record in row.records)

    @property
    def patients(self) -> int:
        return len(set(self.groups))

    @cached_property
    def case_means(self) -> dict[str, float]:
        """For each volume its Dice, averaged over structures, seeds and then rows: no row is preferred."""
        if not self.finished:
            return {}
        means = mean_over_runs([row.values("dice") for row in self.finished])
        return dict(zip(self.cases, map(float, means), strict=True))

    def interval(self, row: RowOutcome, metric: str, structure: str | None = None) -> Interval:
        """Of the mean, by drawing patients."""
        return bootstrap_interval(row.values(metric, structure), self.groups)

    def test(self, row: RowOutcome, question: Question) -> RowTest | None:
        """The test of a row in one score, if there is one."""
        found = (test for test in self.tests if test.row == row.row.name and test.question == question)
        return next(found, None)

    def published(self, row: RowOutcome, name: str) -> tuple[float, float | None] | None:
        """A published figure of a row: a structure's Dice, ``average`` or ``hd_mm``."""
        figure = row.row.published.get(self.data, {}).get(name)
        if figure is None:
            return None
        return figure if isinstance(figure, tuple) else (figure, None)


@dataclass(frozen=True)
class Outcome:
    """All that tables and figures are made from.

    Args:
        absent: what the plan asks for and is not in any table, a line each.
        failed: runs whose last attempt ended in an error; those that have a record since are not among them.
    """

    results: Path
    plan: Plan
    tables: tuple[DataOutcome, ...]
    absent: tuple[str, ...] = field(default=())
    failed: tuple[FailedRun, ...] = field(default=())

    @property
    def experiment(self) -> Experiment:
        return self.plan.experiment

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(record for table in self.tables for record in table.records)


def read_outcome(results: str | Path) -> Outcome:
    """Read a folder of results, finished or not."""
    results = Path(results)
    plan = read_plan(results)
    records, missing = load_records(results), load_missing(results)
    done = {(record.data, record.row, record.seed) for record in records}
    failed = [run for run in load_failed(results) if (run.data, run.row, run.seed) not in done]
    stored_rows: list[RunRecord | MissingRow | FailedRun] = [*records, *missing, *failed]
    for stored in stored_rows:
        if stored.experiment != plan.experiment.name:
            raise InputError(
                f"{results}: it holds results of {stored.experiment!r} (row {stored.row!r}), but its "
                f"experiment.yaml is of {plan.experiment.name!r}; put them into folders of their own."
            )
    known = [row.name for row in plan.experiment.rows]
    absent = [
        f"{stored.row} on {stored.data}: there is a result, but the experiment has no such row."
        for stored in stored_rows
        if stored.row not in known
    ]
    named = dict.fromkeys(data for row in plan.experiment.rows for data in row.data)
    found = dict.fromkeys(stored.data for stored in stored_rows if stored.row in known)
    absent += [f"{data}: {NOT_YET}." for data in named if data not in found]
    names = [*(data for data in named if data in found), *(data for data in found if data not in named)]
    tables = tuple(data_outcome(plan.experiment, data, records, missing, failed) for data in names)
    return Outcome(results, plan, tables, tuple(dict.fromkeys(absent)), tuple(failed))


def data_outcome(
    experiment: Experiment,
    data: str,
    records: Iterable[RunRecord],
    missing: Iterable[MissingRow] = (),
    failed: Iterable[FailedRun] = (),
) -> DataOutcome:
    """The table of one data set, tests included."""
    rows = [row for row in experiment.rows if not row.data or data in row.data]
    names = {row.name for row in rows}
    runs = [record for record in records if record.data == data and record.row in names]
    structures = {record.structures for record in runs if record.cases}
    if len(structures) > 1:
        raise InputError(
            f"{data}: rows were scored on different structures, {sorted(structures)}; run one of them again."
        )
    groups = {case.case: case.group for record in runs for case in record.cases}
    cases = tuple(sorted(groups))
    reasons = {lacking.row: lacking.reason for lacking in missing if lacking.data == data}
    errors = [run for run in failed if run.data == data]
    outcomes = []
    for row in rows:
        own = tuple(record for record in runs if record.row == row.name)
        ended = dict.fromkeys(run.error for run in errors if run.row == row.name)
        tried = bool(ended) and not own and row.name not in reasons
        reason = reasons.get(row.name) or "; ".join(ended) or NOT_YET
        outcomes.append(RowOutcome(row, cases, own, "" if own else reason, tried))
    table = DataOutcome(
        data=data,
        cases=cases,
        groups=tuple(groups[case] for case in cases),
        structures=next(iter(structures), ()),
        rows=tuple(outcomes),
    )
    return replace(table, tests=tuple(_tested(experiment, table)))


def questions(structures: Iterable[str]) -> list[Question]:
    """What a table shows of a row and tests: Dice of each structure, and the average of three scores."""
    return [*(("dice", name) for name in structures), ("dice", None), ("hd_mm", None), ("hd95_mm", None)]


def _tested(experiment: Experiment, table: DataOutcome) -> list[RowTest]:
    """Every question of every row that is tested, Holm's adjustment over all of them."""
    finished = {outcome.row.name: outcome for outcome in table.finished}
    tests = []
    for name, outcome in finished.items():
        against = experiment.tested_against(outcome.row)
        if against is None or against.name not in finished:
            continue
        other = finished[against.name]
        # The seeds that only one of them has would give it a luckier or unluckier mean.
        common = set(outcome.seeds) & set(other.seeds)
        for metric, structure in questions(table.structures):
            pair = outcome.values(metric, structure, common), other.values(metric, structure, common)
            score = compare_values(*pair, table.groups, metric=metric, structure=structure)
            one, two = (np.where(np.isnan(pair[0] + pair[1]), math.nan, values) for values in pair)
            patients = wilcoxon(group_means(one, table.groups), group_means(two, table.groups))
            tests.append(RowTest(name, against.name, score, patients))
    adjusted = holm([test.score.test.p_value for test in tests])
    return [
        replace(test, score=replace(test.score, p_holm=p)) for test, p in zip(tests, adjusted, strict=True)
    ]
