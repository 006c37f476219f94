"""A folder of shipped models, made for a test in the place of the real one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shapepu import zoo
from shapepu.bundle import save_bundle
from tiny_models import random_method, tiny_spec

ORIGIN = {
    "data": "Hearts",
    "segments": "LGE MR of the heart",
    "scribbles": "Someone 2022",
    "licence": "CC BY-NC-SA 4.0",
    "validation": {"dice": 0.8765, "dice.rv": 0.8, "volumes": 5},
}


def add_model(folder: Path, name: str, **origin: object) -> Path:
    spec = replace(tiny_spec(), provenance={**ORIGIN, **origin})
    place = save_bundle(folder / name, method=random_method(spec), spec=spec, half_precision=True)
    (place / zoo.CARD).write_text(f"# {name}\n\nWhat it is.\n")
    (place / zoo.LICENCE).write_text("Terms.\n")
    return place
