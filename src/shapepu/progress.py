"""How a run is going, for whoever waits: a bar at a terminal, lines in a log, a picture that is redrawn."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tqdm import tqdm

from shapepu.runfolder import RunFolder
from shapepu.schedule import Budget

SECONDS_BETWEEN_PICTURES = 60
SECONDS_BETWEEN_LINES = 5
SECONDS_OF_SILENCE = 60
"""Within a long epoch, a log without a progress bar shows a sign of life this often."""

Row = Mapping[str, float | int | None]


class RunProgress:
    """Tells of a run; ``share`` is what is done of it, from 0 to 1, and ``seconds`` what that took so far."""

    def __init__(self, run: RunFolder, budget: Budget) -> None:
        self.run, self.budget = run, budget
        self._bar = tqdm(disable=True)
        self._last_line = self._last_picture = -math.inf

    @contextmanager
    def during(self, share: float, seconds: float) -> Iterator[None]:
        """While the block runs: a bar, if a person is watching."""
        self._last_line = seconds - SECONDS_BETWEEN_LINES
        self._bar = tqdm(
            total=1.0,
            initial=share,
            desc="training",
            disable=self.run.quiet or not _at_terminal(),
            bar_format="{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            smoothing=0.05,
            leave=False,
        )
        with self._bar:
            yield

    def step(self, epoch: int, share: float, seconds: float) -> None:
        """After each step."""
        self._bar.update(share - self._bar.n)
        if not _at_terminal() and seconds - self._last_line >= SECONDS_OF_SILENCE:
            self._last_line = seconds
            self.run.say(f"in epoch {epoch}: {self._outlook(share, seconds)}")

    def epoch(self, rows: Sequence[Row], share: float, seconds: float) -> None:
        """After each epoch: a line in ``train.log``, and every few seconds for a person without a bar."""
        summary = _summary(rows)
        line = f"epoch {rows[-1]['epoch']}: {summary}, {self._outlook(share, seconds)}"
        due = share >= 1 or seconds - self._last_line >= SECONDS_BETWEEN_LINES
        if due and not _at_terminal():
            self._last_line = seconds
            self.run.say(line)
        else:
            self.run.note(line)
            self._bar.set_postfix_str(summary)
        if seconds - self._last_picture >= SECONDS_BETWEEN_PICTURES:
            self._last_picture = seconds
            self.draw()

    def _outlook(self, share: float, seconds: float) -> str:
        left = _duration(self.budget.seconds_left(share, seconds))
        return f"{100 * share:.0f} %, {left} left" if share < 1 else "done"

    def draw(self) -> None:
        """Redraw ``progress.png`` from ``metrics.csv``; a picture that fails must not end the run."""
        try:
            from shapepu.evaluation.report.figures import plot_progress

            plot_progress(self.run.metrics, self.run.progress_picture)
        except (ImportError, ValueError, RuntimeError, OSError) as error:
            self.run.note(f"progress.png was not drawn: {error}")


def _summary(rows: Sequence[Row]) -> str:
    dice = [row["validation.dice"] for row in rows if row.get("validation.dice") is not None]
    parts = [
        f"loss {rows[-1]['loss']:.3f}",
        *([f"validation Dice {dice[-1]:.3f}"] if dice else []),
        f"{rows[-1]['images_per_second']:.0f} images/s",
    ]
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    hours, minutes = divmod(round(seconds / 60), 60) if seconds >= 3600 else (0, 0)
    return f"{hours} h {minutes:02d} min" if hours else time.strftime("%M:%S", time.gmtime(seconds))


def _at_terminal() -> bool:
    return sys.stderr.isatty()
