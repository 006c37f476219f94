"""A run as one HTML file that needs nothing but itself: pictures, style and script are all inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from shapepu._version import __version__
from shapepu.errors import InputError
from shapepu.evaluation.metrics import DEFINITIONS
from shapepu.evaluation.report import figures, tables
from shapepu.evaluation.report.axes import BOXES_FROM
from shapepu.evaluation.report.contents import Metrics, RunContents, Scores, reach_of_pool, read_run
from shapepu.evaluation.report.contours import case_figure, extremes, read_case
from shapepu.evaluation.report.inline_svg import inline_svg
from shapepu.evaluation.report.palette import structure_colours
from shapepu.files import write_text

LONG_LIST = 8
"""Values of a setting; a longer list is folded away."""


@dataclass(frozen=True)
class Picture:
    """A drawing for the page."""

    svg: Markup
    caption: str


@dataclass(frozen=True)
class CasePicture:
    """A case worth looking at; ``problem`` says why there is no picture of it."""

    role: str
    name: str
    scores: str
    svg: Markup | None = None
    problem: str = ""


def write_report(run: str | Path, output: str | Path | None = None) -> Path:
    """Write the report of a run folder, finished or not.

    Args:
        run: a folder written by training. What is absent or damaged in it is named in the report.
        output: the HTML file to write, or a folder for it; ``report.html`` in the run folder when None.

    Returns:
        The path of the file. The same run gives the same bytes.
    """
    run = Path(run)
    target = Path(output) if output is not None else run
    if target.is_dir():
        target = target / "report.html"
    write_text(target, render(read_run(run)))
    return target


def render(contents: RunContents) -> str:
    """The page as text."""
    return templates().get_template("run.html.jinja").render(**_context(contents))


def templates() -> Environment:
    """The templates of all pages. Whatever is not :class:`~markupsafe.Markup` is escaped."""
    environment = Environment(
        loader=PackageLoader("shapepu.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["LONG_LIST"] = LONG_LIST
    return environment


def _context(contents: RunContents) -> dict[str, Any]:
    settings, scores = contents.settings, contents.scores
    others = {
        key: value for key, value in (contents.config or {}).items() if key not in ("settings", "versions")
    }
    columns = tables.present_columns(scores) if scores else ()
    return {
        "name": contents.name,
        "dataset": str(contents.section("data").get("name", "")),
        "method": str(settings.get("method", "")),
        "network": str(settings.get("network", "")),
        "tiles": _tiles(contents),
        "unfinished": _unfinished(contents),
        "verdict": tables.verdict(scores) if scores else "",
        "columns": columns,
        "score_rows": tables.score_rows(scores, columns) if scores else (),
        "definitions": DEFINITIONS,
        "score_notes": contents.score_notes or (),
        "boxes": _boxes(scores) if scores else None,
        "cases": _case_pictures(contents, scores) if scores else (),
        "structures": structure_colours(scores.structures) if scores else {},
        "case_rows": tables.case_rows(scores) if scores else (),
        "curves": _curves(contents.metrics, _pooled_pixels(contents)) if contents.metrics else (),
        "coverage": tables.coverage(contents.scribbles) if contents.scribbles else None,
        "settings": settings | others,
        "versions": contents.section("versions"),
        "log": contents.log or (),
        "absent": contents.absent,
        "version": __version__,
    }


def _tiles(contents: RunContents) -> list[tuple[str, str]]:
    """The figures at the top: title and value."""
    tiles = []
    if contents.scores:
        for column in (tables.DICE, tables.HD95):
            if (average := contents.scores.average(column.name)) is not None:
                tiles.append((f"average {column.title}", column.show(average)))
        tiles.append(("cases scored", str(len(contents.scores.cases))))
    if contents.scribbles:
        tiles.append(("cases learnt from", str(len(contents.scribbles))))
    if contents.metrics:
        if not contents.scores and (dice := contents.metrics.last("validation.dice")) is not None:
            tiles.append(("last validation Dice", f"{dice:.3f}"))
        if (minutes := contents.metrics.last("minutes")) is not None:
            tiles.append(("minutes of training", f"{minutes:.1f}"))
        tiles.append(("epochs", f"{contents.metrics.columns['epoch'][-1]:.0f}"))
    return tiles


def _unfinished(contents: RunContents) -> str:
    budget = (contents.settings.get(name) for name in ("epochs", "minutes", "steps"))
    epochs, minutes, steps = (value if isinstance(value, (int, float)) else None for value in budget)
    return tables.unfinished(contents.metrics, epochs, minutes, steps)


def _boxes(scores: Scores) -> Picture:
    description = "Dice and HD95 of every case, per structure; the numbers are in the table above."
    svg = Markup(inline_svg(figures.boxes_figure(scores), "boxes", description))
    return Picture(
        svg,
        "Each point is a case. "
        f"From {BOXES_FROM} cases on, boxes are quartiles and whiskers reach the extremes; "
        "the thick line is the median.",
    )


def _pooled_pixels(contents: RunContents) -> str:
    """The pixels that mixture ratios are shares of: those whose posteriors the run's EM saw."""
    reach = reach_of_pool(contents.settings)
    if reach is None:
        return "the unlabelled pixels"
    return f"the unlabelled pixels within reach ({reach:g}) of a structure's scribbles"


def _curves(metrics: Metrics, pooled: str) -> list[Picture]:
    pictures = []
    if figures.LOSSES.present(metrics) or figures.DICE.present(metrics):
        text = "Mean of each loss term over an epoch, already weighted."
        if figures.DICE.present(metrics):
            text += " Validation Dice is taken on the training grid; the scores above on the native one."
        figure = figures.curves_figure(metrics)
        pictures.append(_picture(figure, "curves", "Losses and validation Dice", text))
    if figures.RATIOS.present(metrics):
        text = (
            f"Share of each structure among {pooled} (α): estimated, or given to a method that is told the "
            "true ratios. A structure whose estimate falls to zero here is being starved by it."
        )
        pictures.append(_picture(figures.ratios_figure(metrics), "ratios", "Mixture ratios", text))
    if figures.LEARNING_RATE.present(metrics) or figures.SPEED.present(metrics):
        pictures.append(
            _picture(figures.pace_figure(metrics), "pace", "Learning rate and images per second", "")
        )
    return pictures


def _picture(figure: figures.Figure, name: str, what: str, caption: str) -> Picture:
    return Picture(Markup(inline_svg(figure, name, f"{what} over the epochs. {caption}".strip())), caption)


def _case_pictures(contents: RunContents, scores: Scores) -> list[CasePicture]:
    means = scores.case_means("dice")
    pictures = []
    for role, name in extremes(means).items():
        found = scores.of_case(name)
        line = f"mean Dice {means[name]:.3f}" + "".join(
            f" · {structure} {tables.DICE.show(score['dice'])}" for structure, score in found.items()
        )
        pictures.append(_case_picture(contents, role, name, line))
    return pictures


def _case_picture(contents: RunContents, role: str, name: str, line: str) -> CasePicture:
    validation = contents.validation
    case = next((case for case in validation.cases if case.name == name), None) if validation else None
    if validation is None or case is None:
        return CasePicture(role, name, line, problem="cases.json does not say where its files are.")
    try:
        figure = case_figure(read_case(case, validation.labels), validation.labels)
    except (InputError, OSError) as error:
        return CasePicture(role, name, line, problem=str(error))
    description = f"{role} case {name}: slices with the contours of prediction and reference. {line}"
    return CasePicture(role, name, line, Markup(inline_svg(figure, f"case-{role}", description)))
