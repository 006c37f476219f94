"""The supervised term with each class weighted by how rarely it is scribbled."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from shapepu.losses.partial_ce import NOT_COUNTED


def weighted_partial_cross_entropy(log_probs: Tensor, labels: Tensor, labelled: Tensor) -> Tensor:
    r"""Cross-entropy over the labelled pixels, each weighted by n / n_c of its class c in the batch.

    .. math:: L = -\frac{1}{n} \sum_{i \in \Omega_l} w_{y_i} \log p_{i, y_i}, \qquad w_c = \frac{n}{n_c}

    with n = :math:`|\Omega_l|` labelled pixels, n_c of them of class c. Dividing by n, not by the sum of the
    weights, makes this the sum over the classes of each class's mean: with C classes in the batch it is about
    C times as large as the plain mean. A class without a labelled pixel adds nothing.

    Args:
        log_probs: log p, shape (N, K, H, W).
        labels: y, integers, shape (N, H, W); its value where ``labelled`` is False is ignored.
        labelled: Omega_l, bool, shape (N, H, W). None True gives 0 with a gradient of 0.

    Reference: Valvano et al., Learning to Segment from Scribbles using Multi-scale Adversarial Attention
    Gates, IEEE TMI 2021, where w_c = n / n_c weighs the partial cross-entropy.
    """
    counts = torch.bincount(labels[labelled].long(), minlength=log_probs.shape[1])
    # 1 / n_c is w_c / n.
    weights = counts.clamp(min=1).to(log_probs.dtype).reciprocal()
    targets = labels.long().masked_fill(~labelled, NOT_COUNTED)
    return functional.nll_loss(log_probs, targets, weights, ignore_index=NOT_COUNTED, reduction="sum")
