"""One display for all runs of a comparison: how many are done, and how long the others will take."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from shapepu.experiments import progress
from shapepu.experiments.progress import ComparisonProgress


class Clock:
    """Time as the display sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.minutes = 0.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 60 * self.minutes))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_promised_before_anything_is_known(clock: Clock) -> None:
    display = ComparisonProgress(lambda: [0.0, 0.0])
    clock.minutes = 5
    assert display.outlook() == "0 of 2 runs done"


@pytest.mark.parametrize(("at_once", "left"), [(1, "2 h 00 min"), (2, "1 h 00 min"), (3, "40 min")])
def test_what_each_run_is_given_is_the_first_guess(at_once: int, left: str, clock: Clock) -> None:
    display = ComparisonProgress(lambda: [0.0] * 4, minutes=30, at_once=at_once)
    assert display.outlook() == f"0 of 4 runs done, about {left} left"


def test_how_fast_it_went_until_now_tells_the_rest(clock: Clock) -> None:
    shares = [0.0, 0.0, 0.0, 0.0]
    display = ComparisonProgress(lambda: shares, minutes=500)
    clock.minutes, shares[:2] = 30, [1.0, 0.5]
    assert display.outlook() == "1 of 4 runs done, about 50 min left"


def test_what_was_done_before_says_nothing_about_the_speed(clock: Clock) -> None:
    shares = [1.0, 1.0, 0.0, 0.0]
    display = ComparisonProgress(lambda: shares)
    assert display.outlook() == "2 of 4 runs done"
    clock.minutes, shares[2] = 10, 1.0
    assert display.outlook() == "3 of 4 runs done, about 10 min left"


def test_a_moment_of_a_run_does_not_tell_how_long_the_others_take(clock: Clock) -> None:
    shares = [0.0, 0.0]
    display = ComparisonProgress(lambda: shares, minutes=20)
    clock.minutes, shares[0] = 5, 0.01
    assert display.outlook() == "0 of 2 runs done, about 40 min left"


def test_the_end_is_near_and_then_there(clock: Clock) -> None:
    shares = [0.0, 0.0]
    display = ComparisonProgress(lambda: shares)
    clock.minutes, shares[:] = 10, [1.0, 0.99]
    assert display.outlook() == "1 of 2 runs done, about a minute left"
    shares[:] = [1.0, 1.0]
    assert display.outlook() == "2 of 2 runs done"


def test_each_run_has_a_line_when_it_begins_and_when_it_ends(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [0.0]
    with ComparisonProgress(lambda: shares, minutes=20) as display:
        display.begins("hearts, pce, seed 0")
        shares[0] = 1.0
        display.ended("hearts, pce, seed 0", "Dice 0.812 in 20.0 minutes")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "hearts, pce, seed 0: begins; 0 of 1 runs done, about 20 min left\n"
        "hearts, pce, seed 0: Dice 0.812 in 20.0 minutes; 1 of 1 runs done\n"
    )


def test_quiet_says_nothing_at_all(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ComparisonProgress(lambda: [0.0], quiet=True) as display:
        display.begins("hearts, pce, seed 0")
        display.ended("hearts, pce, seed 0", "failed")
    assert sys.stderr.getvalue() == ""


def test_a_terminal_shows_what_other_processes_have_done(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ComparisonProgress(lambda: [1.0, 0.5, 0.0], minutes=20) as display:
        while "1 of 3 runs done, about 30 min left" not in sys.stderr.getvalue():
            assert display._watcher.is_alive()
    assert not display._watcher.is_alive(), "nothing draws any more"
