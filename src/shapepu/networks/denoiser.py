"""A network that sees segmentations, no images, and returns what they were meant to be."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from shapepu.networks.blocks import ConvolutionBlock, pad_to_multiple, start_weights

SLOPE = 0.01


class Denoiser(nn.Module):
    """A convolutional autoencoder without skips: what is fine must come out of what is coarse.

    Takes class maps (N, K, H, W) of any height and width and returns logits of the same size.

    Args:
        classes: K.
        widths: channels of each level, the first at half the resolution.
    """

    def __init__(self, classes: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        came = (classes, *widths[:-1])
        self.down = nn.Sequential(
            *(
                ConvolutionBlock(came[i], widths[i], convolutions=1, stride=2, slope=SLOPE)
                for i in range(len(widths))
            )
        )
        upwards = [(widths[i + 1], widths[i]) for i in reversed(range(len(widths) - 1))]
        self.up = nn.ModuleList(
            ConvolutionBlock(coarse, fine, convolutions=1, slope=SLOPE) for coarse, fine in upwards
        )
        self.head = nn.Conv2d(widths[0], classes, 3, padding=1)
        self.stride = 2 ** len(widths)
        start_weights(self, SLOPE)

    def forward(self, class_maps: Tensor) -> Tensor:
        # A map of one pixel has no statistics to normalise by.
        features = self.down(pad_to_multiple(class_maps, self.stride, minimum=2 * self.stride))
        for block in self.up:
            features = F.interpolate(block(features), scale_factor=2, mode="nearest")
        # At full resolution: a layer that writes the four pixels of a position by weights of their own can
        # lose a class in one of them for good, and leaves a grid of holes.
        logits = self.head(F.interpolate(features, scale_factor=2, mode="nearest"))
        return logits[..., : class_maps.shape[-2], : class_maps.shape[-1]]
