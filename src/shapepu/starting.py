"""Starting from the weights of another model, for training on few new cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shapepu.bundle import Bundle, load_bundle
from shapepu.data.case import Dataset
from shapepu.errors import InputError
from shapepu.methods import Method
from shapepu.networks import find_network
from shapepu.settings import TrainSettings


@dataclass(frozen=True, eq=False)
class Start:
    """The weights that the network of a run begins with.

    Args:
        model: where they come from.
        kind: the class of the network; a method may build more around it, which begins anew.
        weights: the tensors of the network to copy, by name.
        anew: names of the others, which belong to classes that the model does not know.
    """

    model: Bundle
    kind: type[nn.Module]
    weights: dict[str, Tensor]
    anew: tuple[str, ...]

    def __str__(self) -> str:
        total = len(self.weights) + len(self.anew)
        copied = f"starting from {self.name}: {len(self.weights)} of {total} tensors of its network copied"
        if not self.anew:
            return copied
        known = ", ".join(self.model.spec.labels.foreground)
        return f"{copied}; {', '.join(self.anew)} start anew, since its classes are others ({known})"

    @property
    def name(self) -> str:
        """Of the run or bundle, without the folders that lead there."""
        path = self.model.path
        return path.parent.name if path.name == "model" else path.name

    @property
    def description(self) -> dict[str, Any]:
        """For the run's config and for the provenance of what it becomes."""
        return {"model": self.name, "weights_sha256": self.model.fingerprint, "anew": list(self.anew)}

    def completed(self, settings: TrainSettings) -> TrainSettings:
        """``settings`` with the pixel size of the model where none was chosen."""
        ours, theirs = settings.preprocessing, self.model.spec.preprocessing
        return replace(settings, preprocessing=replace(ours, spacing_mm=ours.spacing_mm or theirs.spacing_mm))

    def copy_to(self, method: Method) -> None:
        """Let the network of ``method`` begin with these weights."""
        network_of(method, self.kind).load_state_dict(self.weights, strict=False)


def adopt(settings: TrainSettings, model: str | Path) -> TrainSettings:
    """``settings`` to start from ``model``, with its network, pixel size and intensities.

    At another pixel size, or with other intensities, the network would not recognise what it has learned. The
    patch stays to be planned from the new images.
    """
    spec = load_bundle(model).spec
    pixels = {name: getattr(spec.preprocessing, name) for name in ("spacing_mm", "intensity", "statistics")}
    return replace(
        settings,
        start=full_name(model),
        network=spec.network,
        network_options=spec.network_options,
        preprocessing=replace(settings.preprocessing, **pixels),
    )


def full_name(model: str | Path) -> str:
    """What names ``model`` wherever the run is resumed; models that come with the package have no path."""
    return str(Path(model).resolve() if Path(model).exists() else model)


def find_start(settings: TrainSettings, dataset: Dataset) -> Start:
    """The weights that ``settings.start`` names, after proving that they fit the run."""
    assert settings.start is not None
    model = load_bundle(settings.start)
    for problem in _problems(model, settings, dataset):
        raise InputError(f"{settings.start}: {problem}")
    kind = type(_planned(settings, len(dataset.channels), dataset.labels.count))
    anew: tuple[str, ...] = ()
    if model.spec.labels.names != dataset.labels.names:
        anew = _tensors_of_classes(settings, len(dataset.channels))
    state = network_of(model.method, kind).state_dict()
    return Start(model, kind, {name: state[name] for name in state if name not in anew}, anew)


def network_of(method: Method, kind: type[nn.Module]) -> nn.Module:
    """The network of the run in ``method``, which may have put something around it."""
    return next(module for module in method.network.modules() if type(module) is kind)


def _problems(model: Bundle, settings: TrainSettings, dataset: Dataset) -> Iterator[str]:
    spec, channels = model.spec, dataset.channels
    if spec.network != settings.network:
        yield (
            f"its network is {spec.network}, but the run is to train {settings.network}; leave the network "
            "to the model, or do not start from it."
        )
    if len(spec.channels) != len(channels):
        yield (
            f"its channels are {', '.join(spec.channels)}, but those of {dataset.root} are "
            f"{', '.join(channels)}; as many are needed, so start from another model or from none."
        )
    planned = _planned(settings, len(channels), spec.labels.count)
    if _shapes(planned) != _shapes(network_of(model.method, type(planned))):
        options = ", ".join(f"{name} {value}" for name, value in asdict(spec.network_options).items())
        yield (
            f"its network has other options than the run ({options}); leave them to the model, or do not "
            "start from it."
        )


def _tensors_of_classes(settings: TrainSettings, channels: int) -> tuple[str, ...]:
    """Names of the tensors whose size depends on the number of classes: the last layer, in most networks."""
    few, more = (_shapes(_planned(settings, channels, classes)) for classes in (2, 3))
    return tuple(name for name in few if few[name] != more[name])


def _planned(settings: TrainSettings, channels: int, classes: int) -> nn.Module:
    """The network as ``settings`` describe it, without memory for its weights."""
    with torch.device("meta"):
        return find_network(settings.network).build(channels, classes, settings.network_options)


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in network.state_dict().items()}
