"""PCE: what the method minimises."""

from __future__ import annotations

import pytest
import torch

from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.losses.partial_dice import partial_dice_loss
from shapepu.methods.pce import PCEConfig
from toys import toy_batches, toy_method, toy_settings, toy_store


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_dice_loss_of_the_scribbles_joins_with_its_weight(weight: float) -> None:
    settings, store = toy_settings("pce", method_options=PCEConfig(dice_weight=weight)), toy_store()
    method = toy_method(settings, store).eval()
    batch = next(toy_batches(settings, store).epoch(torch.Generator().manual_seed(0)))
    log_probs = method.log_probs(batch.images)
    expected = {"positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled)}
    if weight:
        expected["dice"] = weight * partial_dice_loss(log_probs.exp(), batch.labels, batch.labelled)
    torch.testing.assert_close(method.losses(batch), expected)


def test_predictions_off_the_scribbles_change_nothing() -> None:
    settings, store = toy_settings("pce", method_options=PCEConfig(dice_weight=1.0)), toy_store()
    method = toy_method(settings, store).eval()
    batch = next(toy_batches(settings, store).epoch(torch.Generator().manual_seed(0)))
    log_probs = method.log_probs(batch.images).detach()
    other = torch.where(batch.labelled[:, None], log_probs, log_probs.flip(1))
    method.log_probs = lambda images: log_probs  # type: ignore[method-assign]
    losses = method.losses(batch)
    method.log_probs = lambda images: other  # type: ignore[method-assign]
    torch.testing.assert_close(method.losses(batch), losses)
    assert not torch.equal(log_probs, other)
