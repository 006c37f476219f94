"""Regions of even intensity with short borders."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shapepu.losses import mean_total_variation, mumford_shah_energy


def example(channels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities (2, 3, 4, 5), images (2, channels, 4, 5) and the pixels inside (2, 4, 5)."""
    generator = torch.Generator().manual_seed(seed)
    probs = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64).softmax(dim=1)
    images = torch.randn(2, channels, 4, 5, generator=generator, dtype=torch.float64)
    return probs, images, torch.rand(2, 4, 5, generator=generator) < 0.8


def test_by_hand() -> None:
    """Intensities 1, 3 and 8; half of the first belongs to the second class with 8: means 2.33 and 5.67."""
    probs = torch.tensor([[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]).view(1, 2, 1, 3)
    images = torch.tensor([1.0, 3.0, 8.0]).view(1, 1, 1, 3)
    means = (0.5 * 1 + 3) / 1.5, (0.5 * 1 + 8) / 1.5
    scatter = 0.5 * (1 - means[0]) ** 2 + (3 - means[0]) ** 2
    scatter += 0.5 * (1 - means[1]) ** 2 + (8 - means[1]) ** 2
    everywhere = torch.ones(1, 1, 3, dtype=torch.bool)
    loss = mumford_shah_energy(probs, images, everywhere, length_weight=0.0)
    np.testing.assert_allclose(loss, scatter / 3, rtol=1e-6)


def test_agrees_with_the_plain_loop() -> None:
    probs, images, inside = example()
    total = 0.0
    for n, k, c in np.ndindex(2, 3, 2):
        places = [place for place in np.ndindex(4, 5) if inside[(n, *place)]]
        shares = [float(probs[(n, k, *place)]) for place in places]
        values = [float(images[(n, c, *place)]) for place in places]
        mean = sum(p * x for p, x in zip(shares, values, strict=True)) / sum(shares)
        total += sum(p * (x - mean) ** 2 for p, x in zip(shares, values, strict=True)) / 2
    expected = total / int(inside.sum()) + 0.7 * float(mean_total_variation(probs, inside))
    loss = mumford_shah_energy(probs, images, inside, length_weight=0.7)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_regions_of_one_intensity_cost_only_their_borders() -> None:
    mask = torch.zeros(1, 6, 6, dtype=torch.long)
    mask[:, 2:4, 1:5] = 1
    probs = torch.nn.functional.one_hot(mask).permute(0, 3, 1, 2).double()
    images = torch.where(mask == 1, 4.0, -1.0)[:, None].double()
    everywhere = torch.ones_like(mask, dtype=torch.bool)
    assert mumford_shah_energy(probs, images, everywhere, length_weight=0.0) == 0
    loss = mumford_shah_energy(probs, images, everywhere, length_weight=1.0)
    torch.testing.assert_close(loss, mean_total_variation(probs, everywhere))


def test_each_image_has_means_of_its_own() -> None:
    probs, images, inside = example()
    loss = mumford_shah_energy(probs, images, inside, length_weight=0.3)
    shifted = images + torch.tensor([5.0, -3.0]).view(2, 1, 1, 1)
    torch.testing.assert_close(mumford_shah_energy(probs, shifted, inside, length_weight=0.3), loss)


def test_the_gradient_includes_that_of_the_means() -> None:
    """It is 0, since a weighted mean minimises the weighted squares; finite differences agree."""
    probs, images, inside = example()
    logits = probs.log().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: mumford_shah_energy(z.softmax(dim=1), images, inside, length_weight=0.4), (logits,)
    )


def test_pixels_outside_change_nothing_and_get_no_gradient() -> None:
    probs, images, inside = example()
    loss = mumford_shah_energy(probs, images, inside, length_weight=0.5)
    changed = torch.where(inside[:, None], probs, 0.1).requires_grad_()
    other_images = torch.where(inside[:, None], images, 99.0)
    changed_loss = mumford_shah_energy(changed, other_images, inside, length_weight=0.5)
    changed_loss.backward()
    torch.testing.assert_close(changed_loss, loss)
    assert changed.grad is not None
    assert changed.grad.movedim(1, -1)[~inside].abs().max() == 0


def test_a_class_that_is_nowhere_and_an_image_that_is_all_outside_cost_nothing() -> None:
    probs, images, inside = example()
    with_absent = torch.cat((probs, torch.zeros(2, 1, 4, 5)), dim=1)
    torch.testing.assert_close(
        mumford_shah_energy(with_absent, images, inside, length_weight=0.5),
        mumford_shah_energy(probs, images, inside, length_weight=0.5),
    )
    assert mumford_shah_energy(probs, images, torch.zeros_like(inside), length_weight=0.5) == 0
