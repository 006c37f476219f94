"""Models that come with the package: a folder each, with a bundle, its card and the licence of its weights.

Looking them up reads names and JSON only, so that ``shapepu models`` need not wait for torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from shapepu.errors import InputError, unknown_name
from shapepu.labels import LabelSet

ZOO = Path(str(files(__name__)))

CARD, LICENCE = "CARD.md", "LICENSE.md"


def shipped_models() -> dict[str, Path]:
    """The folder of each shipped model, by the name that ``predict`` and ``train --from`` know it by."""
    return {path.parent.name: path.parent for path in sorted(ZOO.glob("*/model.json"))}


@dataclass(frozen=True)
class ShippedModel:
    """One line of ``shapepu models``.

    Args:
        model: its name.
        segments: what is seen in which images.
        scribbles: who drew what it learned from.
        classes: the structures, without the background.
        pixel_mm: (rows, columns) size it works at.
        dice: mean over structures and validation volumes, as its run was scored, or None.
        volumes: how many validation volumes that were.
        licence: of the weights, in a few words; the whole is in its folder.
    """

    model: str
    segments: str
    scribbles: str
    classes: tuple[str, ...]
    pixel_mm: tuple[float, float]
    dice: float | None
    volumes: int
    licence: str

    @classmethod
    def read(cls, folder: Path) -> ShippedModel:
        """What the bundle in ``folder`` says of itself."""
        described: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        origin = described["provenance"]
        scores = origin.get("validation") or {}
        rows_mm, columns_mm = described["preprocessing"]["spacing_mm"]
        return cls(
            model=folder.name,
            segments=origin.get("segments", ""),
            scribbles=origin.get("scribbles", ""),
            classes=LabelSet.from_dict(described["labels"]).foreground,
            pixel_mm=(rows_mm, columns_mm),
            dice=scores.get("dice"),
            volumes=scores.get("volumes", 0),
            licence=origin.get("licence", ""),
        )


def card_of(name: str) -> str:
    """The card of a shipped model; an unknown name lists the known ones."""
    known = shipped_models()
    if not known:
        raise InputError(f"{name}: no model comes with this version of shapepu; train one.")
    if name not in known:
        raise unknown_name("model", name, tuple(known))
    return (known[name] / CARD).read_text(encoding="utf-8")
