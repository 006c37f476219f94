"""Preprocessing planned from the training cases, reading each file only once in the life of a cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from numpy.typing import NDArray

from shapepu.console import progress
from shapepu.data.cache import FileRecords, cache_folder, write_json, writing_to_cache
from shapepu.data.case import Case
from shapepu.data.intensity import ChannelStatistics
from shapepu.data.preprocess import (
    Preprocessing,
    different_shapes,
    finite_voxels,
    plan,
    reject_unequal_channels,
)
from shapepu.data.volumes import read_labels, read_volume
from shapepu.labels import LabelSet

VOXELS_PER_CASE = 10_000
"""Enough of each case for the statistics of a channel, and few enough for thousands of cases."""


def plan_for(
    cases: Sequence[Case],
    labels: LabelSet,
    settings: Preprocessing,
    cache: Path | None,
    *,
    quiet: bool = False,
) -> Preprocessing:
    """``settings`` with nothing left to plan: :func:`plan`, and for ``ct`` the statistics of the voxels.

    Args:
        cases: the training cases.
        labels: what the integers in scribble files mean.
        settings: what the user has decided; only what is left open is planned.
        cache: folder for prepared data, or None for the usual one.
        quiet: no progress bar.
    """
    reject_unequal_channels(cases)
    folder = cache_folder(cache)
    records = FileRecords(folder)
    settings = plan([records.of(case.images[0]).header for case in cases], settings)
    if settings.resolved:
        return settings
    files = [[path and records.of(path).digest for path in (*case.images, case.scribble)] for case in cases]
    key = hashlib.sha256(json.dumps([files, labels.as_dict()]).encode()).hexdigest()[:32]
    place = folder / "statistics" / f"{key}.json"
    statistics = _remembered(place)
    if statistics is None:
        statistics = measure_statistics(cases, labels, quiet=quiet)
        with writing_to_cache(folder):
            write_json(place, {"channels": [asdict(channel) for channel in statistics]})
    return replace(settings, statistics=statistics)


def measure_statistics(
    cases: Sequence[Case], labels: LabelSet, *, quiet: bool = False
) -> tuple[ChannelStatistics, ...]:
    """Of each channel, over the voxels scribbled as a structure, or over all voxels if there are none.

    The scribbled structures are what must be told apart: air and table would stretch the range.
    """
    scribbled: list[list[NDArray]] = [[] for _ in cases[0].images]
    everything: list[list[NDArray]] = [[] for _ in cases[0].images]
    for case in progress(cases, what="measuring intensities", unit="case", quiet=quiet):
        structures = None
        if case.scribble is not None:
            found = read_labels(case.scribble, labels)
            structures = (found > 0) & (found < labels.count)
        for channel, path in enumerate(case.images):
            voxels = finite_voxels(read_volume(path))
            everything[channel].append(_some(voxels.ravel()))
            if structures is not None:
                if structures.shape != voxels.shape:
                    raise different_shapes(case.scribble, structures.shape, path, voxels.shape)
                scribbled[channel].append(_some(voxels[structures]))
    return tuple(
        ChannelStatistics.of(inside if any(map(len, inside)) else all_voxels)
        for inside, all_voxels in zip(scribbled, everything, strict=True)
    )


def _some(values: NDArray) -> NDArray:
    """Evenly spread over ``values``, and the same on every run."""
    return values[:: max(1, -(-len(values) // VOXELS_PER_CASE))].copy()


def _remembered(place: Path) -> tuple[ChannelStatistics, ...] | None:
    try:
        plain = json.loads(place.read_text(encoding="utf-8"))
        return tuple(ChannelStatistics(**channel) for channel in plain["channels"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
