"""Segmentation networks: images (N, C, H, W) in, logits (N, K, H, W) out, any size, any C and K.

To add one, imitate ``unet.py`` and name it in :data:`NETWORKS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from shapepu.errors import InputError, unknown_name
from shapepu.networks.fast_unet import FastUNet, FastUNetConfig
from shapepu.networks.unet import UNet, UNetConfig

__all__ = [
    "NETWORKS",
    "FastUNet",
    "FastUNetConfig",
    "NetworkEntry",
    "UNet",
    "UNetConfig",
    "build_network",
    "find_network",
]


@dataclass(frozen=True)
class NetworkEntry:
    """A network that can be asked for by name.

    Args:
        build: called with channels, classes and a configuration.
        config: the frozen dataclass of that configuration, where the defaults are.
        summary: one line for listings.
    """

    build: Callable[[int, int, Any], nn.Module]
    config: type
    summary: str


NETWORKS: dict[str, NetworkEntry] = {
    "fast_unet": NetworkEntry(FastUNet, FastUNetConfig, "strided stem, 16 to 256 channels, 1.6 M parameters"),
    "unet": NetworkEntry(UNet, UNetConfig, "the paper's, 64 to 1024 channels, 31 M parameters"),
}


def find_network(name: str) -> NetworkEntry:
    """The registered network called ``name``; an unknown name lists the known ones."""
    if name not in NETWORKS:
        raise unknown_name("network", name, list(NETWORKS))
    return NETWORKS[name]


def build_network(name: str, channels: int, classes: int, **options: Any) -> nn.Module:
    """A network with weights drawn from torch's global generator.

    Args:
        name: a key of :data:`NETWORKS`.
        channels: C, image channels.
        classes: K, classes with the background.
        options: fields of the network's configuration that are not to have their default.
    """
    entry = find_network(name)
    if channels < 1 or classes < 2:
        raise InputError(
            f"a network needs 1 or more channels and 2 or more classes; got {channels}, {classes}."
        )
    known = [field.name for field in fields(entry.config)]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of network {name!r}", option, known)
    return entry.build(channels, classes, entry.config(**options))
