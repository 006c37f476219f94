"""What may be said about scores of a few volumes: spread, paired tests, intervals."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

_SAME = 1e-9
"""Scores closer than this differ by round-off only: their difference is a zero, and two differences a tie."""


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of ``count`` values, after ``left_out`` missing ones."""

    mean: float
    sd: float
    count: int
    left_out: int


@dataclass(frozen=True)
class PairedTest:
    """A two-sided Wilcoxon signed-rank test.

    Args:
        p_value: nan when there is no pair.
        rank_biserial: the matched-pairs rank-biserial correlation, from -1 to 1: how far the ranks of pairs
            in which the first is higher outweigh the others. Its sign is the direction that was tested; the
            mean difference may have the other one, where few pairs differ by much.
        higher: pairs in which the first is higher.
        pairs: pairs with both values, zero differences included.
        zeros: pairs without a difference; they do not enter the ranks.
        left_out: pairs with a missing value.
    """

    p_value: float
    rank_biserial: float
    higher: int
    pairs: int
    zeros: int
    left_out: int


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


def mean_sd(values: ArrayLike) -> Spread:
    """Mean and sample sd (n - 1) over what is not nan; nan where there are too few values."""
    values = np.asarray(values, dtype=np.float64).ravel()
    present = values[~np.isnan(values)]
    return Spread(
        mean=float(present.mean()) if present.size else math.nan,
        sd=float(present.std(ddof=1)) if present.size > 1 else math.nan,
        count=present.size,
        left_out=values.size - present.size,
    )


def mean_over_runs(runs: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Each volume's mean over the runs that have a value for it, nan where none has.

    Runs of several seeds are not more volumes: they are averaged first, and all that follows is paired over
    volumes, as many as there are.
    """
    table = np.asarray(runs, dtype=np.float64)
    present = ~np.isnan(table)
    with np.errstate(invalid="ignore"):
        return np.where(present, table, 0).sum(axis=0) / present.sum(axis=0)


def group_means(values: ArrayLike, groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """The mean of each group, in the order in which groups come; nan values do not count."""
    values = np.asarray(values, dtype=np.float64).ravel()
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    return np.array([mean_sd(values[members]).mean for members in places.values()])


def wilcoxon(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Whether paired scores differ: Wilcoxon's signed-rank test, two-sided.

    Pairs with nan are left out, then zero differences (as Wilcoxon did). The null distribution is exact for
    up to 50 differences, with ties for up to 13, and normal with a correction for ties beyond. Nothing but
    zeros gives p = 1.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    present = differences[~np.isnan(differences)]
    unequal = present[np.abs(present) > _SAME]
    # Distances are sums over a voxel grid, so many differences are equal up to round-off: make them ties.
    steps = np.round(unequal / _SAME)
    if present.size == 0:
        p_value = math.nan
    elif unequal.size == 0:
        p_value = 1.0
    else:
        p_value = float(stats.wilcoxon(steps, alternative="two-sided").pvalue)
    ranks = stats.rankdata(np.abs(steps))
    return PairedTest(
        p_value=p_value,
        rank_biserial=float((np.sign(steps) * ranks).sum() / ranks.sum()) if steps.size else 0.0,
        higher=int((steps > 0).sum()),
        pairs=present.size,
        zeros=present.size - unequal.size,
        left_out=differences.size - present.size,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment for several tests of one family, in the order given.

    A nan (no test was possible) stays nan and does not count as a test.
    """
    adjusted = [math.nan] * len(p_values)
    tested = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * p))
        adjusted[place] = largest
    return adjusted


def bootstrap_interval(
    values: ArrayLike,
    groups: Sequence[Hashable],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of the mean, resampling groups and not values.

    Two volumes of a patient are not two independent observations, so a patient is drawn with all its values.
    nan values are left out; with fewer than two groups left there is no interval (nan).
    """
    values = np.asarray(values, dtype=np.float64).ravel()
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if not math.isnan(value):
            members.setdefault(group, []).append(float(value))
    if len(members) < 2:
        return Interval(math.nan, math.nan)
    totals = np.array([math.fsum(group) for group in members.values()])
    counts = np.array([len(group) for group in members.values()])
    drawn = np.random.default_rng(seed).integers(len(members), size=(resamples, len(members)))
    means = totals[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, [50 * (1 - confidence), 50 * (1 + confidence)])
    return Interval(float(low), float(high))
