"""The card of a shipped model, in Markdown: every figure is read from the run that made it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from shapepu.cli.spelling import train_command
from shapepu.methods import find_method
from shapepu.zoo.export import About, FinishedRun, HalfPrecision

WIDTH = 110
SCORES = {"Dice": 3, "HD95": 1, "ASSD": 2}
"""Scores in the table, as ``summary.json`` calls them, and their decimals."""


def card_text(
    name: str, run: FinishedRun, about: About, halved: HalfPrecision | None, hardware: str | None = None
) -> str:
    """``CARD.md``."""
    sections = {
        "Use": _use(name, run),
        "Data": [about.data, *_split(run)],
        "Training": _training(name, run, about, hardware),
        "Figures": [*_figures(run), _precision(halved)],
        "Limits": [_bullets((*_own_limits(run), *about.limits))],
        "Licence": [about.terms],
        "References": [_bullets(about.references)],
    }
    structures = ", ".join(run.bundle.spec.labels.foreground)
    opening = f"Segments {structures} in {about.segments}. Learned from scribbles by {about.scribbles}"
    alone = find_method(run.settings.method).needs == {"scribbles"}
    opening += "; no dense mask was used to train or to choose it." if alone else ", and not from them alone."
    warning = f"**Research software, not a medical device. Licence of the weights: {about.licence}.**"
    parts = [f"# {name}: {about.title}", opening, warning]
    for title, paragraphs in sections.items():
        parts += [f"## {title}", *paragraphs]
    return "\n\n".join(_filled(part) for part in parts) + "\n"


def licence_text(name: str, about: About) -> str:
    """``LICENSE.md``, beside the weights it is about."""
    parts = [
        f"# Licence of the weights of {name}",
        f"{about.licence[:1].upper()}{about.licence[1:]}.",
        about.terms,
        "The code of shapepu has a licence of its own, which does not extend to these weights.",
        _bullets(about.references),
    ]
    return "\n\n".join(_filled(part) for part in parts) + "\n"


def _use(name: str, run: FinishedRun) -> list[str]:
    spec = run.bundle.spec
    values = ", ".join(
        f"{value} {structure}" for structure, value in spec.labels.as_dict().items() if structure != "ignore"
    )
    rows_mm, columns_mm = spec.preprocessing.spacing_mm or (0.0, 0.0)
    return [
        f"```sh\nshapepu predict {name} IMAGES OUT\nshapepu train DATA --from {name} -o RUN\n```",
        f"Takes volumes of {len(spec.channels)} channel ({', '.join(spec.channels)}) of any size and pixel "
        f"size, and works on their slices at {rows_mm:g} x {columns_mm:g} mm. Labels in the files it writes: "
        f"{values}.",
    ]


def _split(run: FinishedRun) -> Iterator[str]:
    patients = list(dict.fromkeys(case["group"] for case in run.training))
    slices = sum(case["slices"] for case in run.training)
    labelled = sum(sum(case["labelled"].values()) for case in run.training)
    pixels = sum(case["pixels"] for case in run.training)
    yield (
        f"Trained on {len(run.training)} volumes of {len(patients)} patients, {slices} slices, of whose "
        f"pixels {100 * labelled / pixels:.1f} % are scribbled: {', '.join(patients)}."
    )
    scored = list(dict.fromkeys(row["group"] for row in run.score_rows))
    yield f"Scored on {run.scores['volumes']} volumes of {len(scored)} other patients: {', '.join(scored)}."


def _training(name: str, run: FinishedRun, about: About, hardware: str | None) -> list[str]:
    origin, settings = run.bundle.spec.provenance, run.settings
    started = origin.get("started_from")
    settings = replace(settings, start=started["model"] if started else None)
    versions = origin["versions"]
    ended = ""
    if settings.minutes is not None:
        ended = " Minutes end the run, so another machine gets further or less far in them."
    return [
        f"```sh\n{train_command(settings, about.folder, name)}\n```",
        f"{origin['minutes']:g} minutes, {origin['epochs']} epochs, {run.steps} steps of "
        f"{settings.optimisation.batch_size} patches on {hardware or versions['machine']}; seed "
        f"{origin['seed']}, {settings.precision}, {origin['date']}, shapepu {versions['shapepu']}, torch "
        f"{versions['torch']}.{ended}",
    ]


def _figures(run: FinishedRun) -> list[str]:
    scores, names = run.scores, run.scores["labels"]
    lines = [
        "| |" + "".join(f" {score}{_unit(score)} |" for score in SCORES),
        "|---" * (len(SCORES) + 1) + "|",
    ]
    rows = {names[value]: (mean, scores["sd"][value]) for value, mean in scores["mean"].items()}
    rows["average"] = scores["foreground_mean"], scores["foreground_sd"]
    for structure, (mean, sd) in rows.items():
        cells = [_spread(mean[score], sd[score], digits) for score, digits in SCORES.items()]
        lines.append(f"| {structure} | " + " | ".join(cells) + " |")
    case, dice = _worst(run)
    return [
        "\n".join(lines),
        f"Mean ± sd over {scores['volumes']} validation volumes, on their own grids, as `shapepu evaluate` "
        f"scores. The worst volume is {case}, average Dice {dice:.3f}.",
    ]


def _precision(halved: HalfPrecision | None) -> str:
    if halved is None:
        return "Weights are stored in half precision; what that changes was not measured."
    return (
        f"Weights are stored in half precision. On the {halved.cases} validation volumes no probability "
        f"differs by more than {halved.largest_difference:.1g} from those of the full weights, and the "
        f"average Dice is {halved.half_dice:.4f} instead of {halved.full_dice:.4f} (float32 both times)."
    )


def _own_limits(run: FinishedRun) -> tuple[str, ...]:
    scores = run.scores
    return (
        f"The figures are of {scores['volumes']} volumes of {scores['groups']} patients of the same source "
        "as the training data; on images of another scanner, sequence or disease they may be worse.",
        "Slices are segmented one by one, and the largest connected piece is kept: a volume without the "
        "organ gets one all the same.",
    )


def _worst(run: FinishedRun) -> tuple[str, float]:
    """The volume with the lowest mean Dice over the structures that have one."""
    by_case: dict[str, list[float]] = {}
    for row in run.score_rows:
        by_case.setdefault(row["case"], []).extend([float(row["dice"])] if row["dice"] else [])
    means = {case: fmean(dice) for case, dice in by_case.items() if dice}
    worst = min(means, key=lambda case: means[case])
    return worst, means[worst]


def _unit(score: str) -> str:
    return "" if score == "Dice" else " mm"


def _spread(mean: float | None, sd: float | None, digits: int) -> str:
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(item.split())}" for item in items)


def _filled(part: str) -> str:
    """Paragraphs and items in lines of a readable length; commands and tables as they are."""
    if part.startswith(("```", "|", "#")):
        return part
    if part.startswith("- "):
        return "\n".join(_wrapped(line, "  ") for line in part.split("\n"))
    return _wrapped(" ".join(part.split()))


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
