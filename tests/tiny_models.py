"""Models of a few hundred weights, and one whose answer can be worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from shapepu.bundle import Bundle, BundleSpec
from shapepu.data.preprocess import Preprocessing
from shapepu.labels import LabelSet, plain_labels
from shapepu.methods import Method, Task, build_method, find_method
from shapepu.methods.base import NetworkBuilder
from shapepu.methods.pce import PCE, PCEConfig
from shapepu.networks import NETWORKS, FastUNetConfig

HEART = plain_labels(["rv", "myo", "lv"])


def tiny_spec(
    labels: LabelSet = HEART,
    channels: tuple[str, ...] = ("image",),
    spacing_mm: tuple[float, float] = (1.5, 1.5),
    patch: tuple[int, int] = (32, 32),
) -> BundleSpec:
    return BundleSpec(
        method="pce",
        network="fast_unet",
        labels=labels,
        channels=channels,
        preprocessing=Preprocessing(spacing_mm, patch),
        network_options=FastUNetConfig(widths=(4, 8), convolutions=1),
        provenance={"data": "toy", "training_cases": 3},
    )


def random_method(spec: BundleSpec, seed: int = 0) -> Method:
    """An untrained method whose batch statistics are not those of a fresh network either."""
    torch.manual_seed(seed)

    def build(*, channels: int | None = None, classes: int | None = None) -> nn.Module:
        size = channels or len(spec.channels), classes or spec.labels.count
        return NETWORKS[spec.network].build(*size, spec.network_options)

    count = spec.labels.count
    shares = (1 / count,) * count
    given = "true ratios" in find_method(spec.method).needs
    task = Task(count, len(spec.channels), shares, true_ratios=shares if given else None)
    method = build_method(spec.method, spec.method_options, task, build)
    with torch.no_grad():
        method.train().network(torch.randn(2, len(spec.channels), 32, 32))
    # As the loop and a loaded bundle keep it; the other order would add up in another order.
    return method.eval().to(memory_format=torch.channels_last)


class Bands(nn.Module):
    """Gives each pixel the class of the band its first channel lies in: below the first threshold is 0."""

    def __init__(self, thresholds: tuple[float, ...], sharpness: float = 200.0) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(thresholds))
        self.sharpness = sharpness
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shapes.append(tuple(images.shape))
        value = images[:, :1].float()
        logits = [torch.zeros_like(value)]
        for edge in self.edges:
            logits.append(logits[-1] + self.sharpness * (value - edge))
        return torch.cat(logits, dim=1)


class Sloped(nn.Module):
    """Logits that grow along rows and columns, so that a turned image is answered otherwise."""

    def forward(self, images: Tensor) -> Tensor:
        count, _, height, width = images.shape
        rows = torch.linspace(-3, 3, height)[:, None].expand(count, 1, height, width)
        columns = torch.linspace(-2, 1, width)[None].expand(count, 1, height, width)
        return torch.cat([torch.zeros_like(rows), rows, columns, images[:, :1].float()], dim=1)


@dataclass(frozen=True)
class _Wrapped:
    network: nn.Module

    def __call__(self) -> nn.Module:
        return self.network


def bundle_around(network: nn.Module, spec: BundleSpec | None = None, **changes: object) -> Bundle:
    """A bundle that predicts with ``network``, which need not be one of the registered ones."""
    spec = replace(spec or tiny_spec(), **changes)
    builder: NetworkBuilder = _Wrapped(network)
    count = spec.labels.count
    method = PCE(PCEConfig(), Task(count, len(spec.channels), (1 / count,) * count), builder).eval()
    return Bundle(method, spec, Path("nowhere"), "0" * 64)
