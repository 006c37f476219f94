"""Cosine distance between two predictions of the same pixels."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

import oracles
from shapepu.losses import global_consistency


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(2, 3, 4, 5, generator=generator).double().softmax(dim=1) for _ in range(2))
    return first, second, torch.rand(2, 4, 5, generator=generator) < 0.6


def test_by_hand() -> None:
    # (1, 0) against (1, 1): cosine 1 / sqrt 2. (.6, .8) against (.8, .6): cosine .96.
    first = torch.tensor([[1.0, 0.6], [0.0, 0.8]]).view(1, 2, 1, 2)
    second = torch.tensor([[0.5, 0.8], [0.5, 0.6]]).view(1, 2, 1, 2)
    both = global_consistency(first, second, torch.tensor([[[True, True]]]))
    last = global_consistency(first, second, torch.tensor([[[False, True]]]))
    np.testing.assert_allclose(both, (1 - 1 / math.sqrt(2) + 0.04) / 2, rtol=1e-6)
    np.testing.assert_allclose(last, 0.04, rtol=1e-5)


def test_agrees_with_the_plain_loop() -> None:
    first, second, valid = example()
    expected = oracles.global_consistency(first.numpy(), second.numpy(), valid.numpy())
    np.testing.assert_allclose(global_consistency(first, second, valid), expected, rtol=1e-12)


def test_agreement_costs_nothing_and_sure_disagreement_costs_one() -> None:
    sure = torch.eye(3).view(1, 3, 1, 3)
    everywhere = torch.ones(1, 1, 3, dtype=torch.bool)
    assert global_consistency(sure, sure, everywhere) == 0
    assert global_consistency(sure, sure.roll(1, dims=-1), everywhere) == 1


def test_the_two_sides_are_alike_in_value_and_gradient() -> None:
    first, second, valid = example()
    first, second = first.requires_grad_(), second.requires_grad_()
    gradients = torch.autograd.grad(global_consistency(first, second, valid), (first, second))
    swapped = torch.autograd.grad(global_consistency(second, first, valid), (first, second))
    for gradient, other in zip(gradients, swapped, strict=True):
        torch.testing.assert_close(gradient, other)
        assert gradient.abs().max() > 0


def test_invalid_pixels_change_nothing_and_get_no_gradient() -> None:
    first, second, valid = example()
    # What a replayed view shows beyond the border: no probability at all.
    changed = torch.where(valid[:, None], first, 0.0).requires_grad_()
    second = second.requires_grad_()
    loss = global_consistency(changed, second, valid)
    loss.backward()
    torch.testing.assert_close(loss, global_consistency(first, second, valid))
    for tensor in (changed, second):
        assert tensor.grad is not None
        assert tensor.grad.movedim(1, -1)[~valid].abs().max() == 0
        assert tensor.grad.isfinite().all()


def test_masking_equals_deleting() -> None:
    first, second, valid = example()
    rows = [probs.movedim(1, -1)[valid].T[None, :, None] for probs in (first, second)]
    everywhere = torch.ones(1, 1, rows[0].shape[-1], dtype=torch.bool)
    torch.testing.assert_close(
        global_consistency(first, second, valid), global_consistency(*rows, everywhere)
    )


def test_the_order_of_images_and_classes_changes_nothing() -> None:
    first, second, valid = example()
    loss = global_consistency(first, second, valid)
    torch.testing.assert_close(global_consistency(first.flip(0), second.flip(0), valid.flip(0)), loss)
    torch.testing.assert_close(global_consistency(first.flip(1), second.flip(1), valid), loss)


def test_every_image_of_the_batch_is_compared() -> None:
    first, second, valid = example()
    second = first.clone()
    second[1] = second[1].flip(0)
    assert global_consistency(first, second, valid) > 0.01


def test_no_valid_pixel_costs_nothing_and_has_a_gradient_of_zero() -> None:
    first, second, valid = example()
    first.requires_grad_()
    loss = global_consistency(first, second, torch.zeros_like(valid))
    loss.backward()
    assert loss == 0
    assert first.grad is not None
    assert first.grad.abs().max() == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    first, second, valid = example()
    logits = [probs.log().requires_grad_() for probs in (first, second)]
    assert torch.autograd.gradcheck(
        lambda a, b: global_consistency(a.softmax(dim=1), b.softmax(dim=1), valid), logits
    )
