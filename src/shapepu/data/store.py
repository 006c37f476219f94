"""All slices of a set of cases as memory-mapped arrays, prepared once and kept in the cache.

An entry of the cache is a folder named after the content of the files and the settings that shaped it. A
second start finds it by the remembered digests of the files and maps its arrays; no image is read for that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shapepu.data.cache import FileRecords, cache_folder
from shapepu.data.case import Case
from shapepu.data.grid import SliceGrid
from shapepu.data.preprocess import Preprocessing, fit, reject_unequal_channels
from shapepu.data.store_build import Outline, StoredCase, build_entry, outline_cases
from shapepu.data.store_entry import map_entry, open_entry
from shapepu.data.thinning import thin_scribbles
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE, LabelSet

FORMAT = 2
"""Part of every entry's name; raised whenever the same files and settings would give other arrays."""


@dataclass(frozen=True, eq=False)
class SliceStore:
    """Slices of many cases in fixed-size arrays that are mapped, not loaded, and cannot be written to.

    Args:
        images: (N, C, H, W) float16, standardised.
        labels: (N, H, W) scribbles: 0..K-1, K where unlabelled, OUTSIDE beyond the image (0 there with
            ``padding: background``). A case without scribbles is unlabelled throughout.
        masks: (N, H, W) dense labels, OUTSIDE beyond the image and K in cases without a mask; or None.
        cases: in the order of their slices.
        stored: what is known of each case.
        labels_set: names of the classes.
        preprocessing: how the arrays came about.
    """

    images: NDArray[np.float16]
    labels: NDArray[np.uint8]
    masks: NDArray[np.uint8] | None
    cases: tuple[Case, ...]
    stored: tuple[StoredCase, ...]
    labels_set: LabelSet
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def case_of_slice(self) -> NDArray[np.int64]:
        """Index into ``cases`` of each slice."""
        return np.repeat(np.arange(len(self.stored)), [case.slices for case in self.stored])

    def slices_of(self, case_index: int) -> range:
        """Indices of the slices of one case, in the order of its slice axis."""
        first = sum(case.slices for case in self.stored[:case_index])
        return range(first, first + self.stored[case_index].slices)

    def grid_of(self, case_index: int) -> SliceGrid:
        """Leads from the slices of one case back to its native grid."""
        case, spacing_mm = self.stored[case_index], self.preprocessing.spacing_mm
        assert spacing_mm is not None, "a store is opened with planned preprocessing only"
        return SliceGrid.of(case.shape, case.spacing_mm, spacing_mm)

    def labelled_counts_of(self, case_index: int) -> NDArray[np.int64]:
        """(K,) labelled pixels of each class in one case."""
        return np.array(self.stored[case_index].labelled, np.int64)

    def pixels_of(self, case_index: int) -> int:
        """Pixels of one case that lie in the image."""
        return self.stored[case_index].pixels

    @property
    def spacings_mm(self) -> tuple[tuple[float, float, float], ...]:
        """Native (z, y, x) spacing of each case."""
        return tuple(case.spacing_mm for case in self.stored)

    @property
    def labelled_counts(self) -> NDArray[np.int64]:
        """(K,) labelled pixels of each class."""
        return np.sum([case.labelled for case in self.stored], axis=0, dtype=np.int64)

    @property
    def unlabelled_count(self) -> int:
        return sum(case.unlabelled for case in self.stored)

    @property
    def nbytes(self) -> int:
        """Size of all arrays together."""
        return self.images.nbytes + self.labels.nbytes + (self.masks.nbytes if self.masks is not None else 0)

    def with_short_scribbles(self, share: float, seed: int) -> SliceStore:
        """The same with scribbles thinned (:func:`thin_scribbles`), in memory; the cache keeps the whole."""
        if share == 1:
            return self
        # With ``padding: background`` the border is labelled, too, but it is no scribble.
        drawn = np.where(self._beyond_the_image, OUTSIDE, self.labels).astype(np.uint8)
        short = thin_scribbles(drawn, share, unlabelled=self.labels_set.unlabelled, seed=seed)
        labels = np.where(self._beyond_the_image, self.labels, short)
        stored = []
        for index, case in enumerate(self.stored):
            slices = self.slices_of(index)
            counts = np.bincount(labels[slices.start : slices.stop].ravel(), minlength=256)
            labelled = tuple(counts[: self.labels_set.count].tolist())
            stored.append(
                replace(case, labelled=labelled, unlabelled=int(counts[self.labels_set.unlabelled]))
            )
        return replace(self, labels=labels, stored=tuple(stored))

    @property
    def _beyond_the_image(self) -> NDArray[np.bool_]:
        """(N, H, W), where a canvas is larger than its image."""
        canvas = self.preprocessing.canvas
        beyond = [fit(np.zeros(self.grid_of(i).size, bool), canvas, True) for i in range(len(self.cases))]
        return np.stack(beyond)[self.case_of_slice]

    def true_ratios(self) -> NDArray[np.float64]:
        """(K,) shares of the classes among the unlabelled pixels of training patches, by the dense masks.

        The one place where a method that is given true ratios has them from. Counted in the patch in the
        middle of each canvas, since the rest of it only fills the corners of turned patches; over the cases
        that have a mask, which need not be all.
        """
        counts = np.zeros(256, np.int64)
        for case in range(len(self.stored)) if self.masks is not None else ():
            counts += self._unlabelled_by_class(case)
        known = counts[: self.labels_set.count]
        if not known.sum():
            raise InputError(
                "the true class ratios of unlabelled pixels are counted on dense masks of the training "
                "cases, and there are none; add masks or take a method that estimates the ratios."
            )
        return known / known.sum()

    def _unlabelled_by_class(self, case_index: int) -> NDArray[np.int64]:
        """(256,) unlabelled pixels of one case in the patch, by what the mask says of them."""
        assert self.masks is not None
        assert self.preprocessing.patch is not None, "a store is opened with planned preprocessing only"
        slices, patch = self.slices_of(case_index), self.preprocessing.patch
        labels, masks = (
            fit(array[slices.start : slices.stop], patch, OUTSIDE) for array in (self.labels, self.masks)
        )
        return np.bincount(masks[labels == self.labels_set.unlabelled], minlength=256)


