"""Regions of even intensity with short borders, in the probabilities of a network."""

from __future__ import annotations

import torch
from torch import Tensor

from shapepu.losses.total_variation import mean_total_variation


def mumford_shah_energy(probs: Tensor, images: Tensor, inside: Tensor, *, length_weight: float) -> Tensor:
    r"""The piecewise constant Mumford-Shah functional with class probabilities as soft regions.

    .. math:: L = \frac{1}{|\Omega|} \sum_k \sum_{i \in \Omega} p_{ik} (x_i - c_k)^2
                  + \lambda \, TV(p), \qquad
              c_k = \frac{\sum_{i \in \Omega} p_{ik} x_i}{\sum_{i \in \Omega} p_{ik}}

    c_k is the mean intensity of class k in its own image; TV is :func:`mean_total_variation`.

    Args:
        probs: p, shape (N, K, H, W).
        images: x, shape (N, C, H, W); of several channels the squares are averaged.
        inside: Omega, bool, shape (N, H, W). None True gives 0 with a gradient of 0.
        length_weight: lambda.

    Departs from its paper: means over the pixels in place of sums, so that weights mean the same for any
    patch and batch.

    Reference: Kim and Ye, Mumford-Shah Loss Functional for Image Segmentation with Deep Learning, IEEE TIP
    2020.
    """
    shares = probs.where(inside[:, None], 0.0)
    with torch.no_grad():
        # A weighted mean minimises the weighted squares, so their gradient with respect to it is 0.
        masses = shares.sum(dim=(2, 3)).clamp(min=torch.finfo(shares.dtype).tiny)
        means = torch.einsum("nkhw,nchw->nkc", shares, images) / masses[..., None]
    scatter = probs.new_zeros(())
    for channel in range(images.shape[1]):
        distances = images[:, channel, None] - means[..., channel, None, None]
        scatter = scatter + (shares * distances.square()).sum() / images.shape[1]
    return scatter / inside.sum().clamp(min=1) + length_weight * mean_total_variation(probs, inside)
