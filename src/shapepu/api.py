"""The Python interface: the same code that the command line runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.data.batches import BatchSource
from shapepu.data.case import Dataset
from shapepu.data.readers import read_dataset, read_undivided
from shapepu.data.readers.listing import some
from shapepu.data.readers.splits import with_validation
from shapepu.errors import InputError
from shapepu.evaluation.results import Evaluation
from shapepu.evaluation.scoring import score_cases
from shapepu.files import write_text
from shapepu.labels import LabelSet
from shapepu.methods import Method, Task, build_method, find_method
from shapepu.model import Model
from shapepu.prepare import Prepared, describe_data, prepare
from shapepu.runfolder import RunFolder, versions
from shapepu.settings import (
    TrainSettings,
    network_builder,
    settings_for,
    views_to_average,
    with_budget,
)
from shapepu.starting import Start, adopt, find_start, full_name
from shapepu.training import Trainer, make_fabric


def train(
    data: str | Path | Dataset,
    *,
    output: str | Path | None = None,
    method: str = "shapepu",
    recipe: str = "fast",
    epochs: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    start: str | Path | None = None,
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
        recipe: ``fast``, ``thorough`` or ``paper``.
        epochs, minutes, steps: when to stop, whichever comes first; the recipe's own end when none is given.
        seed: of every random draw.
        start: a run, a bundle or the name of a shipped model whose weights to start from; its network, pixel
            size and intensities come with them.
        settings: complete settings, in place of ``method``, ``recipe`` and ``seed``; a network to ``start``
            from must then be the one they name.
        layout: of the data folder; chosen by looking at it when ``auto``.
        splits: a JSON file that says which cases train and which validate.
        fold: hold out this fold (0 to ``folds`` - 1) of the training patients to validate on.
        folds: into how many parts ``fold`` divides the patients.
        cache: where preprocessed slices are kept.
        quiet: say nothing but errors.

    Returns:
        The trained model, which is also in ``output/model``.
    """
    if start is not None and settings is None:
        settings = adopt(settings_for(recipe, method), start)
    elif start is not None and settings is not None:
        settings = replace(settings, start=full_name(start))
    settings = with_budget(settings or settings_for(recipe, method), epochs, minutes, steps)
    if seed is not None:
        settings = replace(settings, seed=seed)
    dataset = _chosen_data(data, layout, splits, fold, folds)
    run = RunFolder(output or default_output(dataset, settings), quiet=quiet)
    run.create()
    with run.told():
        return _run(run, dataset, settings, _path(cache), resume=False)


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    cache: str | Path | None = None,
    quiet: bool = False,
) -> Model:
    """Go on with an interrupted run, or extend it to ``epochs``, ``minutes`` or ``steps`` in total."""
    folder = RunFolder(run, quiet=quiet)
    dataset, settings = data_and_settings(folder)
    settings = with_budget(settings, epochs, minutes, steps)
    with folder.told():
        return _run(folder, dataset, settings, _path(cache), resume=True)


def data_and_settings(run: RunFolder) -> tuple[Dataset, TrainSettings]:
    """What a run was started with: the same cases in the same splits, and every setting."""
    config, where = run.read_config(), str(run.config)
    if not isinstance(config.get("data"), dict) or not isinstance(config.get("settings"), dict):
        raise InputError(f"{where}: expected the sections 'data' and 'settings' of a run.")
    settings = TrainSettings.from_plain(config["settings"], f"{where}: settings")
    return _dataset_of_run(config, where), settings


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
    for note in dataset.notes:
        run.say(f"note: {note}")
    # A run that goes on has its own weights by now, and its start may be gone.
    begun = resume and run.checkpoint.exists()
    start = None if begun or settings.start is None else find_start(settings, dataset)
    prepared = prepare(dataset, start.completed(settings) if start else settings, cache, quiet=run.quiet)
    origin = start.description if start else None
    if begun:
        origin = run.read_config().get("started_from")
    # Now, because a model that cannot be described would be refused when it is trained.
    spec = _spec(prepared, origin)
    trainer = _trainer(prepared, run, start)
    for line in _plan_in_words(prepared, trainer):
        run.say(line)
    if start:
        run.say(str(start))
    if begun:
        trainer.resume()
        if trainer.progress_so_far >= 1 and _is_finished(run, trainer):
            run.say(
                "the run is finished already; extend it with --epochs, --minutes or --steps, counted from "
                "its start"
            )
            return load(run.root)
    run.write_config(
        {
            "data": describe_data(dataset, prepared.train),
            "settings": prepared.settings.to_plain(),
            "started_from": origin,
            "versions": versions(),
        }
    )
    run.write_data(prepared.describe())
    return _finish(run, prepared, trainer, trainer.fit(), spec)