def open_store(
    cases: Sequence[Case],
    labels: LabelSet,
    preprocessing: Preprocessing,
    cache: Path | None,
    *,
    want_masks: bool = False,
    quiet: bool = False,
) -> SliceStore:
    """The slices of ``cases``, from the cache when nothing has changed since they were prepared.

    Args:
        cases: whose slices, in this order.
        labels: what the integers in label files mean.
        preprocessing: with nothing left to plan.
        cache: folder for prepared data, or None for the usual one.
        want_masks: False leaves dense masks alone: their files are not even opened.
        quiet: no progress bar.
    """
    if not cases:
        raise InputError("no cases to prepare; check the data set and its splits.")
    if not preprocessing.resolved:
        raise InputError("the preprocessing is not planned yet; call shapepu.data.planning.plan_for first.")
    reject_unequal_channels(cases)
    folder = cache_folder(cache)
    outlines = outline_cases(cases, preprocessing, FileRecords(folder), want_masks, quiet)
    return open_entry(
        folder,
        _key(outlines, labels, preprocessing),
        lambda place: _mapped(place, cases, labels, preprocessing),
        lambda place: build_entry(place, outlines, labels, preprocessing, quiet),
        quiet,
    )


def _key(outlines: Sequence[Outline], labels: LabelSet, preprocessing: Preprocessing) -> str:
    shaped_by = {
        "format": FORMAT,
        "cases": [(outline.case.name, outline.digests) for outline in outlines],
        "labels": (labels.values, labels.unlabelled_value),
        # The canvas stands for patch and margin: other patches on the same canvas share the arrays.
        "preprocessing": {**asdict(preprocessing), "patch": preprocessing.canvas, "canvas_margin": None},
    }
    return hashlib.sha256(json.dumps(shaped_by, sort_keys=True).encode()).hexdigest()[:32]


def _mapped(
    place: Path, cases: Sequence[Case], labels: LabelSet, preprocessing: Preprocessing
) -> SliceStore | None:
    entry = map_entry(place)
    if entry is None:
        return None
    index, arrays = entry
    try:
        stored = tuple(_stored_case(plain) for plain in index["cases"])
        images, scribbles = arrays["images"], arrays["labels"]
    except (KeyError, TypeError):
        return None
    return SliceStore(images, scribbles, arrays.get("masks"), tuple(cases), stored, labels, preprocessing)


def _stored_case(plain: dict[str, Any]) -> StoredCase:
    """From JSON, where tuples have become lists."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return StoredCase(**values)
