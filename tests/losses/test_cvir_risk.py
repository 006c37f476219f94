"""The value-ignoring risk: what counts as a negative of a class, and that both sides weigh the same."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from shapepu.labels import OUTSIDE
from shapepu.losses import value_ignoring_risk

CLASSES = 3


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log probabilities (2, 3, 4, 5), labels with all of 0..3 and 255, and discarded pixels."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, CLASSES, 4, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES + 1, (2, 4, 5), generator=generator).to(torch.uint8)
    labels[1, 0] = OUTSIDE
    return logits.log_softmax(dim=1), labels, torch.rand(2, CLASSES, 4, 5, generator=generator) < 0.3


def plain_loop(log_probs: Tensor, labels: Tensor, discarded: Tensor) -> float:
    """Pixel by pixel and class by class, as the formula says."""
    total = 0.0
    for j in range(1, log_probs.shape[1]):
        positives, negatives = [], []
        for n, y, x in torch.cartesian_prod(*map(torch.arange, labels.shape)).tolist():
            q, label = math.exp(log_probs[n, j, y, x]), int(labels[n, y, x])
            if label == j:
                positives.append(-math.log(q))
            elif label < CLASSES or (label == CLASSES and not discarded[n, j, y, x]):
                negatives.append(-math.log(1 - q))
        if positives:
            total += sum(positives) / len(positives) / 2 + sum(negatives) / max(1, len(negatives)) / 2
    return total


def test_by_hand() -> None:
    # A scribble of the one structure at .8, of the background at .1, unlabelled pixels at .4 and at .9, the
    # latter discarded, and a pixel outside.
    foreground = torch.tensor([0.8, 0.1, 0.4, 0.9, 0.99])
    log_probs = torch.stack([1 - foreground, foreground]).log().view(1, 2, 1, 5)
    labels = torch.tensor([[[1, 0, 2, 2, OUTSIDE]]])
    discarded = torch.tensor([False, False, False, True, True]).expand(1, 2, 1, 5)
    expected = (-math.log(0.8) + (-math.log(0.9) - math.log(0.6)) / 2) / 2
    assert float(value_ignoring_risk(log_probs, labels, discarded)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_plain_loop(seed: int) -> None:
    log_probs, labels, discarded = example(seed)
    found = float(value_ignoring_risk(log_probs, labels, discarded))
    assert found == pytest.approx(plain_loop(log_probs, labels, discarded), rel=1e-10)


def test_discarding_a_pixel_equals_deleting_it_from_the_negatives_of_that_class() -> None:
    log_probs, labels, _ = example()
    labels[0, 0, 0] = CLASSES
    discarded = torch.zeros_like(log_probs, dtype=torch.bool)
    discarded[0, 2, 0, 0] = True
    log_probs.requires_grad_()
    (gradient,) = torch.autograd.grad(value_ignoring_risk(log_probs, labels, discarded), log_probs)
    # The term of class 1 reaches the others' log q by -log(1 - q_1); nothing of class 2's negatives does.
    alone = log_probs.detach()[0, :, 0, 0].clone().requires_grad_()
    unlabelled_or_other = int(((labels != 1) & (labels != OUTSIDE)).sum())
    (-alone[[0, 2]].logsumexp(dim=0) / unlabelled_or_other / 2).backward()
    assert alone.grad is not None
    torch.testing.assert_close(gradient[0, :, 0, 0], alone.grad)


def test_scribbles_of_other_classes_are_never_discarded() -> None:
    log_probs, labels, discarded = example()
    everywhere = discarded | (labels < CLASSES)[:, None]
    torch.testing.assert_close(
        value_ignoring_risk(log_probs, labels, everywhere), value_ignoring_risk(log_probs, labels, discarded)
    )


def test_a_class_without_scribbles_is_left_out() -> None:
    log_probs, labels, discarded = example()
    labels[labels == 2] = CLASSES
    log_probs.requires_grad_()
    loss = value_ignoring_risk(log_probs, labels, discarded)
    assert loss.item() == pytest.approx(plain_loop(log_probs.detach(), labels, discarded), rel=1e-10)
    labels[labels == 1] = CLASSES
    nothing = value_ignoring_risk(log_probs, labels, discarded)
    (gradient,) = torch.autograd.grad(nothing, log_probs)
    assert nothing == 0
    assert gradient.abs().max() == 0


def test_the_number_of_scribbles_does_not_move_the_balance() -> None:
    """Every image twice, but the scribbles of the copies erased: the means stay, so the loss does."""
    log_probs = example()[0][:1].expand(2, -1, -1, -1)
    labels = torch.full((2, 4, 5), OUTSIDE)
    labels[:, 1:3] = CLASSES
    labels[0, 0, 0] = 1
    once = value_ignoring_risk(log_probs[:1], labels[:1], torch.zeros(1, CLASSES, 4, 5, dtype=torch.bool))
    twice = value_ignoring_risk(log_probs, labels, torch.zeros(2, CLASSES, 4, 5, dtype=torch.bool))
    torch.testing.assert_close(once, twice)


def test_the_gradient_is_that_of_finite_differences() -> None:
    log_probs, labels, discarded = example()
    logits = log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: value_ignoring_risk(z.log_softmax(dim=1), labels, discarded), (logits,)
    )


def test_a_sure_mistake_costs_what_its_logits_say() -> None:
    logits = torch.tensor([0.0, 200.0, 0.0]).view(1, 3, 1, 1).repeat(1, 1, 1, 2).requires_grad_()
    labels = torch.tensor([[[2, 3]]])
    loss = value_ignoring_risk(logits.log_softmax(dim=1), labels, torch.zeros(1, 3, 1, 2, dtype=torch.bool))
    loss.backward()
    # Class 2 is at e^-200 on its scribble; class 1 has no scribble, so its own sureness costs nothing here.
    assert loss.item() == pytest.approx(100)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0, :, 0, 0], torch.tensor([0.0, 0.5, -0.5]))
