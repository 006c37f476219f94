"""From files to files: many cases, each whole or not at all, going on where an earlier process stopped.

A case is finished when its labels are there, because they are written last. What a killed process leaves has
a hidden name and is no result.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shapepu.bundle import Bundle
from shapepu.claims import waiting_claim
from shapepu.console import progress, say
from shapepu.data.case import Case
from shapepu.data.readers.listing import some
from shapepu.data.volumes import Volume, image_suffix, read_volume, write_labels, write_scalar
from shapepu.errors import InputError
from shapepu.files import atomic_path, explained, writable_folder, write_text
from shapepu.inference import Prediction, predict_volume
from shapepu.labels import LabelSet
from shapepu.predict_options import PredictOptions
from shapepu.sharding import Shard
from shapepu.sources import Source, find_sources

RECORD = "prediction.json"
"""Beside the predictions: which model made them, how, and what their values mean."""

CLAIM = ".prediction.lock"
"""Held while a folder passes from one model to another."""

SECONDS_BETWEEN_LINES = 10

EVERYTHING = PredictOptions(probabilities=True, uncertainty=True)
"""Options under which all files are made that a case can have."""

Reading = Future[tuple[Volume, ...]]


@dataclass(frozen=True)
class Job:
    """One case and where its results go: probabilities and uncertainty in folders beside the labels."""

    source: Source
    labels: Path
    probabilities: Path | None
    uncertainty: Path | None

    @classmethod
    def of(cls, source: Source, target: Path, options: PredictOptions) -> Job:
        stem = target.name[: len(target.name) - len(image_suffix(target))]
        # Overlapping segments have no meaning for a scalar.
        ending = image_suffix(target).removeprefix(".seg")
        return cls(
            source,
            target,
            target.parent / "probabilities" / f"{stem}.npz" if options.probabilities else None,
            target.parent / "uncertainty" / f"{stem}{ending}" if options.uncertainty else None,
        )

    @property
    def outputs(self) -> tuple[Path, ...]:
        """The files that the options ask for."""
        return tuple(path for path in (self.labels, self.probabilities, self.uncertainty) if path is not None)

    @property
    def finished(self) -> bool:
        return all(path.exists() for path in self.outputs)

    @property
    def earlier_outputs(self) -> tuple[Path, ...]:
        """The files of the case that are there, whatever options made them."""
        return tuple(path for path in Job.of(self.source, self.labels, EVERYTHING).outputs if path.exists())

    def read(self) -> tuple[Volume, ...]:
        if self.source.problem:
            raise InputError(self.source.problem)
        return tuple(read_volume(path) for path in self.source.images)

    def write(self, prediction: Prediction, like: Volume, labels: LabelSet) -> None:
        """All results of the case, the labels last."""
        if self.probabilities is not None:
            assert prediction.probabilities is not None
            with atomic_path(self.probabilities) as temporary:
                np.savez_compressed(
                    temporary, probabilities=prediction.probabilities, classes=np.array(labels.names)
                )
        if self.uncertainty is not None:
            assert prediction.uncertainty is not None
            write_scalar(self.uncertainty, prediction.uncertainty, like)
        write_labels(self.labels, labels.to_file(prediction.labels), like)


@dataclass(frozen=True)
class Outcome:
    """What became of a list of cases.

    Args:
        predicted: label files written now.
        skipped: label files that were there already.
        failures: the reason for each case that could not be predicted, by name.
        seconds: from the first case to the last.
    """

    predicted: tuple[Path, ...]
    skipped: tuple[Path, ...]
    failures: Mapping[str, str]
    seconds: float


def predict_files(
    bundle: Bundle,
    images: str | Path,
    out: str | Path,
    *,
    options: PredictOptions | None = None,
    shard: Shard | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Outcome:
    """Predict every case in ``images``.

    Args:
        bundle: the model.
        images: a folder of image files or DICOM series folders, one file, or one DICOM series folder.
        out: a folder; for one case also the name of the label file to write.
        options: how; the defaults when None.
        shard: which of the cases, when several processes share the folder.
        overwrite: predict again what is there already.
        quiet: say nothing but errors.
    """
    options, images, out = options or PredictOptions(), Path(images), Path(out)
    sources = find_sources(images, bundle.spec.channels)
    jobs = [Job.of(source, target, options) for source, target in _targets(sources, images, out).items()]
    made_here = not jobs[0].labels.parent.exists()
    writable_folder(jobs[0].labels.parent)
    if jobs[0].labels != out:
        _take_folder(out, _record(bundle, options), jobs, overwrite=overwrite)
    shard = shard or Shard()
    if shard.count > 1:
        say(f"{shard} by {shard.origin}: {len(shard.of(jobs))} of {len(jobs)} cases", quiet=quiet)
    outcome = _run(bundle, shard.of(jobs), options, overwrite=overwrite, quiet=quiet)
    if outcome.failures and len(jobs) == 1:
        if made_here and {path.name for path in jobs[0].labels.parent.iterdir()} <= {RECORD}:
            shutil.rmtree(jobs[0].labels.parent)
        raise InputError(outcome.failures[sources[0].name])
    return outcome


def predict_cases(
    bundle: Bundle,
    cases: Sequence[Case],
    out: str | Path,
    *,
    options: PredictOptions | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> list[Path]:
    """Predict the cases of a data set into the folder ``out``; one label file a case, in their order."""
    options = options or PredictOptions()
    sources = [Source(case.name, case.images) for case in cases]
    folder = writable_folder(out)
    jobs = [Job.of(source, folder / (source.name + source.ending), options) for source in sources]
    outcome = _run(bundle, jobs, options, overwrite=overwrite, quiet=quiet)
    if outcome.failures:
        raise InputError(next(iter(outcome.failures.values())))
    return [job.labels for job in jobs]


def _targets(sources: Sequence[Source], images: Path, out: Path) -> dict[Source, Path]:
    """The label file of each case, after proving that none is an image or would be taken for one."""
    if image_suffix(out) and not out.is_dir():
        if len(sources) > 1:
            raise InputError(f"{out}: a folder expected for the predictions of {len(sources)} cases.")
        if image_suffix(out) == ".mhd":
            raise InputError(f"{out}: labels are written as one file; end its name in .mha.")
        targets = {sources[0]: out}
    else:
        targets = {source: out / (source.name + source.ending) for source in sources}
    inputs = {path.resolve() for source in sources for path in source.images}
    same_folder = images.is_dir() and out.resolve() == images.resolve()
    if same_folder or any(target.resolve() in inputs for target in targets.values()):
        raise InputError(f"{out}: holds the images; give another place for the predictions.")
    return targets


def _run(
    bundle: Bundle, jobs: Sequence[Job], options: PredictOptions, *, overwrite: bool, quiet: bool
) -> Outcome:
    finished = [job.finished and not overwrite for job in jobs]
    todo = [job for job, done in zip(jobs, finished, strict=True) if not done]
    skipped = [job.labels for job, done in zip(jobs, finished, strict=True) if done]
    if skipped:
        say(f"{len(skipped)} of {len(jobs)} cases are finished already and skipped", quiet=quiet)
    predicted: list[Path] = []
    failures: dict[str, str] = {}
    started = time.monotonic()
    for job, reading in _told(_read_ahead(todo), len(todo), quiet=quiet):
        if job.finished and not overwrite:  # by another process, meanwhile
            skipped.append(job.labels)
            continue
        try:
            images = reading.result()
            prediction = predict_volume(bundle, images, options)
        except (InputError, MemoryError, torch.OutOfMemoryError) as error:
            failures[job.source.name] = str(error) or type(error).__name__
            say(f"{job.source.name} failed: {failures[job.source.name]}", quiet=len(jobs) == 1)
            continue
        # Not in the try block: what cannot be written now cannot be written for the next case either.
        _remove(job.earlier_outputs if overwrite else ())
        job.write(prediction, images[0], bundle.spec.labels)
        predicted.append(job.labels)
    return Outcome(tuple(predicted), tuple(skipped), failures, time.monotonic() - started)


def _read_ahead(jobs: Sequence[Job]) -> Iterator[tuple[Job, Reading]]:
    """Each job with its images, which are read while the one before is predicted."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        ahead = [reader.submit(job.read) for job in jobs[:1]]
        for number, job in enumerate(jobs, start=1):
            reading = ahead.pop()
            ahead += [reader.submit(following.read) for following in jobs[number : number + 1]]
            yield job, reading


