"""The Python interface: the same code that the command line runs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.data.batches import BatchSource
from shapepu.data.case import Dataset
from shapepu.data.readers import read_dataset
from shapepu.data.readers.splits import with_validation
from shapepu.errors import InputError
from shapepu.evaluation.scoring import Evaluation
from shapepu.methods import Method, Task, build_method, find_method
from shapepu.model import Model
from shapepu.prepare import Prepared, describe_data, prepare
from shapepu.runfolder import RunFolder, versions
from shapepu.settings import TrainSettings, network_builder, settings_for, with_budget
from shapepu.training import Trainer, make_fabric


def train(
    data: str | Path | Dataset,
    *,
    output: str | Path | None = None,
    method: str = "shapepu",
    recipe: str = "fast",
    epochs: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    settings: TrainSettings | None = None,
    layout: str = "auto",
    splits: str | Path | None = None,
    fold: int | None = None,
    folds: int = 5,
    cache: str | Path | None = None,
    quiet: bool = False,
) -> Model:
    """Train a model from images and scribbles.

    Args:
        data: a folder that one of the readers recognises, or a :class:`Dataset`.
        output: the run folder; ``runs/DATA-METHOD-TIME`` when None.
        method: a name in ``shapepu methods``.
        recipe: ``fast`` or ``paper``.
        epochs, minutes: when to stop; the recipe's own end when neither is given.
        seed: of every random draw.
        settings: complete settings, in place of ``method``, ``recipe`` and ``seed``.
        layout: of the data folder; chosen by looking at it when ``auto``.
        splits: a JSON file that says which cases train and which validate.
        fold: hold out this fold (0 to ``folds`` - 1) of the training patients to validate on.
        folds: into how many parts ``fold`` divides the patients.
        cache: where preprocessed slices are kept.
        quiet: say nothing but errors.

    Returns:
        The trained model, which is also in ``output/model``.
    """
    settings = with_budget(settings or settings_for(recipe, method), epochs, minutes)
    if seed is not None:
        settings = replace(settings, seed=seed)
    if isinstance(data, Dataset):
        dataset = data
    else:
        dataset = read_dataset(data, layout=layout, splits=_path(splits))
    if fold is not None:
        dataset = with_validation(dataset, folds=folds, fold=fold)
    run = RunFolder(output or default_output(dataset, settings), quiet=quiet)
    run.create()
    try:
        return _run(run, dataset, settings, _path(cache), resume=False)
    finally:
        run.close()


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    minutes: float | None = None,
    cache: str | Path | None = None,
    quiet: bool = False,
) -> Model:
    """Go on with an interrupted run, or extend a finished one to ``epochs`` or ``minutes`` in total."""
    folder = RunFolder(run, quiet=quiet)
    config = folder.read_config()
    where = str(folder.config)
    if not isinstance(config.get("data"), dict) or not isinstance(config.get("settings"), dict):
        raise InputError(f"{where}: expected the sections 'data' and 'settings' of a run.")
    settings = with_budget(TrainSettings.from_plain(config["settings"], where), epochs, minutes)
    try:
        return _run(folder, _dataset_of_run(config, where), settings, _path(cache), resume=True)
    finally:
        folder.close()


def load(model: str | Path, device: str = "cpu") -> Model:
    """A trained model: a run folder, a model bundle, or the name of a model that comes with the package."""
    return Model(load_bundle(model, device=device))


def _run(
    run: RunFolder, dataset: Dataset, settings: TrainSettings, cache: Path | None, *, resume: bool
) -> Model:
    run.say(
        f"{dataset.name}: {len(dataset.split('train'))} training and {len(dataset.split('val'))} validation "
        f"cases, method {settings.method}, recipe {settings.recipe}"
    )
    prepared = prepare(dataset, settings, cache, quiet=run.quiet)
    settings = prepared.settings
    run.write_config(
        {
            "data": describe_data(dataset, prepared.train),
            "settings": settings.to_plain(),
            "versions": versions(),
        }
    )
    run.write_data(prepared.describe())
    method = _seeded_method(settings, prepared.task)
    fabric = make_fabric(settings)
    batches = _batches(prepared, fabric.device)
    trainer = Trainer(settings, method, batches, run, fabric, prepared.validation)
    run.say(_plan_in_words(prepared, method))
    if resume and run.checkpoint.exists():
        trainer.resume()
    trained = trainer.fit()
    spec = _spec(prepared, trainer)
    save_bundle(run.model, method=trained, spec=spec)
    model = load(run.root)
    score_validation(run, model, prepared)
    run.say(f"done: model in {run.model}; next: shapepu report {run.root}")
    return model


def _seeded_method(settings: TrainSettings, task: Task) -> Method:
    torch.manual_seed(settings.seed)
    return build_method(settings.method, settings.method_options, task, network_builder(settings, task))


def _batches(prepared: Prepared, device: torch.device) -> BatchSource:
    settings = prepared.settings
    assert settings.preprocessing.patch is not None, "planned"
    return BatchSource(
        store=prepared.train,
        unpaired=prepared.unpaired,
        needs=find_method(settings.method).needs,
        augmentation=settings.augmentation,
        patch=settings.preprocessing.patch,
        batch_size=settings.optimisation.batch_size,
        padding=settings.preprocessing.padding,
        device=device,
    )


def _plan_in_words(prepared: Prepared, method: Method) -> str:
    plan, store = prepared.settings.preprocessing, prepared.train
    assert plan.patch is not None, "planned"
    assert plan.spacing_mm is not None, "planned"
    labelled = store.labelled_counts.sum() / max(1, store.labelled_counts.sum() + store.unlabelled_count)
    weights = sum(p.numel() for p in method.parameters())
    return (
        f"{len(store)} slices, {100 * labelled:.1f} % of their pixels labelled; patches of "
        f"{plan.patch[0]}x{plan.patch[1]} at {plan.spacing_mm[0]:g}x{plan.spacing_mm[1]:g} mm; "
        f"{weights / 1e6:.1f} M weights"
    )


def _spec(prepared: Prepared, trainer: Trainer) -> BundleSpec:
    settings, state = prepared.settings, trainer.state
    return BundleSpec(
        method=settings.method,
        method_options=settings.method_options,
        network=settings.network,
        network_options=settings.network_options,
        labels=prepared.dataset.labels,
        channels=prepared.dataset.channels,
        preprocessing=settings.preprocessing,
        provenance={
            "data": prepared.dataset.name,
            "training_cases": len(prepared.train.cases),
            "recipe": settings.recipe,
            "seed": settings.seed,
            "epochs": state.epoch,
            "minutes": round(state.seconds / 60, 2),
            "date": time.strftime("%Y-%m-%d"),
            "versions": versions(),
        },
    )


def score_validation(run: RunFolder, model: Model, prepared: Prepared) -> Evaluation | None:
    """Predict and score the validation cases on their native grid; the figures a run is judged by."""
    from shapepu.evaluation.scoring import score_cases

    cases = [case for case in prepared.dataset.split("val") if case.mask is not None]
    if not cases:
        run.say("no validation case with a dense mask: the run is not scored")
        return None
    predictions = run.validation / "predictions"
    paths = model.predict_cases(cases, predictions, overwrite=True, quiet=run.quiet)
    evaluation = score_cases(cases, paths, prepared.dataset.labels)
    evaluation.write(run.validation)
    listing = {
        "cases": [
            {
                "name": case.name,
                "images": [str(image.resolve()) for image in case.images],
                "reference": str(case.mask.resolve()) if case.mask else None,
                "prediction": str(path.relative_to(run.validation)),
            }
            for case, path in zip(cases, paths, strict=True)
        ],
        "labels": prepared.dataset.labels.as_dict(),
    }
    (run.validation / "cases.json").write_text(json.dumps(listing, indent=1), encoding="utf-8")
    run.say(evaluation.table())
    return evaluation


def default_output(dataset: Dataset, settings: TrainSettings) -> Path:
    """``runs/DATA-METHOD-TIME``, so that nothing is overwritten."""
    return Path("runs") / f"{dataset.name}-{settings.method}-{time.strftime('%Y%m%d-%H%M%S')}"


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def _dataset_of_run(config: dict[str, Any], where: str) -> Dataset:
    """The data set as the run saw it: the same cases in the same splits."""
    data = config["data"]
    try:
        dataset = read_dataset(data["path"], layout=data["layout"])
        splits = {name: split for split, names in data["cases"].items() for name in names}
    except (KeyError, AttributeError) as error:
        raise InputError(f"{where}: the section 'data' lacks {error}; was it edited?") from error
    known = {case.name for case in dataset.cases}
    missing = sorted(set(splits) - known)
    if missing:
        raise InputError(f"{dataset.root}: case {missing[0]!r} of the run is no longer there; restore it.")
    # A case that the run left out stays out.
    cases = tuple(case for case in dataset.cases if case.name in splits)
    return replace(dataset, cases=cases).with_splits(splits)
