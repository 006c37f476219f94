"""How much probabilities change from pixel to pixel."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shapepu.losses import mean_total_variation


def example(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Probabilities (2, 3, 4, 5) and the pixels inside (2, 4, 5)."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64).softmax(dim=1)
    return probs, torch.rand(2, 4, 5, generator=generator) < 0.8


def test_by_hand() -> None:
    """Two by two pixels: .1 -> .4 and .1 -> .6 to the right, .1 -> .1 and .4 -> .6 down."""
    foreground = torch.tensor([[0.1, 0.4], [0.1, 0.6]])
    probs = torch.stack((1 - foreground, foreground))[None]
    everywhere = torch.ones(1, 2, 2, dtype=torch.bool)
    np.testing.assert_allclose(mean_total_variation(probs, everywhere), 2 * (0.3 + 0.5 + 0.2) / 4, rtol=1e-6)


def test_of_sure_regions_it_is_twice_the_length_of_their_border() -> None:
    mask = torch.zeros(8, 9, dtype=torch.long)
    mask[2:5, 3:7] = 1  # 3 by 4 pixels: 14 sides
    probs = torch.nn.functional.one_hot(mask).permute(2, 0, 1)[None].float()
    loss = mean_total_variation(probs, torch.ones(1, 8, 9, dtype=torch.bool))
    np.testing.assert_allclose(loss, 2 * 14 / 72, rtol=1e-6)


def test_agrees_with_the_plain_loop() -> None:
    probs, inside = example()
    total = 0.0
    for n, y, x in np.ndindex(inside.shape):
        for v, u in ((y + 1, x), (y, x + 1)):
            if v < 4 and u < 5 and inside[n, y, x] and inside[n, v, u]:
                total += sum(abs(float(probs[n, k, v, u] - probs[n, k, y, x])) for k in range(3))
    np.testing.assert_allclose(mean_total_variation(probs, inside), total / int(inside.sum()), rtol=1e-12)


def test_the_edge_of_the_image_is_no_border() -> None:
    probs = torch.full((1, 2, 5, 5), 0.5)
    probs[:, 0, :2], probs[:, 1, :2] = 1.0, 0.0
    inside = torch.ones(1, 5, 5, dtype=torch.bool)
    inside[:, :2] = False
    assert mean_total_variation(probs, inside) == 0


def test_pixels_outside_get_no_gradient() -> None:
    probs, inside = example()
    probs.requires_grad_()
    mean_total_variation(probs, inside).backward()
    assert probs.grad is not None
    assert probs.grad.movedim(1, -1)[~inside].abs().max() == 0
    assert probs.grad.movedim(1, -1)[inside].abs().max() > 0


def test_turning_the_image_and_renaming_the_classes_change_nothing() -> None:
    probs, inside = example()
    loss = mean_total_variation(probs, inside)
    turned = mean_total_variation(torch.rot90(probs, 1, (2, 3)), torch.rot90(inside, 1, (1, 2)))
    torch.testing.assert_close(turned, loss)
    torch.testing.assert_close(mean_total_variation(probs.flip(1), inside), loss)


def test_nothing_inside_costs_nothing() -> None:
    probs, inside = example()
    assert mean_total_variation(probs, torch.zeros_like(inside)) == 0


def test_the_gradient_is_that_of_finite_differences() -> None:
    probs, inside = example()
    logits = probs.log().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: mean_total_variation(z.softmax(dim=1), inside), (logits,))
