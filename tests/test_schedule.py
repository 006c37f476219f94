"""How far a run has come and what the learning rate is there."""

from __future__ import annotations

import math

import pytest

from shapepu.schedule import Budget, Stopwatch, learning_rate_factor, ramp_up


def test_progress_by_epochs_counts_steps_and_not_seconds() -> None:
    assert Budget(epochs=10, minutes=None).progress(steps=30, steps_per_epoch=6, seconds=1e9) == 0.5


def test_progress_by_minutes_counts_seconds_and_not_steps() -> None:
    assert Budget(epochs=None, minutes=2).progress(steps=10**6, steps_per_epoch=1, seconds=30) == 0.25


def test_progress_by_steps_counts_steps_however_long_an_epoch_is() -> None:
    ends = Budget(epochs=None, minutes=None, steps=200)
    assert {ends.progress(50, steps_per_epoch, 1e9) for steps_per_epoch in (1, 7, 500)} == {0.25}


def test_whichever_end_comes_first_counts_and_progress_never_passes_one() -> None:
    both = Budget(epochs=10, minutes=1)
    assert both.progress(steps=8, steps_per_epoch=1, seconds=6) == 0.8
    assert both.progress(steps=1, steps_per_epoch=1, seconds=54) == 0.9
    assert both.progress(steps=1, steps_per_epoch=1, seconds=500) == 1


def test_a_quarter_done_in_a_minute_leaves_three_minutes() -> None:
    assert Budget(4, None).seconds_left(0.25, 60) == 180


def test_the_cosine_starts_high_halves_midway_and_ends_at_zero() -> None:
    assert learning_rate_factor(0.0, "cosine", 0.0) == 1
    assert learning_rate_factor(0.5, "cosine", 0.0) == pytest.approx(0.5)
    assert learning_rate_factor(1.0, "cosine", 0.0) == pytest.approx(0)


def test_warm_up_rises_linearly_to_where_the_schedule_begins() -> None:
    assert learning_rate_factor(0.05, "cosine", 0.1) == pytest.approx(0.5)
    assert learning_rate_factor(0.1, "cosine", 0.1) == pytest.approx(1)
    assert learning_rate_factor(0.55, "cosine", 0.1) == pytest.approx(0.5)
    assert 0 < learning_rate_factor(0.0, "cosine", 0.1) < 0.02


def test_a_constant_schedule_stays_where_it_is() -> None:
    assert learning_rate_factor(0.9, "constant", 0.0) == 1


def test_a_resumed_stopwatch_goes_on_from_what_was_spent() -> None:
    assert 100 <= Stopwatch(100.0).seconds < 101


def test_a_ramp_rises_slowly_at_first_and_ends_at_its_share_of_the_run() -> None:
    assert ramp_up(0.0, 0.4) == pytest.approx(math.exp(-5))
    assert ramp_up(0.2, 0.4) == pytest.approx(math.exp(-1.25))
    assert ramp_up(0.4 - 1e-9, 0.4) == pytest.approx(1)
    assert ramp_up(0.4, 0.4) == ramp_up(0.9, 0.4) == 1


def test_a_ramp_over_nothing_is_up_from_the_start() -> None:
    assert ramp_up(0.0, 0.0) == 1
