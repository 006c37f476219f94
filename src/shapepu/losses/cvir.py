"""The value-ignoring risk: scribbles against unlabelled pixels, less those that look most like the class."""

from __future__ import annotations

import torch
from torch import Tensor

from shapepu.losses.negative import negative_loss


def value_ignoring_risk(log_probs: Tensor, labels: Tensor, discarded: Tensor) -> Tensor:
    r"""Cross-entropy of one class against the rest, scribbles and presumed negatives at equal weight.

    For each foreground class j with scribbles P_j; N_j are the unlabelled pixels that are not discarded, and
    the scribbles of all other classes, background included, which are negatives for certain.

    .. math:: L = \sum_{j \ge 1} \frac12 \left(
              - \operatorname{mean}_{i \in P_j} \log q_{ij}
              - \operatorname{mean}_{i \in N_j} \log (1 - q_{ij}) \right)

    Args:
        log_probs: log q, shape (N, K, H, W).
        labels: 0..K-1 where scribbled, K where unlabelled, anything else is left out; shape (N, H, W).
        discarded: unlabelled pixels taken to be j, and so no negatives of j; bool, shape (N, K, H, W). Its
            value elsewhere is ignored. A class without scribbles adds 0 with a gradient of 0.

    Departs from the paper: one binary problem a foreground class, all on the outputs of one network, where
    the log-odds of class j are log q_j - log(1 - q_j).

    Reference: Garg et al., Mixture Proportion Estimation and PU Learning: A Modern Approach, NeurIPS 2021,
    Section 5.
    """
    classes = log_probs.shape[1]
    positive = labels[:, None] == torch.arange(classes, device=labels.device).view(1, -1, 1, 1)
    counts = positive.sum(dim=(0, 2, 3))
    scribbled, unlabelled = (labels < classes)[:, None], (labels == classes)[:, None]
    negative = (scribbled & ~positive) | (unlabelled & ~discarded)
    negative &= (counts > 0).view(1, -1, 1, 1)
    positive_terms = -log_probs.where(positive, 0.0).sum(dim=(0, 2, 3)) / counts.clamp(min=1)
    return (positive_terms[1:].sum() + negative_loss(log_probs, negative, form="per-class")) / 2
