"""Posteriors that mean what they say: the estimate of the mixture ratios takes them at their word."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Calibration:
    r"""A correction of posteriors: :math:`\operatorname{softmax}(b z + c)`.

    Args:
        sharpness: b, one over the temperature.
        biases: c, one a class, shape (K,), float64.
    """

    sharpness: float
    biases: Tensor

    def apply(self, logits: Tensor, *, dim: int = 1) -> Tensor:
        """Corrected log probabilities; log probabilities serve as logits."""
        shape = [1] * logits.ndim
        shape[dim] = -1
        return (self.sharpness * logits + self.biases.to(logits).view(shape)).log_softmax(dim=dim)


def fit_calibration(
    logits: Tensor, labels: Tensor, *, ridge: float = 1e-3, max_iterations: int = 50
) -> Calibration:
    r"""Temperature and biases under which the labels are most probable (Alexandari et al. 2020).

    .. math:: \min_{b, c} \; -\frac{1}{M} \sum_i \log \operatorname{softmax}(b z_i + c)_{y_i}
              + \frac{\rho}{2} \left( (b - 1)^2 + \|c\|^2 \right)

    What a temperature alone cannot do: at the minimum the mean posterior of each class over the labelled
    pixels is its share of them. EM needs exactly that. Where it fails, the estimated ratios run away from the
    truth even when labelled and unlabelled pixels are drawn alike.

    Args:
        logits: z, or log probabilities, shape (M, K).
        labels: y, integers 0..K-1, shape (M,).
        ridge: rho, which keeps classes that are never confused, or absent, where they are.
        max_iterations: Newton steps at most.

    Returns:
        The correction; none where there are no pixels.
    """
    classes = logits.shape[1]
    point = torch.zeros(classes + 1, dtype=torch.float64, device=logits.device)
    point[0] = 1.0
    start = point.clone()
    if len(labels) == 0:
        return Calibration(1.0, point[1:])
    logits = logits.detach().double()
    logits = (logits - logits.amax(dim=1, keepdim=True)).clamp(min=-1e4)
    labels = labels.long()[:, None]
    observed = torch.cat(
        [
            logits.gather(1, labels).mean().view(1),
            torch.bincount(labels[:, 0], minlength=classes) / len(labels),
        ]
    )

    def objective(point: Tensor) -> float:
        log_norm = (point[0] * logits + point[1:]).logsumexp(dim=1).mean()
        return float(log_norm - point @ observed + 0.5 * ridge * (point - start).square().sum())

    value = objective(point)
    for _ in range(max_iterations):
        slope, curvature = _slope_and_curvature(point, logits, observed)
        slope = slope + ridge * (point - start)
        curvature.diagonal().add_(ridge)
        step = torch.linalg.solve(curvature, slope)
        # The objective is convex, so a short enough part of Newton's step always descends.
        while objective(point - step) > value and step.abs().max() > 1e-9:
            step = step / 2
        point = point - step
        value = objective(point)
        if step.abs().max() <= 1e-8:
            break
    return Calibration(float(point[0]), point[1:])


def _slope_and_curvature(point: Tensor, logits: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
    """First and second derivatives of the mean negative log-likelihood in (b, c)."""
    probs = (point[0] * logits + point[1:]).softmax(dim=1)
    expected_logit = (probs * logits).sum(dim=1, keepdim=True)
    features = torch.cat([expected_logit, probs], dim=1)
    curvature = -features.T @ features / len(logits)
    curvature[0, 0] += (probs * logits.square()).sum(dim=1).mean()
    mixed = (probs * logits).mean(dim=0)
    curvature[0, 1:] += mixed
    curvature[1:, 0] += mixed
    curvature[1:, 1:] += torch.diag(probs.mean(dim=0))
    return features.mean(dim=0) - observed, curvature
