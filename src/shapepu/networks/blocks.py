"""What the networks share: the convolution block, padding to a usable size, the way weights start."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Gate = Callable[[int, Tensor], Tensor]
"""Takes the number of a decoder map, 0 the coarsest, and the map; what it returns goes on in its place."""


class ConvolutionBlock(nn.Sequential):
    """3x3 convolutions, each with batch normalisation and a (leaky) ReLU; the first may stride.

    Args:
        channels_in: channels that come in.
        channels: channels of every convolution.
        convolutions: how many.
        stride: of the first convolution.
        kernel: of the first convolution; the others are 3x3.
        slope: of the activation below 0; 0 is a ReLU.
    """

    def __init__(
        self,
        channels_in: int,
        channels: int,
        *,
        convolutions: int = 2,
        stride: int = 1,
        kernel: int = 3,
        slope: float = 0.0,
    ) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for i in range(convolutions):
            width, step, came = (kernel, stride, channels_in) if i == 0 else (3, 1, channels)
            padding = (width - 1) // 2
            # Batch normalisation removes the mean, and a bias with it.
            layers[f"convolution{i}"] = nn.Conv2d(came, channels, width, step, padding, bias=False)
            layers[f"norm{i}"] = nn.BatchNorm2d(channels)
            layers[f"activation{i}"] = nn.LeakyReLU(slope, inplace=True) if slope else nn.ReLU(inplace=True)
        super().__init__(layers)


def pad_to_multiple(images: Tensor, multiple: int, minimum: int = 1) -> Tensor:
    """Images (N, C, H, W) with their last rows and columns repeated until both sides are usable.

    Args:
        images: the images; returned as they are when both sides fit.
        multiple: both sides become a multiple of this.
        minimum: both sides become at least this.
    """
    height, width = (max(side, minimum) for side in images.shape[-2:])
    bottom = -(-height // multiple) * multiple - images.shape[-2]
    right = -(-width // multiple) * multiple - images.shape[-1]
    if not bottom and not right:
        return images
    return F.pad(images, (0, right, 0, bottom), mode="replicate")


def start_weights(network: nn.Module, slope: float = 0.0) -> None:
    """Kaiming-normal weights for every convolution of the network, biases 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(module.weight, a=slope, nonlinearity="leaky_relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels (N, H, W) as float32 maps (N, K, H, W); a label that is no class gives zeros."""
    each = torch.arange(classes, device=labels.device, dtype=labels.dtype)
    maps = (labels[:, None] == each[:, None, None]).float()
    return maps.contiguous(memory_format=torch.channels_last)


def as_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Channels of each level as a tuple of integers, however a configuration file spelt them."""
    return tuple(int(width) for width in widths)
