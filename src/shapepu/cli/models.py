"""``shapepu models``: the trained models that come with the package."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from shapepu.cli.arguments import parse
from shapepu.cli.listing import print_rows
from shapepu.errors import InputError
from shapepu.zoo import ShippedModel, card_of, shipped_models


@dataclass(frozen=True)
class ModelsArguments:
    """List the trained models that come with the package, or show the card of one.

    `shapepu predict MODEL IMAGES OUT` segments with one, `shapepu train DATA --from MODEL` starts from it.
    """

    model: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[MODEL]")] = None
    """Show the card of this model: data, training, figures, limits, licence."""
    as_json: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(name="json")] = False
    """Print JSON instead of a table."""


def run(argv: list[str]) -> int:
    arguments = parse(ModelsArguments, argv, "models")
    if arguments.model is not None:
        if arguments.as_json:
            raise InputError("--json lists the models; leave it out to read the card of one.")
        print(card_of(arguments.model), end="")
        return 0
    models = [ShippedModel.read(folder) for folder in shipped_models().values()]
    if not models and not arguments.as_json:
        print("no model comes with this version; train one: shapepu train DATA -o RUN")
        return 0
    rows = [asdict(model) for model in models]
    print_rows(rows if arguments.as_json else [_in_words(row) for row in rows], as_json=arguments.as_json)
    return 0


def _in_words(row: dict[str, Any]) -> dict[str, str]:
    """A line of the table."""
    scored = f"{row['dice']:.3f} ({row['volumes']} volumes)" if row["dice"] is not None else "-"
    return {
        "model": row["model"],
        "segments": row["segments"],
        "scribbles": row["scribbles"],
        "classes": ", ".join(row["classes"]),
        "pixel mm": "x".join(f"{side:g}" for side in row["pixel_mm"]),
        "Dice": scored,
        "licence": row["licence"],
    }
