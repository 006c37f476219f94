"""Results of comparisons made up in code: records without runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shapepu.experiments.definition import Experiment, Row
from shapepu.experiments.plan import Plan
from shapepu.experiments.records import (
    CaseRecord,
    CurvePoint,
    Hardware,
    Parameters,
    RatioPoint,
    RunRecord,
    StructureRecord,
)

STRUCTURES = ("lv", "myo", "rv")

HARDWARE = Hardware(cpu="A processor", gpu=None, threads=2, device="cpu")

VERSIONS = {"numpy": "2.0", "python": "3.11", "shapepu": "1.0", "torch": "2.8"}

Scores = Mapping[str, Sequence[float | None]]
"""Values of each structure, one a volume."""


def cases(
    dice: Scores, hd_mm: Scores | None = None, *, volumes_per_patient: int = 1
) -> tuple[CaseRecord, ...]:
    """Volumes a1, a2, ... of patients p1, p2, ...; HD95 is half of HD."""
    count = len(next(iter(dice.values())))
    made = []
    for place in range(count):
        structures = {}
        for name, values in dice.items():
            score = values[place]
            assert score is not None
            far = (hd_mm or {}).get(name, [100 * (1 - (v or 0)) for v in values])[place]
            half = None if far is None else far / 2
            structures[name] = StructureRecord(dice=score, hd_mm=far, hd95_mm=half, one_empty=score == 0)
        made.append(CaseRecord(f"a{place + 1}", f"p{place // volumes_per_patient + 1}", structures))
    return tuple(made)


def record(row: str, scored: tuple[CaseRecord, ...], *, seed: int = 0, **changes: Any) -> RunRecord:
    """A finished run."""
    values: dict[str, Any] = {
        "experiment": "made",
        "data": "ACDC",
        "row": row,
        "seed": seed,
        "method": "pce",
        "supervision": ("scribbles",),
        "recipe": "fast",
        "minutes": 1.5,
        "epochs": 10,
        "steps": 300,
        "images_per_second": 120.0,
        "parameters": Parameters(1_080_000, 1_080_000),
        "training_cases": 70,
        "training_slices": 600,
        "labelled_share": 0.0123,
        "hardware": HARDWARE,
        "versions": VERSIONS,
        "settings": {"method": "pce", "data": {"cases": None}},
        "cases": scored,
    }
    return RunRecord(**{**values, **changes})


def curve(last: float, points: int = 12, minutes: float = 1.5) -> tuple[CurvePoint, ...]:
    """Dice that rises to ``last``."""
    shares = [place / points for place in range(1, points + 1)]
    return tuple(
        CurvePoint(
            round(minutes * share, 4), place, 30 * place, round(last * (1 - 0.6 * (1 - share) ** 2), 6)
        )
        for place, share in enumerate(shares, start=1)
    )


def ratios(shift: float = 0.0, points: int = 12) -> tuple[RatioPoint, ...]:
    """Ratios that come to rest; trusted from the fourth epoch on."""
    made = []
    for epoch in range(1, points + 1):
        lv, myo, rv = (0.02 + 0.03 / epoch + shift, 0.015 + shift, 0.01 + 0.02 / epoch + shift)
        share = {"background": 1 - lv - myo - rv, "lv": lv, "myo": myo, "rv": rv}
        made.append(RatioPoint(0.1 * epoch, epoch, share, float(epoch >= 4)))
    return tuple(made)


def random_cases(mean: float, seed: int, volumes: int = 10) -> tuple[CaseRecord, ...]:
    """Scores around ``mean``, two volumes a patient."""
    generator = np.random.default_rng(seed)
    dice = {
        name: [
            round(float(v), 6) for v in np.clip(generator.normal(mean - 0.04 * place, 0.05, volumes), 0, 1)
        ]
        for place, name in enumerate(STRUCTURES)
    }
    return cases(dice, volumes_per_patient=2)


def write(results: Path, experiment: Experiment, records: Sequence[RunRecord], **plan: Any) -> Path:
    """A folder of results."""
    chosen = {"steps": 300, **plan}
    Plan(experiment, **chosen).write(results)
    for each in records:
        each.write(results)
    return results


def experiment(*rows: Row, **changes: Any) -> Experiment:
    return Experiment(**{"rows": rows, "name": "made", "title": "Made up", "data": ("ACDC",), **changes})
