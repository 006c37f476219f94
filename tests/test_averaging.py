"""The running average of weights that predicts in the end."""

from __future__ import annotations

import pytest
import torch

from shapepu.averaging import WeightAverage
from shapepu.methods import Method
from toys import toy_method, toy_settings, toy_store


@pytest.fixture
def method() -> Method:
    return toy_method(toy_settings(), toy_store())


def first_weight(method: Method) -> torch.Tensor:
    return next(method.parameters())


def test_a_hand_worked_average(method: Method) -> None:
    average = WeightAverage(method, decay=0.5)
    start = first_weight(method).detach().clone()
    with torch.no_grad():
        first_weight(method).add_(1)
    average.update(method)
    # The first decay is (1 + 1) / (10 + 1), less than one half: 9/11 of the way to the new weights.
    torch.testing.assert_close(first_weight(average.method), start + 9 / 11)


def test_the_decay_rises_to_what_was_asked_for_and_no_further(method: Method) -> None:
    average = WeightAverage(method, decay=0.5)
    average.updates = 10**6
    start = first_weight(average.method).clone()
    with torch.no_grad():
        first_weight(method).add_(1)
    average.update(method)
    torch.testing.assert_close(first_weight(average.method), start + 0.5)


def test_without_decay_it_is_the_last_weights(method: Method) -> None:
    average = WeightAverage(method, decay=0.0)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(torch.randn_like(parameter))
    average.update(method)
    for ours, theirs in zip(average.method.parameters(), method.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_batch_statistics_are_averaged_and_their_counter_copied(method: Method) -> None:
    average = WeightAverage(method, decay=0.0)
    method.train()
    method.predict(torch.randn(4, 1, 32, 32))
    average.update(method)
    for (name, ours), theirs in zip(average.method.named_buffers(), method.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)


def test_the_average_does_not_learn_by_gradient(method: Method) -> None:
    average = WeightAverage(method, decay=0.9)
    assert not any(p.requires_grad for p in average.method.parameters())
    assert not average.method.training
