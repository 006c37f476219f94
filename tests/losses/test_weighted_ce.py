"""Cross-entropy over the labelled pixels with rare classes weighted up."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shapepu.losses import partial_cross_entropy, weighted_partial_cross_entropy

CLASSES = 3


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log probabilities (2, 3, 4, 5), labels with 3 for unlabelled and 255 for outside, and labelled."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, CLASSES, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES + 1, (2, 4, 5), generator=generator).to(torch.uint8)
    labels[1, 0] = 255
    return logits.log_softmax(dim=1), labels, labels < CLASSES


def test_by_hand() -> None:
    """Three pixels of class 0 and one of class 2 have weights 4/3 and 4; the fifth is unlabelled."""
    of_zero, of_two = [0.5, 0.25, 0.8, 0.3, 0.9], [0.1, 0.1, 0.1, 0.6, 0.05]
    probs = torch.tensor([of_zero, [1 - a - b for a, b in zip(of_zero, of_two, strict=True)], of_two])
    labels = torch.tensor([[[0, 0, 0, 2, 3]]])
    loss = weighted_partial_cross_entropy(probs.log().view(1, 3, 1, 5), labels, labels < 3)
    weighted = 4 / 3 * (math.log(2) + math.log(4) - math.log(0.8)) - 4 * math.log(0.6)
    np.testing.assert_allclose(loss, weighted / 4, rtol=1e-6)


def test_agrees_with_the_plain_loop() -> None:
    log_probs, labels, labelled = example()
    places = [place for place in np.ndindex(labels.shape) if labelled[place]]
    counts = {c: sum(int(labels[p]) == c for p in places) for c in range(CLASSES)}
    total = 0.0
    for n, y, x in places:
        label = int(labels[n, y, x])
        total -= len(places) / counts[label] * float(log_probs[n, label, y, x])
    loss = weighted_partial_cross_entropy(log_probs, labels, labelled)
    np.testing.assert_allclose(loss, total / len(places), rtol=1e-12)


def test_it_is_the_sum_of_the_means_of_the_classes() -> None:
    log_probs, labels, labelled = example()
    means = [partial_cross_entropy(log_probs, labels, labels == label) for label in range(CLASSES)]
    loss = weighted_partial_cross_entropy(log_probs, labels, labelled)
    torch.testing.assert_close(loss, torch.stack(means).sum())


def test_scribbling_a_class_twice_as_densely_changes_nothing() -> None:
    log_probs, labels, labelled = example()
    repeated = torch.cat((log_probs, log_probs))
    only_ones = torch.where(labels == 1, labels, CLASSES)
    more_labels = torch.cat((labels, only_ones))
    loss = weighted_partial_cross_entropy(repeated, more_labels, more_labels < CLASSES)
    torch.testing.assert_close(loss, weighted_partial_cross_entropy(log_probs, labels, labelled))


def test_a_class_without_scribbles_adds_nothing() -> None:
    log_probs, labels, _ = example()
    without = torch.where(labels == 2, CLASSES, labels)
    loss = weighted_partial_cross_entropy(log_probs, without, without < CLASSES)
    means = [partial_cross_entropy(log_probs, labels, labels == label) for label in range(2)]
    torch.testing.assert_close(loss, torch.stack(means).sum())


def test_the_labels_of_unlabelled_pixels_are_neither_read_nor_counted() -> None:
    log_probs, labels, labelled = example()
    expected = weighted_partial_cross_entropy(log_probs, labels, labelled)
    for value in (0, 1, CLASSES, 255):
        other = labels.masked_fill(~labelled, value)
        assert weighted_partial_cross_entropy(log_probs, other, labelled) == expected


def test_nothing_labelled_costs_nothing_and_has_a_gradient_of_zero() -> None:
    log_probs, labels, labelled = example()
    log_probs.requires_grad_()
    loss = weighted_partial_cross_entropy(log_probs, labels, torch.zeros_like(labelled))
    loss.backward()
    assert loss == 0
    assert log_probs.grad is not None
    assert log_probs.grad.abs().max() == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    log_probs, labels, labelled = example()
    logits = log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: weighted_partial_cross_entropy(z.log_softmax(dim=1), labels, labelled), (logits,)
    )
