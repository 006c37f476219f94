"""How a comparison is going: one display for all of its runs, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType

from tqdm import tqdm

from shapepu.console import say

SECONDS_BETWEEN_LOOKS = 1.0


class ComparisonProgress:
    """A bar at a terminal, a line at the start and the end of each run elsewhere.

    Args:
        total: runs.
        finished: how many are, by whichever process.
        minutes: that a run is given, if it is told by minutes.
        quiet: say nothing.
    """

    def __init__(
        self, total: int, finished: Callable[[], int], minutes: float | None, *, quiet: bool = False
    ) -> None:
        self.total, self.finished, self.quiet = total, finished, quiet
        self._began, self._before = time.monotonic(), finished()
        self._run_began: float | None = None
        self._run_seconds = 60 * minutes if minutes else None
        self._bar = tqdm(
            total=total,
            initial=self._before,
            desc="runs",
            disable=quiet or not sys.stderr.isatty(),
            bar_format="{desc} {n:.1f} of {total}|{bar}|{postfix}",
            leave=False,
        )
        self._over = Event()
        self._watcher = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ComparisonProgress:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._watcher.join()
        self._bar.close()

    def begins(self, run: str) -> None:
        self._run_began = time.monotonic()
        say(f"{run}: begins; {self.outlook()}", quiet=self.quiet)

    def ended(self, run: str, outcome: str) -> None:
        assert self._run_began is not None
        self._run_seconds, self._run_began = time.monotonic() - self._run_began, None
        say(f"{run}: {outcome}; {self.outlook()}", quiet=self.quiet)

    def outlook(self) -> str:
        """How many runs are finished, and how long the others will take."""
        left = self.seconds_left()
        when = "" if left is None else f", about {_duration(left)} left"
        return f"{self.finished()} of {self.total} runs finished{when}"

    def seconds_left(self) -> float | None:
        """By how fast runs have been finished by all processes, or else by what one was given or took."""
        now, finished = time.monotonic(), self.finished()
        left = self.total - finished - self._share_of_run(now)
        if finished > self._before:
            return max(0.0, left * (now - self._began) / (finished - self._before + self._share_of_run(now)))
        return None if self._run_seconds is None else max(0.0, left * self._run_seconds)

    def _share_of_run(self, now: float) -> float:
        """How much of this process's run is done, as far as the one before tells."""
        if self._run_began is None or not self._run_seconds:
            return 0.0
        return min(0.95, (now - self._run_began) / self._run_seconds)

    def _watch(self) -> None:
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            if self._bar.disable:
                continue
            self._bar.n = self.finished() + self._share_of_run(time.monotonic())
            left = self.seconds_left()
            self._bar.set_postfix_str("" if left is None else f" {_duration(left)} left")


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "a minute"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