def _finish(run: RunFolder, prepared: Prepared, trainer: Trainer, method: Method, spec: BundleSpec) -> Model:
    """Export the model, then score it: a validation case that cannot be scored must not cost the model."""
    spec = replace(spec, provenance={**spec.provenance, **_spent(trainer)})
    save_bundle(run.model, method=method, spec=spec)
    evaluation = score_validation(run, load(run.root, device=str(trainer.fabric.device)), prepared)
    # The scores join the model's description last, and so are the sign that everything else is written.
    scored = {**spec.provenance, "validation": _in_brief(evaluation)}
    save_bundle(run.model, method=method, spec=replace(spec, provenance=scored))
    run.say(
        f"done: model in {run.model}; next: shapepu predict {run.root} IMAGES OUT, shapepu report {run.root}"
    )
    return load(run.root)


def _is_finished(run: RunFolder, trainer: Trainer) -> bool:
    """Whether the exported model is of the last epoch, and was scored."""
    try:
        provenance = load(run.root).bundle.spec.provenance
    except InputError:
        return False
    return provenance.get("epochs") == trainer.state.epoch and "validation" in provenance


def _in_brief(evaluation: Evaluation | None) -> dict[str, float] | None:
    if evaluation is None:
        return None
    by_structure = {name: evaluation.spread("dice", name).mean for name in evaluation.structures}
    return {"dice": evaluation.spread("dice").mean, **{f"dice.{k}": v for k, v in by_structure.items()}}


def _trainer(prepared: Prepared, run: RunFolder, start: Start | None) -> Trainer:
    settings = prepared.settings
    method = seeded_method(settings, prepared.task)
    if start:
        start.copy_to(method)
    fabric = make_fabric(settings)
    batches = _batches(prepared, fabric.device)
    return Trainer(settings, method, batches, run, fabric, prepared.validation)


def seeded_method(settings: TrainSettings, task: Task) -> Method:
    """The method as a run begins with it, on the CPU."""
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
        slices_per_epoch=settings.data.slices_per_epoch,
    )


def _plan_in_words(prepared: Prepared, trainer: Trainer) -> Iterator[str]:
    settings, plan, store = prepared.settings, prepared.settings.preprocessing, prepared.train
    assert plan.patch is not None, "planned"
    assert plan.spacing_mm is not None, "planned"
    left_out = [c.name for c in prepared.dataset.split("train") if c not in store.cases]
    if left_out:
        yield f"note: {len(left_out)} training cases lack scribbles or masks, left out: {some(left_out)}"
    labelled = store.labelled_counts.sum() / max(1, store.labelled_counts.sum() + store.unlabelled_count)
    yield (
        f"{len(store)} slices, {100 * labelled:.1f} % of their pixels labelled; patches of "
        f"{plan.patch[0]}x{plan.patch[1]} at {plan.spacing_mm[0]:g}x{plan.spacing_mm[1]:g} mm"
    )
    weights = sum(parameter.numel() for parameter in trainer.state.method.parameters())
    yield (
        f"{settings.network} with {weights / 1e6:.1f} M weights on {trainer.fabric.device}, "
        f"{settings.precision}, batches of {settings.optimisation.batch_size}"
    )


