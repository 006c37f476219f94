"""``shapepu check``: a table of all cases, what was found, and whether training can start."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import tyro

from shapepu import console
from shapepu.cli.arguments import parse
from shapepu.data.case import Split
from shapepu.data.check import CaseReport, CheckReport, Finding, check_dataset
from shapepu.data.readers import read_dataset
from shapepu.errors import InputError

_MOST_CLASS_COLUMNS = 8
_HEADLINES = {
    "bare-slices": "some slices have no scribble; usual, but annotated slices are segmented best",
    "constant-image": "an image holds one value everywhere; it can teach nothing",
    "dense-scribble": "a scribble has no unlabelled voxel",
    "duplicate": "two cases hold the same voxels",
    "empty-scribble": "a scribble file is empty; draw in it or leave the case out",
    "geometry-differs": "image and labels lie apart by their headers; the grids match, paired by index",
    "affine-contradicts": "the affine contradicts the pixel sizes; the pixel sizes are used",
    "uneven-slices": "slices of a DICOM series are not evenly spaced; one may be missing",
    "mask-unlabelled": "a dense mask holds unlabelled voxels; scores leave them out",
    "no-background-scribble": "background is not scribbled; without it structures leak into their "
    "surroundings",
    "no-mask": "a validation case without dense mask is not scored in training",
    "non-finite": "an image holds NaN or infinite values",
    "not-whole-numbers": "a label file holds fractions",
    "scribble-contradicts-mask": "scribble and mask disagree; flipped or mixed up?",
    "shape-differs": "labels and image differ in size; they cannot be paired",
    "spacing-differs": "labels and image differ in pixel size; are they of one case?",
    "spacing-unset": "a label file carries no pixel size (1 x 1 x 1); that of the image is used",
    "unknown-label": "a label file holds values outside the label set",
    "unreadable": "a file cannot be read",
}


@dataclass
class Check:
    """Look at every case of a data set before any training.

    Exit code 0: fine. 1: warnings that deserve a look. 2: errors, or the folder cannot be read at all.
    """

    data: tyro.conf.Positional[Path]
    """The data set folder."""
    layout: str = "auto"
    """How the folder is organised: nnunet, acdc, mscmr or folder; "auto" looks at what it holds."""
    splits: Path | None = None
    """A split file, in place of the one in the folder."""
    fold: int = 0
    """Which fold of a split file that lists several."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print one JSON document and nothing else."""
    quiet: bool = False
    """No progress and no table: the findings and the verdict."""


def run(argv: list[str]) -> int:
    arguments = parse(Check, argv, "check")
    try:
        dataset = read_dataset(arguments.data, arguments.layout, splits=arguments.splits, fold=arguments.fold)
    except InputError as error:
        if arguments.as_json:
            print(json.dumps({"root": str(arguments.data), "exit_code": 2, "verdict": str(error)}))
        raise
    what = f"{dataset.name}: {len(dataset.cases)} cases, {dataset.layout} layout"
    console.say(f"checking {what}", quiet=arguments.quiet or arguments.as_json)
    report = check_dataset(dataset, quiet=arguments.quiet)
    if arguments.as_json:
        json.dump(report.as_dict(), sys.stdout, indent=1)
        print()
    else:
        print("\n".join(_lines(report, table=not arguments.quiet)))
    return report.exit_code


def _lines(report: CheckReport, *, table: bool) -> list[str]:
    numbers = _number_kinds(report)
    lines = [*_table(report, numbers), "", *_totals(report), ""] if table else []
    lines += [f"{finding.level:<8} {finding.message}" for finding in report.findings]
    for (level, code), number in numbers.items():
        lines += _group(
            number, [f for f in report.all_findings if f.case and (f.level, f.code) == (level, code)]
        )
    return [*lines, "", report.verdict] if lines and lines[-1] else [*lines, report.verdict]


def _number_kinds(report: CheckReport) -> dict[tuple[str, str], int]:
    """The kinds of finding about cases, the gravest first, numbered so that the table can point at them."""
    kinds = {(finding.level, finding.code) for finding in report.all_findings if finding.case}
    in_order = sorted(kinds, key=lambda kind: (["error", "warning", "note"].index(kind[0]), kind[1]))
    return {kind: number for number, kind in enumerate(in_order, start=1)}


def _group(number: int, findings: Sequence[Finding]) -> list[str]:
    """One kind of finding: errors in full, for they are to be mended one by one; of the rest an example."""
    first = findings[0]
    cases = len({finding.case for finding in findings})
    where = first.case if cases == 1 else f"{cases} cases"
    shown = findings[:20] if first.level == "error" else findings[:1]
    headline = _HEADLINES.get(first.code, first.code)
    lines = [f"{first.level:<8} [{number}] {where}: {headline}"]
    lines += [f"         {'' if first.level == 'error' else 'e.g. '}{finding.message}" for finding in shown]
    if first.level == "error" and len(findings) > len(shown):
        lines.append(f"         and {len(findings) - len(shown)} more")
    return lines


def _table(report: CheckReport, numbers: dict[tuple[str, str], int]) -> list[str]:
    names = report.labels.names
    few = len(names) <= _MOST_CLASS_COLUMNS
    classes: list[tuple[str, Callable[[CaseReport], str]]] = [
        (name, lambda case, name=name: str(case.scribble_voxels.get(name, "-")))  # type: ignore[misc]
        for name in names
    ]
    columns: list[tuple[str, Callable[[CaseReport], str]]] = [
        ("case", lambda case: case.name),
        ("split", lambda case: case.split),
        ("size", lambda case: "x".join(map(str, case.shape[::-1])) if case.shape else "-"),
        ("mm", lambda case: "x".join(f"{s:.3g}" for s in case.spacing_mm[::-1]) if case.spacing_mm else "-"),
        *(classes if few else []),
        ("scribbled", lambda case: f"{case.labelled / case.voxels:.2%}" if case.voxels else "-"),
        ("findings", lambda case: _pointers(case, numbers)),
    ]
    rows = [[title for title, _ in columns]]
    rows += [[cell(case) for _, cell in columns] for case in report.cases]
    widths = [max(len(row[index]) for row in rows) for index in range(len(columns))]
    left = {0, 1, len(columns) - 1}
    return [
        "  ".join(
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _pointers(case: CaseReport, numbers: dict[tuple[str, str], int]) -> str:
    return " ".join(f"[{n}]" for n in sorted({numbers[f.level, f.code] for f in case.findings}))


def _totals(report: CheckReport) -> list[str]:
    splits = Counter(case.split for case in report.cases)
    parts = ", ".join(f"{splits[split]} {split}" for split in get_args(Split) if splits[split])
    groups = len({case.group for case in report.cases})
    patients = f" of {groups} patients" if groups < len(report.cases) else ""
    lines = [f"{len(report.cases)} cases{patients}: {parts}"]
    if report.coverage:
        drawn = ", ".join(f"{name} {voxels}" for name, voxels in report.scribble_voxels.items())
        lines.append(f"scribbled in training: {report.coverage:.2%} of the voxels ({drawn})")
    compared = [case.agreement for case in report.cases if case.agreement is not None]
    if compared:
        mean = sum(compared) / len(compared)
        lines.append(f"scribbles agree with masks, where both are: {mean:.1%} of the scribbled voxels")
    return lines
