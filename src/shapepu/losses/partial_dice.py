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
    classes = torch.arange(probs.shape[1], device=labels.device).view(1, -1, 1, 1)
    truth = (labels[:, None] == classes) & counted[:, None]
    sizes = truth.sum(dim=(0, 2, 3))
    overlaps = probs.where(truth, 0.0).sum(dim=(0, 2, 3))
    squares = probs.where(counted[:, None], 0.0).square().sum(dim=(0, 2, 3))
    dice = 2 * overlaps / (squares + sizes).clamp(min=1)
    present = sizes > 0
    return (1 - dice).where(present, 0.0).sum() / present.sum().clamp(min=1)