def _spec(prepared: Prepared, origin: dict[str, Any] | None) -> BundleSpec:
    """What is known of the model before it is trained."""
    settings = prepared.settings
    return BundleSpec(
        method=settings.method,
        method_options=settings.method_options,
        network=settings.network,
        network_options=settings.network_options,
        labels=prepared.dataset.labels,
        channels=prepared.dataset.channels,
        preprocessing=settings.preprocessing,
        averaging=views_to_average(settings),
        provenance={
            "data": prepared.dataset.name,
            "training_cases": len(prepared.train.cases),
            "recipe": settings.recipe,
            "started_from": origin,
            "seed": settings.seed,
        },
    )


def _spent(trainer: Trainer) -> dict[str, Any]:
    """What training adds to the provenance."""
    return {
        "epochs": trainer.state.epoch,
        "minutes": round(trainer.state.seconds / 60, 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def score_validation(run: RunFolder, model: Model, prepared: Prepared) -> Evaluation | None:
    """Predict and score the validation cases on their native grid; the figures a run is judged by."""
    cases = [case for case in prepared.dataset.split("val") if case.mask is not None]
    if not cases:
        run.say("no validation case with a dense mask: the run is not scored")
        return None
    paths = model.predict_cases(cases, run.validation / "predictions", overwrite=True, quiet=run.quiet)
    evaluation = score_cases(cases, paths, prepared.dataset.labels, quiet=run.quiet)
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
    write_text(run.validation / "cases.json", json.dumps(listing, indent=1))
    run.say(f"{evaluation.table(footnotes=False)}\ndefinitions and notes: {run.validation}/summary.json")
    return evaluation


def default_output(dataset: Dataset, settings: TrainSettings) -> Path:
    """``runs/DATA-METHOD-TIME``, so that nothing is overwritten."""
    return Path("runs") / f"{dataset.name}-{settings.method}-{time.strftime('%Y%m%d-%H%M%S')}"


def _chosen_data(
    data: str | Path | Dataset, layout: str, splits: str | Path | None, fold: int | None, folds: int
) -> Dataset:
    """The data set, with ``fold`` (if any) held out, or taken from a split file where that lists folds."""

    def read(fold: int) -> Dataset:
        return data if isinstance(data, Dataset) else read_dataset(data, layout, splits=splits, fold=fold)

    def lists_folds() -> bool:
        """Only where folds are listed is one refused that no list can hold."""
        try:
            read(10**9)
        except InputError:
            return True
        return False

    dataset = read(fold or 0)
    if fold is None:
        return dataset
    own = len(dataset.split("val"))
    if own and not lists_folds():
        raise InputError(
            f"{dataset.root}: it has {own} validation cases of its own; leave --fold out, or give a split "
            "file that lists folds with --splits."
        )
    return with_validation(dataset, folds=folds, fold=fold)


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)


def _dataset_of_run(config: dict[str, Any], where: str) -> Dataset:
    """The data set as the run saw it: the same cases in the same splits, with the same classes."""
    data = config["data"]
    try:
        root, layout, labels = Path(data["path"]), data["layout"], LabelSet.from_dict(data["labels"])
        splits = {name: split for split, names in data["cases"].items() for name in names}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: the section 'data' is damaged ({error}); restore it, or start a new run."
        ) from error
    if not root.is_dir():
        raise InputError(
            f"{root}: the data of the run are no longer there; bring them back, or correct 'path' in {where}."
        )
    dataset = read_undivided(root, layout, labels)
    known = {case.name for case in dataset.cases if case.mask or splits.get(case.name) != "unpaired"}
    missing = sorted(set(splits) - known)
    if missing:
        raise InputError(f"{dataset.root}: case {missing[0]!r} of the run is no longer there; restore it.")
    # A case that the run left out stays out.
    cases = tuple(case for case in dataset.cases if case.name in splits)
    return replace(dataset, cases=cases).with_splits(splits)
