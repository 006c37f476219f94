"""The non-negative risk of learning one class from its scribbles, unlabelled pixels and the class's ratio."""

from __future__ import annotations

import torch
from torch import Tensor


def non_negative_risk(
    probs: Tensor, positive: Tensor, unlabelled: Tensor, *, ratio: float, beta: float, gamma: float
) -> Tensor:
    r"""The unbiased PU risk, turned around where its negative part falls below what a risk can be.

    With the sigmoid loss l(g) = 1 - sigmoid(g) of log-odds g, and so l(g) = 1 - p and l(-g) = p:

    .. math:: R^+ = \alpha \operatorname{mean}_P (1 - p), \qquad
              R^- = \operatorname{mean}_U p - \alpha \operatorname{mean}_P p, \qquad
              L = \begin{cases} R^+ + R^- & R^- \ge -\beta \\ -\gamma R^- & \text{otherwise} \end{cases}

    R^- estimates the risk of calling negatives positive. Below 0 it says that the positives were learnt by
    heart; the step then undoes that, and has no part of R^+. This is not :math:`R^+ + \max(0, R^-)`, whose
    gradient there is that of R^+ alone.

    Args:
        probs: p, the probability of the class, any shape.
        positive: P, its scribble pixels, bool, shape of ``probs``.
        unlabelled: U, bool, shape of ``probs``. P or U without a pixel give 0 with a gradient of 0.
        ratio: alpha, the share of the class among the unlabelled pixels.
        beta: how far R^- may fall below 0.
        gamma: the weight of the step back.

    Reference: Kiryo et al., Positive-Unlabeled Learning with Non-Negative Risk Estimator, NeurIPS 2017,
    Algorithm 1.
    """
    mean_of_positives = probs.where(positive, 0.0).sum() / positive.sum().clamp(min=1)
    mean_of_unlabelled = probs.where(unlabelled, 0.0).sum() / unlabelled.sum().clamp(min=1)
    positive_risk = ratio * (1 - mean_of_positives)
    negative_risk = mean_of_unlabelled - ratio * mean_of_positives
    loss = torch.where(negative_risk >= -beta, positive_risk + negative_risk, -gamma * negative_risk)
    return torch.where(positive.any() & unlabelled.any(), loss, 0.0)
