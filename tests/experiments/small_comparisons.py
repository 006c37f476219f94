"""Comparisons that take seconds: two rows, hearts of a few slices, a network of a few thousand weights."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shapepu.data.readers import read_dataset
from shapepu.experiments.definition import Experiment, Row
from shapepu.experiments.plan import Plan
from shapepu.experiments.running import Comparison
from small_runs import cache_beside

SMALL: dict[str, Any] = {
    "network_options": {"widths": [8, 16]},
    "optimisation": {"batch_size": 4, "learning_rate": 3e-3},
}

TWO_ROWS = """title: Two small networks
rows:
  - name: pce
    settings: &small {network_options: {widths: [8, 16]}, optimisation: {batch_size: 4, learning_rate: 0.003}}
  - {name: entropy, settings: *small}
"""


def small_experiment(*rows: Row) -> Experiment:
    return Experiment(rows or (small_row("pce"), small_row("entropy")), name="small", title="Small")


def small_row(name: str, method: str = "", **settings: Any) -> Row:
    return Row(name, method=method, settings={**SMALL, **settings})


def comparison(
    hearts: Path, results: Path, experiment: Experiment | None = None, *, session: str = "", **plan: Any
) -> Comparison:
    """As a command makes it, which is a new one unless ``session`` is given."""
    chosen = Plan(experiment or small_experiment(), **{"steps": 4, **plan})
    results.mkdir(parents=True, exist_ok=True)
    chosen.write(results)
    named = {"session": session} if session else {}
    return Comparison(
        chosen, {"hearts": read_dataset(hearts)}, results, cache_beside(hearts), quiet=True, **named
    )


def worked(made: Comparison, rows: Sequence[str] | None = None) -> Comparison:
    made.work(made.jobs(rows))
    return made


def command(experiment: str | Path, hearts: Path, results: Path, *options: str, steps: int = 4) -> list[str]:
    """What follows ``shapepu``."""
    return [
        *("compare", str(experiment), "--data", f"hearts={hearts}", "-o", str(results)),
        *("--steps-per-run", str(steps), "--cache", str(cache_beside(hearts)), *options),
    ]


def written(path: Path, text: str = TWO_ROWS) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def what_scores_say(results: Path) -> dict[str, Any]:
    """The tables of a comparison, but for what a clock decides: minutes, images per second.

    ``hearts.csv`` and ``hearts-tests.csv`` hold no such column and go byte for byte. So do all tables of
    ``hearts.md`` up to the one of minutes and hardware, and every other column of ``hearts-runs.csv``.
    """
    tables = results / "tables"
    runs = rows_of(tables / "hearts-runs.csv")
    return {
        **{name: (tables / name).read_bytes() for name in ("hearts.csv", "hearts-tests.csv")},
        "hearts.md": (tables / "hearts.md")
        .read_text(encoding="utf-8")
        .partition("**What each row was given")[0],
        "hearts-runs.csv": [
            {name: cell for name, cell in run.items() if name not in ("minutes", "images_per_second")}
            for run in runs
        ],
    }
