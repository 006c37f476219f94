"""PCE with a term on further pixels: which term, on which pixels, and from when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import (
    gated_crf_energy,
    mean_entropy,
    mean_total_variation,
    mumford_shah_energy,
    partial_cross_entropy,
)
from shapepu.methods import METHODS, Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.entropy import EntropyConfig
from shapepu.methods.gatedcrf import GatedCRFConfig
from shapepu.methods.mumford_shah import MumfordShahConfig
from shapepu.methods.regularised import Regularised
from toys import toy_batches, toy_method, toy_settings, toy_store

NAMES = ("entropy", "tv", "mumford-shah", "gatedcrf")
every_one = pytest.mark.parametrize("name", NAMES)


def a_method(name: str, **changes: Any) -> Regularised:
    options = replace(METHODS[name].config(), **changes)
    method = toy_method(toy_settings(name, method_options=options), toy_store())
    assert isinstance(method, Regularised)
    return method.eval()


def a_batch(seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings("entropy"), toy_store())
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def start_at(progress: float) -> EpochStart:
    batches = toy_batches(toy_settings("entropy"), toy_store())
    return EpochStart(0, progress, batches, lambda images: images, torch.Generator())


def entropy(log_probs: Tensor, batch: Batch) -> Tensor:
    return mean_entropy(log_probs, batch.labels == batch.classes)


def variation(log_probs: Tensor, batch: Batch) -> Tensor:
    return mean_total_variation(log_probs.exp(), batch.labels != OUTSIDE)


def mumford_shah(log_probs: Tensor, batch: Batch) -> Tensor:
    inside = batch.labels != OUTSIDE
    return mumford_shah_energy(log_probs.exp(), batch.images, inside, length_weight=1.0)


def gated_crf(log_probs: Tensor, batch: Batch) -> Tensor:
    return gated_crf_energy(
        log_probs.exp(),
        batch.images,
        source=batch.labels != OUTSIDE,
        destination=batch.labels == batch.classes,
        radius=5,
        position_pixels=6.0,
        intensity=0.45,
    )


@pytest.mark.parametrize(
    ("name", "term", "expected"),
    [
        ("entropy", "entropy", entropy),
        ("tv", "variation", variation),
        ("mumford-shah", "mumford_shah", mumford_shah),
        ("gatedcrf", "gated_crf", gated_crf),
    ],
)
def test_the_objective_is_cross_entropy_and_the_weighted_term(
    name: str, term: str, expected: Callable[[Tensor, Batch], Tensor]
) -> None:
    method, batch = a_method(name, weight=0.3), a_batch()
    log_probs = method.log_probs(batch.images)
    terms = method.losses(batch)
    assert set(terms) == {"positive", term}
    torch.testing.assert_close(
        terms["positive"], partial_cross_entropy(log_probs, batch.labels, batch.labelled)
    )
    torch.testing.assert_close(terms[term], 0.3 * expected(log_probs, batch))
    assert terms[term] > 0


@pytest.mark.parametrize(
    ("name", "changes"),
    [*((name, {}) for name in NAMES), ("gatedcrf", {"stride": 2}), ("gatedcrf", {"stride": 3})],
)
def test_pixels_beyond_the_image_have_no_part_in_the_term(name: str, changes: dict[str, Any]) -> None:
    method, batch = a_method(name, **changes), a_batch()
    outside = batch.labels == OUTSIDE
    assert outside.any()
    log_probs = method.log_probs(batch.images).detach().requires_grad_()
    loss = method.penalty(log_probs, batch)
    loss.backward()
    assert log_probs.grad is not None
    assert log_probs.grad.movedim(1, -1)[outside].abs().max() == 0
    assert log_probs.grad.abs().max() > 0
    images = torch.where(outside[:, None], 50.0, batch.images)
    changed = torch.where(outside[:, None], -torch.tensor(3.0).log(), log_probs)
    torch.testing.assert_close(method.penalty(changed, replace(batch, images=images)), loss)


def test_at_half_the_resolution_the_gated_crf_sees_means_over_squares() -> None:
    method, batch = a_method("gatedcrf", stride=2, radius=3), a_batch()
    log_probs = method.log_probs(batch.images)
    squares = batch.labels.view(-1, 16, 2, 16, 2).transpose(2, 3).flatten(3)
    inside = (squares != OUTSIDE).all(dim=3)
    expected = gated_crf_energy(
        avg_pool2d(log_probs.exp(), 2),
        avg_pool2d(batch.images, 2),
        source=inside,
        destination=inside & (squares == batch.classes).any(dim=3),
        radius=3,
        position_pixels=6.0,
        intensity=0.45,
    )
    torch.testing.assert_close(method.penalty(log_probs, batch), expected)


@every_one
def test_the_fast_recipe_lets_the_term_in_by_and_by(name: str) -> None:
    method = a_method(name, ramp_share=METHODS[name].options("fast").ramp_share)
    terms = []
    for progress in (0.0, 0.1, 0.2, 0.5, 0.9):
        method.before_epoch(start_at(progress))
        terms.append(method.losses(a_batch())[method.term].item())
    assert terms == sorted(terms)
    assert terms[0] < 0.01 * terms[-1]
    assert terms[-2] == terms[-1]


@every_one
def test_by_default_the_term_counts_in_full_from_the_start(name: str) -> None:
    method = a_method(name)
    before = method.losses(a_batch())[method.term]
    method.before_epoch(start_at(0.0))
    assert method.losses(a_batch())[method.term] == before > 0


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match="weight: expected 0 or more"):
        EntropyConfig(weight=-1.0)
    with pytest.raises(InputError, match="ramp_share: expected a number from 0 to 1"):
        EntropyConfig(ramp_share=2.0)
    with pytest.raises(InputError, match="length_weight: expected 0 or more"):
        MumfordShahConfig(length_weight=-0.1)
    with pytest.raises(InputError, match="radius: expected more than 0"):
        GatedCRFConfig(radius=0)
