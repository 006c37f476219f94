"""How a comparison is going: one display for all of its runs, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from types import TracebackType

from tqdm import tqdm

from shapepu.console import say

SECONDS_BETWEEN_LOOKS = 1.0

LEAST_PROGRESS = 0.05
"""Of a run: less says little about how long the others will take."""


class ComparisonProgress:
    """A bar at a terminal; a line at the start and the end of each run.

    Args:
        shares: how much of each run is done, from 0 to 1, by whichever process.
        minutes: that a run is given, if it is told by minutes.
        at_once: runs that this command does at a time.
        quiet: say nothing.
    """

    def __init__(
        self,
        shares: Callable[[], Sequence[float]],
        minutes: float | None = None,
        *,
        at_once: int = 1,
        quiet: bool = False,
    ) -> None:
        self.shares, self.quiet = shares, quiet
        self._began, self._before = time.monotonic(), sum(shares())
        self._expected = 60 * minutes / at_once if minutes else None
        self._bar = tqdm(
            total=len(shares()),
            initial=self._before,
            disable=quiet or not sys.stderr.isatty(),
            # tqdm's own ETA knows whole runs only. What it puts before a description or behind a bar is not
            # wanted, so the words are the description.
            bar_format="{bar:30} {desc}",
            leave=False,
            file=sys.stderr,
        )
        self._over = Event()
        self._watcher = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ComparisonProgress:
        if not self._bar.disable:
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        self._bar.close()

    def begins(self, run: str) -> None:
        say(f"{run}: begins; {self.outlook()}", quiet=self.quiet)

    def ended(self, run: str, outcome: str) -> None:
        say(f"{run}: {outcome}; {self.outlook()}", quiet=self.quiet)

    def outlook(self) -> str:
        """How many runs are done, and how long the others will take."""
        shares, left = self.shares(), self.seconds_left()
        when = "" if left is None else f", about {_duration(left)} left"
        return f"{sum(share >= 1 for share in shares)} of {len(shares)} runs done{when}"

    def seconds_left(self) -> float | None:
        """By how fast all processes have been until now, or else by what a run is given; None if unknown."""
        shares = self.shares()
        left, made = len(shares) - sum(shares), sum(shares) - self._before
        if left <= 0:
            return None
        if made >= LEAST_PROGRESS:
            return left * (time.monotonic() - self._began) / made
        return None if self._expected is None else left * self._expected

    def _watch(self) -> None:
        while True:
            self._bar.n = sum(self.shares())
            self._bar.set_description_str(self.outlook())
            if self._over.wait(SECONDS_BETWEEN_LOOKS):
                return


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes <= 1:
        return "a minute"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
