"""Best bin estimation (Garg et al. 2021): the ratio of positives among unlabelled examples, from scores.

Above any threshold c lie the shares q_p(c) of the positives and q_u(c) of the unlabelled, and whatever the
scores are, the ratio of positives is at most q_u(c) / q_p(c). It is equal to that where nothing but positives
lies above c, the "best bin". There are few examples far up, so the threshold is the one at which this bound,
widened by the deviation that both shares may have by chance, is lowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shapepu.errors import InputError


@dataclass(frozen=True)
class BestBin:
    """A ratio of positives and where it was read off.

    Args:
        ratio: q_u(c) / q_p(c), from 0 to 1.
        threshold: c, a score of one of the positives.
        bound: the widened bound at c, which no other threshold undercuts.
    """

    ratio: float
    threshold: float
    bound: float


def best_bin(
    positive_scores: Tensor, unlabelled_scores: Tensor, *, gamma: float = 0.01, delta: float = 0.1
) -> BestBin:
    r"""The ratio of positives among the unlabelled, at the threshold where it is bounded best.

    .. math:: \hat c = \arg\min_c \frac{q_u(c)}{q_p(c)} + \frac{1 + \gamma}{q_p(c)}
              \left( \sqrt{\frac{\log(4 / \delta)}{2 n_u}} + \sqrt{\frac{\log(4 / \delta)}{2 n_p}} \right),
              \qquad \hat\alpha = \frac{q_u(\hat c)}{q_p(\hat c)}

    with q(c) the share of scores of at least c. Between two scores of positives q_p stays and q_u falls with
    c, so the minimum over all thresholds is at one of the positives' scores: two sorts are all it takes. The
    ratio is at most 1: where q_u exceeds q_p, the lowest score of all positives has a lower bound.

    Args:
        positive_scores: of known positives, higher for more positive, any shape.
        unlabelled_scores: of unlabelled examples, by the same classifier, any shape. Neither may have been
            trained on, or positives score higher than their like among the unlabelled.
        gamma: how much more the chance deviation counts than the bound.
        delta: the probability with which a bound may fail.

    Reference: Garg et al., Mixture Proportion Estimation and PU Learning: A Modern Approach, NeurIPS 2021,
    Algorithm 1.
    """
    positives, unlabelled = (
        _sorted(scores, name)
        for scores, name in ((positive_scores, "positive_scores"), (unlabelled_scores, "unlabelled_scores"))
    )
    deviation = sum(math.sqrt(math.log(4 / delta) / (2 * len(scores))) for scores in (positives, unlabelled))
    positive_share = _share_from(positives, positives)
    unlabelled_share = _share_from(unlabelled, positives)
    bounds = (unlabelled_share + (1 + gamma) * deviation) / positive_share
    best = int(bounds.argmin())
    ratio = float(unlabelled_share[best] / positive_share[best])
    return BestBin(ratio, float(positives[best]), float(bounds[best]))


def _sorted(scores: Tensor, name: str) -> Tensor:
    if scores.numel() == 0:
        raise InputError(f"{name}: expected at least one score, got none; hold out more examples.")
    assert not scores.isnan().any(), f"NaN among {name}"
    # Two kinds of float would round a tie apart.
    return scores.detach().flatten().double().sort().values


def _share_from(ascending: Tensor, thresholds: Tensor) -> Tensor:
    """q(c) of each threshold: the share of the scores that are at least as high."""
    lower = torch.searchsorted(ascending, thresholds)
    return (len(ascending) - lower).double() / len(ascending)
