"""The paper's U-Net."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.networks.blocks import ConvolutionBlock, Gate, as_widths, pad_to_multiple, start_weights


@dataclass(frozen=True)
class UNetConfig:
    """Shape of a :class:`UNet`: the channels of each level, from full resolution down."""

    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", as_widths(self.widths))
        if not self.widths or min(self.widths) < 1:
            raise InputError(f"unet needs one or more widths of 1 or more; got {self.widths}.")


class UNet(nn.Module):
    """U-Net with batch normalisation: two 3x3 convolutions a level, skips, transposed convolutions upwards.

    Departs from the authors' code, which pads the image by 92 pixels on each side and convolves without
    padding: here each convolution pads its own input. Receptive field and weights are the same; only pixels
    near the border see other zeros, and nothing is computed that is cropped away later.

    Takes images (N, C, H, W) of any height and width, and returns logits (N, K, H, W).

    Reference: Baumgartner et al., "An exploration of 2D and 3D deep learning techniques for cardiac MR image
    segmentation", STACOM 2017; Ronneberger et al., MICCAI 2015.
    """

    def __init__(self, channels: int, classes: int, config: UNetConfig | None = None) -> None:
        super().__init__()
        self.config = config or UNetConfig()
        widths = self.config.widths
        came = (channels, *widths[:-1])
        self.down = nn.ModuleList(ConvolutionBlock(came[i], widths[i]) for i in range(len(widths)))
        self.pool = nn.MaxPool2d(2)
        upwards = list(reversed(range(len(widths) - 1)))
        self.lift = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in upwards)
        self.up = nn.ModuleList(ConvolutionBlock(2 * widths[i], widths[i]) for i in upwards)
        self.head = nn.Conv2d(widths[0], classes, 1)
        start_weights(self)

    @property
    def feature_channels(self) -> tuple[int, ...]:
        """Channels of each map :meth:`features` returns."""
        return tuple(reversed(self.config.widths))

    @property
    def feature_strides(self) -> tuple[int, ...]:
        """Pixels of the image along a side of a position of each map."""
        return tuple(2**i for i in reversed(range(len(self.config.widths))))

    def features(self, images: Tensor, gate: Gate | None = None) -> list[Tensor]:
        """The decoder's maps from the coarsest to full resolution, each twice as large as the one before.

        Map i stands for the images, padded to a multiple of the total stride, with a stride of
        ``2 ** (len(widths) - 1 - i)``. A ``gate`` may change each map but the coarsest before it goes on
        upwards.
        """
        return self._rise(self.encode(images), gate)

    def encode(self, images: Tensor) -> list[Tensor]:
        """The maps of the way down, from full resolution to the coarsest."""
        stride = 2 ** (len(self.config.widths) - 1)
        # A map of one pixel has no statistics to normalise by, so the coarsest has 2x2 or more.
        x = pad_to_multiple(images, stride, minimum=2 * stride)
        skips = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skips.append(x)
        return skips

    def decode(self, skips: Sequence[Tensor], size: tuple[int, int], gate: Gate | None = None) -> Tensor:
        """Logits (N, K, *size) from what :meth:`encode` returned for images of that height and width."""
        logits: Tensor = self.head(self._rise(skips, gate)[-1])
        return logits[..., : size[0], : size[1]]

    def _rise(self, skips: Sequence[Tensor], gate: Gate | None) -> list[Tensor]:
        maps = [skips[-1]]
        steps = zip(self.lift, self.up, reversed(skips[:-1]), strict=True)
        for i, (lift, block, skip) in enumerate(steps, 1):
            x = block(torch.cat((skip, lift(maps[-1])), dim=1))
            maps.append(x if gate is None else gate(i, x))
        return maps

    def forward(self, images: Tensor, gate: Gate | None = None) -> Tensor:
        return self.decode(self.encode(images), (images.shape[-2], images.shape[-1]), gate)
