"""Entropy of the class probabilities over some pixels."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from shapepu.losses import mean_entropy


def example(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log probabilities (2, 3, 4, 5) and the pixels that count (2, 4, 5)."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    return logits.log_softmax(dim=1), torch.rand(2, 4, 5, generator=generator) < 0.6


def test_by_hand() -> None:
    """Three quarters against one: 2 log 2 - 3/4 log 3. Even odds: log 2."""
    log_probs = torch.tensor([[0.75, 0.5], [0.25, 0.5]]).log().view(1, 2, 1, 2)
    first = mean_entropy(log_probs, torch.tensor([[[True, False]]]))
    both = mean_entropy(log_probs, torch.tensor([[[True, True]]]))
    uneven = 2 * math.log(2) - 0.75 * math.log(3)
    np.testing.assert_allclose(first, uneven, rtol=1e-6)
    np.testing.assert_allclose(both, (uneven + math.log(2)) / 2, rtol=1e-6)


def test_agrees_with_the_plain_loop() -> None:
    log_probs, where = example()
    terms = []
    for n, y, x in np.ndindex(where.shape):
        if where[n, y, x]:
            probs = [math.exp(float(log_probs[n, k, y, x])) for k in range(3)]
            terms.append(-sum(p * math.log(p) for p in probs))
    np.testing.assert_allclose(mean_entropy(log_probs, where), sum(terms) / len(terms), rtol=1e-12)


def test_doubt_is_the_largest_and_certainty_costs_nothing() -> None:
    everywhere = torch.ones(1, 1, 1, dtype=torch.bool)
    certain = torch.tensor([200.0, 0.0, 0.0]).view(1, 3, 1, 1).requires_grad_()
    loss = mean_entropy(certain.log_softmax(dim=1), everywhere)
    loss.backward()
    assert loss == 0
    assert certain.grad is not None
    assert certain.grad.isfinite().all()
    even = torch.zeros(1, 3, 1, 1).log_softmax(dim=1)
    np.testing.assert_allclose(mean_entropy(even, everywhere), math.log(3), rtol=1e-6)


def test_the_step_makes_the_likeliest_class_likelier() -> None:
    logits = torch.tensor([0.5, 0.0]).view(1, 2, 1, 1).requires_grad_()
    mean_entropy(logits.log_softmax(dim=1), torch.ones(1, 1, 1, dtype=torch.bool)).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 1]


def test_other_pixels_change_nothing_and_get_no_gradient() -> None:
    log_probs, where = example()
    changed = torch.where(where[:, None], log_probs, math.log(1 / 3)).requires_grad_()
    loss = mean_entropy(changed, where)
    loss.backward()
    torch.testing.assert_close(loss, mean_entropy(log_probs, where))
    assert changed.grad is not None
    assert changed.grad.movedim(1, -1)[~where].abs().max() == 0
    assert changed.grad.movedim(1, -1)[where].abs().max() > 0


def test_no_pixel_costs_nothing() -> None:
    log_probs, where = example()
    assert mean_entropy(log_probs, torch.zeros_like(where)) == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    log_probs, where = example()
    logits = log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: mean_entropy(z.log_softmax(dim=1), where), (logits,))
