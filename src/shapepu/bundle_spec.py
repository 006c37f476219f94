"""``model.json``: what a model is, apart from its weights, and how to read it without believing it."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from shapepu.configuration import from_plain, to_plain
from shapepu.data.grid import LARGEST_SIDE
from shapepu.data.preprocess import Preprocessing
from shapepu.errors import InputError
from shapepu.labels import LabelSet
from shapepu.methods import find_method
from shapepu.networks import find_network
from shapepu.predict_options import Views
from shapepu.runfolder import versions

KIND, FORMAT = "shapepu model", 1

LARGEST_OPTION = 2**16
"""No option of a network or method counts anything beyond this."""

MOST_CHANNELS, LONGEST_NAME, LARGEST_FILE = 64, 200, 2**20
LABEL_VALUES = range(-(2**15), 2**16)
"""Those of both kinds of 16-bit integers; drawing tools use 65535 for what is not labelled."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class BundleSpec:
    """What a model is, apart from its weights.

    Args:
        method: a name in the registry of methods.
        network: a name in the registry of networks.
        labels: class names and their values in files.
        channels: names of the image channels.
        preprocessing: with nothing left to plan.
        method_options: the method's ``Config``; its defaults when None.
        network_options: the network's config; its defaults when None.
        averaging: the views of a slice that a prediction is averaged over unless somebody says otherwise.
        provenance: where the model comes from: data, number of cases, recipe, seed, epochs, minutes, date,
            scores. For people; prediction does not read it.
    """

    method: str
    network: str
    labels: LabelSet
    channels: tuple[str, ...]
    preprocessing: Preprocessing
    method_options: Any = None
    network_options: Any = None
    averaging: Views = "none"
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method_options is None:
            object.__setattr__(self, "method_options", find_method(self.method).options())
        if self.network_options is None:
            object.__setattr__(self, "network_options", find_network(self.network).config())
        for problem in self._problems():
            raise InputError(problem)

    def _problems(self) -> Iterator[str]:
        """What must hold of a description that is written as of one that is read."""
        if LabelSet.from_dict(self.labels.as_dict()) != self.labels:
            yield (
                "labels: the background must be the first class, names must differ and none may be 'ignore'; "
                f"got {', '.join(map(str, self.labels.names))}."
            )
        if not all(value in LABEL_VALUES for value in self.labels.as_dict().values()):
            yield (
                f"labels: whole numbers of 16 bits expected, got {self.labels.as_dict()}; give these voxels "
                "other values, in the label files too."
            )
        if not 1 <= len(self.channels) <= MOST_CHANNELS:
            yield f"channels: 1 to {MOST_CHANNELS} expected, got {len(self.channels)}."
        for name in (*self.labels.names, *self.channels):
            if not _can_be_shown(name):
                yield (
                    f"{str(name)[:60]!r} is no name for a class or channel: 1 to {LONGEST_NAME} characters "
                    "that can be shown are expected; choose another."
                )
        for where, options in (("method", self.method_options), ("network", self.network_options)):
            for number in _numbers(to_plain(options)):
                # Written so that NaN is out of range, too.
                if not abs(number) <= LARGEST_OPTION:
                    yield f"{where}_options: {str(number)[:20]} is out of range (at most {LARGEST_OPTION})."
        if self.averaging not in get_args(Views):
            yield (
                f"averaging: expected one of {', '.join(get_args(Views))}, got {str(self.averaging)[:60]!r}; "
                "copy the file again."
            )
        plan = self.preprocessing
        if not plan.resolved:
            yield "preprocessing: spacing_mm, patch or statistics are missing."
        if plan.patch and max(plan.patch) > LARGEST_SIDE:
            yield f"preprocessing.patch: at most {LARGEST_SIDE} pixels expected, got {plan.patch}."
        if plan.intensity == "ct" and len(plan.statistics) != len(self.channels):
            yield f"preprocessing.statistics: {len(self.channels)} channels expected."


def description_text(spec: BundleSpec, fingerprint: str) -> str:
    """The content of ``model.json`` for weights with this SHA-256."""
    description = {
        "kind": KIND,
        "format": FORMAT,
        **{each.name: to_plain(getattr(spec, each.name)) for each in fields(spec)},
        "labels": spec.labels.as_dict(),
        "provenance": _without_nan({"versions": versions(), **spec.provenance}),
        "weights_sha256": fingerprint,
    }
    return json.dumps(description, indent=1, allow_nan=False, default=str) + "\n"


def read_description(path: Path) -> tuple[BundleSpec, str]:
    """The spec and the SHA-256 of the weights from a ``model.json`` that anybody may have written."""
    description = _read_json(path)
    if not isinstance(description, dict) or description.get("kind") != KIND:
        raise InputError(f'{path}: not the description of a model (no "kind": "{KIND}" in it).')
    version = description.get("format")
    if type(version) is not int or version < 1:
        raise InputError(f"{path}: format: expected a whole number from 1, got {str(version)[:60]!r}.")
    if version > FORMAT:
        raise InputError(
            f"{path}: format {version} is of a newer shapepu, this one reads up to {FORMAT}; upgrade it."
        )
    try:
        return _spec_of(description), _entry(description, "weights_sha256", str)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {first_line(error)}") from error


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: larger than {LARGEST_FILE} bytes, so no description of a model.")
        text = path.read_text(encoding="utf-8")
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON ({first_line(error)}); copy it again.") from error


def _spec_of(description: dict[str, Any]) -> BundleSpec:
    method, network = _entry(description, "method", str), _entry(description, "network", str)
    defaults = {
        "method_options": find_method(method).options(),
        "network_options": find_network(network).config(),
    }
    return BundleSpec(
        method=method,
        network=network,
        labels=_label_set(_entry(description, "labels", dict)),
        channels=tuple(_entry(description, "channels", list)),
        preprocessing=from_plain(Preprocessing, _entry(description, "preprocessing", dict), "preprocessing"),
        # Models from before predictions were averaged do not say.
        averaging=description.get("averaging", "none"),
        provenance=_entry(description, "provenance", dict),
        **{
            name: from_plain(type(each), _entry(description, name, dict), name, each)
            for name, each in defaults.items()
        },
    )


def _entry(description: dict[str, Any], name: str, kind: type[Value]) -> Value:
    value = description.get(name)
    if not isinstance(value, kind):
        raise InputError(f"{name}: expected {kind.__name__}, got {str(value)[:60]!r}; copy the file again.")
    return value


def _label_set(labels: dict[str, Any]) -> LabelSet:
    for name, value in labels.items():
        if type(value) is not int:
            raise InputError(f"labels: {name[:60]!r}: expected a whole number, got {str(value)[:60]!r}.")
    return LabelSet.from_dict(labels)


def _can_be_shown(name: object) -> bool:
    """Whether a name may come from a stranger: spaces of any script, but nothing that moves a cursor."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        return False
    return all(sign.isprintable() or unicodedata.category(sign) == "Zs" for sign in name)


def _numbers(value: Any) -> Iterator[float]:
    """All numbers in nested lists and mappings."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)):
        yield value


def _without_nan(value: Any) -> Any:
    """Scores that could not be computed become null: JSON has no word for NaN."""
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def first_line(error: Exception) -> str:
    """What an error says, short enough for a one-line message."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
