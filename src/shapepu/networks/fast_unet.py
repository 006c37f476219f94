"""A small U-Net for training on a CPU within minutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.networks.blocks import ConvolutionBlock, Gate, as_widths, pad_to_multiple, start_weights


@dataclass(frozen=True)
class FastUNetConfig:
    """Shape of a :class:`FastUNet`.

    Args:
        widths: channels of each level, the first at half the resolution of the image. Multiples of 16 use a
            CPU's vector units fully: 16 channels cost half of what 24 do.
        convolutions: 3x3 convolutions a level, on the way down and on the way up.
        slope: of the leaky ReLU below 0.
    """

    widths: tuple[int, ...] = (16, 32, 64, 128, 256)
    convolutions: int = 2
    slope: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "widths", as_widths(self.widths))
        if not self.widths or min(self.widths) < 1 or self.convolutions < 1:
            raise InputError(
                "fast_unet needs one or more widths of 1 or more and 1 or more convolutions; "
                f"got widths {self.widths} and {self.convolutions} convolutions."
            )


class FastUNet(nn.Module):
    """A U-Net that never computes at full resolution, and yet separates neighbouring pixels.

    A strided 4x4 convolution halves the resolution first, and the last layer writes the logits of the four
    pixels that each half-resolution position stands for: the channels of a position hold what the first layer
    saw of these four. Skips are added rather than concatenated, and maps grow by repetition after a 1x1
    convolution at the lower resolution; transposed and wide convolutions cost more than they bring on a CPU.

    Takes images (N, C, H, W) of any height and width, and returns logits (N, K, H, W).
    """

    def __init__(self, channels: int, classes: int, config: FastUNetConfig | None = None) -> None:
        super().__init__()
        self.config = config or FastUNetConfig()
        self.classes = classes
        widths, depth = self.config.widths, self.config.convolutions
        slope = self.config.slope
        came = (channels, *widths[:-1])
        self.down = nn.ModuleList(
            ConvolutionBlock(
                came[i], widths[i], convolutions=depth, stride=2, kernel=3 if i else 4, slope=slope
            )
            for i in range(len(widths))
        )
        upwards = list(reversed(range(len(widths) - 1)))
        self.lift = nn.ModuleList(nn.Conv2d(widths[i + 1], widths[i], 1, bias=False) for i in upwards)
        self.up = nn.ModuleList(
            ConvolutionBlock(widths[i], widths[i], convolutions=depth, slope=slope) for i in upwards
        )
        self.head = nn.Conv2d(widths[0], 4 * classes, 1)
        start_weights(self, slope)
        # The four pixels of a position start with the same weights: no checkerboard has to be unlearned.
        self.head.weight.data = self.head.weight.data[:classes].repeat(4, 1, 1, 1)

    @property
    def feature_channels(self) -> tuple[int, ...]:
        """Channels of each map :meth:`features` returns."""
        return tuple(reversed(self.config.widths))

    @property
    def feature_strides(self) -> tuple[int, ...]:
        """Pixels of the image along a side of a position of each map."""
        return tuple(2 ** (i + 1) for i in reversed(range(len(self.config.widths))))

    def features(self, images: Tensor, gate: Gate | None = None) -> list[Tensor]:
        """The decoder's maps from the coarsest to half resolution, each about twice the one before.

        Map i stands for the images with a stride of ``2 ** (len(widths) - i)``, its sides rounded up. A
        ``gate`` may change each map but the coarsest before it goes on upwards.
        """
        return self._rise(self.encode(images), gate)

    def encode(self, images: Tensor) -> list[Tensor]:
        """The maps of the way down, from half resolution to the coarsest."""
        # A map of one pixel has no statistics to normalise by; one more than the total stride leaves 2x2.
        x = pad_to_multiple(images, 2, minimum=2 ** len(self.config.widths) + 1)
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
        return skips

    def decode(self, skips: Sequence[Tensor], size: tuple[int, int], gate: Gate | None = None) -> Tensor:
        """Logits (N, K, *size) from what :meth:`encode` returned for images of that height and width."""
        logits = _spread(self.head(self._rise(skips, gate)[-1]), self.classes)
        return logits[..., : size[0], : size[1]]

    def _rise(self, skips: Sequence[Tensor], gate: Gate | None) -> list[Tensor]:
        maps = [skips[-1]]
        steps = zip(self.lift, self.up, reversed(skips[:-1]), strict=True)
        for i, (lift, block, skip) in enumerate(steps, 1):
            lifted = F.interpolate(lift(maps[-1]), scale_factor=2, mode="nearest")
            x = block(lifted[..., : skip.shape[-2], : skip.shape[-1]] + skip)
            maps.append(x if gate is None else gate(i, x))
        return maps

    def forward(self, images: Tensor, gate: Gate | None = None) -> Tensor:
        return self.decode(self.encode(images), (images.shape[-2], images.shape[-1]), gate)


def _spread(logits: Tensor, classes: int) -> Tensor:
    """From (N, 4 K, H, W), two rows of two pixels a position, to (N, K, 2 H, 2 W)."""
    count, _, height, width = logits.shape
    # The same as pixel_shuffle with the channels in another order; in channels-last memory one copy does it.
    pixels = logits.permute(0, 2, 3, 1).reshape(count, height, width, 2, 2, classes).transpose(2, 3)
    return pixels.reshape(count, 2 * height, 2 * width, classes).permute(0, 3, 1, 2)
