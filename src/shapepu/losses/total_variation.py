"""How much the probabilities change from pixel to pixel."""

from __future__ import annotations

from torch import Tensor


def mean_total_variation(probs: Tensor, inside: Tensor) -> Tensor:
    r"""Absolute differences between vertical and horizontal neighbours, summed over the classes.

    .. math:: L = \frac{1}{|\Omega|} \sum_k \sum_{y,x} |p_{k,y+1,x} - p_{k,y,x}| + |p_{k,y,x+1} - p_{k,y,x}|

    For probabilities of 0 and 1 this is twice the length of the borders between the regions, measured along
    the pixel grid, over the number of pixels: each border ends one class and begins another.

    Args:
        probs: p, shape (N, K, H, W).
        inside: Omega, the pixels that count, bool, shape (N, H, W); a difference counts where both of its
            pixels do. None True gives 0 with a gradient of 0.

    Reference: Rudin, Osher and Fatemi, Physica D 1992; as a loss for segmentation networks Javanmardi et al.,
    Unsupervised Total Variation Loss for Semi-supervised Deep Learning of Semantic Segmentation, 2016.
    """
    vertical = (probs[:, :, 1:] - probs[:, :, :-1]).abs().sum(dim=1)
    horizontal = (probs[..., 1:] - probs[..., :-1]).abs().sum(dim=1)
    total = vertical.where(inside[:, 1:] & inside[:, :-1], 0.0).sum()
    total = total + horizontal.where(inside[..., 1:] & inside[..., :-1], 0.0).sum()
    return total / inside.sum().clamp(min=1)
