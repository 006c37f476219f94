"""The command that a card shows is the command that was run: parsed again, it gives the same settings."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

import pytest

from shapepu.cli.spelling import section_fields, train_command
from shapepu.cli.train import _first_look, _parse_with_recipe
from shapepu.data.augment import Augmentation
from shapepu.data.choice import DataChoice
from shapepu.data.preprocess import Preprocessing
from shapepu.methods import METHODS
from shapepu.networks import FastUNetConfig, UNetConfig
from shapepu.settings import RECIPES, Optimisation, TrainSettings, settings_for, with_budget


def parsed(command: str) -> TrainSettings:
    """What ``shapepu train`` would train with."""
    argv = shlex.split(command)[2:]
    arguments, settings = _parse_with_recipe(argv, _first_look(argv))
    return with_budget(settings, arguments.epochs, arguments.minutes, arguments.steps)


def test_a_recipe_as_it_is_needs_no_further_word() -> None:
    assert train_command(settings_for("fast", "pce"), "DATA", "RUN") == (
        "shapepu train DATA -o RUN --method pce --recipe fast"
    )


def test_only_what_differs_is_said() -> None:
    settings = settings_for("fast", "shapepu")
    options = replace(
        settings.method_options, cutout=False, view=replace(settings.method_options.view, cut=8)
    )
    changed = replace(
        settings, method_options=options, minutes=60.0, preprocessing=Preprocessing((1.37, 1.37), (212, 224))
    )
    assert train_command(changed, "my data", "RUN") == (
        "shapepu train 'my data' -o RUN --method shapepu --recipe fast --shapepu.no-cutout "
        "--shapepu.view.cut 8 --preprocessing.spacing-mm 1.37 1.37 --preprocessing.patch 212 224 "
        "--minutes 60.0"
    )


def test_an_end_replaces_that_of_the_recipe_without_saying_so() -> None:
    settings = with_budget(settings_for("fast", "pce"), None, None, 1100)
    assert train_command(settings, "DATA", "RUN").endswith("--recipe fast --steps 1100")


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_is_found_again(method: str, recipe: str) -> None:
    settings = replace(settings_for(recipe, method), seed=3)
    assert parsed(train_command(settings, "DATA", "RUN")) == settings


CHANGES = {
    "network and its options": {
        "network": "unet",
        "network_options": UNetConfig(widths=(8, 16)),
    },
    "options of the network": {"network_options": FastUNetConfig(widths=(8,), convolutions=1, slope=0.0)},
    "pixels": {"preprocessing": Preprocessing((1.0, 1.5), (64, 80), canvas_margin=1.0, padding="background")},
    "augmentation": {"augmentation": Augmentation(rotation_degrees=20.0, scale=(0.5, 2.0))},
    "optimisation": {"optimisation": Optimisation(optimiser="adam", learning_rate=1e-05, average=0.0)},
    "everything by itself": {"seed": 7, "precision": "fp32", "device": "cpu", "validation_share": 0.5},
    "views": {"averaging": "rotations"},
    "compiled networks": {"compile": True},
    "epochs": {"epochs": 3, "minutes": None},
    "all ends": {"epochs": 3, "minutes": 2.5, "steps": 400},
    "part of the data": {"data": DataChoice(5, 0.25, "val", 300)},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_settings_are_found_again(changes: dict[str, object]) -> None:
    settings = replace(settings_for("fast", "pce"), **changes)  # type: ignore[arg-type]
    assert parsed(train_command(settings, "DATA", "RUN")) == settings != settings_for("fast", "pce")


def test_every_setting_was_changed_once_above() -> None:
    """So that a setting that is added later is spelt, too."""
    changed = {name for changes in CHANGES.values() for name in changes}
    chosen_by_name = {"recipe", "method", "method_options", "start"}
    assert changed | chosen_by_name == {each.name for each in fields(TrainSettings)}


def test_a_method_with_a_dash_has_a_section_without_one() -> None:
    assert section_fields("ema-teacher")["ema_teacher"] == "method_options"
    settings = settings_for("fast", "shapepu-2")
    changed = replace(settings, method_options=replace(settings.method_options, consistency_weight=0.25))
    command = train_command(changed, "DATA", "RUN")
    assert command.endswith("--shapepu-2.consistency-weight 0.25")
    assert parsed(command) == changed
