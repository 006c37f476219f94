"""Overlap with labels over the counted pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapepu.losses import partial_dice_loss

CLASSES = 3


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (2, 3, 4, 5), labels with 255 for outside, and where they count."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(2, CLASSES, 4, 5, generator=generator, dtype=torch.float64).softmax(dim=1)
    labels = torch.randint(CLASSES, (2, 4, 5), generator=generator).to(torch.uint8)
    labels[1, 0] = 255
    counted = (torch.rand(2, 4, 5, generator=generator) < 0.8) & (labels < CLASSES)
    return probs, labels, counted


def by_plain_loops(probs: NDArray, labels: NDArray, counted: NDArray) -> float:
    losses = []
    for j in range(probs.shape[1]):
        overlap, squares, size = 0.0, 0.0, 0
        for n, y, x in np.ndindex(labels.shape):
            if counted[n, y, x]:
                squares += float(probs[n, j, y, x]) ** 2
                if labels[n, y, x] == j:
                    overlap, size = overlap + float(probs[n, j, y, x]), size + 1
        if size:
            losses.append(1 - 2 * overlap / (squares + size))
    return sum(losses) / len(losses) if losses else 0.0


def test_by_hand() -> None:
    # Background: 2 * .8 / (.64 + .16 + 1) = 8/9. Class 1: 2 * .6 / (.04 + .36 + 1) = 6/7.
    probs = torch.tensor([[0.8, 0.4], [0.2, 0.6]]).view(1, 2, 1, 2)
    labels, both = torch.tensor([[[0, 1]]]), torch.tensor([[[True, True]]])
    loss = partial_dice_loss(probs, labels, both)
    np.testing.assert_allclose(loss, ((1 - 1.6 / 1.8) + (1 - 1.2 / 1.4)) / 2, rtol=1e-6)
    # The first pixel alone has no class 1, which is then left out: 2 * .8 / (.64 + 1).
    first = partial_dice_loss(probs, labels, torch.tensor([[[True, False]]]))
    np.testing.assert_allclose(first, 1 - 1.6 / 1.64, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_plain_loop(seed: int) -> None:
    probs, labels, counted = example(seed)
    expected = by_plain_loops(probs.numpy(), labels.numpy(), counted.numpy())
    np.testing.assert_allclose(partial_dice_loss(probs, labels, counted), expected, rtol=1e-12)


def test_certain_and_right_costs_nothing_certain_and_wrong_costs_one() -> None:
    _, labels, counted = example()
    right = torch.nn.functional.one_hot(labels.long().clamp(max=CLASSES - 1), CLASSES).movedim(-1, 1).double()
    assert partial_dice_loss(right, labels, counted) == 0
    assert partial_dice_loss(right.roll(1, dims=1), labels, counted) == 1


def test_a_class_of_one_pixel_counts_as_much_as_the_rest_together() -> None:
    labels = torch.zeros(1, 10, 10, dtype=torch.long)
    labels[0, 0, 0] = 1
    everywhere_background = torch.stack((torch.ones(1, 10, 10), torch.zeros(1, 10, 10)), dim=1)
    loss = partial_dice_loss(everywhere_background, labels, torch.ones_like(labels, dtype=torch.bool))
    np.testing.assert_allclose(loss, (1 + 1 - 2 * 99 / 199) / 2, rtol=1e-5)


def test_a_class_without_a_counted_pixel_is_left_out_but_what_others_lose_to_it_costs() -> None:
    probs, labels, counted = example()
    labels = torch.where(labels == 2, 1, labels)
    loss = partial_dice_loss(probs, labels, counted)
    np.testing.assert_allclose(loss, by_plain_loops(probs.numpy(), labels.numpy(), counted.numpy()))
    half = probs[:, :2] / 2
    lost = torch.cat((half, probs[:, 2:] + half.sum(dim=1, keepdim=True)), dim=1)
    assert partial_dice_loss(lost, labels, counted) > loss + 0.05


def test_what_does_not_count_changes_nothing_and_gets_no_gradient() -> None:
    probs, labels, counted = example()
    changed = torch.where(counted[:, None], probs, torch.nan).requires_grad_()
    loss = partial_dice_loss(changed, labels.masked_fill(~counted, 1), counted)
    loss.backward()
    assert loss == partial_dice_loss(probs, labels, counted)
    assert changed.grad is not None
    assert changed.grad.movedim(1, -1)[~counted].abs().max() == 0
    assert changed.grad.movedim(1, -1)[counted].abs().max() > 0


def test_masking_equals_deleting() -> None:
    probs, labels, counted = example()
    rows = probs.movedim(1, -1)[counted].T[None, :, None]
    everywhere = torch.ones(1, 1, rows.shape[-1], dtype=torch.bool)
    deleted = partial_dice_loss(rows, labels[counted][None, None], everywhere)
    torch.testing.assert_close(partial_dice_loss(probs, labels, counted), deleted)


def test_the_order_of_images_and_the_numbering_of_classes_change_nothing() -> None:
    probs, labels, counted = example()
    loss = partial_dice_loss(probs, labels, counted)
    torch.testing.assert_close(partial_dice_loss(probs.flip(0), labels.flip(0), counted.flip(0)), loss)
    order = torch.tensor([2, 0, 1])
    renumbered = order.argsort()[labels.long().clamp(max=CLASSES - 1)]
    torch.testing.assert_close(partial_dice_loss(probs[:, order], renumbered, counted), loss)


def test_nothing_counted_costs_nothing_and_has_a_gradient_of_zero() -> None:
    probs, labels, counted = example()
    probs.requires_grad_()
    loss = partial_dice_loss(probs, labels, torch.zeros_like(counted))
    loss.backward()
    assert loss == 0
    assert probs.grad is not None
    assert probs.grad.abs().max() == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    probs, labels, counted = example()
    logits = probs.log().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: partial_dice_loss(z.softmax(dim=1), labels, counted), (logits,))
