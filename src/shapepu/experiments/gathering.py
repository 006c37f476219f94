"""From a finished run folder to its record: everything that tables and figures will ask, and no more."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shapepu import api
from shapepu.data.case import Case
from shapepu.data.preprocess import Preprocessing
from shapepu.data.store import open_store
from shapepu.errors import InputError
from shapepu.evaluation.report.contents import Metrics, read_metrics, read_scribbled_cases
from shapepu.experiments.hardware import this_hardware
from shapepu.experiments.records import (
    CaseRecord,
    CurvePoint,
    Parameters,
    RatioPoint,
    RunRecord,
    StructureRecord,
    thinned,
)
from shapepu.methods import find_method
from shapepu.prepare import Prepared, prepare
from shapepu.runfolder import RunFolder, versions

DISTANCES = ("hd_mm", "hd95_mm", "assd_mm", "volume_error_ml")


def gather(
    run: RunFolder, *, experiment: str, data: str, row: str, workers: int = 1, cache: Path | None = None
) -> RunRecord:
    """The record of ``run``, which has ended.

    Args:
        run: a run folder.
        experiment, data, row: what it belongs to, by name.
        workers: runs at a time on this machine.
        cache: where preprocessed slices are kept.
    """
    prepared = prepare(*api.data_and_settings(run), cache, quiet=True)
    settings, metrics = prepared.settings, read_metrics(run.metrics)
    needs = find_method(settings.method).needs
    ratios = _ratios(metrics)
    true_ratios, counted_on = None, None
    if ratios or "true ratios" in needs:
        true_ratios, counted_on = _true_ratios(prepared, cache)
    described = read_scribbled_cases(run.data)
    pixels = sum(case.pixels for case in described)
    return RunRecord(
        experiment=experiment,
        data=data,
        row=row,
        seed=settings.seed,
        method=settings.method,
        supervision=tuple(sorted(needs)),
        recipe=settings.recipe,
        minutes=_last(metrics, "minutes"),
        epochs=int(_last(metrics, "epoch")),
        steps=int(_last(metrics, "step")),
        images_per_second=float(np.nanmedian(metrics.columns["images_per_second"])),
        parameters=_parameters(prepared),
        training_cases=len(described),
        training_slices=sum(case.slices for case in described),
        labelled_share=1.0 if "masks" in needs else sum(case.total for case in described) / pixels,
        hardware=this_hardware(settings.device, workers),
        versions={name: said for name, said in versions().items() if name != "machine"},
        settings=settings.to_plain(),
        cases=_cases(run.validation / "cases.csv"),
        curve=_curve(metrics),
        ratios=ratios,
        true_ratios=true_ratios,
        true_ratios_from=counted_on,
    )


def _last(metrics: Metrics, name: str) -> float:
    value = metrics.last(name)
    assert value is not None, f"a run that has ended has {name}"
    return value


def _cases(path: Path) -> tuple[CaseRecord, ...]:
    """The scores as they are in ``cases.csv``, a record for each volume."""
    if not path.is_file():
        raise InputError(
            "the data set has no validation case with a dense mask, so nothing could be scored; add some, or "
            "hold patients out with a split file."
        )
    scores: dict[tuple[str, str], dict[str, StructureRecord]] = {}
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            structures = scores.setdefault((row["case"], row["group"]), {})
            predicted, wanted = int(row["n_pred"]), int(row["n_ref"])
            structures[row["structure"]] = StructureRecord(
                dice=float(row["dice"]),
                **{name: float(row[name]) if row[name] else None for name in DISTANCES},
                both_empty=predicted == wanted == 0,
                one_empty=(predicted == 0) != (wanted == 0),
            )
    return tuple(CaseRecord(case, group, structures) for (case, group), structures in scores.items())


def _curve(metrics: Metrics) -> tuple[CurvePoint, ...]:
    dice = metrics.get("validation.dice")
    if dice is None:
        return ()
    columns = [metrics.columns[name] for name in ("minutes", "epoch", "step")]
    points = [
        CurvePoint(float(minutes), int(epoch), int(step), float(value))
        for minutes, epoch, step, value in zip(*columns, dice, strict=True)
        if math.isfinite(value)
    ]
    return tuple(thinned(points))


def _ratios(metrics: Metrics) -> tuple[RatioPoint, ...]:
    by_class = metrics.group("ratio")
    if not by_class:
        return ()
    minutes, epochs = metrics.columns["minutes"], metrics.columns["epoch"]
    active = metrics.get("negative_active")
    points = [
        RatioPoint(
            float(minutes[index]),
            int(epochs[index]),
            {name: float(values[index]) for name, values in by_class.items()},
            None if active is None else float(active[index]),
        )
        for index in range(len(metrics))
        if all(math.isfinite(values[index]) for values in by_class.values())
    ]
    return tuple(thinned(points))


def _parameters(prepared: Prepared) -> Parameters:
    """Of the method as it trains: what only trains is not in the exported model."""
    with torch.random.fork_rng(devices=[]):
        method = api.seeded_method(prepared.settings, prepared.task)
    predicting = {id(p) for name in method.prediction_modules() for p in getattr(method, name).parameters()}
    trained = {id(p): p.numel() for p in method.parameters() if p.requires_grad}
    return Parameters(sum(n for key, n in trained.items() if key in predicting), sum(trained.values()))


def _true_ratios(prepared: Prepared, cache: Path | None) -> tuple[dict[str, float] | None, Any]:
    """Among the unlabelled pixels of the run's own training patches, or else of the validation patches."""
    choice, plan = prepared.settings.data, prepared.settings.preprocessing
    names = prepared.dataset.labels.names
    masked = tuple(case for case in prepared.train.cases if case.mask is not None)
    if masked:
        store = _open(prepared, masked, plan, cache)
        store = store.with_short_scribbles(choice.scribble_share, prepared.settings.seed)
        return dict(zip(names, map(float, store.true_ratios()), strict=True)), "train"
    if prepared.validation is not None:
        return dict(zip(names, map(float, prepared.validation.true_ratios()), strict=True)), "val"
    return None, None


def _open(prepared: Prepared, cases: tuple[Case, ...], plan: Preprocessing, cache: Path | None) -> Any:
    return open_store(cases, prepared.dataset.labels, plan, cache, want_masks=True, quiet=True)
