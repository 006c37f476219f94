from __future__ import annotations

import math

import numpy as np
import pytest
import scoring_oracles as oracles
from hypothesis import given, settings
from hypothesis import strategies as st

from shapepu.evaluation.statistics import (
    bootstrap_interval,
    group_means,
    holm,
    mean_over_runs,
    mean_sd,
    wilcoxon,
)

NAN = math.nan


def test_mean_and_sample_sd_worked_by_hand():
    spread = mean_sd([2, 4, 4, 4, 5, 5, 7, 9])
    # Squared deviations from 5 add up to 32; over n - 1 = 7.
    assert (spread.mean, spread.sd) == pytest.approx((5, math.sqrt(32 / 7)))
    assert (spread.count, spread.left_out) == (8, 0)


def test_missing_values_are_left_out_of_the_mean_and_counted():
    spread = mean_sd([1, NAN, 3, NAN])
    assert spread.mean == 2
    assert (spread.count, spread.left_out) == (2, 2)


def test_one_value_has_a_mean_and_no_spread_and_none_has_neither():
    assert mean_sd([7]).mean == 7
    assert math.isnan(mean_sd([7]).sd)
    assert math.isnan(mean_sd([NAN]).mean)
    assert mean_sd([]).count == 0


def test_runs_are_averaged_volume_by_volume_over_those_that_have_a_value():
    averaged = mean_over_runs([[0.2, NAN, NAN], [0.4, 0.6, NAN]])
    assert averaged[:2] == pytest.approx([0.3, 0.6])
    assert math.isnan(averaged[2])


def test_more_runs_are_not_more_pairs():
    one, other = np.random.default_rng(5).random((2, 8))
    single = wilcoxon(one, other)
    thrice = wilcoxon(mean_over_runs([one] * 3), mean_over_runs([other] * 3))
    assert (thrice.pairs, thrice.p_value) == (8, pytest.approx(single.p_value))


def test_the_mean_of_a_patient_is_over_the_volumes_that_have_a_value():
    means = group_means([1, 5, 3, NAN, NAN], ["b", "a", "b", "a", "c"])
    assert means[:2] == pytest.approx([2, 5])
    assert math.isnan(means[2])


def test_holm_agrees_with_its_definition_in_loops():
    p_values = list(np.random.default_rng(6).random(12) ** 3)
    for place, adjusted in enumerate(holm(p_values)):
        below = [p for p in p_values if p <= p_values[place]]
        expected = max((len(p_values) - sorted(p_values).index(p)) * p for p in below)
        assert adjusted == pytest.approx(min(1, expected))


def test_wilcoxon_of_five_equal_signs_is_two_of_thirty_two():
    test = wilcoxon([0.9, 0.8, 0.7, 0.6, 0.5], [0.8, 0.6, 0.4, 0.2, 0.0])
    assert test.p_value == pytest.approx(2 / 32)
    assert (test.pairs, test.zeros, test.left_out) == (5, 0, 0)


def test_the_direction_of_a_test_is_that_of_its_ranks_and_not_of_the_mean():
    # Ranks 1, 2, 3 for and 4 against: (1 + 2 + 3 - 4) / 10.
    test = wilcoxon([0.61, 0.62, 0.63, 0.0], [0.6, 0.6, 0.6, 0.9])
    assert test.rank_biserial == pytest.approx(0.2)
    assert (test.higher, test.pairs, test.zeros) == (3, 4, 0)
    assert wilcoxon([1.0, 2.0], [1.0, 2.0]).rank_biserial == 0


def test_wilcoxon_of_a_published_example():
    # Darwin's fifteen pairs of maize plants (Fisher, The Design of Experiments): ranks of the negative
    # differences add up to 24, two-sided exact p = 0.0413.
    differences = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    assert wilcoxon(differences, np.zeros(15)).p_value == pytest.approx(0.04126, abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9))
