"""Cross-entropy over the labelled pixels."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

import oracles
from shapepu.losses import partial_cross_entropy

CLASSES = 3


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log probabilities (2, 3, 4, 5), labels with 3 for unlabelled and 255 for outside, and labelled."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, CLASSES, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES + 1, (2, 4, 5), generator=generator).to(torch.uint8)
    labels[1, 0] = 255
    return logits.log_softmax(dim=1), labels, labels < CLASSES


def test_by_hand() -> None:
    log_probs = torch.tensor([[0.5, 0.2], [0.25, 0.2], [0.25, 0.6]]).log().view(1, 3, 1, 2)
    labels = torch.tensor([[[1, 2]]])
    both = partial_cross_entropy(log_probs, labels, torch.tensor([[[True, True]]]))
    second = partial_cross_entropy(log_probs, labels, torch.tensor([[[False, True]]]))
    np.testing.assert_allclose(both, (math.log(4) - math.log(0.6)) / 2, rtol=1e-6)
    np.testing.assert_allclose(second, -math.log(0.6), rtol=1e-6)


def test_agrees_with_the_plain_loop() -> None:
    log_probs, labels, labelled = example()
    expected = oracles.partial_cross_entropy(log_probs.exp().numpy(), labels.numpy(), labelled.numpy())
    np.testing.assert_allclose(partial_cross_entropy(log_probs, labels, labelled), expected, rtol=1e-12)


def test_the_labels_of_unlabelled_pixels_are_not_read() -> None:
    log_probs, labels, labelled = example()
    for value in (0, 1, CLASSES, 255):
        other = labels.masked_fill(~labelled, value)
        assert partial_cross_entropy(log_probs, other, labelled) == partial_cross_entropy(
            log_probs, labels, labelled
        )


def test_unlabelled_logits_change_nothing_and_get_no_gradient() -> None:
    log_probs, labels, labelled = example()
    changed = torch.where(labelled[:, None], log_probs, -torch.inf).requires_grad_()
    loss = partial_cross_entropy(changed, labels, labelled)
    loss.backward()
    assert loss == partial_cross_entropy(log_probs, labels, labelled)
    assert changed.grad is not None
    assert changed.grad.movedim(1, -1)[~labelled].abs().max() == 0
    torch.testing.assert_close(changed.grad.sum(), torch.tensor(-1.0, dtype=torch.float64))


def test_masking_equals_deleting() -> None:
    log_probs, labels, labelled = example()
    rows = log_probs.movedim(1, -1)[labelled].T[None, :, None]
    deleted = partial_cross_entropy(
        rows, labels[labelled][None, None], torch.ones(1, 1, rows.shape[-1], dtype=torch.bool)
    )
    torch.testing.assert_close(partial_cross_entropy(log_probs, labels, labelled), deleted)


def test_the_order_of_images_and_the_numbering_of_classes_change_nothing() -> None:
    log_probs, labels, labelled = example()
    loss = partial_cross_entropy(log_probs, labels, labelled)
    torch.testing.assert_close(
        partial_cross_entropy(log_probs.flip(0), labels.flip(0), labelled.flip(0)), loss
    )
    order = torch.tensor([2, 0, 1])
    renumbered = order.argsort()[labels.long().clamp(max=CLASSES - 1)]
    torch.testing.assert_close(partial_cross_entropy(log_probs[:, order], renumbered, labelled), loss)


def test_nothing_labelled_costs_nothing_and_has_a_gradient_of_zero() -> None:
    log_probs, labels, labelled = example()
    log_probs.requires_grad_()
    loss = partial_cross_entropy(log_probs, labels, torch.zeros_like(labelled))
    loss.backward()
    assert loss == 0
    assert log_probs.grad is not None
    assert log_probs.grad.abs().max() == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    log_probs, labels, labelled = example()
    logits = log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: partial_cross_entropy(z.log_softmax(dim=1), labels, labelled), (logits,)
    )


def test_extreme_logits_give_a_finite_loss_and_the_gradient_of_a_wrong_answer() -> None:
    logits = torch.tensor([1e4, 0.0, -1e4]).view(1, 3, 1, 1).requires_grad_()
    loss = partial_cross_entropy(logits.log_softmax(dim=1), torch.tensor([[[2]]]), torch.tensor([[[True]]]))
    loss.backward()
    assert loss == 2e4
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == [1, 0, -1]
