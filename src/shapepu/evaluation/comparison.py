"""Two sets of predictions of the same cases: is one better, by how much, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapepu.errors import InputError
from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.evaluation.results import Evaluation, write_json
from shapepu.evaluation.statistics import Interval, PairedTest, bootstrap_interval, holm, mean_sd, wilcoxon

COMPARED = ("dice", "hd_mm", "hd95_mm", "assd_mm")

COMPARISON_DEFINITIONS = (
    "Difference: first minus second, mean over the volumes that have the score in both. Interval: 95 % "
    "percentile bootstrap of it, drawing patients 10000 times. p: two-sided Wilcoxon signed-rank test over "
    "paired volumes. p (Holm): adjusted for the structures of one score. n: pairs."
)

FEWEST_PAIRS = 6
"""Fewer pairs cannot reach p < 0.05: the smallest two-sided p of n pairs is 2 / 2^n."""


@dataclass(frozen=True)
class ComparedScore:
    """One score of one structure in both sets of predictions.

    Args:
        difference: first minus second, mean over the pairs.
        interval: of the difference, by drawing patients.
        p_holm: adjusted for the structures tested on this score; nan for the average, a question of its own.
    """

    metric: str
    structure: str
    first_mean: float
    second_mean: float
    difference: float
    interval: Interval
    test: PairedTest
    p_holm: float = math.nan


@dataclass(frozen=True)
class Comparison:
    """Every score of every structure compared, with what the numbers mean."""

    first: str
    second: str
    rows: tuple[ComparedScore, ...]
    groups: int
    notes: tuple[str, ...] = ()
    definitions: str = f"{COMPARISON_DEFINITIONS} {DEFINITIONS}"

    @property
    def summary(self) -> dict[str, Any]:
        """What ``against.json`` holds."""
        return asdict(self)

    def table(self) -> str:
        from shapepu.evaluation.tables import comparison_table

        return comparison_table(self)

    def write(self, folder: str | Path) -> None:
        """Write ``against.json`` into ``folder``."""
        write_json(Path(folder) / "against.json", self.summary)


def compare(
    first: Evaluation,
    second: Evaluation,
    *,
    names: tuple[str, str] = ("first", "second"),
    seed: int = 0,
) -> Comparison:
    """Compare two evaluations case by case; cases that only one of them has are left out."""
    if first.labels != second.labels:
        raise InputError(
            f"only evaluations with the same labels can be compared; got {first.labels.names} and "
            f"{second.labels.names}."
        )
    shared = {case.name for case in first.cases} & {case.name for case in second.cases}
    if not shared:
        raise InputError("the two sets of predictions have no case in common; there is nothing to compare.")
    first, second = _restricted(first, shared), _restricted(second, shared)
    groups = [case.group for case in first.cases]

    def compared(metric: str, structure: str | None) -> ComparedScore:
        values = first.values(metric, structure), second.values(metric, structure)
        return compare_values(*values, groups, metric=metric, structure=structure, seed=seed)

    rows: list[ComparedScore] = []
    for metric in COMPARED:
        of_structures = [compared(metric, name) for name in first.structures]
        adjusted = holm([row.test.p_value for row in of_structures])
        rows += [replace(row, p_holm=p) for row, p in zip(of_structures, adjusted, strict=True)]
        rows.append(compared(metric, None))
    note = few_pairs_note(len(groups))
    return Comparison(*names, tuple(rows), len(set(groups)), (note,) if note else ())


def _restricted(evaluation: Evaluation, names: set[str]) -> Evaluation:
    cases = sorted((case for case in evaluation.cases if case.name in names), key=lambda case: case.name)
    return replace(evaluation, cases=tuple(cases))


def compare_values(
    first: ArrayLike,
    second: ArrayLike,
    groups: Sequence[Hashable],
    *,
    metric: str,
    structure: str | None = None,
    seed: int = 0,
) -> ComparedScore:
    """Compare paired scores of the same volumes.

    Args:
        first, second: one value a volume, in the same order; nan where there is none.
        groups: the patient of each volume.
        metric, structure: what the values are; None is the average over structures.
        seed: of the bootstrap.
    """
    one, other = _paired(np.asarray(first, np.float64), np.asarray(second, np.float64))
    return ComparedScore(
        metric=metric,
        structure=structure or "average",
        first_mean=mean_sd(one).mean,
        second_mean=mean_sd(other).mean,
        difference=mean_sd(one - other).mean,
        interval=bootstrap_interval(one - other, groups, seed=seed),
        test=wilcoxon(one, other),
    )


def few_pairs_note(volumes: int) -> str:
    """What so few volumes cannot show; empty when they are enough."""
    if volumes >= FEWEST_PAIRS:
        return ""
    return f"With {volumes} volumes no p-value can fall below {2 ** (1 - volumes):.3g}."


def _paired(
    one: NDArray[np.float64], other: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both with nan where either has it, so that means, difference and test speak of the same volumes."""
    either = np.isnan(one) | np.isnan(other)
    return np.where(either, math.nan, one), np.where(either, math.nan, other)
