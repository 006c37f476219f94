"""The ratio of positives among the unlabelled, read off the scores of a classifier."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shapepu.bbe import best_bin
from shapepu.errors import InputError


def mixture(
    ratio: float, seed: int, *, separation: float = 6.0, positives: int = 3000, unlabelled: int = 20_000
) -> tuple[Tensor, Tensor]:
    """Scores of positives, and of unlabelled examples of which exactly ``ratio`` are positive."""
    generator = torch.Generator().manual_seed(seed)
    among = round(ratio * unlabelled)
    scores = torch.randn(positives + unlabelled, generator=generator)
    scores[: positives + among] += separation
    return scores[:positives], scores[positives:]


def plain_loop(
    positives: Tensor, unlabelled: Tensor, gamma: float = 0.01, delta: float = 0.1
) -> tuple[float, float]:
    """(lowest bound, its ratio) over the scores of both kinds as thresholds, every share counted anew."""
    deviation = sum(math.sqrt(math.log(4 / delta) / (2 * len(scores))) for scores in (positives, unlabelled))
    best = (math.inf, math.nan)
    for threshold in [*positives.tolist(), *unlabelled.tolist()]:
        q_p = sum(score >= threshold for score in positives.tolist()) / len(positives)
        q_u = sum(score >= threshold for score in unlabelled.tolist()) / len(unlabelled)
        if q_p > 0:
            best = min(best, (q_u / q_p + (1 + gamma) / q_p * deviation, q_u / q_p))
    return best


def test_by_hand() -> None:
    # At .9 lie all of 1 positive and 1 of 4 unlabelled; sqrt(log 40 / 2) = 2 w and sqrt(log 40 / 8) = w.
    found = best_bin(torch.tensor([0.9]), torch.tensor([0.95, 0.1, 0.2, 0.3]))
    assert found.ratio == 0.25
    assert found.threshold == pytest.approx(0.9)
    assert found.bound == pytest.approx(0.25 + 1.01 * 3 * math.sqrt(math.log(40) / 8))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.3, 0.7])
def test_the_ratio_of_a_well_separated_mixture_is_found(ratio: float, seed: int) -> None:
    assert best_bin(*mixture(ratio, seed)).ratio == pytest.approx(ratio, abs=min(0.02, 0.1 * ratio))


def test_overlapping_scores_are_read_far_up_where_negatives_are_rare() -> None:
    positives, unlabelled = mixture(0.3, 0, separation=2.5)
    found = best_bin(positives, unlabelled)
    everything = float((unlabelled >= positives.min()).float().mean())
    assert everything > 0.6
    assert found.ratio == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("decimals", [1, 6])
def test_agrees_with_the_plain_loop_over_all_thresholds_also_with_ties(decimals: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    positives = torch.from_numpy(rng.beta(4, 2, 60).round(decimals))
    unlabelled = torch.from_numpy(np.concatenate([rng.beta(4, 2, 40), rng.beta(1, 4, 90)]).round(decimals))
    found = best_bin(positives, unlabelled)
    bound, ratio = plain_loop(positives, unlabelled)
    assert found.bound == pytest.approx(bound, rel=1e-12)
    assert found.ratio == pytest.approx(ratio, rel=1e-12)


def test_other_constants_reach_the_bound() -> None:
    positives, unlabelled = mixture(0.4, 1, separation=1.0, positives=50, unlabelled=80)
    found = best_bin(positives, unlabelled, gamma=0.5, delta=0.01)
    assert found.bound == pytest.approx(plain_loop(positives, unlabelled, 0.5, 0.01)[0], rel=1e-12)
    assert found.bound > best_bin(positives, unlabelled).bound


def test_saturated_scores_count_together() -> None:
    # A network that is sure gives exactly 1 to many; all of them are above the threshold, or none.
    positives = torch.tensor([1.0] * 90 + [0.5] * 10)
    unlabelled = torch.tensor([1.0] * 36 + [0.2] * 64)
    assert best_bin(positives, unlabelled).ratio == pytest.approx(0.36, abs=1e-12)


def test_only_the_order_of_scores_matters() -> None:
    positives, unlabelled = mixture(0.2, 3, separation=2.0)
    found = best_bin(positives, unlabelled)
    stretched = best_bin(torch.sigmoid(positives.double()), torch.sigmoid(unlabelled.double()))
    assert stretched.ratio == found.ratio
    assert best_bin(positives.flip(0), unlabelled.view(2, -1).T).ratio == found.ratio


def test_a_classifier_that_knows_nothing_bounds_the_ratio_by_one() -> None:
    scores = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    assert best_bin(scores[:2000], scores[2000:]).ratio == pytest.approx(1, abs=0.05)


def test_no_ratio_exceeds_one_even_where_the_unlabelled_score_higher() -> None:
    positives, unlabelled = torch.tensor([0.1, 0.2, 0.8, 0.9]), torch.tensor([0.85] * 400 + [0.05] * 4)
    assert best_bin(positives, unlabelled).ratio == pytest.approx(400 / 404)


def test_unlabelled_scores_below_all_positives_leave_no_positive_among_them() -> None:
    assert best_bin(torch.tensor([0.6, 0.9]), torch.tensor([0.1, 0.5])).ratio == 0


def test_nothing_to_estimate_from_is_refused() -> None:
    some = torch.tensor([0.5])
    with pytest.raises(InputError, match="positive_scores: expected at least one score"):
        best_bin(torch.tensor([]), some)
    with pytest.raises(InputError, match="unlabelled_scores: expected at least one score"):
        best_bin(some, torch.tensor([]))
