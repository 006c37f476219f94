"""Attention gates: they start even, multiply what goes upwards, and learn through what they multiply."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.networks import FastUNet, FastUNetConfig, UNet, UNetConfig
from shapepu.networks.attention_unet import AttentionUNet, attention, class_pyramid
from shapepu.networks.blocks import one_hot

CLASSES = 3
BACKBONES = {
    "fast_unet": lambda: FastUNet(1, CLASSES, FastUNetConfig((8, 12, 16))),
    "unet": lambda: UNet(1, CLASSES, UNetConfig((8, 12, 16))),
}

every_backbone = pytest.mark.parametrize("backbone", BACKBONES)


def gated(backbone: str) -> AttentionUNet:
    torch.manual_seed(0)
    return AttentionUNet(BACKBONES[backbone](), CLASSES)


def images(side: int = 32, count: int = 2) -> Tensor:
    return torch.randn(count, 1, side, side, generator=torch.Generator().manual_seed(0))


@every_backbone
@pytest.mark.parametrize("size", [(32, 32), (31, 22), (5, 9)])
def test_there_is_a_class_map_for_each_stride_with_sides_rounded_up(
    backbone: str, size: tuple[int, int]
) -> None:
    network = gated(backbone)
    maps = network(torch.randn(2, 1, *size))
    assert network.strides[0] == 1
    assert len(network.strides) >= 2
    expected = [(2, CLASSES, -(-size[0] // s), -(-size[1] // s)) for s in network.strides]
    assert [tuple(each.shape) for each in maps] == expected


@every_backbone
def test_gates_start_even_and_show_every_class_alike(backbone: str) -> None:
    with torch.no_grad():
        for logits in gated(backbone)(images())[1:]:
            torch.testing.assert_close(attention(logits), torch.full_like(logits[:, :1], 1 - 1 / CLASSES))


def test_attention_is_the_probability_of_any_structure_by_hand() -> None:
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])
    found = attention(probs.log().T[None, :, None, :])
    torch.testing.assert_close(found, torch.tensor([0.3, 0.75]).view(1, 1, 1, 2))


def test_attention_keeps_what_is_left_where_background_is_certain() -> None:
    found = attention(torch.tensor([40.0, 0.0, 0.0]).view(1, 3, 1, 1))
    assert float(found) == pytest.approx(2 * torch.tensor(-40.0).exp().item(), rel=1e-4)


@every_backbone
def test_a_gate_that_is_shut_lets_nothing_pass_of_what_came_from_below(backbone: str) -> None:
    network = gated(backbone).eval()
    passed: dict[int, Tensor] = {}

    def watched(module: nn.Module, arguments: tuple) -> None:
        inner = arguments[1]
        passed.clear()

        def gate(depth: int, features: Tensor) -> Tensor:
            passed[depth] = inner(depth, features)
            return passed[depth]

        return (arguments[0], gate)  # type: ignore[return-value]

    network.backbone.register_forward_pre_hook(watched)
    network(images())
    assert all(each.abs().max() > 1e-3 for each in passed.values())
    with torch.no_grad():
        for classifier in network.classifiers:
            classifier.bias[0] = 40.0  # type: ignore[index, operator]
    network(images())
    for depth in range(1, len(network.classifiers) + 1):
        assert passed[depth].abs().max() < 1e-12
    assert passed[len(network.classifiers) + 1].abs().max() > 1e-3


@every_backbone
def test_the_gates_learn_from_the_full_resolution_too(backbone: str) -> None:
    """Nothing else tells them where to look while no loss is on the coarser maps."""
    network = gated(backbone)
    network(images())[0].square().mean().backward()
    for classifier in network.classifiers:
        assert classifier.weight.grad is not None  # type: ignore[union-attr]
        assert classifier.weight.grad.abs().max() > 0  # type: ignore[union-attr, operator]


def test_a_network_that_hides_its_decoder_is_refused() -> None:
    with pytest.raises(InputError, match=r"shows its decoder, which Conv2d does not; take fast_unet or unet"):
        AttentionUNet(nn.Conv2d(1, CLASSES, 1), CLASSES)


def test_the_pyramid_holds_the_class_shares_of_each_position_by_hand() -> None:
    labels = torch.tensor([[[0, 0, 1], [0, 2, 1], [2, 2, 2]]])
    full, half = class_pyramid(one_hot(labels, CLASSES), (1, 2))
    assert torch.equal(full, one_hot(labels, CLASSES))
    # The positions on the right and at the bottom reach beyond the image: 2, 2 and 1 pixels lie inside.
    expected = torch.tensor([[[0.75, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]], [[0.25, 0.0], [1.0, 1.0]]])
    torch.testing.assert_close(half[0], expected)


@every_backbone
def test_the_pyramid_has_the_sizes_of_the_network(backbone: str) -> None:
    network = gated(backbone)
    for size in ((32, 32), (31, 22), (5, 9)):
        drawn = class_pyramid(one_hot(torch.zeros(1, *size, dtype=torch.uint8), CLASSES), network.strides)
        predicted = network(torch.randn(1, 1, *size).expand(2, -1, -1, -1))
        assert [each.shape[-2:] for each in drawn] == [each.shape[-2:] for each in predicted]
        torch.testing.assert_close(drawn[-1].sum(dim=1), torch.ones(drawn[-1][:, 0].shape))
