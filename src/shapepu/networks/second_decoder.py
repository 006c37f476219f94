"""A second decoder on the encoder of another network: two opinions for little more than the price of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from shapepu.errors import InputError


class EncoderDecoder(Protocol):
    """What a network must offer to lend its encoder or its decoder; ``FastUNet`` and ``UNet`` do.

    All weights of its encoder are in ``down``.
    """

    down: nn.ModuleList

    def encode(self, images: Tensor) -> list[Tensor]: ...

    def decode(self, skips: Sequence[Tensor], size: tuple[int, int]) -> Tensor: ...


class SecondDecoder(nn.Module):
    """The decoder of ``donor``, on the encoder of whichever network is given; its own encoder is thrown away.

    In training, dropout on every map that the encoder hands over keeps it from agreeing with the first
    decoder out of habit.

    Args:
        donor: of the same class and configuration as the network whose encoder it will share.
        dropout: the chance of each value of the encoder's maps to be 0.
    """

    def __init__(self, donor: nn.Module, dropout: float) -> None:
        super().__init__()
        if not all(hasattr(donor, name) for name in ("down", "encode", "decode")):
            raise InputError(
                "a second decoder needs a network whose encoder and decoder can be run apart, which those of "
                f"{type(donor).__name__} cannot; take fast_unet or unet."
            )
        del donor.down
        self.decoder = donor
        self.dropout = dropout

    def forward(self, network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of ``network`` and of this decoder for images (N, C, H, W); the encoder runs once."""
        first, second = cast(EncoderDecoder, network), cast(EncoderDecoder, self.decoder)
        size = (images.shape[-2], images.shape[-1])
        skips = first.encode(images)
        dropped = [_drop(skip, self.dropout) for skip in skips] if self.training else skips
        return first.decode(skips, size), second.decode(dropped, size)


def _drop(maps: Tensor, chance: float) -> Tensor:
    """Each value 0 by that chance, and otherwise as much larger as keeps the mean."""
    # torch's own dropout takes more than twice as long on a processor.
    kept = torch.rand_like(maps, dtype=torch.float32).ge_(chance)
    return maps * kept.div_(1 - chance).to(maps.dtype)
