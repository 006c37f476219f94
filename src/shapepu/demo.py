"""Synthetic hearts, their scribbles, two models and how good they are: everything once, in three minutes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from shapepu import api
from shapepu.console import say
from shapepu.data.phantom import make_case, write_phantom_dataset
from shapepu.data.volumes import read_labels, read_volume
from shapepu.errors import InputError
from shapepu.evaluation.report.contours import picture_scribble_to_prediction
from shapepu.evaluation.report.page import write_report
from shapepu.evaluation.results import Evaluation
from shapepu.evaluation.scoring import score_folders
from shapepu.files import writable_folder, write_text
from shapepu.model import Model

TRAIN_CASES, VALIDATION_CASES, TEST_CASES = 40, 4, 10


@dataclass(frozen=True)
class DemoResult:
    """What the demo prints: the scores of each method on cases that neither has seen."""

    scores: dict[str, Evaluation]
    report: Path
    picture: Path
    minutes: float

    @property
    def dice(self) -> dict[str, float]:
        return {method: scores.spread("dice").mean for method, scores in self.scores.items()}


def run_demo(output: Path, *, epochs: int, seed: int, quiet: bool = False) -> DemoResult:
    """Make data, train PCE and ShapePU on the same scribbles, and score both on cases that neither has seen.

    Args:
        output: folder of everything that is made; what is finished in it is used again, and an interrupted
            run goes on.
        epochs: of each method; not minutes, so that a busy machine takes longer and gets the same result.
        seed: of the data and of both runs.
        quiet: say nothing.
    """
    started = time.monotonic()
    data = writable_folder(output) / "data"
    _claim(output, {"epochs": epochs, "seed": seed})
    if not (data / "labels.json").exists():
        write_phantom_dataset(
            data, train=TRAIN_CASES, val=VALIDATION_CASES, test=TEST_CASES, seed=seed, quiet=quiet
        )
    scores = {}
    for method in ("pce", "shapepu"):
        model = _trained(output / method, data, method, epochs, seed, quiet)
        predictions = output / "predictions" / method
        # Seconds, and never those of an earlier version of the package.
        model.predict_folder(data / "test" / "images", predictions, overwrite=True, quiet=quiet)
        scores[method] = score_folders(predictions, data / "test" / "masks", labels=model.labels)
        scores[method].write(predictions)
        say(f"{method}: Dice {scores[method].spread('dice').mean:.3f} on unseen cases", quiet=quiet)
    report = write_report(output / "shapepu", output / "report.html")
    picture = _picture(output, data, seed)
    return DemoResult(scores, report, picture, (time.monotonic() - started) / 60)


def _claim(output: Path, asked: dict[str, int]) -> None:
    """Refuse a folder of another demo: its runs would be shown as if they were those asked for now."""
    record = output / "demo.json"
    text = json.dumps(asked) + "\n"
    if not record.exists():
        write_text(record, text)
    elif record.read_text(encoding="utf-8") != text:
        raise InputError(
            f"{output}: holds a demo with other --epochs or --seed; give another folder with --output, or "
            "remove it."
        )


def _trained(run: Path, data: Path, method: str, epochs: int, seed: int, quiet: bool) -> Model:
    cache = run.parent / "cache"
    if (run / "validation" / "cases.json").exists():  # which needs the exported model, so that is there too
        return api.load(run)
    if (run / "config.yaml").exists():
        return api.resume(run, cache=cache, quiet=quiet)
    return api.train(data, output=run, method=method, epochs=epochs, seed=seed, cache=cache, quiet=quiet)


def _picture(output: Path, data: Path, seed: int) -> Path:
    """Scribbles, prediction and truth of the first training case, whose mask the models never had."""
    case = sorted((data / "train" / "images").iterdir())[0].name
    mask = make_case((seed, 0, 0)).mask
    model = api.load(output / "shapepu")
    image = read_volume(data / "train" / "images" / case)
    scribbles = read_labels(data / "train" / "scribbles" / case, model.labels)
    predicted = model.predict(data / "train" / "images" / case)
    shown = int((mask > 0).sum(axis=(1, 2)).argmax())
    target = output / "scribble-to-prediction.png"
    picture_scribble_to_prediction(
        image.array[shown],
        scribbles[shown],
        predicted[shown],
        mask[shown],
        target,
        names=model.labels.names,
        pixel_mm=(image.spacing_mm[1], image.spacing_mm[2]),
    )
    return target