def _told(work: Iterator[tuple[Job, Reading]], total: int, *, quiet: bool) -> Iterator[tuple[Job, Reading]]:
    """``work`` with a progress bar at a terminal, and with a line now and then in a log."""
    started = told = time.monotonic()
    for number, item in enumerate(progress(work, what="predicting", total=total, unit="case", quiet=quiet)):
        now = time.monotonic()
        if number and now - told > SECONDS_BETWEEN_LINES and not sys.stderr.isatty():
            told, each = now, (now - started) / number
            say(
                f"{number} of {total} cases, {each:.1f} s each, {each * (total - number):.0f} s left",
                quiet=quiet,
            )
        yield item


def _record(bundle: Bundle, options: PredictOptions) -> dict[str, Any]:
    """Which model the label files are by, and with which options."""
    options = options.for_model(bundle.spec.averaging)
    return {
        "labels": bundle.spec.labels.as_dict(),
        "model": {
            "method": bundle.spec.method,
            "network": bundle.spec.network,
            "weights_sha256": bundle.fingerprint,
        },
        "options": {"largest_component": options.largest_component, "averaging": options.averaging},
    }


def _take_folder(folder: Path, record: dict[str, Any], jobs: Sequence[Job], *, overwrite: bool) -> None:
    """Make ``folder`` that of ``record``; never does it hold predictions of two models.

    What an earlier model left goes before the record changes: whatever is there under the new record, and is
    skipped as finished, is by the new model, also after an interruption.
    """
    # Looked for before the record is read: another shard writes its record first and its outputs after it.
    taken = any(job.earlier_outputs for job in jobs) or _holds_predictions(folder)
    if _read_record(folder / RECORD) == record:
        return
    if not taken:
        write_text(folder / RECORD, _as_text(record))
        return
    if not overwrite:
        raise InputError(
            f"{folder}: holds label files by another model, with other options or drawn by hand; give "
            "another folder, or --overwrite."
        )
    with waiting_claim(folder / CLAIM):
        # Another shard may have done all this meanwhile, and what is there may be its work by now.
        if _read_record(folder / RECORD) != record:
            _reject_label_files_of_others(folder, jobs)
            _remove([path for job in jobs for path in job.earlier_outputs])
            write_text(folder / RECORD, _as_text(record))


def _holds_predictions(folder: Path) -> bool:
    """Whether label files lie beside a record, of these images or of others."""
    return (folder / RECORD).exists() and bool(_label_files(folder))


def _label_files(folder: Path) -> list[Path]:
    """In the order of their names; hidden ones are files in the making."""
    return sorted(path for path in folder.iterdir() if image_suffix(path) and not path.name.startswith("."))


def _reject_label_files_of_others(folder: Path, jobs: Sequence[Job]) -> None:
    """Predictions of other images would pass for those of the new model, and are not ours to remove."""
    ours = {job.labels for job in jobs}
    others = [path.name for path in _label_files(folder) if path not in ours]
    if others and (folder / RECORD).exists():
        raise InputError(
            f"{folder}: holds label files of other images too, by another model or with other options "
            f"({some(others, 3)}), which --overwrite would leave there; move them away, or give another "
            "folder."
        )


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with explained(path):
            path.unlink(missing_ok=True)


def _as_text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"


def _read_record(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
