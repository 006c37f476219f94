"""A trained model in Python: what :func:`shapepu.train` and :func:`shapepu.load` return."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shapepu.bundle import Bundle, save_bundle
from shapepu.data.case import Case
from shapepu.data.volumes import Volume, read_volume
from shapepu.errors import InputError
from shapepu.folder_prediction import Outcome, predict_cases, predict_files
from shapepu.inference import Prediction, predict_volume
from shapepu.labels import LabelSet
from shapepu.predict_options import PredictOptions
from shapepu.sharding import parse_shard
from shapepu.sources import find_sources

Image = str | Path | Volume | ArrayLike | Sequence[str | Path | Volume | ArrayLike]
Spacing = Sequence[float] | NDArray[Any]


class Model:
    """Segments images.

    Options of every method are the fields of :class:`~shapepu.predict_options.PredictOptions`, such as
    ``averaging="flips"``.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    @property
    def labels(self) -> LabelSet:
        """Class names; a predicted number is an index into ``labels.names``."""
        return self.bundle.spec.labels

    @property
    def channels(self) -> tuple[str, ...]:
        return self.bundle.spec.channels

    def __repr__(self) -> str:
        return f"Model({self.bundle})"

    def predict(
        self, image: Image, *, spacing_mm: Spacing | None = None, **options: Any
    ) -> NDArray[np.uint8]:
        """Labels 0..K-1 in the shape of the image.

        Args:
            image: a file, a DICOM series folder, a volume, or an array (Z, Y, X) or (Y, X). For a model of
                several channels a sequence of these, or the file of the first with the others beside it.
            spacing_mm: pixel size of an array, (z, y, x) or (y, x); None when its pixels have the size the
                model works at already. Files know theirs.
            options: as said above.
        """
        labels = self.predict_with_details(image, spacing_mm=spacing_mm, **options).labels
        two_dimensional = np.ndim(self._images(image)[0]) == 2
        return labels[0] if two_dimensional else labels

    def predict_with_details(
        self, image: Image, *, spacing_mm: Spacing | None = None, **options: Any
    ) -> Prediction:
        """As :meth:`predict`, with probabilities and uncertainty when the options ask for them."""
        volumes = [self._volume(each, spacing_mm) for each in self._images(image)]
        return predict_volume(self.bundle, volumes, PredictOptions(**options))

    def predict_folder(
        self,
        images: str | Path,
        out: str | Path,
        *,
        shard: str | None = None,
        overwrite: bool = False,
        quiet: bool = False,
        **options: Any,
    ) -> Outcome:
        """Label files in the folder ``out`` for all images, as ``shapepu predict`` writes them."""
        return predict_files(
            self.bundle,
            images,
            out,
            options=PredictOptions(**options),
            shard=parse_shard(shard) if shard else None,
            overwrite=overwrite,
            quiet=quiet,
        )

    def predict_cases(
        self,
        cases: Sequence[Case],
        out: str | Path,
        *,
        overwrite: bool = False,
        quiet: bool = False,
        **options: Any,
    ) -> list[Path]:
        """Label files in the folder ``out`` for cases of a data set, in their order."""
        return predict_cases(
            self.bundle, cases, out, options=PredictOptions(**options), overwrite=overwrite, quiet=quiet
        )

    def save(self, folder: str | Path, *, half_precision: bool = False) -> Path:
        """Write the model to hand it on: see :func:`shapepu.bundle.save_bundle`."""
        return save_bundle(
            folder, method=self.bundle.method, spec=self.bundle.spec, half_precision=half_precision
        )

    def _images(self, image: Any) -> Sequence[Any]:
        """One image a channel."""
        if isinstance(image, (str, Path)):
            sources = find_sources(Path(image), self.channels)
            if len(sources) > 1:
                raise InputError(f"{image}: holds {len(sources)} cases; predict_folder takes many.")
            return sources[0].images
        return [image] if isinstance(image, Volume) or len(self.channels) == 1 else image

    def _volume(self, image: Any, spacing_mm: Spacing | None) -> Volume:
        if isinstance(image, Volume):
            return image
        if isinstance(image, (str, Path)):
            return read_volume(image)
        array = np.asarray(image)
        if array.ndim not in (2, 3) or 0 in array.shape or array.dtype.kind not in "iuf":
            raise InputError(
                f"image: expected numbers (Z, Y, X) or (Y, X) a channel, got {array.dtype} of {array.shape}."
            )
        given = self.bundle.spec.preprocessing.spacing_mm if spacing_mm is None else spacing_mm
        step_mm = tuple(() if given is None else given)
        if len(step_mm) == 2:
            step_mm = (2 * max(step_mm), *step_mm)  # slices are stacked along the coarsest axis
        if len(step_mm) != 3 or not all(0 < step < np.inf for step in step_mm):
            raise InputError(f"spacing_mm: expected positive (z, y, x) or (y, x), got {spacing_mm}.")
        z_mm, y_mm, x_mm = step_mm
        stacked = array if array.ndim == 3 else array[None]
        return Volume(stacked, (z_mm, y_mm, x_mm), (0.0,) * 3, tuple(np.eye(3).ravel()), Path("array"))
