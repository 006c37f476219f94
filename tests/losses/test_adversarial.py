"""The terms of the two players, and the weight that keeps one loss as large as the other."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shapepu.losses.adversarial import (
    dynamic_weight,
    least_squares_discriminator,
    least_squares_segmenter,
    minimax_discriminator,
    minimax_segmenter,
)

DISCRIMINATORS = [minimax_discriminator, least_squares_discriminator]
SEGMENTERS = [minimax_segmenter, least_squares_segmenter]


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def scores(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def value(loss: Tensor) -> float:
    return float(loss.detach())


def gradient(loss: Tensor, leaf: Tensor) -> list[float]:
    return torch.autograd.grad(loss, leaf)[0].tolist()


def test_minimax_by_hand() -> None:
    # sigma(log 3) = 3/4, sigma(0) = 1/2, sigma(log 1/4) = 1/5.
    drawn, predicted = scores(math.log(3), 0.0), scores(math.log(1 / 4))
    judged = minimax_discriminator(drawn, predicted)
    assert value(judged) == pytest.approx(-(math.log(3 / 4) + math.log(1 / 2)) / 2 - math.log(4 / 5))
    assert value(minimax_segmenter(predicted)) == pytest.approx(-math.log(1 / 5))


def test_minimax_agrees_with_the_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    drawn, predicted = (
        3 * torch.randn(2, 1, rows, 4, generator=generator, dtype=torch.float64) for rows in (3, 5)
    )
    of_drawn = [-math.log(sigmoid(d)) for d in drawn.flatten().tolist()]
    of_predicted = [-math.log(1 - sigmoid(p)) for p in predicted.flatten().tolist()]
    expected = sum(of_drawn) / len(of_drawn) + sum(of_predicted) / len(of_predicted)
    assert value(minimax_discriminator(drawn, predicted)) == pytest.approx(expected, rel=1e-12)


def test_least_squares_by_hand() -> None:
    drawn, predicted = scores(1.0, 3.0), scores(-1.0, 0.0, 2.0)
    # Targets are 1 and -1: (0 + 4) / 2 and (0 + 1 + 9) / 3, halved; the other player aims at 1.
    assert value(least_squares_discriminator(drawn, predicted)) == pytest.approx((2 + 10 / 3) / 2)
    assert value(least_squares_segmenter(predicted)) == pytest.approx((4 + 1 + 1) / 3 / 2)


def test_the_discriminator_that_is_right_with_certainty_pays_nothing() -> None:
    assert value(minimax_discriminator(scores(50.0), scores(-50.0))) == pytest.approx(0, abs=1e-12)
    assert value(least_squares_discriminator(scores(1.0), scores(-1.0))) == 0


@pytest.mark.parametrize("loss", DISCRIMINATORS)
def test_the_discriminator_raises_scores_of_drawn_masks_and_lowers_those_of_predictions(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    drawn, predicted = scores(-0.5, 0.3), scores(0.4, -0.2)
    judged = loss(drawn, predicted)
    assert max(gradient(loss(drawn, predicted), drawn)) < 0
    assert min(gradient(judged, predicted)) > 0


@pytest.mark.parametrize("loss", SEGMENTERS)
def test_the_segmenter_wants_what_the_discriminator_does_not(loss: Callable[[Tensor], Tensor]) -> None:
    predicted = scores(0.4, -0.2, -3.0)
    assert max(gradient(loss(predicted), predicted)) < 0
    assert loss(scores(-2.0)) > loss(scores(0.0)) > loss(scores(0.9))


@pytest.mark.parametrize("loss", SEGMENTERS)
def test_the_gradient_does_not_vanish_while_the_discriminator_is_certain(
    loss: Callable[[Tensor], Tensor],
) -> None:
    # log(1 - sigma(p)), the minimax value itself, would have a gradient of e^-30 here.
    predicted = scores(-30.0)
    assert gradient(loss(predicted), predicted)[0] < -0.99


@pytest.mark.parametrize("logit", [-1e4, 1e4])
def test_extreme_logits_give_finite_losses_and_gradients(logit: float) -> None:
    drawn, predicted = scores(logit), scores(-logit)
    for loss in (minimax_discriminator(drawn, predicted), minimax_segmenter(predicted)):
        assert loss.isfinite()
        assert math.isfinite(gradient(loss, predicted)[0])


def test_gradients_are_those_of_finite_differences() -> None:
    drawn, predicted = scores(0.3, -1.2, 2.0), scores(-0.7, 0.1)
    for loss in DISCRIMINATORS:
        assert torch.autograd.gradcheck(loss, (drawn, predicted))
    for each in SEGMENTERS:
        assert torch.autograd.gradcheck(each, (predicted,))


def test_the_dynamic_weight_by_hand() -> None:
    assert value(dynamic_weight(torch.tensor(0.6), torch.tensor(0.2))) == pytest.approx(3.0)
    assert value(dynamic_weight(torch.tensor(-0.6), torch.tensor(0.2))) == pytest.approx(3.0)


def test_the_weighted_loss_is_as_large_as_the_adversarial_one_but_only_the_supervised_is_learnt_from() -> (
    None
):
    predicted, supervised_by = scores(0.5), scores(3.0)
    adversarial_loss, supervised = least_squares_segmenter(predicted), supervised_by.square().sum()
    weighted = dynamic_weight(adversarial_loss, supervised) * supervised
    assert value(weighted) == pytest.approx(value(adversarial_loss))
    towards = torch.autograd.grad(weighted, (supervised_by, predicted), allow_unused=True)
    assert towards[0] is not None
    # d/dx (w x^2) with w = .125 / 9 held fixed; through w it would be 0.
    assert towards[0].tolist() == pytest.approx([2 * 3 * 0.125 / 9])
    assert towards[1] is None


def test_a_batch_without_a_scribble_is_not_divided_by() -> None:
    nothing = scores(0.0).sum()
    weight = dynamic_weight(torch.tensor(0.5), nothing)
    assert weight.isfinite()
    assert value(weight * nothing) == 0
