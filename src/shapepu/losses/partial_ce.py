"""The supervised term: cross-entropy where there are scribbles."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

NOT_COUNTED = -100


def partial_cross_entropy(log_probs: Tensor, labels: Tensor, labelled: Tensor) -> Tensor:
    r"""Cross-entropy over the labelled pixels only.

    .. math:: L^+ = -\frac{1}{|\Omega_l|} \sum_{i \in \Omega_l} \log p_{i, y_i}

    Args:
        log_probs: log p, shape (N, K, H, W).
        labels: y, integers, shape (N, H, W); its value where ``labelled`` is False is ignored.
        labelled: Omega_l, bool, shape (N, H, W). None True gives 0 with a gradient of 0.

    Departs from Eq. (4): the mean in place of the sum, because the number of scribbled pixels changes from
    batch to batch and the step should not; and over all classes, where the printed sum starts at the first
    foreground class although background is scribbled too.

    Reference: Eq. (4) of the paper; symbols in docs/equations.md.
    """
    targets = labels.long().masked_fill(~labelled, NOT_COUNTED)
    total = functional.nll_loss(log_probs, targets, ignore_index=NOT_COUNTED, reduction="sum")
    return total / labelled.sum().clamp(min=1)
