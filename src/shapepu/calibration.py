"""Posteriors that mean what they say: the estimate of the mixture ratios takes them at their word."""

from __future__ import annotations

import torch
from torch import Tensor

COOLEST, HOTTEST = 0.05, 20.0
"""Limits of the temperature: labels all predicted right ask for 0, useless predictions for infinity."""


def apply_temperature(logits: Tensor, temperature: float, *, dim: int = 1) -> Tensor:
    """Log probabilities, softened (temperature above 1) or sharpened; log probabilities serve as logits."""
    return (logits / temperature).log_softmax(dim=dim)


def fit_temperature(logits: Tensor, labels: Tensor, *, weights: Tensor | None = None) -> float:
    r"""The temperature under which held-out labelled pixels are most probable (Guo et al. 2017).

    .. math:: T = \arg\min_T \; -\frac{1}{\sum_i v_i} \sum_i v_i \log \operatorname{softmax}(z_i / T)_{y_i}

    Args:
        logits: z, or log probabilities, shape (M, K), of pixels the network was not trained on.
        labels: y, integers 0..K-1, shape (M,).
        weights: v, for instance to count every case alike, shape (M,).

    Returns:
        T between :data:`COOLEST` and :data:`HOTTEST`; 1 when there are no pixels.
    """
    if len(labels) == 0:
        return 1.0
    logits = logits.detach().double()
    # No probability shows the floor, and it keeps 0 * -inf out of the sums.
    logits = (logits - logits.amax(dim=1, keepdim=True)).clamp(min=-1e4)
    weights = torch.ones_like(logits[:, 0]) if weights is None else weights.to(logits)
    weights = weights / weights.sum()
    target = (weights * logits.gather(1, labels.long()[:, None])[:, 0]).sum()

    # In b = 1 / T the loss, mean_i logsumexp(b z_i) - b z_iy, is convex. So the sign of its slope leaves an
    # ever smaller interval for b, and Newton's steps held inside it cannot diverge.
    low, high, sharpness = 1 / HOTTEST, 1 / COOLEST, 1.0
    for _ in range(60):
        probs = (sharpness * logits).softmax(dim=1)
        mean = (probs * logits).sum(dim=1)
        slope = float((weights * mean).sum() - target)
        curvature = float((weights * ((probs * logits.square()).sum(dim=1) - mean.square())).sum())
        low, high = (low, sharpness) if slope > 0 else (sharpness, high)
        following = sharpness - slope / max(curvature, 1e-300)
        if not low < following < high:
            following = (low * high) ** 0.5
        if abs(following - sharpness) <= 1e-9 * sharpness:
            break
        sharpness = following
    return 1 / sharpness
