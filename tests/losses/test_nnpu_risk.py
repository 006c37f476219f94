"""The non-negative risk, above all its gradient where it turns around."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shapepu.losses import non_negative_risk

POSITIVE = torch.tensor([True, True, False, False, False, False])
UNLABELLED = torch.tensor([False, False, True, True, True, False])
"""The last pixel is neither: a scribble of another class, or outside."""

LEARNT = (0.4, 0.6, 0.9, 0.5, 0.7, 0.3)
"""R- = .7 - .5 alpha, above 0 for any ratio."""
LEARNT_BY_HEART = (0.9, 0.7, 0.1, 0.2, 0.3, 0.4)
"""R- = .2 - .8 alpha, below 0 for a ratio above 1/4."""


def risk_and_gradient(
    probs: tuple[float, ...], ratio: float, beta: float = 0.0, gamma: float = 1.0
) -> tuple[float, Tensor]:
    leaf = torch.tensor(probs, dtype=torch.float64, requires_grad=True)
    loss = non_negative_risk(leaf, POSITIVE, UNLABELLED, ratio=ratio, beta=beta, gamma=gamma)
    loss.backward()
    assert leaf.grad is not None
    return loss.item(), leaf.grad


def plain_loop(
    scores: list[float], positive: list[bool], unlabelled: list[bool], ratio: float, beta: float, gamma: float
) -> float:
    """Kiryo's Algorithm 1 on scores g, with the sigmoid loss 1 / (1 + exp(g)) written out."""

    def mean_loss(chosen: list[bool], sign: float) -> float:
        losses = [1 / (1 + math.exp(sign * g)) for g, c in zip(scores, chosen, strict=True) if c]
        return sum(losses) / len(losses)

    positive_risk = ratio * mean_loss(positive, 1)
    negative_risk = mean_loss(unlabelled, -1) - ratio * mean_loss(positive, -1)
    return positive_risk + negative_risk if negative_risk >= -beta else -gamma * negative_risk


def test_by_hand() -> None:
    # R+ = .4 (1 - .5) = .2 and R- = .7 - .4 * .5 = .5.
    loss, gradient = risk_and_gradient(LEARNT, ratio=0.4)
    assert loss == pytest.approx(0.7)
    # A positive pixel is in R+ and in R-, each with -alpha / 2; an unlabelled one is in R- with 1/3.
    torch.testing.assert_close(gradient, torch.tensor([-0.4, -0.4, 1 / 3, 1 / 3, 1 / 3, 0]).double())


def test_in_the_corrected_branch_the_step_is_back_along_the_negative_risk_alone() -> None:
    # R- = .2 - .5 * .8 = -.2. The gradient is that of -R-: nothing of R+, and its sign turned for all.
    loss, gradient = risk_and_gradient(LEARNT_BY_HEART, ratio=0.5)
    assert loss == pytest.approx(0.2)
    expected = torch.tensor([0.25, 0.25, -1 / 3, -1 / 3, -1 / 3, 0]).double()
    torch.testing.assert_close(gradient, expected)


def test_the_step_back_is_scaled_by_gamma_and_nothing_else() -> None:
    whole, half = (risk_and_gradient(LEARNT_BY_HEART, 0.5, gamma=gamma) for gamma in (1.0, 0.5))
    assert half[0] == pytest.approx(whole[0] / 2)
    torch.testing.assert_close(half[1], whole[1] / 2)
    torch.testing.assert_close(
        risk_and_gradient(LEARNT, 0.4, gamma=0.5)[1], risk_and_gradient(LEARNT, 0.4)[1]
    )


def test_a_step_back_raises_the_negative_risk() -> None:
    _, gradient = risk_and_gradient(LEARNT_BY_HEART, ratio=0.5)
    moved = torch.tensor(LEARNT_BY_HEART).double() - 0.1 * gradient

    def negative_risk(probs: Tensor) -> float:
        return float(probs[UNLABELLED].mean() - 0.5 * probs[POSITIVE].mean())

    assert negative_risk(moved) > negative_risk(torch.tensor(LEARNT_BY_HEART).double()) + 0.01


@pytest.mark.parametrize(("beta", "turned"), [(0.0, True), (0.19, True), (0.21, False)])
def test_beta_is_how_far_the_negative_risk_may_fall(beta: float, turned: bool) -> None:
    # R+ = .5 (1 - .8) = .1, R- = -.2.
    loss, gradient = risk_and_gradient(LEARNT_BY_HEART, ratio=0.5, beta=beta)
    assert loss == pytest.approx(0.2 if turned else -0.1)
    assert bool(gradient[0] > 0) == turned


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ratio", [0.05, 0.9])
def test_agrees_with_the_algorithm_on_log_odds_of_a_softmax(ratio: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(1, 3, 4, 5, generator=generator, dtype=torch.float64)
    positive = torch.rand(1, 4, 5, generator=generator) < 0.3
    unlabelled = ~positive & (torch.rand(1, 4, 5, generator=generator) < 0.8)
    # Positives are made likely, so that a high ratio turns the risk around.
    logits[:, 1] += 3 * positive
    log_odds = logits[:, 1] - logits[:, [0, 2]].logsumexp(dim=1)
    expected = plain_loop(
        log_odds.flatten().tolist(), positive.flatten().tolist(), unlabelled.flatten().tolist(), ratio, 0, 0.7
    )
    probs = logits.softmax(dim=1)[:, 1]
    found = non_negative_risk(probs, positive, unlabelled, ratio=ratio, beta=0, gamma=0.7)
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("probs", [LEARNT, LEARNT_BY_HEART])
def test_the_gradient_is_that_of_finite_differences_on_either_side(probs: tuple[float, ...]) -> None:
    scores = torch.tensor(probs, dtype=torch.float64).logit().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda g: non_negative_risk(g.sigmoid(), POSITIVE, UNLABELLED, ratio=0.6, beta=0, gamma=0.8),
        (scores,),
    )


def test_without_a_correction_the_risk_is_unbiased() -> None:
    """Where U holds the positives at exactly the ratio, the risk is that of full supervision."""
    positives, negatives = torch.tensor([0.8, 0.6, 0.7]), torch.tensor([0.2, 0.4, 0.1, 0.3, 0.1, 0.2, 0.5])
    probs = torch.cat([positives, positives, negatives])
    is_positive = torch.arange(len(probs)) < 3
    found = non_negative_risk(probs, is_positive, ~is_positive, ratio=0.3, beta=0, gamma=1)
    supervised = 0.3 * (1 - positives).mean() + 0.7 * negatives.mean()
    torch.testing.assert_close(found, supervised)


@pytest.mark.parametrize("missing", ["positive", "unlabelled"])
def test_a_batch_without_the_class_or_without_unlabelled_pixels_moves_nothing(missing: str) -> None:
    probs = torch.tensor(LEARNT, requires_grad=True)
    chosen = {"positive": POSITIVE, "unlabelled": UNLABELLED, missing: torch.zeros_like(POSITIVE)}
    loss = non_negative_risk(probs, ratio=0.4, beta=0, gamma=1, **chosen)
    loss.backward()
    assert loss == 0
    assert probs.grad is not None
    assert probs.grad.abs().max() == 0
