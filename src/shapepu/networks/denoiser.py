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
        self.up = nn.Sequential(*(_rise(coarse, fine) for coarse, fine in upwards))
        self.head = nn.Conv2d(widths[0], classes, 3, padding=1)
        self.stride = 2 ** len(widths)
        start_weights(self, SLOPE)

    def forward(self, class_maps: Tensor) -> Tensor:
        # A map of one pixel has no statistics to normalise by.
        padded = pad_to_multiple(class_maps, self.stride, minimum=2 * self.stride)
        halved = self.head(self.up(self.down(padded)))
        # Interpolated, so that a boundary may lie at any pixel. A layer that writes the four pixels of a
        # position by weights of their own can lose a class in one of them for good: a grid of holes.
        logits = F.interpolate(halved, scale_factor=2, mode="bilinear")
        return logits[..., : class_maps.shape[-2], : class_maps.shape[-1]]


def _rise(coarse: int, fine: int) -> nn.Sequential:
    """To twice the resolution and a block there, so that the last one works at half that of the image."""
    return nn.Sequential(
        # Fewer channels before there are more positions: a quarter of the price.
        nn.Conv2d(coarse, fine, 1, bias=False),
        nn.Upsample(scale_factor=2, mode="nearest"),
        ConvolutionBlock(fine, fine, convolutions=1, slope=SLOPE),
    )
