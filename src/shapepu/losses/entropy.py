"""Doubt about the pixels without scribbles."""

from __future__ import annotations

from torch import Tensor


def mean_entropy(log_probs: Tensor, where: Tensor) -> Tensor:
    r"""Entropy of the class probabilities, in nats, over some pixels.

    .. math:: L = -\frac{1}{|\Omega_u|} \sum_{i \in \Omega_u} \sum_k p_{ik} \log p_{ik}

    Args:
        log_probs: log p, shape (N, K, H, W).
        where: Omega_u, the unlabelled pixels, bool, shape (N, H, W). None True gives 0 with a gradient of 0.

    Reference: Grandvalet and Bengio, Semi-supervised Learning by Entropy Minimization, NeurIPS 2004.
    """
    # Not xlogy: its gradient at p = 0 is infinite, where that of p log p with respect to log p is 0.
    entropy = -(log_probs.exp() * log_probs).sum(dim=1)
    return entropy.where(where, 0.0).sum() / where.sum().clamp(min=1)
