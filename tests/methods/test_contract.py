"""What every registered method must do, whatever it does."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.errors import InputError
from shapepu.methods import METHODS, Method, find_method
from shapepu.methods.base import EpochStart
from shapepu.training import Trainer
from toys import LABELS, PREPROCESSING, SIDE, toy_batches, toy_method, toy_settings, toy_store, toy_trainer

every_method = pytest.mark.parametrize("name", METHODS)


@every_method
def test_says_what_it_is_and_what_it_learns_from(name: str) -> None:
    entry = METHODS[name]
    assert entry.title
    assert entry.paper
    assert entry.needs <= {"scribbles", "masks", "unpaired masks", "true ratios"}
    assert entry.needs
    config = entry.config()
    assert is_dataclass(config)
    with pytest.raises(FrozenInstanceError):
        config.anything = 1


@every_method
def test_learns_the_toy(name: str, tmp_path: Path) -> None:
    settings = toy_settings(name, epochs=60)
    trainer = toy_trainer(tmp_path, settings)
    trainer.fit()
    untrained = trainer.state.rows[0]["validation.dice"]
    trained = trainer.state.rows[-1]["validation.dice"]
    assert untrained is not None
    assert trained is not None
    assert trained > 0.75 > untrained


@every_method
def test_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    settings = toy_settings(name, epochs=4)
    straight = toy_trainer(tmp_path / "straight", settings)
    straight.fit()
    cut_short = toy_trainer(tmp_path / "resumed", settings)
    with pytest.raises(PowerCutError):
        cut_power_before(cut_short, epoch=2).fit()
    resumed = toy_trainer(tmp_path / "resumed", settings)
    torch.manual_seed(12345)
    resumed.resume()
    assert resumed.state.epoch == 2
    resumed.fit()
    for part in ("average", "optimisers", "method", "generator"):
        assert_equal_states(straight.state.state_dict()[part], resumed.state.state_dict()[part], part)


@every_method
def test_every_parameter_that_is_trained_gets_a_gradient(name: str) -> None:
    method, with_gradient = stepped(name)
    # No method has parameters that should stay as they are, so one that is in no group was forgotten.
    assert {each for each, _ in method.named_parameters()} == with_gradient


@every_method
def test_predicts_probabilities_that_do_not_depend_on_the_rest_of_the_batch(name: str) -> None:
    method = toy_method(toy_settings(name), toy_store()).eval()
    images = torch.randn(3, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = method.predict(images)
        alone = method.predict(images[:1])
    assert together.shape == (3, LABELS.count, SIDE, SIDE)
    torch.testing.assert_close(together.sum(dim=1), torch.ones(3, SIDE, SIDE))
    torch.testing.assert_close(together[:1], alone, atol=1e-5, rtol=1e-4)


@every_method
def test_a_bundle_predicts_as_the_method_did(name: str, tmp_path: Path) -> None:
    settings = toy_settings(name)
    # In the memory order that the loop and a loaded bundle keep; the other would add up in another order.
    method = toy_method(settings, toy_store()).eval().to(memory_format=torch.channels_last)
    spec = BundleSpec(
        method=name,
        method_options=settings.method_options,
        network=settings.network,
        network_options=settings.network_options,
        labels=LABELS,
        channels=("image",),
        preprocessing=PREPROCESSING,
    )
    save_bundle(tmp_path / "model", method=method, spec=spec)
    images = torch.randn(2, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = method.predict(images)
        restored = load_bundle(tmp_path / "model").method.predict(images)
    torch.testing.assert_close(restored, expected, atol=0, rtol=0)


@every_method
def test_only_the_declared_supervision_is_handed_over(name: str) -> None:
    needs = find_method(name).needs
    batches = toy_batches(toy_settings(name), toy_store(), unpaired=toy_store(seed=1))
    batch = next(batches.epoch(torch.Generator().manual_seed(0)))
    assert (batch.masks is not None) == ("masks" in needs)
    assert (batch.unpaired_masks is not None) == ("unpaired masks" in needs)


def test_the_page_on_plain_pytorch_names_whoever_wants_to_be_called_before_each_epoch() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "plain-pytorch.md"
    [paragraph] = [
        part for part in page.read_text(encoding="utf-8").split("\n\n") if "`method.before_epoch(" in part
    ]
    overriding = {name for name, entry in METHODS.items() if entry.method.before_epoch != Method.before_epoch}
    assert {name for name in METHODS if f"`{name}`" in paragraph} == overriding


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"did you mean 'shapepu'.*Known:.*pce"):
        find_method("shapepoo")


def stepped(name: str) -> tuple[Method, set[str]]:
    """A method after one epoch of steps without any update, and the parameters that ever had a gradient."""
    settings, store = toy_settings(name), toy_store()
    method = toy_method(settings, store)
    batches = toy_batches(settings, store, unpaired=toy_store(seed=1))
    generator = torch.Generator().manual_seed(0)
    with_gradient: set[str] = set()

    def optimise(group: str, loss: torch.Tensor) -> None:
        method.zero_grad()
        loss.backward()
        members = {id(p) for p in method.parameter_groups()[group]}
        with_gradient.update(
            each
            for each, p in method.named_parameters()
            if id(p) in members and p.grad is not None and p.grad.abs().max() > 0
        )

    def teacher(images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return method.eval().predict(images)

    for epoch, progress in enumerate((0.0, 0.5, 0.9)):
        method.before_epoch(EpochStart(epoch, progress, batches, teacher, generator))
        method.train()
        for batch in batches.epoch(generator):
            terms = method.step(batch, optimise)
            assert all(torch.isfinite(term) for term in terms.values())
    return method, with_gradient


class PowerCutError(Exception):
    """Ends a run in the middle."""


def cut_power_before(trainer: Trainer, *, epoch: int) -> Trainer:
    """The same trainer, which stops dead when it is about to start ``epoch``."""
    before_epoch = trainer.state.method.before_epoch

    def stop(start: EpochStart) -> None:
        if start.epoch == epoch:
            raise PowerCutError
        before_epoch(start)

    trainer.state.method.before_epoch = stop  # type: ignore[method-assign]
    return trainer


def assert_equal_states(first: Any, second: Any, where: str) -> None:
    assert type(first) is type(second), where
    if isinstance(first, dict):
        assert first.keys() == second.keys(), where
        for key in first:
            assert_equal_states(first[key], second[key], f"{where}.{key}")
    elif isinstance(first, (list, tuple)):
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            assert_equal_states(a, b, f"{where}[{i}]")
    elif isinstance(first, torch.Tensor):
        assert torch.equal(first, second), where
    else:
        assert first == second, where
