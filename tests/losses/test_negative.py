"""Which classes a pixel is not, and the loss on that."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from shapepu.losses import negative_loss, rule_out, rule_out_below, share_thresholds
from shapepu.losses.negative import Form
from shapepu.mixture import PosteriorHistogram

FORMS: list[Form] = ["per-class", "joint"]
ORACLES = {"per-class": oracles.negative_loss_per_class, "joint": oracles.negative_loss_joint}
RATIOS = torch.tensor([0.6, 0.2, 0.15, 0.05])


def example(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Log probabilities (2, 4, 4, 5) and the unlabelled pixels among them."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, 4, 4, 5, generator=generator, dtype=torch.float64)
    return logits.log_softmax(dim=1), torch.rand(2, 4, 5, generator=generator) < 0.8


def two_class(foreground: list[float]) -> Tensor:
    """Log probabilities of a row of pixels with background and one structure."""
    probs = torch.tensor(foreground, dtype=torch.float64)
    return torch.stack([1 - probs, probs]).log().view(1, 2, 1, -1)


def everywhere(log_probs: Tensor) -> Tensor:
    return torch.ones_like(log_probs[:, 0], dtype=torch.bool)


def test_the_share_is_kept_and_the_rest_ruled_out_by_hand() -> None:
    log_probs = two_class([0.1, 0.9, 0.3, 0.8, 0.2])
    ruled_out = rule_out(log_probs, everywhere(log_probs), torch.tensor([0.6, 0.4]))
    assert ruled_out[0, 1, 0].tolist() == [True, False, True, False, True]
    assert not ruled_out[:, 0].any()


def test_labelled_pixels_are_neither_ranked_nor_ruled_out() -> None:
    log_probs = two_class([0.1, 0.9, 0.3, 0.8, 0.2])
    unlabelled = torch.tensor([[[True, False, True, True, True]]])
    ruled_out = rule_out(log_probs, unlabelled, torch.tensor([0.5, 0.5]))
    assert ruled_out[0, 1, 0].tolist() == [True, False, False, False, True]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), levels=st.sampled_from([2, 5, 1000]), share=st.floats(0, 1))
def test_agrees_with_the_plain_ranking_with_and_without_ties(seed: int, levels: int, share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Few levels: many ties. One class in four is rounded to probability 0 in places.
    raw = torch.randint(levels, (2, 4, 3, 4), generator=generator).double()
    raw[:, 0] += 1
    log_probs = (raw / raw.sum(dim=1, keepdim=True)).log()
    unlabelled = torch.rand(2, 3, 4, generator=generator) < 0.7
    ratios = torch.tensor([0.0, share, share / 2, 1 - share])
    expected = oracles.rule_out(log_probs.exp().numpy(), unlabelled.numpy(), ratios.numpy())
    np.testing.assert_array_equal(rule_out(log_probs, unlabelled, ratios), expected)


@pytest.mark.parametrize(("ratio", "kept"), [(0, 0), (0.04, 0), (0.05, 1), (0.14, 1), (0.96, 10), (1, 10)])
def test_the_number_kept_is_the_share_to_the_nearest_pixel(ratio: float, kept: int) -> None:
    log_probs = two_class([0.05 + 0.09 * n for n in range(10)])
    ruled_out = rule_out(log_probs, everywhere(log_probs), torch.tensor([0.0, ratio], dtype=torch.float64))
    assert int((~ruled_out[:, 1]).sum()) == kept


def test_pixels_of_probability_zero_are_ruled_out_even_within_the_share() -> None:
    # The released code compares with "below the threshold", which is 0 here, and so rules nothing out.
    log_probs = two_class([0.9, 0.0, 0.0, 0.0])
    ruled_out = rule_out(log_probs, everywhere(log_probs), torch.tensor([0.5, 0.5]))
    assert ruled_out[0, 1, 0].tolist() == [False, True, True, True]
    underflow = torch.tensor([[-0.1, -200.0, -150.0, -120.0]])
    log_probs = torch.stack([torch.zeros(1, 4), underflow], dim=1)[:, :, None]
    ruled_out = rule_out(log_probs, everywhere(log_probs), torch.tensor([0.5, 0.5]))
    assert ruled_out[0, 1, 0].tolist() == [False, True, True, True]


def test_pixels_that_tie_with_the_last_one_kept_are_kept_in_any_order() -> None:
    log_probs = two_class([0.7, 0.2, 0.7, 0.7])
    ruled_out = rule_out(log_probs, everywhere(log_probs), torch.tensor([0.75, 0.25]))
    assert ruled_out[0, 1, 0].tolist() == [False, True, False, False]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_share_is_kept_in_every_precision(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(1, 2, 10, 10, generator=generator).to(dtype).log_softmax(dim=1)
    kept = ~rule_out(log_probs, everywhere(log_probs), torch.tensor([0.8, 0.2]))[:, 1]
    limit = log_probs[:, 1].flatten().sort(descending=True).values[19]
    assert kept.equal(log_probs[:, 1] >= limit)


def test_the_order_of_pixels_images_and_classes_changes_nothing() -> None:
    log_probs, unlabelled = example()
    ruled_out = rule_out(log_probs, unlabelled, RATIOS)
    assert rule_out(log_probs.flip(0), unlabelled.flip(0), RATIOS).equal(ruled_out.flip(0))
    assert rule_out(log_probs.flip(3), unlabelled.flip(2), RATIOS).equal(ruled_out.flip(3))
    order = torch.tensor([0, 3, 1, 2])
    assert rule_out(log_probs[:, order], unlabelled, RATIOS[order]).equal(ruled_out[:, order])


def test_ranking_leaves_no_trace_in_the_gradient() -> None:
    log_probs, unlabelled = example()
    assert not share_thresholds(log_probs.requires_grad_(), unlabelled, RATIOS).requires_grad
    assert not rule_out(log_probs, unlabelled, RATIOS).requires_grad


def test_nothing_unlabelled_rules_nothing_out() -> None:
    log_probs, unlabelled = example()
    assert not rule_out(log_probs, torch.zeros_like(unlabelled), RATIOS).any()


def test_the_limits_of_the_batch_rule_out_what_the_batch_does() -> None:
    log_probs, unlabelled = example()
    limits = share_thresholds(log_probs, unlabelled, RATIOS)
    assert limits[0] == -math.inf
    assert rule_out_below(log_probs, unlabelled, limits).equal(rule_out(log_probs, unlabelled, RATIOS))


def test_limits_of_a_pool_rule_out_nearly_what_the_pool_itself_would() -> None:
    generator = torch.Generator().manual_seed(0)
    log_probs = (3 * torch.randn(8, 4, 64, 64, generator=generator)).log_softmax(dim=1)
    histogram = PosteriorHistogram(4)
    histogram.add(log_probs.movedim(1, -1).reshape(-1, 4))
    pooled = rule_out_below(log_probs, everywhere(log_probs), histogram.thresholds(RATIOS))
    disagreement = (pooled != rule_out(log_probs, everywhere(log_probs), RATIOS)).double().mean()
    assert disagreement < 2e-3


def test_the_loss_per_class_by_hand() -> None:
    # Pixel 1 is not class 1: others .5 + .2. Pixels 1 and 2 are not class 2: others .5 + .3 and .1 + .8.
    log_probs = torch.tensor([[0.5, 0.1], [0.3, 0.8], [0.2, 0.1]]).log().view(1, 3, 1, 2)
    ruled_out = torch.tensor([[False, False], [True, False], [True, True]]).view(1, 3, 1, 2)
    expected = -math.log(0.7) - (math.log(0.8) + math.log(0.9)) / 2
    np.testing.assert_allclose(negative_loss(log_probs, ruled_out, form="per-class"), expected, rtol=1e-6)


def test_the_joint_loss_by_hand() -> None:
    # Pixel 1 can only be background, pixel 2 background or class 1, pixel 3 anything: it does not count.
    log_probs = torch.tensor([[0.5, 0.1, 0.2], [0.3, 0.8, 0.2], [0.2, 0.1, 0.6]]).log().view(1, 3, 1, 3)
    ruled_out = torch.tensor([[False] * 3, [True, False, False], [True, True, False]]).view(1, 3, 1, 3)
    expected = -(math.log(0.5) + math.log(0.9)) / 2
    np.testing.assert_allclose(negative_loss(log_probs, ruled_out, form="joint"), expected, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_agrees_with_the_plain_loop(form: Form) -> None:
    log_probs, unlabelled = example()
    ruled_out = rule_out(log_probs, unlabelled, RATIOS)
    expected = ORACLES[form](log_probs.exp().numpy(), ruled_out.numpy())
    np.testing.assert_allclose(negative_loss(log_probs, ruled_out, form=form), expected, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_background_pixel_is_not_punished_for_being_background(form: Form) -> None:
    # Read literally, Eq. (2) leaves background out of "not j": a pixel sure to be background would cost most.
    log_probs = torch.tensor([20.0, 0.0, 0.0, 0.0]).log_softmax(dim=0).view(1, 4, 1, 1)
    ruled_out = torch.tensor([False, True, True, True]).view(1, 4, 1, 1)
    assert 0 <= negative_loss(log_probs, ruled_out, form=form) < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_the_loss_pushes_down_the_classes_that_are_ruled_out(form: Form) -> None:
    logits = torch.tensor([0.3, 0.5, 0.1, 0.2]).view(1, 4, 1, 1).requires_grad_()
    ruled_out = torch.tensor([False, True, False, True]).view(1, 4, 1, 1)
    negative_loss(logits.log_softmax(dim=1), ruled_out, form=form).backward()
    assert logits.grad is not None
    signs = logits.grad.sign().flatten().tolist()
    assert (signs[0], signs[1], signs[2]) == (-1, 1, -1)


@pytest.mark.parametrize("form", FORMS)
def test_other_pixels_change_nothing_and_get_no_gradient(form: Form) -> None:
    log_probs, unlabelled = example()
    ruled_out = rule_out(log_probs, unlabelled, RATIOS)
    loss = negative_loss(log_probs, ruled_out, form=form)
    logits = torch.where(unlabelled[:, None], log_probs, 7 * torch.randn_like(log_probs)).requires_grad_()
    changed = negative_loss(logits.log_softmax(dim=1), ruled_out, form=form)
    changed.backward()
    torch.testing.assert_close(changed, loss)
    assert logits.grad is not None
    assert logits.grad.movedim(1, -1)[~unlabelled].abs().max() == 0


@pytest.mark.parametrize("form", FORMS)
def test_masking_equals_deleting_and_order_does_not_matter(form: Form) -> None:
    log_probs, unlabelled = example()
    ruled_out = rule_out(log_probs, unlabelled, RATIOS)
    loss = negative_loss(log_probs, ruled_out, form=form)
    rows = [tensor.movedim(1, -1)[unlabelled].T[None, :, None] for tensor in (log_probs, ruled_out)]
    torch.testing.assert_close(negative_loss(*rows, form=form), loss)
    torch.testing.assert_close(negative_loss(log_probs.flip(0), ruled_out.flip(0), form=form), loss)
    order = torch.tensor([0, 3, 1, 2])
    torch.testing.assert_close(negative_loss(log_probs[:, order], ruled_out[:, order], form=form), loss)


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_that_of_finite_differences(form: Form) -> None:
    log_probs, unlabelled = example()
    ruled_out = rule_out(log_probs, unlabelled, RATIOS)
    logits = log_probs.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: negative_loss(z.log_softmax(dim=1), ruled_out, form=form), (logits,)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("margin", [30.0, 1000.0, 1e6])
def test_a_pixel_sure_of_a_class_it_is_not_costs_its_margin_with_a_gradient_of_one(
    form: Form, margin: float
) -> None:
    # In float32 the probability is exactly 1 here, and log(1 - q) would be infinite.
    logits = torch.tensor([0.0, margin]).view(1, 2, 1, 1).requires_grad_()
    ruled_out = torch.tensor([False, True]).view(1, 2, 1, 1)
    loss = negative_loss(logits.log_softmax(dim=1), ruled_out, form=form)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(margin)
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == pytest.approx([-1, 1])


@pytest.mark.parametrize("form", FORMS)
def test_nothing_ruled_out_costs_nothing_and_has_a_gradient_of_zero(
    form: Form,
) -> None:
    log_probs, _ = example()
    log_probs.requires_grad_()
    loss = negative_loss(log_probs, torch.zeros_like(log_probs, dtype=torch.bool), form=form)
    loss.backward()
    assert abs(float(loss.detach())) < 1e-12
    assert log_probs.grad is not None
    assert log_probs.grad.abs().max() == 0


def test_a_form_that_is_not_known_is_refused() -> None:
    log_probs, _ = example()
    with pytest.raises(ValueError, match="'per-class' or 'joint', got 'sum'"):
        negative_loss(log_probs, log_probs > 0, form="sum")  # type: ignore[arg-type]
