"""Networks that judge segmentations: what they see, what holds them back, and what freezing leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shapepu.networks.discriminator import MultiScaleDiscriminator, PatchDiscriminator, frozen

CLASSES, STRIDES = 3, (1, 2, 4)


def pyramid(count: int = 2, side: int = 24, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sides = [-(-side // stride) for stride in STRIDES]
    return [torch.rand(count, CLASSES, each, each, generator=generator) for each in sides]


def multi_scale(noise: float = 0.2) -> MultiScaleDiscriminator:
    torch.manual_seed(0)
    return MultiScaleDiscriminator(CLASSES, STRIDES, width=4, noise=noise)


def largest_singular_value(weight: Tensor) -> float:
    return float(torch.linalg.matrix_norm(weight.detach().flatten(1).double(), 2))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_a_logit_depends_on_its_patch_alone_and_on_all_of_it(levels: int) -> None:
    torch.manual_seed(0)
    network = PatchDiscriminator(CLASSES, width=8, levels=levels)
    maps = torch.rand(1, CLASSES, 96, 96, requires_grad=True)
    logits = network(maps)
    middle = logits.shape[-1] // 2
    (seen,) = torch.autograd.grad(logits[0, 0, middle, middle], maps)
    rows = seen[0].abs().sum(dim=(0, 2)).nonzero().flatten()
    assert int(rows.max() - rows.min()) + 1 == 2 ** (levels + 2) - 1
    assert logits.shape[-1] == 96 // 2**levels


def test_segmentations_of_a_batch_are_judged_one_by_one() -> None:
    torch.manual_seed(0)
    patch, whole = PatchDiscriminator(CLASSES, width=4, levels=2), multi_scale().eval()
    maps = pyramid(3)
    torch.testing.assert_close(patch(maps[0])[:1], patch(maps[0][:1]))
    for _ in range(2):
        torch.testing.assert_close(whole(maps)[:1], whole([each[:1] for each in maps]))
    assert whole(maps).shape == (3,)


@pytest.mark.parametrize("scale", range(len(STRIDES)))
def test_every_resolution_is_looked_at(scale: int) -> None:
    network, maps = multi_scale().eval(), pyramid()
    before = network(maps)
    changed = [each.flip(1) if i == scale else each for i, each in enumerate(maps)]
    assert (network(changed) - before).abs().min() > 1e-5


def test_sides_that_do_not_divide_are_judged_too() -> None:
    assert multi_scale()(pyramid(side=21)).shape == (2,)


def test_all_weights_have_spectral_norm_1_however_large_they_have_become() -> None:
    network = multi_scale(noise=0.0).train()
    layers = [*network.down, network.head]
    assert len(layers) == len(STRIDES) + 1
    for layer in layers:
        with torch.no_grad():
            layer.parametrizations.weight.original.mul_(50)  # type: ignore[union-attr, operator]
    for _ in range(20):  # each pass in training refines the estimate by a step of power iteration
        network(pyramid())
    for layer in layers:
        assert largest_singular_value(layer.weight) == pytest.approx(1, abs=0.02)  # type: ignore[arg-type]


def test_instance_noise_is_added_in_training_only() -> None:
    network, maps = multi_scale(noise=0.3).train(), pyramid()
    torch.manual_seed(1)
    first, second = network._noisy(maps[0]), network._noisy(maps[0])
    assert not torch.equal(first, second)
    drawn = torch.cat([network._noisy(maps[0]) - maps[0] for _ in range(20)])
    assert float(drawn.std()) == pytest.approx(0.3, rel=0.05)
    assert float(drawn.mean()) == pytest.approx(0, abs=0.02)
    network.eval()
    assert torch.equal(network._noisy(maps[0]), maps[0])
    assert torch.equal(network(maps), network(maps))


def test_noise_reaches_the_scores_unless_it_is_0() -> None:
    maps = pyramid()
    noisy, quiet = multi_scale(noise=0.3), multi_scale(noise=0.0)
    for network in (noisy, quiet):
        for layer in (*network.down, network.head):
            layer.parametrizations.eval()  # type: ignore[union-attr, operator]
    assert (noisy(maps) - noisy(maps)).abs().min() > 1e-4
    assert torch.equal(quiet(maps), quiet(maps))


def test_freezing_lets_gradients_through_and_gives_none_to_the_weights() -> None:
    network, maps = multi_scale(noise=0.0), pyramid()
    maps[0].requires_grad_()
    kept = next(network.parameters())
    kept.requires_grad_(False)
    with frozen(network):
        network(maps).sum().backward()
    assert maps[0].grad is not None
    assert maps[0].grad.abs().max() > 0
    assert all(parameter.grad is None for parameter in network.parameters())
    # Afterwards all is as it was, also where an error ended it.
    assert [p.requires_grad for p in network.parameters()] == [p is not kept for p in network.parameters()]
    with pytest.raises(ZeroDivisionError), frozen(network):
        raise ZeroDivisionError
    assert sum(p.requires_grad for p in network.parameters()) == len(list(network.parameters())) - 1
