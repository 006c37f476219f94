"""The paper's U-Net has the paper's shape."""

from __future__ import annotations

import torch
from torch import nn

from shapepu.networks import UNet, UNetConfig


def test_the_defaults_are_64_to_1024_channels_and_31_million_parameters() -> None:
    with torch.device("meta"):
        network = UNet(1, 4)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert [c.out_channels for c in convolutions] == [
        *(64, 64, 128, 128, 256, 256, 512, 512, 1024, 1024),
        *(512, 512, 256, 256, 128, 128, 64, 64),
    ]
    assert 30.9e6 < sum(p.numel() for p in network.parameters()) < 31.2e6


def test_every_level_halves_the_map_and_doubles_it_again() -> None:
    with torch.device("meta"):
        maps = UNet(1, 4).features(torch.empty(1, 1, 224, 224))
    assert [tuple(m.shape[1:]) for m in maps] == [
        (1024, 14, 14),
        (512, 28, 28),
        (256, 56, 56),
        (128, 112, 112),
        (64, 224, 224),
    ]


def test_a_size_that_is_no_multiple_of_the_stride_is_padded_by_repetition() -> None:
    network = UNet(1, 3, UNetConfig((4, 8, 8))).eval()
    images = torch.randn(1, 1, 13, 18)
    padded = nn.functional.pad(images, (0, 2, 0, 3), mode="replicate")
    assert torch.equal(network(images), network(padded)[..., :13, :18])


def test_one_level_is_two_convolutions() -> None:
    assert UNet(2, 3, UNetConfig((4,)))(torch.randn(1, 2, 5, 5)).shape == (1, 3, 5, 5)
