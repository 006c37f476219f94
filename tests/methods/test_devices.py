"""Methods run on whichever device their data are on, and leave nothing behind on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from other_device import OTHER, other_device
from shapepu.averaging import WeightAverage
from shapepu.calibration import fit_calibration, fit_temperature
from shapepu.methods import METHODS
from shapepu.methods.base import EpochStart
from shapepu.mixture import PosteriorHistogram, confidence_lower_bound, fit, standard_errors
from shapepu.views import ViewSettings, draw_view
from toys import toy_batches, toy_method, toy_settings, toy_store

DIFFERENT = [
    (name, recipe)
    for name, entry in METHODS.items()
    for recipe in ("fast", "paper")
    if recipe == "fast" or entry.options("paper") != entry.options("fast")
]


@pytest.mark.parametrize(("name", "recipe"), DIFFERENT)
def test_a_method_trains_and_predicts_where_its_data_are(
    name: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, store = toy_settings(name, method_options=METHODS[name].options(recipe)), toy_store()
    method = toy_method(settings, store)
    with other_device(monkeypatch) as device:
        method.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        average = WeightAverage(method, 0.9)
        batches = replace(toy_batches(settings, store, unpaired=toy_store(seed=1)), device=device)
        generator = torch.Generator().manual_seed(0)

        def optimise(group: str, loss: torch.Tensor) -> None:
            method.zero_grad()
            loss.backward()
            members = method.parameter_groups()[group]
            assert all(p.grad.device == device for p in members if p.grad is not None)

        # The paper's recipe waits for 100 epochs before it estimates anything.
        for epoch, progress in ((0, 0.0), (100, 0.9)):
            method.before_epoch(EpochStart(epoch, progress, batches, average.predict, generator))
            method.train()
            for batch in batches.epoch(generator):
                terms = method.step(batch, optimise)
                average.update(method)
                assert {term.device for term in terms.values()} == {device}
        assert all(isinstance(figure, (float, list)) for figure in method.report().values())
        assert method.eval().predict(batch.images).device == device


def test_the_estimates_run_where_the_posteriors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with other_device(monkeypatch) as device:
        log_probs = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).log_softmax(dim=1)
        log_probs, priors = log_probs.to(device), torch.tensor([0.5, 0.3, 0.2], device=device)
        state = fit(log_probs, priors, tolerance=1e-4, max_iterations=50)
        errors = standard_errors(log_probs, priors, state.ratios)
        pool = PosteriorHistogram(3, device=device)
        pool.add(log_probs, weights=torch.ones(200))
        pool.merge(pool)
        pool.decay(0.5)
        again = PosteriorHistogram(3, device=device)
        again.load_state_dict(pool.state_dict())
        labels = log_probs.argmax(dim=1)
        found = {
            "ratios": state.ratios,
            "errors": errors,
            "bound": confidence_lower_bound(state.ratios, errors, confidence=0.95),
            "pooled": fit(
                again.log_probs, priors, weights=again.weights, tolerance=1e-4, max_iterations=50
            ).ratios,
            "thresholds": again.thresholds(state.ratios),
            "calibrated": fit_calibration(log_probs, labels).apply(log_probs),
        }
        assert {name: value.device for name, value in found.items()} == dict.fromkeys(found, device)
        assert fit_temperature(log_probs, labels) > 0


@pytest.mark.parametrize("rotation", ["any", "right", "none"])
def test_views_are_taken_where_the_images_are(rotation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with other_device(monkeypatch) as device:
        settings = ViewSettings(cut=4, rotation=rotation)  # type: ignore[arg-type]
        view = draw_view(3, (16, 16), settings, torch.Generator().manual_seed(0), device)
        images = torch.rand(3, 1, 16, 16, device=device)
        probs, valid = view.probs(images)
        labels = view.labels(torch.zeros(3, 16, 16, dtype=torch.uint8, device=device), unlabelled=2)
        taken = [view.images(images), probs, valid, labels]
        if rotation != "any":
            taken.append(view.undo(images))
        assert {t.device for t in taken} == {device}


def test_the_stand_in_for_a_gpu_refuses_what_a_gpu_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with other_device(monkeypatch):
        there, here = torch.arange(6.0, device=OTHER), torch.arange(6.0)
        assert (there[1:] * 2 + torch.tensor(1.0)).tolist() == [3, 5, 7, 9, 11]
        assert there[torch.tensor([2])].tolist() == [2]
        assert (there.cpu() + here).tolist() == [0, 2, 4, 6, 8, 10]
        for mixed in (
            lambda: there + here,
            lambda: torch.cat([there, here]),
            lambda: here[there.long()],
            lambda: there.index_add_(0, torch.tensor([1]), torch.ones(1, device=OTHER)),
        ):
            with pytest.raises(AssertionError, match="two devices"):
                mixed()
        with pytest.raises(RuntimeError, match="numpy"):
            there.numpy()
