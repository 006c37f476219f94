"""What a training step costs beside one of PCE, as ``benchmarks/method_cost.py`` measured it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

COST_FILE = Path(__file__).with_name("cost.json")
"""Written by the benchmark, and by nothing else."""


@dataclass(frozen=True)
class Cost:
    """Multiples of PCE, all from one run of the benchmark.

    Args:
        time: seconds of a training step, over those of PCE.
        memory: what training adds to the process at its peak, over what it adds with PCE.
        steps_before_epoch: how many steps of PCE the method's estimates before an epoch take.
    """

    time: float
    memory: float
    steps_before_epoch: float

    def __str__(self) -> str:
        words = f"{self.time:.1f} times PCE's step, {self.memory:.1f} times its memory"
        if self.steps_before_epoch < 0.5:
            return words
        return f"{words}; before each epoch as long as {self.steps_before_epoch:.0f} steps of PCE"


@cache
def measured_costs() -> dict[str, Cost]:
    """By the name of the method."""
    measured = json.loads(COST_FILE.read_text(encoding="utf-8"))["methods"]
    return {name: Cost(**figures) for name, figures in measured.items()}
