"""How far a run has come, by epochs or by minutes, and the learning rate and weights that go with it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """When a run ends: after ``epochs``, ``minutes`` or ``steps``, whichever comes first."""

    epochs: int | None
    minutes: float | None
    steps: int | None = None

    def progress(self, steps: int, steps_per_epoch: int, seconds: float) -> float:
        """The share of the run that is done, from 0 to 1."""
        by_epochs = steps / (self.epochs * steps_per_epoch) if self.epochs else 0.0
        by_minutes = seconds / (60 * self.minutes) if self.minutes else 0.0
        by_steps = steps / self.steps if self.steps else 0.0
        return min(1.0, max(by_epochs, by_minutes, by_steps))

    def seconds_left(self, progress: float, seconds: float) -> float:
        """An estimate, for a person who waits."""
        return seconds * (1 - progress) / progress if progress > 0 else math.inf


class Stopwatch:
    """Training time that goes on where an interrupted run stopped."""

    def __init__(self, spent_seconds: float = 0.0) -> None:
        self._started = time.monotonic() - spent_seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


def learning_rate_factor(progress: float, schedule: str, warmup_share: float) -> float:
    """What the highest learning rate is multiplied by: a linear rise, then a cosine to zero or a constant."""
    if progress < warmup_share:
        return max(progress / warmup_share, 0.01)
    if schedule == "constant":
        return 1.0
    after_warmup = (progress - warmup_share) / (1 - warmup_share)
    return 0.5 * (1 + math.cos(math.pi * min(after_warmup, 1.0)))


def ramp_up(progress: float, share: float) -> float:
    """What a weight is multiplied by while it rises over the first ``share`` of a run: exp(-5 (1 - t)^2).

    Reference: Laine and Aila, Temporal Ensembling for Semi-Supervised Learning, ICLR 2017.
    """
    return math.exp(-5 * (1 - progress / share) ** 2) if progress < share else 1.0
