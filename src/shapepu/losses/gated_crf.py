"""Neighbours that look alike should be segmented alike, as a loss over local windows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor


def gated_crf_energy(
    probs: Tensor,
    images: Tensor,
    source: Tensor,
    destination: Tensor,
    *,
    radius: int,
    position_pixels: float,
    intensity: float,
) -> Tensor:
    r"""The energy of a conditional random field whose pixels see a square window around them.

    .. math:: L = \frac{1}{|D|} \sum_{a \in D} \sum_{b \in S, \, 0 < |a - b|_\infty \le r} k_{ab}
                  \Bigl(1 - \sum_k p_{ak} p_{bk}\Bigr), \qquad
              k_{ab} = \exp\Bigl(-\frac{|a - b|^2}{2 \sigma_{xy}^2}
                                 - \frac{|x_a - x_b|^2}{2 \sigma_x^2}\Bigr)

    The bracket is the probability that a and b are of different classes (a Potts model). The gates say which
    pixels speak (S) and which are spoken to (D); both sides of a pair receive a gradient.

    Args:
        probs: p, shape (N, K, H, W).
        images: x, shape (N, C, H, W); no gradient reaches them.
        source: S, bool, shape (N, H, W).
        destination: D, bool, shape (N, H, W). None True gives 0 with a gradient of 0.
        radius: r, in pixels; the window has 2 r + 1 pixels a side.
        position_pixels: sigma_xy.
        intensity: sigma_x, in units of the images.

    Reference: Obukhov et al., Gated CRF Loss for Weakly Supervised Semantic Image Segmentation, 2019.
    """
    with torch.no_grad():
        # With the symmetric weights W of all pairs the sum is (1^T W 1 - p^T W p) / 2. Its gradient, -W p, is
        # as quick to compute as its value; automatic differentiation would keep every pair in memory.
        messages, weights = torch.zeros_like(probs), torch.zeros_like(probs[:, 0])
        for first, second, distance in _pairs(radius, probs.shape[-2], probs.shape[-1]):
            squares = (images[..., *first] - images[..., *second]).square().sum(dim=1)
            kernel = torch.exp(-(squares / intensity**2 + distance**2 / position_pixels**2) / 2)
            kernel *= (destination[:, *first] & source[:, *second]).to(kernel.dtype) + (
                source[:, *first] & destination[:, *second]
            ).to(kernel.dtype)
            messages[..., *first].addcmul_(kernel[:, None], probs[..., *second])
            messages[..., *second].addcmul_(kernel[:, None], probs[..., *first])
            weights[:, *first] += kernel
        agreement = (probs * messages).sum() / 2
    # Twice the half, of which once without a gradient: the value of p^T W p / 2 and its gradient W p.
    differentiable = (probs * messages).sum() - agreement
    return (weights.sum() - differentiable) / destination.sum().clamp(min=1)


def _pairs(
    radius: int, height: int, width: int
) -> Iterator[tuple[tuple[slice, slice], tuple[slice, slice], float]]:
    """Each offset of half a window as two overlapping views of an array, and its length."""
    for down in range(min(radius, height - 1) + 1):
        for right in range(-min(radius, width - 1), min(radius, width - 1) + 1):
            if down == 0 and right <= 0:
                continue  # the other half has the same pairs
            rows = slice(0, height - down), slice(down, height)
            columns = (
                slice(max(0, -right), width - max(0, right)),
                slice(max(0, right), width + min(0, right)),
            )
            yield (rows[0], columns[0]), (rows[1], columns[1]), math.hypot(down, right)
