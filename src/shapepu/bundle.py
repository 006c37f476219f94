"""The model bundle: a folder that holds everything prediction needs, and nothing that could run code.

``model.json`` says what the model is; ``weights.safetensors`` holds the numbers of the modules that predict.
A bundle may come from a stranger, so nothing in it is believed before it is checked: no pickle is opened,
sizes are compared before memory is taken, and the weights must be those that ``model.json`` was written with.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from shapepu.bundle_spec import BundleSpec, description_text, first_line, read_description
from shapepu.errors import InputError
from shapepu.files import atomic_path, write_text
from shapepu.methods import Method, Task, build_method, find_method
from shapepu.networks import find_network
from shapepu.zoo import shipped_models

__all__ = ["Bundle", "BundleSpec", "load_bundle", "save_bundle"]

DESCRIPTION, WEIGHTS = "model.json", "weights.safetensors"

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")
"""Endings of files that may run any code when they are opened."""

MOST_NUMBERS = 2**30
"""A model of more is a mistake or an attack; the paper's has 3 * 10^7."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """A model that is ready to predict.

    Args:
        method: in evaluation mode, with the modules that predict and no others.
        spec: what it is.
        path: the folder it came from.
        fingerprint: SHA-256 of its weights.
    """

    method: Method
    spec: BundleSpec
    path: Path
    fingerprint: str

    def __str__(self) -> str:
        weights = sum(parameter.numel() for parameter in self.method.parameters())
        structures = ", ".join(self.spec.labels.foreground)
        data = self.spec.provenance.get("data")
        origin = f", trained on {str(data)[:80]}" if data else ""
        return (
            f"{self.spec.method}, {self.spec.network} ({weights / 1e6:.1f} M weights), {structures}{origin}"
        )


def save_bundle(
    folder: str | Path, *, method: Method, spec: BundleSpec, half_precision: bool = False
) -> Path:
    """Write a bundle, whole or not at all; one that is already there is replaced.

    Args:
        folder: of the bundle.
        method: with the weights to keep; only its ``prediction_modules`` travel.
        spec: what the model is.
        half_precision: store kernels as float16, for shipping: half the size, and predictions that agree up
            to rounding. Biases and batch statistics stay float32.
    """
    folder = Path(folder)
    state = {name: _portable(tensor, half_precision) for name, tensor in _prediction_state(method).items()}
    weights = safetensors.torch.save(state)
    description = description_text(spec, hashlib.sha256(weights).hexdigest())
    with atomic_path(folder) as temporary:
        temporary.mkdir()
        write_text(temporary / DESCRIPTION, description)
        with atomic_path(temporary / WEIGHTS) as file:
            file.write_bytes(weights)
        _set_aside(folder)
    shutil.rmtree(_previous(folder), ignore_errors=True)
    return folder


def load_bundle(path: str | Path, device: str | torch.device = "cpu") -> Bundle:
    """The model at ``path``: a bundle, a run folder, or the name of a model that comes with the package."""
    folder = _locate(path)
    spec, fingerprint = read_description(folder / DESCRIPTION)
    method = _build(spec, _read_weights(folder / WEIGHTS, fingerprint), folder)
    # Convolutions here are faster with the channels of a pixel side by side.
    method.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Bundle(method, spec, folder, fingerprint)


def _locate(path: str | Path) -> Path:
    """The folder of the bundle that ``path`` means."""
    given = Path(path)
    if given.suffix.lower() in PICKLES and not given.is_dir():
        raise InputError(
            f"{given}: {given.suffix} files are pickles, which can run any code when opened, so none is ever "
            f"loaded; give a run folder or a model bundle ({DESCRIPTION} and {WEIGHTS})."
        )
    for folder in (given, given / "model"):
        for candidate in (folder, _previous(folder)):
            if (candidate / DESCRIPTION).is_file():
                return candidate
    shipped = shipped_models()
    # What lies here wins, even if it is no model: a shipped one of that name would be a surprise.
    if str(path) in shipped and not given.exists():
        return shipped[str(path)]
    if given.exists():
        also = " To have the shipped model of that name, run this in another folder." * (str(path) in shipped)
        raise InputError(f"{given}: no {DESCRIPTION} in it; give a run folder or a model bundle.{also}")
    known = f"known: {', '.join(shipped)}" if shipped else "give the folder of a run or of a bundle"
    raise InputError(f"{given}: no such run, bundle or shipped model; {known}.")


def _read_weights(path: Path, fingerprint: str) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: missing; a model is {DESCRIPTION} and {WEIGHTS} together.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    if hashlib.sha256(content).hexdigest() != fingerprint:
        raise InputError(
            f"{path}: damaged, or not the weights {DESCRIPTION} was written with; copy the model again."
        )
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a safetensors file ({first_line(error)}).") from error


def _build(spec: BundleSpec, weights: dict[str, Tensor], folder: Path) -> Method:
    """The method with the given weights, after proving on paper that they fit it."""
    with torch.device("meta"), _WithoutDraws():  # takes no memory, whatever the description asks for
        planned = _construct(spec, folder)
    _compare(_prediction_state(planned), weights, folder / WEIGHTS)
    numbers = sum(tensor.numel() for tensor in (*planned.parameters(), *planned.buffers()))
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"{folder / DESCRIPTION}: {numbers:.1g} weights, at most {MOST_NUMBERS:.1g} expected."
        )
    with torch.random.fork_rng(devices=[]), _WithoutDraws():  # the caller's draws stay what they were
        method = _construct(spec, folder)
    for name, module in list(method.named_children()):
        if name not in method.prediction_modules():
            delattr(method, name)
            continue
        module.load_state_dict(
            {key.removeprefix(f"{name}."): w for key, w in weights.items() if key.startswith(f"{name}.")}
        )
    return method.eval().requires_grad_(False)


class _WithoutDraws(TorchFunctionMode):
    """Builds networks without drawing initial weights, which takes most of the time and is overwritten."""

    DRAWS = (
        Tensor.normal_,
        Tensor.uniform_,
        nn.init.normal_,
        nn.init.uniform_,
        nn.init.kaiming_uniform_,
    )

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in self.DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


def _construct(spec: BundleSpec, folder: Path) -> Method:
    def network(*, channels: int | None = None, classes: int | None = None) -> nn.Module:
        build = find_network(spec.network).build
        return build(channels or task.channels, classes or task.classes, spec.network_options)

    classes = spec.labels.count
    shares = (1 / classes,) * classes
    ratios = shares if "true ratios" in find_method(spec.method).needs else None
    task = Task(classes, len(spec.channels), shares, ratios)
    try:
        return build_method(spec.method, spec.method_options, task, network)
    except Exception as error:  # whatever a constructor trips over, the file asked for it
        raise InputError(
            f"{folder / DESCRIPTION}: {spec.method} with {spec.network} cannot be built with these options "
            f"({first_line(error)})."
        ) from error


def _prediction_state(method: Method) -> dict[str, Tensor]:
    return {
        f"{module}.{name}": tensor
        for module in method.prediction_modules()
        for name, tensor in getattr(method, module).state_dict().items()
    }


def _portable(tensor: Tensor, half_precision: bool) -> Tensor:
    """A copy in plain memory order; tied weights would share memory, which the format refuses."""
    copied = tensor.detach().to("cpu", copy=True).contiguous()
    if half_precision and copied.is_floating_point() and copied.ndim > 1:
        halved = copied.half()
        return halved if bool(halved.isfinite().all()) else copied
    return copied


def _compare(expected: dict[str, Tensor], weights: dict[str, Tensor], path: Path) -> None:
    """Refuse weights that are not those of the network, by name, shape or kind, or that are not numbers."""
    for name, wanted in expected.items():
        if name not in weights:
            raise InputError(f"{path}: {name} is missing; the weights are of another network.")
        found = weights[name]
        if found.shape != wanted.shape or found.is_floating_point() != wanted.is_floating_point():
            raise InputError(
                f"{path}: {name} has shape {tuple(found.shape)} and type {found.dtype}, expected "
                f"{tuple(wanted.shape)} and {wanted.dtype}; the weights are of another network."
            )
        if found.is_floating_point() and not bool(found.isfinite().all()):
            raise InputError(f"{path}: {name} holds NaN or infinity: the training had failed; train again.")
    unknown = sorted(set(weights) - set(expected))
    if unknown:
        raise InputError(f"{path}: {unknown[0][:80]} is unknown; the weights are of another network.")


def _set_aside(folder: Path) -> None:
    """Make room for a new bundle.

    A folder cannot be replaced in one step. A kill between the two leaves the old one under a name that
    :func:`load_bundle` knows.
    """
    if folder.exists():
        shutil.rmtree(_previous(folder), ignore_errors=True)
        folder.rename(_previous(folder))


def _previous(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-previous") if folder.name else folder
