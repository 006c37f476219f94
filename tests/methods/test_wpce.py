"""WPCE: what the method minimises."""

from __future__ import annotations

import torch

from shapepu.losses import weighted_partial_cross_entropy
from toys import toy_batches, toy_method, toy_settings, toy_store


def test_the_weights_are_those_of_the_batch() -> None:
    settings, store = toy_settings("wpce"), toy_store()
    method = toy_method(settings, store).eval()
    batch = next(toy_batches(settings, store).epoch(torch.Generator().manual_seed(0)))
    log_probs = method.log_probs(batch.images)
    terms = method.losses(batch)
    assert set(terms) == {"positive"}
    expected = weighted_partial_cross_entropy(log_probs, batch.labels, batch.labels < batch.classes)
    torch.testing.assert_close(terms["positive"], expected)
