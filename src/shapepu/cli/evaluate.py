"""``shapepu evaluate``: how good are these predictions, and are they better than those?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from shapepu.cli.arguments import parse
from shapepu.console import say


@dataclass(frozen=True)
class EvaluateArguments:
    """Score predictions against references: Dice, surface distances in mm, volumes in ml.

    Writes cases.csv (a row for each case and structure) and summary.json (nnU-Net's keys) and prints a table.
    """

    predictions: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="PREDICTIONS")]
    """Folder of predicted label maps, or one label map."""
    references: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="REFERENCES")]
    """Folder of masks named as the predictions (an ending _mask, _gt, _manual or _label does not matter),
    one mask, or a data set folder."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for cases.csv and summary.json (default: the folder of the predictions)."""
    against: Path | None = None
    """Predictions of the same cases to compare with: paired tests, written to against.json."""
    split: Literal["train", "val", "test"] = "val"
    """Which cases of a data set folder to score."""
    layout: str = "auto"
    """Layout of the data set folder; auto looks at it."""
    splits: Path | None = None
    """JSON file that says which cases of the data set folder are val or test."""
    labels: Path | None = None
    """JSON file with class names and values, as labels.json, dataset.json or model.json (default: the data
    set's own, or one beside the files, or the numbers in the files)."""
    ignore: int | None = None
    """Value of unlabelled voxels in the references, where --labels does not say so."""
    allow_missing: tyro.conf.FlagCreatePairsOff[bool] = False
    """Score what is there when a reference has no prediction."""
    group_regex: str | None = None
    """Regular expression whose first bracket finds the patient in the name of a mask (default: the name
    without _frameNN, _ED or _ES); a data set folder knows its patients."""
    as_json: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False
    """Print the summary as JSON instead of a table."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print the table only."""


def run(argv: list[str]) -> int:
    arguments = parse(EvaluateArguments, argv, "evaluate")
    from shapepu.evaluation.comparison import compare
    from shapepu.evaluation.pairing import GROUP_PATTERN, read_labels
    from shapepu.evaluation.results import without_nan
    from shapepu.evaluation.scoring import score_folders
    from shapepu.files import writable_folder

    options: dict[str, Any] = {
        "ignore": arguments.ignore,
        "split": arguments.split,
        "layout": arguments.layout,
        "splits": arguments.splits,
        "allow_missing": arguments.allow_missing,
        "group_pattern": arguments.group_regex or GROUP_PATTERN,
        "quiet": arguments.quiet,
    }
    labels = read_labels(arguments.labels) if arguments.labels else None
    evaluation = score_folders(arguments.predictions, arguments.references, labels=labels, **options)
    comparison = None
    if arguments.against is not None:
        options["ignore"] = None  # the labels say so by now
        other = score_folders(arguments.against, arguments.references, labels=evaluation.labels, **options)
        comparison = compare(evaluation, other, names=_names(arguments.predictions, arguments.against))

    # Printed before it is written: a folder that turns out to be full costs no result.
    if arguments.as_json:
        summary = evaluation.summary | ({"against": comparison.summary} if comparison else {})
        print(json.dumps(without_nan(summary), allow_nan=False))
    else:
        print(evaluation.table())
        if comparison is not None:
            print(f"\n{comparison.table()}")
    output = writable_folder(arguments.output or _folder(arguments.predictions))
    evaluation.write(output)
    if comparison is not None:
        comparison.write(output)
    written = "cases.csv, summary.json" + (", against.json" if comparison else "")
    say(f"Written to {output}: {written}", quiet=arguments.quiet)
    return 0


def _folder(predictions: Path) -> Path:
    return predictions if predictions.is_dir() else predictions.parent


def _names(first: Path, second: Path) -> tuple[str, str]:
    """Headings for two folders: their names where these differ, else their paths."""
    if first.name and first.name != second.name:
        return first.name, second.name
    return str(first), str(second)
