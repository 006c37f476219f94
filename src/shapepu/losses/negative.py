"""The PU term (Eq. 2): which classes an unlabelled pixel is not, given the ratios, and the loss on that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from torch import Tensor

LOG_ZERO = math.log(torch.finfo(torch.float32).tiny)
"""At or below this log probability float32 has no normal number left: the probability counts as 0."""

Form = Literal["per-class", "joint"]


def rule_out(log_probs: Tensor, unlabelled: Tensor, ratios: Tensor) -> Tensor:
    r"""For each foreground class, the unlabelled pixels outside the most probable ``ratios`` share of them.

    Of the n unlabelled pixels the round(alpha_j n) with the largest q_j are "perhaps j" and the rest,
    :math:`\bar\Omega_j`, are not. Pixels that tie with the last one kept are kept as well, whatever their
    order, except at probability 0, which always rules out.

    Args:
        log_probs: log q, shape (N, K, H, W).
        unlabelled: the pixels ranked, together over the batch, bool, shape (N, H, W).
        ratios: alpha, shape (K,).

    Returns:
        Bool, shape (N, K, H, W): pixel is not j. False for background and outside ``unlabelled``.
    """
    return rule_out_below(log_probs, unlabelled, share_thresholds(log_probs, unlabelled, ratios))


def rule_out_below(log_probs: Tensor, unlabelled: Tensor, thresholds: Tensor) -> Tensor:
    """Like :func:`rule_out` with limits of log q that are known, shape (K,).

    For instance those of a pool of many batches: :meth:`shapepu.mixture.PosteriorHistogram.thresholds`.
    """
    limits = thresholds.to(log_probs).view(1, -1, 1, 1)
    ruled_out = (log_probs < limits) | (log_probs <= LOG_ZERO)
    ruled_out &= unlabelled[:, None]
    ruled_out[:, 0] = False
    return ruled_out


def share_thresholds(log_probs: Tensor, unlabelled: Tensor, ratios: Tensor) -> Tensor:
    """The log q_j of the round(alpha_j n)-th most probable of the n unlabelled pixels, shape (K,).

    +inf where that share is no pixel at all; -inf for background, which is never ruled out.
    """
    log_probs = log_probs.detach()
    count = int(unlabelled.sum())
    thresholds = [-torch.inf]
    for label in range(1, log_probs.shape[1]):
        kept = min(count, math.floor(float(ratios[label]) * count + 0.5))
        # Sinking the other pixels to the bottom ranks without gathering, which costs ten times more.
        scores = log_probs[:, label].masked_fill(~unlabelled, -torch.inf)
        thresholds.append(_kth_largest(scores.flatten(), kept) if kept > 0 else torch.inf)
    return torch.tensor(thresholds, dtype=log_probs.dtype, device=log_probs.device)


def negative_loss(log_probs: Tensor, ruled_out: Tensor, *, form: Form) -> Tensor:
    r"""Penalty for probability left on classes that a pixel is not.

    ``per-class``, Eq. (2), one term a foreground class:

    .. math:: L^- = -\sum_{j \ge 1} \frac{1}{|\bar\Omega_j|} \sum_{i \in \bar\Omega_j} \log (1 - q_{ij})

    ``joint``, as the authors' released code: over the pixels with any class ruled out, S_i the classes that
    remain,

    .. math:: L^- = -\operatorname{mean}_i \log \sum_{k \in S_i} q_{ik}

    Args:
        log_probs: log q, shape (N, K, H, W).
        ruled_out: from :func:`rule_out`, bool, shape (N, K, H, W). None True gives 0 with a gradient of 0.
        form: which of the two.

    Departs from Eq. (2): the mean over each set in place of the sum, because the sum grows with the image
    and would drown the mean over a few scribbles; and the classes that make up "not j" include background,
    because the printed sum, which starts at the first foreground class, would punish background for being
    background.

    Reference: Eq. (2) of the paper; symbols in docs/equations.md.
    """
    if form == "joint":
        # log 1 where nothing is ruled out, so that those pixels add nothing to the sum.
        remaining = log_probs.masked_fill(ruled_out, -torch.inf).logsumexp(dim=1)
        return -_mean_over(remaining, ruled_out.any(dim=1))
    if form != "per-class":
        raise ValueError(f"form must be 'per-class' or 'joint', got {form!r}")
    loss = log_probs.new_zeros(())
    # log(1 - q_j) as the log of the sum of the other q_k: exact where q_j rounds to 1, and its gradient with
    # respect to the logits, q_j at most, stays bounded there.
    for label, log_others in enumerate(_log_sums_of_others(log_probs.unbind(dim=1))[1:], 1):
        loss = loss - _mean_over(log_others, ruled_out[:, label])
    return loss.clamp(min=0.0)  # a sum of rounded logs may come out a hair above log 1


def _log_sums_of_others(log_probs: Sequence[Tensor]) -> list[Tensor]:
    """For each of several log probabilities the log of the sum of all the others."""
    # What stands before a class and what stands after it, summed up once for all: a loop over the others of
    # each class would take time in proportion to the square of the classes.
    before = list(accumulate(log_probs[:-1], torch.logaddexp))
    after = list(accumulate(reversed(log_probs[1:]), torch.logaddexp))[::-1]
    between = [torch.logaddexp(*pair) for pair in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *between, before[-1]]


def _mean_over(values: Tensor, where: Tensor) -> Tensor:
    return values.where(where, 0.0).sum() / where.sum().clamp(min=1)


def _kth_largest(values: Tensor, k: int) -> float:
    position = values.numel() - k
    if values.device.type == "cpu":
        # numpy's vectorised selection is about ten times faster than torch's on a processor. It knows no
        # bfloat16; widening loses nothing, where narrowing would move the limit past the pixels tied with it.
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        return float(np.partition(wide.numpy(), position)[position])
    return float(values.kthvalue(position + 1).values)
