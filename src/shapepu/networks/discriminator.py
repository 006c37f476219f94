"""Networks that tell segmentations of a network from masks that people drew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from shapepu.networks.blocks import start_weights

SLOPE = 0.2
"""Of the leaky ReLU below 0, as in most discriminators since DCGAN: the way back must not be blocked."""

WIDEST = 8
"""Channels double from level to level up to this many times those of the first."""


class PatchDiscriminator(nn.Module):
    """Strided convolutions that judge overlapping patches of a segmentation, each by itself.

    Takes class maps (N, K, H, W) and returns one logit a patch, (N, 1, h, w): high for a drawn mask. There is
    no batch normalisation, because statistics of a batch tell drawn from predicted by themselves.

    Args:
        classes: K.
        width: channels of the first convolution.
        levels: strided convolutions; a patch is 2 ** (levels + 2) - 1 pixels wide.
    """

    def __init__(self, classes: int, *, width: int, levels: int) -> None:
        super().__init__()
        widths = _widths(width, levels)
        layers: list[nn.Module] = []
        for came, channels in zip((classes, *widths), widths, strict=False):
            layers += [nn.Conv2d(came, channels, 3, 2, 1), nn.LeakyReLU(SLOPE, inplace=True)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 3, padding=1))
        start_weights(self, SLOPE)

    def forward(self, class_maps: Tensor) -> Tensor:
        return self.layers(class_maps)


class MultiScaleDiscriminator(nn.Module):
    """One score for each segmentation, from its class maps at several resolutions.

    Coarser maps join where strided convolutions have come down to their resolution. All weights have spectral
    norm 1, and in training the maps carry instance noise: both keep the task from becoming too easy, and so
    the gradient from vanishing.

    Takes class maps (N, K, H / s, W / s), sides rounded up, for each s of ``strides``; returns scores (N,).

    Args:
        classes: K.
        strides: rising powers of 2, from 1.
        width: channels of the first convolution.
        noise: standard deviation of the instance noise.
    """

    def __init__(self, classes: int, strides: Sequence[int], *, width: int, noise: float) -> None:
        super().__init__()
        self.strides, self.noise = tuple(strides), noise
        widths = _widths(width, self.strides[-1].bit_length())
        self.down = nn.ModuleList(
            nn.Conv2d(came + classes * (2**level in self.strides), channels, 3, 2, 1)
            for level, (came, channels) in enumerate(zip((0, *widths), widths, strict=False))
        )
        self.activation = nn.LeakyReLU(SLOPE, inplace=True)
        self.head = nn.Linear(widths[-1], 1)
        start_weights(self, SLOPE)
        for layer in (*self.down, self.head):
            spectral_norm(layer)

    def forward(self, class_maps: Sequence[Tensor]) -> Tensor:
        arriving = dict(zip(self.strides, map(self._noisy, class_maps), strict=True))
        features: list[Tensor] = []
        for level, convolution in enumerate(self.down):
            seen = [*features, arriving[2**level]] if 2**level in arriving else features
            features = [self.activation(convolution(torch.cat(seen, dim=1)))]
        return self.head(features[0].mean(dim=(2, 3)))[:, 0]

    def _noisy(self, class_maps: Tensor) -> Tensor:
        if not self.training or not self.noise:
            return class_maps
        return class_maps + self.noise * torch.randn_like(class_maps)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Let gradients pass through ``network`` without computing any for its weights."""
    learning = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _widths(first: int, levels: int) -> tuple[int, ...]:
    return tuple(first * min(2**level, WIDEST) for level in range(levels))
