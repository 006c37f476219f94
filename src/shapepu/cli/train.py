"""``shapepu train``: from a folder of images and scribbles to a run folder with a model."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from shapepu.cli.arguments import parse, parse_known, remove_markup
from shapepu.cli.spelling import section_fields
from shapepu.console import say
from shapepu.precision import Precision
from shapepu.predict_options import Averaging


def _unset(metavar: str, default: str, **more: Any) -> Any:
    """How the help shows an option that nobody has to give."""
    hint = f"(default: {default})" if default else ""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint, **more)


@dataclass(frozen=True)
class TrainArguments:
    """Train a segmentation model from images and scribbles.

    The options of the method, the network and the recipe follow with the values that are in force; another
    --method, --network or --recipe shows others. A run folder keeps all of them in config.yaml.
    """

    data: Annotated[tyro.conf.Positional[Path | None], _unset("[DATA]", "")] = None
    """Folder with images and scribbles; a resumed run knows its own."""
    output: Annotated[Path | None, _unset("RUN", "runs/DATA-METHOD-TIME", aliases=["-o"])] = None
    """Run folder to make; one that is there already is never overwritten."""
    method: str = "shapepu"
    """Training method; `shapepu methods` lists them."""
    recipe: str = "fast"
    """Starting point of all settings: fast, thorough or paper."""
    resume: Annotated[Path | None, _unset("RUN", "none")] = None
    """Run folder to go on with, as if it had not stopped; --epochs, --minutes or --steps extend it."""
    epochs: Annotated[int | None, _unset("NUMBER", "as the recipe says")] = None
    """Stop after this many passes over the data."""
    minutes: Annotated[float | None, _unset("NUMBER", "as the recipe says")] = None
    """Stop after this many minutes; with --epochs, whichever comes first."""
    steps: Annotated[int | None, _unset("NUMBER", "as the recipe says")] = None
    """Stop after this many batches, likewise: for runs that are equally long on other data."""
    layout: str = "auto"
    """Layout of the data folder; auto looks at it."""
    splits: Annotated[Path | None, _unset("FILE", "the data set's own")] = None
    """JSON file that says which cases train and which validate."""
    fold: Annotated[int | None, _unset("NUMBER", "none")] = None
    """Hold out this fold of the training patients, counted from 0, or that of a split file with folds."""
    folds: int = 5
    """Into how many folds --fold divides the patients."""
    cache: Annotated[Path | None, _unset("FOLDER", "the user's cache folder")] = None
    """Where preprocessed slices are kept."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say nothing but errors."""


@dataclass(frozen=True)
class ResumeArguments:
    """Go on with a run as if it had not stopped, or extend it.

    A run keeps its data and settings, which are in its config.yaml.
    """

    resume: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """Run folder to go on with."""
    epochs: Annotated[int | None, _unset("NUMBER", "as it was")] = None
    """Stop after this many passes over the data, counted from the start of the run."""
    minutes: Annotated[float | None, _unset("NUMBER", "as it was")] = None
    """Stop after this many minutes, counted likewise; with --epochs, whichever comes first."""
    steps: Annotated[int | None, _unset("NUMBER", "as it was")] = None
    """Stop after this many batches, counted likewise."""
    cache: Annotated[Path | None, _unset("FOLDER", "the user's cache folder")] = None
    """Where preprocessed slices are kept."""
    quiet: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say nothing but errors."""


def run(argv: list[str]) -> int:
    first = _first_look(argv)
    if not first.quiet and not {"-h", "--help"} & set(argv):
        say("shapepu train: loading")  # torch takes seconds to import, and a person should not wonder
    from shapepu import api
    from shapepu.errors import InputError

    if first.resume is not None:
        resumed, others = parse_known(ResumeArguments, argv, "train")
        if others:
            raise InputError(
                f"{others[0]} cannot be given with --resume: a run keeps its data and settings (see its "
                "config.yaml), only --epochs, --minutes or --steps can extend it; to change more, start a "
                "new run."
            )
        api.resume(
            resumed.resume,
            epochs=resumed.epochs,
            minutes=resumed.minutes,
            steps=resumed.steps,
            cache=resumed.cache,
            quiet=resumed.quiet,
        )
        return 0
    arguments, settings = _parse_with_recipe(argv, first)
    if arguments.data is None:
        raise InputError("no data given; name a folder with images and scribbles, or a run with --resume.")
    api.train(
        arguments.data,
        output=arguments.output,
        settings=settings,
        epochs=arguments.epochs,
        minutes=arguments.minutes,
        steps=arguments.steps,
        layout=arguments.layout,
        splits=arguments.splits,
        fold=arguments.fold,
        folds=arguments.folds,
        cache=arguments.cache,
        quiet=arguments.quiet,
    )
    return 0


_SINGLE_SETTINGS: dict[str, Any] = {
    "start": Annotated[
        str | None,
        _unset(
            "MODEL",
            "none",
            name="from",
            help="Run, bundle or shipped model (`shapepu models`) whose weights to start from; its network "
            "and pixel size come with them.",
        ),
    ],
    "network": Annotated[str, tyro.conf.arg(help="Network; its options follow under net.")],
    "seed": Annotated[int, tyro.conf.arg(help="Of every random draw.")],
    "precision": Annotated[
        Precision,
        tyro.conf.arg(help="Of the networks; losses are fp32 either way. auto takes bf16 where it is fast."),
    ],
    "compile": Annotated[
        bool, tyro.conf.arg(help="Compile the networks first, which has not made steps shorter anywhere yet.")
    ],
    "device": Annotated[
        Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="auto takes a GPU when there is one.")
    ],
    "averaging": Annotated[
        Averaging,
        tyro.conf.arg(
            help="Views of a slice that the model's predictions are averaged over unless `predict` is "
            "told otherwise. auto: flips, where training mirrors and turns."
        ),
    ],
    "validation_share": Annotated[float, tyro.conf.arg(help="Share of the time that validation may take.")],
}
"""Fields of TrainSettings that are options by themselves, not sections of options."""


def _first_look(argv: list[str]) -> argparse.Namespace:
    """The options that decide which other options there are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option, default in (
        ("--method", "shapepu"),
        ("--recipe", "fast"),
        ("--network", None),
        ("--from", None),
        ("--resume", None),
    ):
        parser.add_argument(option, default=default, const=default, nargs="?")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_known_args(argv)[0]


def _parse_with_recipe(argv: list[str], first: argparse.Namespace) -> tuple[TrainArguments, Any]:
    """Parse against the recipe's settings for the method, so that --help shows the values in force."""
    from shapepu.settings import settings_for
    from shapepu.starting import adopt

    settings = settings_for(first.recipe, first.method)
    start = getattr(first, "from")
    if start is not None:
        settings = adopt(settings, start)
    if first.network not in (None, settings.network):
        settings = replace(settings, network=first.network, network_options=None)
    field_of = section_fields(first.method)
    sections = {section: getattr(settings, name) for section, name in field_of.items()}
    for options in sections.values():
        remove_markup(type(options))
    extra: list[Any] = [
        (name, type(options), field(default=options)) for name, options in sections.items() if fields(options)
    ]
    extra += [(name, kind, field(default=getattr(settings, name))) for name, kind in _SINGLE_SETTINGS.items()]
    complete = make_dataclass("TrainOptions", extra, bases=(TrainArguments,), frozen=True)
    complete.__doc__ = TrainArguments.__doc__
    arguments: Any = parse(complete, argv, "train")
    chosen = {name: getattr(arguments, name) for name, _, _ in extra}
    return arguments, replace(settings, **{field_of.get(name, name): value for name, value in chosen.items()})