def test_wilcoxon_with_ties_and_zeros_agrees_with_every_choice_of_signs(differences):
    unequal = [d for d in differences if d]
    expected = oracles.signed_rank_p_value(unequal) if unequal else 1
    test = wilcoxon(differences, np.zeros(len(differences)))
    assert test.p_value == pytest.approx(expected)
    assert test.zeros == len(differences) - len(unequal)


def test_round_off_makes_neither_a_difference_nor_a_rank():
    assert wilcoxon([0.1 + 0.2, 0.5], [0.3, 0.5]).p_value == 1
    noisy = wilcoxon([0.1 + 0.2, 0.3, 1.0], [0.0, 0.0, 2.0])
    assert noisy.p_value == wilcoxon([0.3, 0.3, 1.0], [0.0, 0.0, 2.0]).p_value


def test_wilcoxon_without_any_difference_is_one_and_without_any_pair_is_missing():
    assert wilcoxon([1, 2, 3], [1, 2, 3]).p_value == 1
    nothing = wilcoxon([NAN, 1], [2, NAN])
    assert math.isnan(nothing.p_value)
    assert (nothing.pairs, nothing.left_out) == (0, 2)


def test_wilcoxon_does_not_depend_on_the_order_of_the_two():
    rng = np.random.default_rng(1)
    first, second = rng.random((2, 20))
    assert wilcoxon(first, second).p_value == pytest.approx(wilcoxon(second, first).p_value)


def test_holm_worked_by_hand():
    # In rising order .01, .02, .03, .04 times 4, 3, 2, 1 is .04, .06, .06, .04, and never falling .06 at last
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_holm_stops_at_one_and_leaves_missing_tests_out_of_the_count():
    assert holm([0.6, 0.9]) == pytest.approx([1, 1])
    first, missing, second = holm([0.01, NAN, 0.04])
    assert (first, second) == pytest.approx((0.02, 0.04))
    assert math.isnan(missing)
    assert holm([]) == []


def test_bootstrap_is_the_same_for_the_same_seed_only():
    values, groups = np.random.default_rng(0).random(20), range(20)
    first = bootstrap_interval(values, groups, seed=3, resamples=500)
    assert first == bootstrap_interval(values, groups, seed=3, resamples=500)
    assert first != bootstrap_interval(values, groups, seed=4, resamples=500)


def test_bootstrap_of_many_values_comes_near_the_normal_interval():
    values = np.random.default_rng(2).normal(10, 2, size=400)
    interval = bootstrap_interval(values, range(400))
    half = 1.96 * values.std(ddof=1) / math.sqrt(400)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


def test_two_groups_give_the_four_means_that_two_groups_can_give():
    # Drawn with replacement: twice the first (mean 0), twice the second (3), or one of each (9 over 4).
    interval = bootstrap_interval([0, 3, 3, 3], ["a", "b", "b", "b"], confidence=0.999)
    assert (interval.low, interval.high) == (0, 3)
    middle = bootstrap_interval([0, 3, 3, 3], ["a", "b", "b", "b"], confidence=1e-6)
    assert (middle.low, middle.high) == pytest.approx((9 / 4, 9 / 4))


def test_repeating_the_volumes_of_a_patient_does_not_narrow_the_interval():
    values = np.random.default_rng(4).random(15)
    once = bootstrap_interval(values, range(15))
    thrice = bootstrap_interval(np.repeat(values, 3), np.repeat(np.arange(15), 3).tolist())
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high))
    as_if_independent = bootstrap_interval(np.repeat(values, 3), range(45))
    assert as_if_independent.high - as_if_independent.low < 0.7 * (once.high - once.low)


def test_one_patient_gives_no_interval_and_missing_values_are_left_out():
    assert math.isnan(bootstrap_interval([1, 2, 3], ["a"] * 3).low)
    assert math.isnan(bootstrap_interval([1, 2, NAN], ["a", "a", "b"]).high)
    with_gap = bootstrap_interval([1, 2, NAN, 4], ["a", "b", "c", "d"])
    assert with_gap == bootstrap_interval([1, 2, 4], ["a", "b", "d"])
