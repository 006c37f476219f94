"""From a folder to everything a run needs: cases, plan, slice stores, and a check of the supervision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shapepu.console import say
from shapepu.data.cache import FileRecords, cache_folder
from shapepu.data.case import Case, Dataset
from shapepu.data.choice import DataChoice
from shapepu.data.grid import SliceGrid
from shapepu.data.mask_store import MaskStore, filed_twice, open_mask_store
from shapepu.data.planning import plan_for
from shapepu.data.preprocess import Preprocessing
from shapepu.data.readers.listing import some
from shapepu.data.store import SliceStore, open_store
from shapepu.errors import InputError
from shapepu.methods import Task, find_method
from shapepu.methods.base import Supervision
from shapepu.precision import computes_in_bfloat16
from shapepu.settings import TrainSettings, device_of


@dataclass(frozen=True)
class Prepared:
    """What training starts from: settings with nothing left to plan, and the stores they lead to."""

    settings: TrainSettings
    dataset: Dataset
    train: SliceStore
    validation: SliceStore | None
    unpaired: MaskStore | None
    task: Task

    def describe(self) -> dict[str, Any]:
        """Scribble coverage of each training case, for the report."""
        counts = np.stack([self.train.labelled_counts_of(i) for i in range(len(self.train.cases))])
        names = self.dataset.labels.names
        return {
            "cases": [
                {
                    "name": case.name,
                    "group": case.group,
                    "split": case.split,
                    "slices": len(self.train.slices_of(i)),
                    "labelled": dict(zip(names, map(int, counts[i]), strict=True)),
                    "pixels": self.train.pixels_of(i),
                }
                for i, case in enumerate(self.train.cases)
            ]
        }


def prepare(
    dataset: Dataset, settings: TrainSettings, cache: Path | None = None, *, quiet: bool = False
) -> Prepared:
    """Check that ``dataset`` has what the method needs, plan, and open the slice stores."""
    _reject_missing_average(settings)
    needs = find_method(settings.method).needs
    if "unpaired masks" in needs:
        dataset = _with_masks_of_other_patients(dataset, cache, quiet=quiet)
    able = cases_to_learn_from(dataset, needs, settings.data)
    training_cases = settings.data.of(able, settings.seed)
    dataset = _without(dataset, set(able) - set(training_cases))
    plan = plan_for(training_cases, dataset.labels, settings.preprocessing, cache, quiet=quiet)
    settings = replace(
        settings,
        preprocessing=plan,
        data=_planned_choice(settings.data, able, plan, cache),
        precision="bf16" if computes_in_bfloat16(settings.precision, device_of(settings)) else "fp32",
    )

    def store(cases: tuple[Case, ...], *, masks: bool) -> SliceStore:
        return open_store(cases, dataset.labels, plan, cache, want_masks=masks, quiet=quiet)

    own_ratios = "true ratios" in needs and settings.data.true_ratios_from == "train"
    train = store(training_cases, masks="masks" in needs or own_ratios)
    train = train.with_short_scribbles(settings.data.scribble_share, settings.seed)
    if "scribbles" in needs:
        _reject_unscribbled_classes(dataset, train)
    validation_cases = tuple(case for case in dataset.split("val") if case.mask is not None)
    validation = store(validation_cases, masks=True) if validation_cases else None
    unpaired = None
    if "unpaired masks" in needs:
        unpaired = open_mask_store(dataset.split("unpaired"), dataset.labels, plan, cache, quiet=quiet)
    return Prepared(
        settings=settings,
        dataset=dataset,
        train=train,
        validation=validation,
        unpaired=unpaired,
        task=make_task(dataset, train, needs, ratios_from=train if own_ratios else validation),
    )


def _reject_missing_average(settings: TrainSettings) -> None:
    if find_method(settings.method).method.needs_average and not settings.optimisation.average:
        raise InputError(
            f"optimisation.average: {settings.method} learns from the running average of the weights, and 0, "
            "as in the recipe paper, keeps none; give a decay, for example --optimisation.average 0.99."
        )


def _planned_choice(
    choice: DataChoice, able: tuple[Case, ...], plan: Preprocessing, cache: Path | None
) -> DataChoice:
    """``choice`` with the length of an epoch, where fewer patients would change it."""
    if choice.cases is None or choice.slices_per_epoch is not None:
        return choice
    assert plan.spacing_mm is not None, "planned"
    records = FileRecords(cache_folder(cache))
    headers = {case.images[0]: records.of(case.images[0]).header for case in able}
    grids = [
        SliceGrid.of(header.shape, header.spacing_mm, plan.spacing_mm, source=image)
        for image, header in headers.items()
    ]
    return replace(choice, slices_per_epoch=sum(grid.slices for grid in grids))


def make_task(
    dataset: Dataset,
    train: SliceStore,
    needs: frozenset[Supervision],
    *,
    ratios_from: SliceStore | None = None,
) -> Task:
    """What the method is told about the data; the true ratios only if it declared them.

    They are all that such a method is told of the dense masks: :meth:`SliceStore.true_ratios` counts (on
    ``ratios_from``, by default the training cases), the task carries, :meth:`Task.given_ratios` hands over,
    and no batch ever holds a mask.
    """
    counted_on = ratios_from or train
    counts = train.labelled_counts.astype(float)
    shares = counts / max(counts.sum(), 1.0)
    return Task(
        classes=dataset.labels.count,
        channels=len(dataset.channels),
        label_shares=tuple(float(share) for share in shares),
        true_ratios=tuple(float(r) for r in counted_on.true_ratios()) if "true ratios" in needs else None,
        training_slices=len(train),
    )


def _reject_unscribbled_classes(dataset: Dataset, train: SliceStore) -> None:
    never = [
        name for name, count in zip(dataset.labels.names, train.labelled_counts, strict=True) if not count
    ]
    if len(never) == dataset.labels.count:
        raise InputError(
            f"{dataset.root}: the scribble files of the training cases are empty; draw some scribbles of "
            f"each class ({', '.join(never)})."
        )
    if never:
        raise InputError(
            f"{dataset.root}: class {never[0]!r} is scribbled in no training case, so it cannot be learned; "
            "draw some scribbles of it, or take it out of the label set."
        )


def _with_masks_of_other_patients(dataset: Dataset, cache: Path | None, *, quiet: bool) -> Dataset:
    """``dataset`` without lenders whose scan is learned from or scored under another name."""
    lenders = dataset.split("unpaired")
    repeated = filed_twice(lenders, (case for case in dataset.cases if case.split != "unpaired"), cache)
    if not repeated:
        return dataset
    names = some([case.name for case in repeated])
    if len(repeated) == len(lenders):
        raise InputError(
            f"{dataset.root}: every unpaired mask ({names}) is of a scan that is also a case to train on or "
            "to score; name masks of other patients."
        )
    say(f"note: unpaired masks of scans to train on or to score, left out: {names}", quiet=quiet)
    return _without(dataset, set(repeated))


def _without(dataset: Dataset, cases: set[Case]) -> Dataset:
    return replace(dataset, cases=tuple(case for case in dataset.cases if case not in cases))


def cases_to_learn_from(
    dataset: Dataset, needs: frozenset[Supervision], choice: DataChoice | None = None
) -> tuple[Case, ...]:
    """The training cases that carry what the method declares; an error names what would provide it."""
    cases = dataset.split("train")
    if not cases:
        raise InputError(f"{dataset.root}: no training case in it; `shapepu check {dataset.root}` lists all.")
    if "scribbles" in needs:
        cases = tuple(case for case in cases if case.scribble is not None)
        if not cases:
            raise InputError(
                f"{dataset.root}: no training case has a scribble; draw some, make them from masks with "
                "`shapepu scribble`, or train on dense masks with --method full."
            )
    if "true ratios" in needs:
        _reject_unknown_ratios(dataset, cases, choice or DataChoice())
    if "masks" in needs:
        cases = tuple(case for case in cases if case.mask is not None)
        if not cases:
            raise InputError(
                f"{dataset.root}: the method needs dense masks of the training cases and there are none; "
                "add them (a masks/ folder, or *_gt files) or take a method that learns from scribbles."
            )
    if "unpaired masks" in needs and not dataset.split("unpaired"):
        raise InputError(
            f"{dataset.root}: the method needs dense masks of other patients and none are declared; put them "
            'into unpaired/masks in a plain folder, or name them under "unpaired_masks" in a splits file and '
            "give it with --splits."
        )
    return cases


def _reject_unknown_ratios(dataset: Dataset, training: tuple[Case, ...], choice: DataChoice) -> None:
    """True ratios must be counted somewhere."""
    from_validation = choice.true_ratios_from == "val"
    if any(case.mask is not None for case in (dataset.split("val") if from_validation else training)):
        return
    if from_validation:
        raise InputError(
            f"{dataset.root}: the true class ratios are to be counted on the validation cases "
            "(--training-data.true-ratios-from val), and none has a dense mask; add masks, or take a method "
            "that estimates the ratios (--method tedn or shapepu)."
        )
    raise InputError(
        f"{dataset.root}: the method is given the true class ratios, which are counted on dense masks of the "
        "training cases, and there are none; add some (a masks/ folder, or *_gt files), count on the "
        "validation cases (--training-data.true-ratios-from val) or take a method that estimates the ratios "
        "(--method tedn or shapepu)."
    )


def describe_data(dataset: Dataset, prepared_train: SliceStore) -> dict[str, Any]:
    """The ``data`` section of ``config.yaml``."""
    return {
        "path": str(dataset.root.resolve()),
        "name": dataset.name,
        "layout": dataset.layout,
        "labels": dataset.labels.as_dict(),
        "channels": list(dataset.channels),
        "cases": {
            "train": [case.name for case in prepared_train.cases],
            "val": [case.name for case in dataset.split("val")],
            "unpaired": [case.name for case in dataset.split("unpaired")],
        },
    }
