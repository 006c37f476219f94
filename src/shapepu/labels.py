"""The label convention, stated once.

Inside the package a pixel's label is 0..K-1 for the K classes (0 is background), K for *unlabelled* and
:data:`OUTSIDE` where a fixed-size array reaches beyond the image. In files the values may differ (a drawing
tool may use 0 for "not drawn yet"); a :class:`LabelSet` translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shapepu.errors import InputError

OUTSIDE = 255
"""Label of a pixel that lies beyond the image: no loss, estimate or score may count it."""

MAX_CLASSES = 250


@dataclass(frozen=True)
class LabelSet:
    """Class names and the integers that stand for them in files.

    Args:
        names: one name a class; the first is the background.
        values: the integer of each class in files; 0..K-1 when empty.
        unlabelled_value: the integer of unlabelled pixels in files; K (nnU-Net's "ignore") when negative.
    """

    names: tuple[str, ...]
    values: tuple[int, ...] = ()
    unlabelled_value: int = -1

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) <= MAX_CLASSES:
            raise InputError(
                f"a label set needs 2 to {MAX_CLASSES} classes, background included; got {self.names}."
            )
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        object.__setattr__(self, "values", tuple(self.values) or tuple(range(len(self.names))))
        if self.unlabelled_value < 0:
            object.__setattr__(self, "unlabelled_value", max(self.values) + 1)
        if len(self.values) != len(self.names):
            raise InputError(f"{len(self.names)} class names but {len(self.values)} values: {self.values}.")
        if len({*self.values, self.unlabelled_value}) != len(self.values) + 1:
            raise InputError(
                f"each class and 'unlabelled' needs a value of its own; got {self.values} and "
                f"unlabelled {self.unlabelled_value}."
            )

    @property
    def count(self) -> int:
        """K, the number of classes, background included."""
        return len(self.names)

    @property
    def unlabelled(self) -> int:
        """The label of an unlabelled pixel inside the package."""
        return self.count

    @property
    def foreground(self) -> tuple[str, ...]:
        return self.names[1:]

    @property
    def is_plain(self) -> bool:
        """Whether the integers in files are the labels used inside the package."""
        return self.values == tuple(range(self.count)) and self.unlabelled_value == self.unlabelled

    def unexpected(self, file_values: NDArray) -> list[float]:
        """Values of an array read from a file that stand for nothing in this set, in rising order."""
        found = np.unique(file_values)
        return [float(v) for v in found[~np.isin(found, [*self.values, self.unlabelled_value])]]

    def from_file(self, file_values: NDArray) -> NDArray[np.uint8]:
        """Labels 0..K from the integers of a file; callers reject unexpected values first."""
        labels = np.full(file_values.shape, self.unlabelled, dtype=np.uint8)
        for label, value in enumerate(self.values):
            labels[file_values == value] = label
        return labels

    def to_file(self, labels: NDArray) -> NDArray[np.uint8 | np.int16 | np.int32]:
        """The integers of a file from labels 0..K."""
        table = np.array([*self.values, self.unlabelled_value])
        kinds = (np.uint8, np.int16, np.int32)
        fitting = next(kind for kind in kinds if np.array_equal(table.astype(kind), table))
        return table.astype(fitting)[labels]

    def as_dict(self) -> dict[str, int]:
        """Name to value, as in ``dataset.json`` and ``model.json``; "ignore" is the unlabelled value."""
        return {**dict(zip(self.names, self.values, strict=True)), "ignore": self.unlabelled_value}

    @classmethod
    def from_dict(cls, labels: dict[str, int]) -> LabelSet:
        """The inverse of :meth:`as_dict`; "ignore" and "unlabelled" both name the unlabelled value.

        The order of a file does not tell the background: that is the class called so, in capitals or not, or
        else the one with the value 0.
        """
        unlabelled = [int(v) for k, v in labels.items() if k in ("ignore", "unlabelled")]
        classes = {k: int(v) for k, v in labels.items() if k not in ("ignore", "unlabelled")}
        if unlabelled and unlabelled[0] < 0:
            raise InputError(
                f"the unlabelled value must be 0 or more, got {unlabelled[0]}; give unlabelled voxels "
                "another one, in the label files too."
            )
        declared = cls(tuple(classes), tuple(classes.values()), unlabelled[0] if unlabelled else -1)
        background = declared._background()
        names = (background, *(name for name in classes if name != background))
        return replace(declared, names=names, values=tuple(classes[name] for name in names))

    def _background(self) -> str:
        """The class that is the background, wherever it stands."""
        called_so = [name for name in self.names if name.casefold() == "background"]
        zero = [name for name, value in zip(self.names, self.values, strict=True) if value == 0]
        for found in (called_so, zero):
            if len(found) == 1:
                return found[0]
        classes = ", ".join(f"{name} {value}" for name, value in zip(self.names, self.values, strict=True))
        raise InputError(
            f"one class must be called 'background' or have the value 0, but the classes are {classes}; add "
            "the background, or call it so."
        )


def plain_labels(foreground: Sequence[str]) -> LabelSet:
    """Background and the given structures, numbered 0, 1, 2, ... with the next integer for unlabelled."""
    return LabelSet(("background", *foreground))
