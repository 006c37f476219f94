"""The energy between neighbours that look alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shapepu.losses import gated_crf_energy

POSITION, INTENSITY = 1.7, 0.8


def example(side: int = 6, channels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Probabilities (2, 3, 6, 6), images (2, channels, 6, 6), sources and destinations (2, 6, 6)."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(2, 3, side, side, generator=generator, dtype=torch.float64).softmax(dim=1)
    images = torch.randn(2, channels, side, side, generator=generator, dtype=torch.float64)
    source = torch.rand(2, side, side, generator=generator) < 0.8
    destination = torch.rand(2, side, side, generator=generator) < 0.6
    return probs, images, source, destination


def energy(probs: Tensor, images: Tensor, source: Tensor, destination: Tensor, radius: int = 2) -> Tensor:
    return gated_crf_energy(
        probs,
        images,
        source,
        destination,
        radius=radius,
        position_pixels=POSITION,
        intensity=INTENSITY,
    )


def plain(probs: Tensor, images: Tensor, source: Tensor, destination: Tensor, radius: int) -> float:
    """Every destination, every source in its window, every two classes that differ."""
    count, classes, height, width = probs.shape
    total = 0.0
    for n, y, x in np.ndindex(count, height, width):
        if not destination[n, y, x]:
            continue
        for v in range(max(0, y - radius), min(height, y + radius + 1)):
            for u in range(max(0, x - radius), min(width, x + radius + 1)):
                if (v, u) == (y, x) or not source[n, v, u]:
                    continue
                squares = sum(float(i[y, x] - i[v, u]) ** 2 for i in images[n])
                exponent = ((y - v) ** 2 + (x - u) ** 2) / (2 * POSITION**2) + squares / (2 * INTENSITY**2)
                for k, other in np.ndindex(classes, classes):
                    if k != other:
                        total += math.exp(-exponent) * float(probs[n, k, y, x] * probs[n, other, v, u])
    return total / int(destination.sum())


@pytest.mark.parametrize("radius", [1, 2, 5, 9])
def test_agrees_with_the_plain_loop(radius: int) -> None:
    inputs = example()
    np.testing.assert_allclose(energy(*inputs, radius=radius), plain(*inputs, radius), rtol=1e-10)


def test_by_hand() -> None:
    """Two pixels that look alike, .9 and .2 for the first class: they differ with probability .74."""
    probs = torch.tensor([[0.9, 0.2], [0.1, 0.8]]).view(1, 2, 1, 2)
    both = torch.ones(1, 1, 2, dtype=torch.bool)
    kernel = math.exp(-1 / (2 * POSITION**2))
    # Each of two destinations hears the other: twice the pair, over two.
    np.testing.assert_allclose(energy(probs, torch.zeros(1, 1, 1, 2), both, both), 0.74 * kernel, rtol=1e-6)
    first = torch.tensor([[[True, False]]])
    np.testing.assert_allclose(energy(probs, torch.zeros(1, 1, 1, 2), both, first), 0.74 * kernel, rtol=1e-6)
    assert energy(probs, torch.zeros(1, 1, 1, 2), first, first) == 0


def test_intensities_that_differ_part_neighbours() -> None:
    probs, images, source, destination = example()
    alike = energy(probs, torch.zeros_like(images), source, destination)
    rows = torch.arange(6.0).view(1, 1, 6, 1).expand(2, 1, 6, 6) * 100
    columns = torch.arange(6.0).view(1, 1, 1, 6).expand(2, 1, 6, 6) * 100
    assert energy(probs, torch.cat((rows, columns), dim=1), source, destination) < 1e-9 < alike


def test_who_agrees_pays_nothing() -> None:
    _, images, source, destination = example()
    probs = torch.zeros(2, 3, 6, 6)
    probs[:, 1] = 1
    np.testing.assert_allclose(energy(probs, images.float(), source, destination), 0, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences() -> None:
    probs, images, source, destination = example(side=4)
    logits = probs.log().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: energy(z.softmax(dim=1), images, source, destination), (logits,)
    )


def test_pixels_behind_both_gates_change_nothing_and_get_no_gradient() -> None:
    probs, images, source, destination = example()
    closed = ~source & ~destination
    assert closed.any()
    changed = torch.where(closed[:, None], 1 / 3, probs).requires_grad_()
    loss = energy(changed, torch.where(closed[:, None], 7.0, images), source, destination)
    loss.backward()
    torch.testing.assert_close(loss, energy(probs, images, source, destination))
    assert changed.grad is not None
    assert changed.grad.movedim(1, -1)[closed].abs().max() == 0
    assert changed.grad.movedim(1, -1)[destination].abs().max() > 0


def test_mirroring_and_turning_change_nothing() -> None:
    inputs = example()
    loss = energy(*inputs)
    for turned in ([t.flip(-1) for t in inputs], [torch.rot90(t, 1, (-2, -1)) for t in inputs]):
        torch.testing.assert_close(energy(*turned), loss)


def test_no_destination_costs_nothing_and_has_a_gradient_of_zero() -> None:
    probs, images, source, destination = example()
    probs.requires_grad_()
    loss = energy(probs, images, source, torch.zeros_like(destination))
    loss.backward()
    assert loss == 0
    assert probs.grad is not None
    assert probs.grad.abs().max() == 0
