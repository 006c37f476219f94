"""The rows of the paper's tables that are ShapePU with switches off, by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.losses import partial_cross_entropy
from shapepu.methods import METHODS
from shapepu.methods.shapepu import FAST, ShapePU, ShapePUConfig
from shapepu.settings import RECIPES, TrainSettings, settings_for
from toys import LABELS, PREPROCESSING, toy_batches, toy_method, toy_settings, toy_store

ROWS = {  # (cutout, negative, consistency)
    "shapepu-1": (False, False, False),
    "shapepu-2": (True, False, False),
    "shapepu-3": (False, True, False),
    "shapepu-4": (True, True, False),
    "pu": (False, True, False),
    "shapepu": (True, True, True),
}

every_row = pytest.mark.parametrize("name", ROWS)


@every_row
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_row_is_shapepu_with_its_switches_and_the_recipe_in_all_else(recipe: str, name: str) -> None:
    options = settings_for(recipe, name).method_options
    cutout, negative, consistency = ROWS[name]
    base = {"fast": FAST, "thorough": FAST, "paper": ShapePUConfig()}[recipe]
    assert options == replace(base, cutout=cutout, negative=negative, consistency=consistency)
    assert METHODS[name].method is ShapePU


@every_row
def test_the_terms_are_those_of_the_row(name: str) -> None:
    method = toy_method(toy_settings(name), toy_store())
    batch = next(toy_batches(toy_settings(name), toy_store()).epoch(torch.Generator().manual_seed(0)))
    _, negative, consistency = ROWS[name]
    expected = (
        {"positive"} | ({"negative"} if negative else set()) | ({"consistency"} if consistency else set())
    )
    assert set(method.losses(batch)) == expected


def test_row_1_is_pce() -> None:
    method = toy_method(toy_settings("shapepu-1"), toy_store()).eval()
    batch = next(toy_batches(toy_settings("pce"), toy_store()).epoch(torch.Generator().manual_seed(0)))
    expected = partial_cross_entropy(method.log_probs(batch.images), batch.labels, batch.labelled)
    torch.testing.assert_close(method.losses(batch)["positive"], expected)


@every_row
def test_what_a_file_leaves_out_is_as_in_the_row_not_as_in_shapepu(name: str) -> None:
    plain = settings_for("paper", name).to_plain()
    plain["method_options"] = {"negative_weight": 0.5}
    read = TrainSettings.from_plain(plain).method_options
    assert read == replace(METHODS[name].options(), negative_weight=0.5)


@every_row
def test_a_bundle_comes_back_as_the_row(name: str, tmp_path: Path) -> None:
    settings = toy_settings(name)
    spec = BundleSpec(
        method=name,
        network=settings.network,
        network_options=settings.network_options,
        labels=LABELS,
        channels=("image",),
        preprocessing=PREPROCESSING,
    )
    assert spec.method_options == METHODS[name].options()
    save_bundle(tmp_path / "model", method=toy_method(settings, toy_store()), spec=spec)
    assert load_bundle(tmp_path / "model").spec.method_options == METHODS[name].options()
