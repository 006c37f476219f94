"""What an experiment is: rows of a table, each a method with settings on some data, read from YAML.

The experiments that come with the package are the files in ``shipped/``; anyone's own file goes by its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from shapepu.configuration import from_plain, to_plain
from shapepu.errors import InputError, unknown_name
from shapepu.methods import find_method
from shapepu.settings import TrainSettings, settings_for, with_budget

SHIPPED = Path(__file__).parent / "shipped"

PREVIOUS, NOTHING = "previous", "nothing"

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
"""Names become names of folders, on any system."""

Figure = float | tuple[float, float]
"""A published figure: a mean, or mean and standard deviation."""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Args:
        name: of the row, and of the folders of its runs.
        label: what tables print; the name when empty.
        method: a name in the registry of methods; the row's name when empty.
        data: the data sets it runs on; those of the experiment when empty.
        settings: changes to the recipe's settings, nested as in ``config.yaml``.
        published: for each data set what a paper printed of this row: Dice by structure, ``average``, and
            ``hd_mm`` (the average Hausdorff distance).
        against: the row it is tested against: ``previous``, ``nothing`` or a name; what the experiment says
            when empty.
        group: a heading that tables print above the first row that has it.
        note: a line below the table.
    """

    name: str
    label: str = ""
    method: str = ""
    data: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    published: dict[str, dict[str, Figure]] = field(default_factory=dict)
    against: str = ""
    group: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        reject_odd_name("row", self.name)
        object.__setattr__(self, "label", self.label or self.name)
        object.__setattr__(self, "method", self.method or self.name)
        find_method(self.method)
        for name in ("recipe", "method", "epochs", "minutes", "steps", "seed"):
            if name in self.settings:
                raise InputError(
                    f"row {self.name!r}: settings.{name} cannot differ between rows; give it on the command "
                    "line, for all of them."
                )

    def resolved(
        self,
        recipe: str = "fast",
        *,
        epochs: int | None = None,
        minutes: float | None = None,
        steps: int | None = None,
        seed: int = 0,
    ) -> TrainSettings:
        """The complete settings of one run of this row."""
        start = settings_for(recipe, self.method)
        plain = start.to_plain()
        if self.settings.get("network", start.network) != start.network:
            del plain["network_options"]  # they belong to the network of the recipe
        where = f"row {self.name!r}: settings"
        settings = TrainSettings.from_plain(_merged(plain, self.settings), where)
        return replace(with_budget(settings, epochs, minutes, steps), seed=seed)


@dataclass(frozen=True)
class Curve:
    """A figure of Dice against a setting, over some rows; rows of one method make one line.

    Args:
        x: the setting, by its place in ``config.yaml``: ``data.cases``.
        rows: names of the rows.
        label: of the axis.
    """

    x: str
    rows: tuple[str, ...]
    label: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table, and what belongs to it.

    Args:
        rows: in the order of the table.
        name: the name of its file.
        title: above the table.
        note: below it, on the whole.
        data: the data sets of rows that name none; when empty, those rows run on whatever is given.
        against: as for a row, for all rows that do not say.
        published_source: where published figures were taken from.
        curves: figures of Dice against a setting.
        ratios: draw the mixture ratios over training against the true ones.
    """

    rows: tuple[Row, ...]
    name: str = ""
    title: str = ""
    note: str = ""
    data: tuple[str, ...] = ()
    against: str = PREVIOUS
    published_source: str = ""
    curves: tuple[Curve, ...] = ()
    ratios: bool = False

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if not names or repeated:
            what = f"rows must have names of their own, but {repeated[0]!r} repeats" if names else "no rows"
            raise InputError(f"experiment {self.name!r}: {what}; see `shapepu compare --list` for examples.")
        rows = tuple(replace(row, data=row.data or self.data) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        for slot in (slot for row in rows for slot in row.data):
            reject_odd_name("data set", slot)
        meant = [row.against or self.against for row in rows]
        meant += [name for curve in self.curves for name in curve.rows]
        for name in meant:
            if name not in (PREVIOUS, NOTHING):
                self.row(name)

    def row(self, name: str) -> Row:
        """The row called ``name``; an unknown name lists the known ones."""
        for row in self.rows:
            if row.name == name:
                return row
        raise unknown_name("row", name, tuple(row.name for row in self.rows))

    def tested_against(self, row: Row) -> Row | None:
        """The row that ``row`` is compared with by a paired test, if any."""
        against = row.against or self.against
        index = self.rows.index(row)
        if against == NOTHING or (against == PREVIOUS and index == 0) or against == row.name:
            return None
        return self.rows[index - 1] if against == PREVIOUS else self.row(against)

    def to_plain(self) -> dict[str, Any]:
        """As in a YAML file, without what is as it would be anyway."""
        plain = to_plain(self)
        rows = [{name: value for name, value in row.items() if value} for row in plain.pop("rows")]
        return {**{name: value for name, value in plain.items() if value}, "rows": rows}

    @classmethod
    def from_plain(cls, plain: Any, where: str) -> Experiment:
        """From YAML; unknown names and ill-typed values are named."""
        return from_plain(cls, plain, where)


def shipped_experiments() -> dict[str, Experiment]:
    """Those that come with the package, by name."""
    return {path.stem: _read(path) for path in sorted(SHIPPED.glob("*.yaml"))}


def find_experiment(name: str | Path) -> Experiment:
    """A shipped experiment by name, or a YAML file by its path."""
    path, shipped = Path(name), SHIPPED / f"{name}.yaml"
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return _read(path)
    known = tuple(sorted(file.stem for file in SHIPPED.glob("*.yaml")))
    if str(name) not in known:
        error = unknown_name("experiment", str(name), known)
        raise InputError(f"{error} An experiment of your own goes by the path of its .yaml file.")
    return _read(shipped)


def mean_and_sd(figure: Figure) -> tuple[float, float | None]:
    """Of a published figure; None where only the mean was printed."""
    return figure if isinstance(figure, tuple) else (figure, None)


def read_yaml(path: Path) -> Any:
    """YAML's own types only, never objects."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())}).") from error


def reject_odd_name(kind: str, name: str) -> None:
    """Refuse what could not be the name of a folder."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{kind} {name!r}: a name of letters, digits and . _ + - expected, since folders are named by it."
        )


def _read(path: Path) -> Experiment:
    plain = read_yaml(path)
    if isinstance(plain, dict):
        plain = {"name": path.stem, **plain}
    experiment = Experiment.from_plain(plain, str(path))
    for row in experiment.rows:
        row.resolved()  # a setting that is not known should be refused before the first run, not the tenth
    return experiment


def _merged(plain: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``plain`` with ``changes`` at any depth."""
    merged = dict(plain)
    for name, value in changes.items():
        deeper = isinstance(value, dict) and isinstance(plain.get(name), dict)
        merged[name] = _merged(plain[name], value) if deeper else value
    return merged
