"""Train a medical image segmentation model from scribbles alone, and know how good it is.

    import shapepu
    model = shapepu.train("DATA", method="shapepu", minutes=15)
    labels = model.predict("image.nii.gz")
    scores = shapepu.evaluate("PREDICTIONS", "REFERENCES")

Names are imported when they are first used, so that a help text need not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from shapepu._version import __version__

if TYPE_CHECKING:
    from shapepu.api import load, resume, train
    from shapepu.data.case import Case, Dataset
    from shapepu.data.readers import read_dataset
    from shapepu.errors import InputError
    from shapepu.evaluation.scoring import evaluate
    from shapepu.labels import LabelSet
    from shapepu.model import Model

_HOMES = {
    "Case": "shapepu.data.case",
    "Dataset": "shapepu.data.case",
    "InputError": "shapepu.errors",
    "LabelSet": "shapepu.labels",
    "Model": "shapepu.model",
    "evaluate": "shapepu.evaluation.scoring",
    "load": "shapepu.api",
    "read_dataset": "shapepu.data.readers",
    "resume": "shapepu.api",
    "train": "shapepu.api",
}

__all__ = [
    "Case",
    "Dataset",
    "InputError",
    "LabelSet",
    "Model",
    "__version__",
    "evaluate",
    "load",
    "read_dataset",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'shapepu' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
