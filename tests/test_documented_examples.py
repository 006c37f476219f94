"""The examples of docs/how-to/plain-pytorch.md are run, and what they train learns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from shapepu.labels import OUTSIDE
from toys import LABELS, toy_store

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "plain-pytorch.md"


def example(heading: str) -> str:
    """The one block of Python below a heading of the page."""
    [section] = [part for part in PAGE.read_text(encoding="utf-8").split("\n## ") if part.startswith(heading)]
    [block] = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return block


def patients(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images, labels and dense masks, without the rows beyond the image."""
    store = toy_store(seed=seed)
    assert store.masks is not None
    return (
        torch.from_numpy(store.images[..., 2:, :]).float(),
        torch.from_numpy(store.labels[:, 2:]),
        torch.from_numpy(store.masks[:, 2:]),
    )


def run(code: str) -> dict[str, Any]:
    """What an example leaves behind, with a seed instead of chance."""
    images, labels, _ = patients(seed=0)
    labels[0, :3] = OUTSIDE
    names: dict[str, Any] = {"images": images, "labels": labels, "classes": LABELS.count}
    names["others"] = patients(seed=1)[2]
    torch.manual_seed(0)
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def dice(predicted: Tensor, truth: Tensor) -> float:
    """The lower of the two structures'."""
    scores = [
        2
        * float(((predicted == c) & (truth == c)).sum())
        / float((predicted == c).sum() + (truth == c).sum())
        for c in (1, 2)
    ]
    return min(scores)


def without_learning(code: str) -> str:
    """The same example, in which no optimiser takes a step, so that one turn of the loop is enough."""
    lamed, optimisers = re.subn(r"^(\s*)optimiser\S*\.step\(\)$", r"\1pass", code, flags=re.MULTILINE)
    lamed, loops = re.subn(r"range\(\d+\)", "range(1)", lamed)
    assert (optimisers, loops) == (1, 1)
    return lamed


def test_the_examples_are_as_short_as_examples_should_be() -> None:
    for heading in ("A loss", "A method"):
        lines = [line for line in example(heading).splitlines() if line.strip()]
        assert len(lines) <= 22, heading


@pytest.fixture(scope="module", params=["A loss", "A method"])
def finished(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What each example leaves behind."""
    return run(example(request.param))


def dice_on_others(names: dict[str, Any]) -> float:
    """By what an example has trained, on patients that it has not seen."""
    images, _, masks = patients(seed=2)
    predict = names["method"].predict if "method" in names else names["network"]
    with torch.no_grad():
        return dice(predict(images).argmax(dim=1), masks)


def test_what_an_example_trains_segments_patients_it_has_not_seen(finished: dict[str, Any]) -> None:
    assert dice_on_others(finished) > 0.6


@pytest.mark.parametrize("heading", ["A loss", "A method"])
def test_without_a_step_of_the_optimiser_it_does_not(heading: str) -> None:
    assert dice_on_others(run(without_learning(example(heading)))) < 0.4


def test_the_examples_come_to_use_what_they_are_about(finished: dict[str, Any]) -> None:
    """The negative loss joins late, so that a loop that ends before it would not be noticed otherwise."""
    if "method" in finished:
        assert set(finished["terms"]) == {"positive", "adversarial", "discriminator"}
        assert finished["probs"].shape == (12, LABELS.count, 30, 32)
    else:
        ratios = finished["ratios"]
        assert ratios[0] > 0.5
        assert float(ratios.sum()) == pytest.approx(1)
