"""The autoencoder of segmentations: any size, no skips, and trained on masks it mends what was damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from shapepu.data.degrade import Degradation, degrade, draw_degradation
from shapepu.data.phantom import LABELS, PhantomSettings, make_case
from shapepu.losses import partial_dice_loss
from shapepu.methods.postdae import PostDAEConfig
from shapepu.networks.blocks import one_hot
from shapepu.networks.denoiser import Denoiser

CLASSES = LABELS.count
DAMAGE = Degradation(radius=2, swap_reach=3)
ALL_HARMED = replace(DAMAGE, sound_share=0.0)
HEARTS = PhantomSettings(size_px=(32, 32), slices=(6, 6), spacing_mm=(3.6, 3.8), neighbours=False)


FINE_HEARTS = replace(HEARTS, size_px=(96, 96), spacing_mm=(1.4, 1.5))


def heart_masks(first: int, count: int, hearts: PhantomSettings = HEARTS) -> Tensor:
    """Slices of ``count`` hearts that show all structures."""
    masks = torch.cat([torch.from_numpy(make_case(first + i, hearts).mask) for i in range(count)])
    return masks[[len(mask.unique()) == CLASSES for mask in masks]]


def dice(labels: Tensor, truth: Tensor) -> float:
    """Mean over the structures."""
    scores = [
        2 * ((labels == c) & (truth == c)).sum() / ((labels == c).sum() + (truth == c).sum())
        for c in range(1, CLASSES)
    ]
    return float(torch.stack(scores).mean())


def trained(masks: Tensor, widths: tuple[int, ...], damage: Degradation, *, steps: int) -> Denoiser:
    """A denoiser that has seen damaged masks and learnt the sound ones."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    network = Denoiser(CLASSES, widths)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        chosen = masks[torch.randint(len(masks), (8,), generator=generator)]
        seen = degrade(chosen, CLASSES, draw_degradation(damage, 8, CLASSES, generator))
        probs = network(one_hot(seen, CLASSES)).softmax(dim=1)
        optimiser.zero_grad()
        partial_dice_loss(probs, chosen, torch.ones_like(chosen, dtype=torch.bool)).backward()
        optimiser.step()
        schedule.step()
    return network.eval()


@torch.no_grad()
def mended(network: Denoiser, masks: Tensor) -> Tensor:
    return network(one_hot(masks, network.head.out_channels)).argmax(dim=1)


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


@pytest.mark.parametrize("dimension", [2, 3])
def test_neighbouring_rows_and_columns_never_share_their_logits(dimension: int) -> None:
    """If two did, wherever they are, no boundary could lie between them."""
    torch.manual_seed(0)
    logits = Denoiser(3, (4, 8, 8)).eval()(torch.rand(2, 3, 32, 32))
    apart = logits.diff(dim=dimension).abs().movedim(dimension, 0).flatten(1).amax(dim=1)
    assert len(apart) == 31
    assert apart.min() > 1e-3


def test_a_boundary_may_lie_at_any_row_and_column() -> None:
    side, at = 16, torch.arange(16)
    planes = (at >= torch.arange(4, 13)[:, None]).to(torch.uint8)
    halves = torch.cat([planes[:, None].expand(-1, side, -1), planes[:, :, None].expand(-1, -1, side)])
    torch.manual_seed(0)
    network = Denoiser(2, (8, 16))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(150):
        optimiser.zero_grad()
        cross_entropy(network(one_hot(halves, 2)), halves.long()).backward()
        optimiser.step()
    wrong = (mended(network.eval(), halves) != halves).sum(dim=(1, 2))
    # A boundary that is off by one pixel is one of 16.
    assert wrong.max() < 4, wrong


def test_trained_on_masks_alone_it_brings_damaged_ones_of_others_closer_to_the_truth() -> None:
    masks, others = heart_masks(0, 24), heart_masks(100, 8)
    assert len(others) >= 16
    harm = draw_degradation(ALL_HARMED, len(others), CLASSES, torch.Generator().manual_seed(1))
    damaged = degrade(others, CLASSES, harm)
    network = trained(masks, (16, 32, 64), DAMAGE, steps=120)
    assert dice(damaged, others) < 0.7
    assert dice(mended(network, damaged), others) > dice(damaged, others) + 0.05


@pytest.mark.slow
def test_sound_masks_of_others_survive_the_denoiser_that_a_run_has_by_default() -> None:
    masks, others = heart_masks(0, 35, FINE_HEARTS), heart_masks(100, 8, FINE_HEARTS)
    config = PostDAEConfig()
    network = trained(masks, config.widths, config.degradation, steps=200)
    assert dice(mended(network, others), others) > 0.9
