"""The autoencoder of segmentations: any size, no skips, and trained on masks it mends what was damaged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shapepu.data.degrade import Degradation, degrade, draw_degradation
from shapepu.data.phantom import LABELS, PhantomSettings, make_case
from shapepu.losses import partial_dice_loss
from shapepu.networks.blocks import one_hot
from shapepu.networks.denoiser import Denoiser

CLASSES = LABELS.count
DAMAGE = Degradation(radius=2, swap_reach=3)
HEARTS = PhantomSettings(size_px=(32, 32), slices=(6, 6), spacing_mm=(3.6, 3.8), neighbours=False)


def heart_masks(first: int, count: int) -> Tensor:
    """Slices of ``count`` hearts that show all structures."""
    masks = torch.cat([torch.from_numpy(make_case(first + i, HEARTS).mask) for i in range(count)])
    return masks[[len(mask.unique()) == CLASSES for mask in masks]]


def dice(labels: Tensor, truth: Tensor) -> float:
    """Mean over the structures."""
    scores = [
        2 * ((labels == c) & (truth == c)).sum() / ((labels == c).sum() + (truth == c).sum())
        for c in range(1, CLASSES)
    ]
    return float(torch.stack(scores).mean())


@pytest.mark.parametrize("size", [(32, 32), (21, 34), (1, 3)])
def test_logits_have_the_size_of_the_maps(size: tuple[int, int]) -> None:
    network = Denoiser(3, (4, 8))
    assert network(torch.rand(2, 3, *size)).shape == (2, 3, *size)


def test_nothing_passes_but_through_the_coarsest_map() -> None:
    """With a skip, what is fine would be copied, damage included."""
    torch.manual_seed(0)
    network = Denoiser(3, (4, 8, 8)).eval()
    maps = torch.rand(1, 3, 32, 32)
    expected = network(maps)
    network.down[-1].register_forward_hook(lambda module, arguments, output: torch.zeros_like(output))
    silent = network(maps)
    assert (expected - silent).abs().max() > 1e-3
    torch.testing.assert_close(silent, network(1 - maps))


def test_trained_on_masks_alone_it_brings_damaged_ones_of_others_closer_to_the_truth() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    masks, others = heart_masks(0, 24), heart_masks(100, 8)
    assert len(others) >= 16
    network = Denoiser(CLASSES, (16, 32))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    harm = draw_degradation(DAMAGE, len(others), CLASSES, torch.Generator().manual_seed(1))
    damaged = degrade(others, CLASSES, harm)
    for _ in range(60):
        chosen = masks[torch.randint(len(masks), (8,), generator=generator)]
        seen = degrade(chosen, CLASSES, draw_degradation(DAMAGE, 8, CLASSES, generator))
        probs = network(one_hot(seen, CLASSES)).softmax(dim=1)
        optimiser.zero_grad()
        partial_dice_loss(probs, chosen, torch.ones_like(chosen, dtype=torch.bool)).backward()
        optimiser.step()
    network.eval()
    with torch.no_grad():
        mended = network(one_hot(damaged, CLASSES)).argmax(dim=1)
    assert dice(damaged, others) < 0.7
    assert dice(mended, others) > dice(damaged, others) + 0.05, dice(mended, others)
