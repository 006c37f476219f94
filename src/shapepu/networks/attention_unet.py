"""A U-Net whose decoder names the classes at several depths and looks closer where it found a structure."""

from __future__ import annotations

from typing import Protocol, cast

from torch import Tensor, nn

from shapepu.errors import InputError
from shapepu.networks.blocks import Gate


class GatedDecoder(Protocol):
    """What the backbone of an :class:`AttentionUNet` must offer, as ``FastUNet`` and ``UNet`` do."""

    feature_channels: tuple[int, ...]
    feature_strides: tuple[int, ...]

    def __call__(self, images: Tensor, gate: Gate) -> Tensor: ...


class AttentionUNet(nn.Module):
    """Adversarial attention gates on the decoder of another network.

    At each depth between the coarsest map and the finest, a 1x1 convolution turns the decoder's map into
    class maps, and the probability of any structure multiplies the map before it goes on upwards. The gates
    learn what the class maps learn: nothing tells them where to look but the losses on these.

    Takes images (N, C, H, W) and returns logits (N, K, H / s, W / s), sides rounded up, for each s of
    ``strides``: the full resolution first.

    Reference: Valvano et al., "Learning to segment from scribbles using multi-scale adversarial attention
    gates", IEEE Transactions on Medical Imaging, 2021.

    Args:
        backbone: its decoder and its head are used as they are.
        classes: K.
    """

    def __init__(self, backbone: nn.Module, classes: int) -> None:
        super().__init__()
        if not (hasattr(backbone, "feature_strides") and hasattr(backbone, "feature_channels")):
            raise InputError(
                f"attention gates need a network that shows its decoder, which {type(backbone).__name__} "
                "does not; take fast_unet or unet."
            )
        self.backbone = backbone
        decoder = cast(GatedDecoder, backbone)
        gated = slice(1, len(decoder.feature_channels) - 1)
        self.classifiers = nn.ModuleList(
            nn.Conv2d(channels, classes, 1) for channels in decoder.feature_channels[gated]
        )
        self.strides = (1, *reversed(decoder.feature_strides[gated]))
        # Attention that is even over the image lets the backbone start as it would by itself.
        for classifier in self.classifiers:
            for parameter in classifier.parameters():
                nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> list[Tensor]:
        coarse: list[Tensor] = []

        def gate(depth: int, features: Tensor) -> Tensor:
            if depth > len(self.classifiers):  # the finest map, of which the head makes the full resolution
                return features
            logits = self.classifiers[depth - 1](features)
            coarse.append(logits)
            return features * attention(logits).to(features.dtype)

        finest = cast(GatedDecoder, self.backbone)(images, gate)
        maps = []
        for logits, stride in zip((finest, *reversed(coarse)), self.strides, strict=True):
            # Networks pad what does not divide; positions that stand for padding alone are left out.
            height, width = (-(-side // stride) for side in images.shape[-2:])
            maps.append(logits[..., :height, :width])
        return maps


def attention(logits: Tensor) -> Tensor:
    """The probability of any structure, 1 less that of the background, (N, 1, H, W) in float32."""
    # The sum of the others and not the difference, which would lose what is left where background is certain.
    return logits.float().softmax(dim=1)[:, 1:].sum(dim=1, keepdim=True)


def class_pyramid(class_maps: Tensor, strides: tuple[int, ...]) -> list[Tensor]:
    """Class maps (N, K, H, W) in the sizes of an :class:`AttentionUNet`: the class shares of each position.

    Args:
        class_maps: at full resolution, one-hot or soft.
        strides: rising powers of 2, from 1.
    """
    pyramid, reached = [class_maps], 1
    for stride in strides[1:]:
        # Positions that reach beyond the image show the share of what lies inside.
        coarser = nn.functional.avg_pool2d(pyramid[-1], stride // reached, ceil_mode=True)
        pyramid.append(coarser)
        reached = stride
    return pyramid
