"""``shapepu train``: from a folder of images and scribbles to a run folder with a model."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from shapepu.cli.arguments import parse
from shapepu.console import say


@dataclass(frozen=True)
class TrainArguments:
    """Train a segmentation model from images and scribbles.

    The options of the method and of the recipe follow below with the values they have now; a run folder keeps
    all of them in config.yaml.
    """

    data: tyro.conf.Positional[Path | None] = None
    """Folder with images and scribbles; not given with --resume."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Run folder to make (default: runs/DATA-METHOD-TIME)."""
    method: str = "shapepu"
    """Training method; `shapepu methods` lists them."""
    recipe: str = "fast"
    """Starting point of all settings: fast or paper."""
    resume: Path | None = None
    """Run folder to go on with; --epochs or --minutes extend it."""
    epochs: int | None = None
    """Stop after this many passes over the data."""
    minutes: float | None = None
    """Stop after this many minutes."""
    layout: str = "auto"
    """Layout of the data folder; auto looks at it."""
    splits: Path | None = None
    """JSON file that says which cases train and which validate."""
    fold: int | None = None
    """Hold out this fold of the training patients to validate on."""
    folds: int = 5
    """Into how many folds --fold divides the patients."""
    cache: Path | None = None
    """Where preprocessed slices are kept (default: the user's cache folder)."""
    quiet: bool = False
    """Say nothing but errors."""


def run(argv: list[str]) -> int:
    first = _first_look(argv)
    if not first.quiet and not {"-h", "--help"} & set(argv):
        say("shapepu train: loading")  # torch takes seconds to import, and a person should not wonder
    from shapepu import api
    from shapepu.errors import InputError

    if first.resume is not None:
        arguments = parse(TrainArguments, argv, "train")
        _refuse_changes(arguments)
        assert arguments.resume is not None
        api.resume(
            arguments.resume,
            epochs=arguments.epochs,
            minutes=arguments.minutes,
            cache=arguments.cache,
            quiet=arguments.quiet,
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
        layout=arguments.layout,
        splits=arguments.splits,
        fold=arguments.fold,
        folds=arguments.folds,
        cache=arguments.cache,
        quiet=arguments.quiet,
    )
    return 0


def _first_look(argv: list[str]) -> argparse.Namespace:
    """The options that decide which other options there are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for option, default in (
        ("--method", "shapepu"),
        ("--recipe", "fast"),
        ("--network", None),
        ("--resume", None),
    ):
        parser.add_argument(option, default=default, nargs="?")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_known_args(argv)[0]


def _parse_with_recipe(argv: list[str], first: argparse.Namespace) -> tuple[TrainArguments, Any]:
    """Parse against the recipe's settings for the method, so that --help shows the values in force."""
    from shapepu.settings import settings_for

    settings = settings_for(first.recipe, first.method)
    if first.network is not None:
        settings = replace(settings, network=first.network, network_options=None)
    sections = {
        first.method: settings.method_options,
        "net": settings.network_options,
        "preprocessing": settings.preprocessing,
        "augmentation": settings.augmentation,
        "optimisation": settings.optimisation,
    }
    extra: list[Any] = [
        (name, type(options), field(default=options)) for name, options in sections.items() if fields(options)
    ]
    for name in ("network", "seed", "precision", "device", "validation_share"):
        kinds: dict[str, Any] = {
            "network": Annotated[str, tyro.conf.arg(help="Network; its options follow under net.")],
            "seed": Annotated[int, tyro.conf.arg(help="Of every random draw.")],
            "precision": Annotated[
                Literal["bf16", "fp32"], tyro.conf.arg(help="Of the network; losses are fp32.")
            ],
            "device": Annotated[
                Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="auto takes a GPU when there is one.")
            ],
            "validation_share": Annotated[
                float, tyro.conf.arg(help="Share of the time that validation may take.")
            ],
        }
        extra.append((name, kinds[name], field(default=getattr(settings, name))))
    complete = make_dataclass("TrainOptions", extra, bases=(TrainArguments,), frozen=True)
    complete.__doc__ = TrainArguments.__doc__
    arguments: Any = parse(complete, argv, "train")
    chosen = {name: getattr(arguments, name) for name, _, _ in extra}
    renamed = {first.method: "method_options", "net": "network_options"}
    return arguments, replace(settings, **{renamed.get(name, name): value for name, value in chosen.items()})


def _refuse_changes(arguments: TrainArguments) -> None:
    """A run goes on with the settings it was started with; only its end may move."""
    from shapepu.errors import InputError

    may_change = {"resume", "epochs", "minutes", "cache", "quiet"}
    for each in fields(arguments):
        if each.name not in may_change and getattr(arguments, each.name) != each.default:
            raise InputError(
                f"--{each.name}: a resumed run keeps its settings (see config.yaml); start a new run instead."
            )
