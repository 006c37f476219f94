"""Settings survive the way to YAML and back, and whoever edits a file by hand is told what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
import yaml

from shapepu.configuration import from_plain, to_plain
from shapepu.errors import InputError
from shapepu.methods import METHODS
from shapepu.settings import RECIPES, TrainSettings, settings_for


@dataclass(frozen=True)
class Inner:
    size: tuple[int, int] = (1, 2)
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    rate: float | None = None
    names: tuple[str, ...] = ()
    on: bool = True
    count: int = 3


def test_a_round_trip_gives_the_same_settings() -> None:
    settings = Outer(Inner((3, 4), "b"), 0.5, ("x", "y"), False, 7)
    assert from_plain(Outer, yaml.safe_load(yaml.safe_dump(to_plain(settings)))) == settings


def test_what_is_left_out_takes_its_default() -> None:
    assert from_plain(Outer, {"count": 5}) == Outer(count=5)


def test_whole_numbers_are_welcome_where_a_float_is_expected() -> None:
    assert from_plain(Outer, {"rate": 2}).rate == 2.0


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"cuont": 1}, r"config: unknown setting 'cuont'\. Known: .*count"),
        ({"count": "many"}, r"config\.count: expected a value of type int, got 'many'"),
        ({"count": True}, r"config\.count: expected a value of type int, got True"),
        ({"inner": {"size": [1]}}, r"config\.inner\.size: expected a list of 2 values, got \[1\]"),
        ({"inner": {"kind": "c"}}, r"config\.inner\.kind: expected one of a, b, got 'c'"),
        ({"inner": 3}, r"config\.inner: expected a mapping of settings, got 3"),
        ({"rate": "fast"}, r"config\.rate: expected a number, got 'fast'"),
        ({"names": "x"}, r"config\.names: expected a list, got 'x'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(plain: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_plain(Outer, plain)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_of_every_method_survives_its_config_file(recipe: str, method: str) -> None:
    settings = settings_for(recipe, method)
    text = yaml.safe_dump(settings.to_plain(), sort_keys=False)
    assert TrainSettings.from_plain(yaml.safe_load(text)) == settings


def test_unknown_recipes_and_methods_list_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown recipe 'slow'.*Known: fast, paper"):
        settings_for("slow", "pce")
    with pytest.raises(InputError, match=r"unknown method 'shapup'; did you mean 'shapepu'\?"):
        settings_for("fast", "shapup")


def test_a_run_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="a run needs an end: give epochs, minutes or steps"):
        TrainSettings()
    with pytest.raises(InputError, match="epochs: expected at least 1, got 0"):
        TrainSettings(epochs=0)
    with pytest.raises(InputError, match="minutes: expected more than 0, got nan"):
        TrainSettings(minutes=float("nan"))
