"""Slow, plain re-derivations of the formulas, to test the fast ones against: loops over Python's floats."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def em_step(probs: NDArray, ratios: NDArray, priors: NDArray, weights: NDArray | None = None) -> NDArray:
    """Eq. (1) once: the mean over the rows of alpha_j q_j / pi_j, normalised over the classes."""
    rows, classes = probs.shape
    sums, total = [0.0] * classes, 0.0
    for i in range(rows):
        joint = [
            float(ratios[j]) * float(probs[i, j]) / float(priors[j]) if priors[j] > 0 else 0.0
            for j in range(classes)
        ]
        if sum(joint) == 0:
            continue
        weight = 1.0 if weights is None else float(weights[i])
        total += weight
        for j in range(classes):
            sums[j] += weight * joint[j] / sum(joint)
    return np.array([value / total for value in sums])


def em(probs: NDArray, priors: NDArray, *, steps: int, weights: NDArray | None = None) -> NDArray:
    """Plain EM from alpha = pi, so many steps."""
    ratios = np.asarray(priors, dtype=float) / np.sum(priors)
    for _ in range(steps):
        ratios = em_step(probs, ratios, priors, weights)
    return ratios


def mixture_log_likelihood(
    probs: NDArray, ratios: NDArray, priors: NDArray, weights: NDArray | None = None
) -> float:
    """Mean over the rows of log sum_k alpha_k q_k / pi_k; rows that no class explains are left out."""
    value, total = 0.0, 0.0
    for i in range(len(probs)):
        mixture = sum(
            float(a) * float(q) / float(p) for a, q, p in zip(ratios, probs[i], priors, strict=True) if p > 0
        )
        if mixture > 0:
            weight = 1.0 if weights is None else float(weights[i])
            value, total = value + weight * math.log(mixture), total + weight
    return value / total


def partial_cross_entropy(probs: NDArray, labels: NDArray, labelled: NDArray) -> float:
    """Mean of -log p_y over the labelled pixels; probs (N, K, H, W)."""
    terms = [
        -math.log(probs[n, labels[n, y, x], y, x])
        for n, y, x in np.ndindex(labels.shape)
        if labelled[n, y, x]
    ]
    return sum(terms) / len(terms) if terms else 0.0


def rule_out(probs: NDArray, unlabelled: NDArray, ratios: NDArray) -> NDArray[np.bool_]:
    """Rank the unlabelled pixels by each foreground class; keep the top share, with ties, without zeros."""
    ruled_out = np.zeros(probs.shape, dtype=bool)
    places = [place for place in np.ndindex(unlabelled.shape) if unlabelled[place]]
    for j in range(1, probs.shape[1]):
        ranked = sorted((float(probs[n, j, y, x]) for n, y, x in places), reverse=True)
        kept = math.floor(float(ratios[j]) * len(ranked) + 0.5)
        for n, y, x in places:
            is_kept = kept > 0 and probs[n, j, y, x] >= ranked[kept - 1] and probs[n, j, y, x] > 0
            ruled_out[n, j, y, x] = not is_kept
    return ruled_out


def negative_loss_per_class(probs: NDArray, ruled_out: NDArray) -> float:
    """Sum over foreground classes of the mean over the ruled-out pixels of -log of the other classes' sum."""
    loss = 0.0
    n_images, classes, height, width = probs.shape
    for j in range(1, classes):
        terms = []
        for n, y, x in np.ndindex(n_images, height, width):
            if ruled_out[n, j, y, x]:
                terms.append(-math.log(sum(float(probs[n, k, y, x]) for k in range(classes) if k != j)))
        loss += sum(terms) / len(terms) if terms else 0.0
    return loss


def negative_loss_joint(probs: NDArray, ruled_out: NDArray) -> float:
    """Mean over pixels with any class ruled out of -log of the sum of the classes that remain."""
    terms = []
    n_images, classes, height, width = probs.shape
    for n, y, x in np.ndindex(n_images, height, width):
        remaining = [k for k in range(classes) if not ruled_out[n, k, y, x]]
        if len(remaining) < classes:
            terms.append(-math.log(sum(float(probs[n, k, y, x]) for k in remaining)))
    return sum(terms) / len(terms) if terms else 0.0


def global_consistency(first: NDArray, second: NDArray, valid: NDArray) -> float:
    """Mean over the valid pixels of one minus the cosine between the two vectors over the classes."""
    terms = []
    for n, y, x in np.ndindex(valid.shape):
        if valid[n, y, x]:
            a, b = first[n, :, y, x], second[n, :, y, x]
            dot = sum(float(s) * float(t) for s, t in zip(a, b, strict=True))
            norms = math.sqrt(sum(float(s) ** 2 for s in a)) * math.sqrt(sum(float(t) ** 2 for t in b))
            terms.append(1 - dot / norms)
    return sum(terms) / len(terms) if terms else 0.0


def tempered_log_loss(logits: NDArray, labels: NDArray, temperature: float) -> float:
    """Mean of -log softmax(z / T)_y."""
    loss = 0.0
    for row, label in zip(logits, labels, strict=True):
        scaled = [float(z) / temperature for z in row]
        top = max(scaled)
        loss += top + math.log(sum(math.exp(z - top) for z in scaled)) - scaled[int(label)]
    return loss / len(labels)
