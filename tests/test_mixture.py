"""Mixture ratios: one EM step, the fit over a pool, its errors and guards."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import oracles
from shapepu.mixture import MixtureState, confidence_lower_bound, e_step, fit, m_step, standard_errors

RATIOS = torch.tensor([0.9, 0.05, 0.03, 0.02], dtype=torch.float64)
PRIORS = torch.tensor([0.4, 0.2, 0.25, 0.15], dtype=torch.float64)


def gaussian_pool(pixels: int, *, separation: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pixels from four Gaussians in a plane mixed by RATIOS: exact posteriors under PRIORS, true classes."""
    generator = torch.Generator().manual_seed(seed)
    means = separation * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.multinomial(RATIOS, pixels, replacement=True, generator=generator)
    points = means[labels] + torch.randn(pixels, 2, generator=generator, dtype=torch.float64)
    log_densities = -0.5 * (points[:, None] - means).square().sum(dim=2)
    return (log_densities + PRIORS.log()).log_softmax(dim=1), labels


def random_pool(seed: int, pixels: int = 12, classes: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(pixels, classes, generator=generator, dtype=torch.float64)
    priors = torch.rand(classes, generator=generator, dtype=torch.float64) + 0.1
    return logits.log_softmax(dim=1), priors / priors.sum()


def accurately(log_probs: Tensor, priors: Tensor, **options: Tensor | None) -> MixtureState:
    return fit(log_probs, priors, tolerance=1e-12, max_iterations=100_000, **options)


def test_one_step_by_hand() -> None:
    # Priors 1/2, 1/2, ratios 3/4, 1/4. Pixel (.5, .5): joint .75, .25. Pixel (.2, .8): joint .3, .4.
    log_probs = torch.tensor([[0.5, 0.5], [0.2, 0.8]]).log()
    responsibilities = e_step(log_probs, torch.tensor([0.75, 0.25]), torch.tensor([0.5, 0.5]))
    expected = torch.tensor([[0.75, 0.25], [0.15 / 0.35, 0.2 / 0.35]])
    torch.testing.assert_close(responsibilities.exp(), expected)
    expected_ratios = torch.tensor([(0.75 + 3 / 7) / 2, (0.25 + 4 / 7) / 2], dtype=torch.float64)
    torch.testing.assert_close(m_step(responsibilities), expected_ratios, rtol=0, atol=1e-7)


def test_a_step_agrees_with_the_plain_loop() -> None:
    log_probs, priors = random_pool(1)
    weights = torch.linspace(0.5, 3, len(log_probs), dtype=torch.float64)
    ratios = torch.tensor([0.7, 0.1, 0.2], dtype=torch.float64)
    step = m_step(e_step(log_probs, ratios, priors), weights=weights)
    oracle = oracles.em_step(log_probs.exp().numpy(), ratios.numpy(), priors.numpy(), weights.numpy())
    np.testing.assert_allclose(step.numpy(), oracle, rtol=1e-12)


def test_the_first_two_steps_of_a_fit_are_plain_em_from_the_priors() -> None:
    log_probs, priors = random_pool(2)
    for steps in (1, 2):
        state = fit(log_probs, priors, tolerance=0, max_iterations=steps)
        assert state.iterations == steps
        assert not state.converged
        oracle = oracles.em(log_probs.exp().numpy(), priors.numpy(), steps=steps)
        np.testing.assert_allclose(state.ratios.numpy(), oracle, rtol=1e-12)


def test_a_fit_ends_where_plain_em_ends_after_many_more_steps() -> None:
    log_probs, priors = random_pool(12, pixels=40)
    state = accurately((log_probs / 4).log_softmax(dim=1), priors)
    oracle = oracles.em((log_probs / 4).softmax(dim=1).numpy(), priors.numpy(), steps=1500)
    assert state.converged
    assert state.iterations < 150
    np.testing.assert_allclose(state.ratios.numpy(), oracle, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), overlap=st.floats(0.05, 6))
# Steps here shrink to rounding without a bend: an extrapolation by their quotient overflows.
@example(seed=1, overlap=0.651040379849374)
def test_the_log_likelihood_never_falls(seed: int, overlap: float) -> None:
    log_probs, priors = random_pool(seed, pixels=30, classes=4)
    log_probs = (log_probs / overlap).log_softmax(dim=1)
    likelihoods = [fit(log_probs, priors, tolerance=0, max_iterations=n).log_likelihood for n in range(25)]
    assert min(np.diff(likelihoods)) > -1e-12
    assert likelihoods[-1] > likelihoods[0]


def test_the_reported_log_likelihood_is_that_of_the_reported_ratios() -> None:
    log_probs, priors = random_pool(3)
    weights = torch.linspace(0.5, 3, len(log_probs), dtype=torch.float64)
    state = fit(log_probs, priors, weights=weights, tolerance=1e-6, max_iterations=50)
    oracle = oracles.mixture_log_likelihood(
        log_probs.exp().numpy(), state.ratios.numpy(), priors.numpy(), weights.numpy()
    )
    assert state.log_likelihood == pytest.approx(oracle, rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_at_the_end_of_a_fit_no_class_could_gain_by_growing(seed: int) -> None:
    # Few pixels that overlap: the maximum has classes at 0, where a careless leap would strand a present one.
    log_probs, priors = random_pool(seed, pixels=10, classes=4)
    log_probs = (log_probs / 4).log_softmax(dim=1)
    ratios = accurately(log_probs, priors).ratios
    scores = log_probs.exp() / priors
    slope = (scores / (scores @ ratios)[:, None]).mean(dim=0)
    assert slope.max() < 1 + 1e-6
    assert slope[ratios > 1e-3].min() > 1 - 1e-6


def test_a_fit_asked_to_go_on_after_the_maximum_stays_there() -> None:
    for seed in range(20):
        log_probs, priors = random_pool(seed, pixels=30, classes=4)
        state = fit(log_probs, priors, tolerance=0, max_iterations=400)
        torch.testing.assert_close(state.ratios, accurately(log_probs, priors).ratios, atol=1e-8, rtol=0)


def test_calibrated_posteriors_give_back_the_ratios_they_were_mixed_by() -> None:
    log_probs, labels = gaussian_pool(100_000)
    state = fit(log_probs, PRIORS, tolerance=1e-7, max_iterations=1000)
    shares = torch.bincount(labels, minlength=4) / len(labels)
    np.testing.assert_allclose(state.ratios, shares, atol=2e-3)


def test_single_precision_gives_the_ratios_of_double_precision() -> None:
    log_probs, _ = gaussian_pool(100_000)
    double = fit(log_probs, PRIORS, tolerance=1e-7, max_iterations=1000)
    single = fit(log_probs.float(), PRIORS.float(), tolerance=1e-7, max_iterations=1000)
    torch.testing.assert_close(single.ratios, double.ratios, atol=2e-6, rtol=0)
    assert single.converged


def test_a_weight_is_as_good_as_repetition() -> None:
    log_probs, priors = random_pool(5)
    times = torch.arange(len(log_probs)) % 4
    repeated = accurately(log_probs.repeat_interleave(times, dim=0), priors)
    weighted = accurately(log_probs, priors, weights=times)
    torch.testing.assert_close(weighted.ratios, repeated.ratios, atol=1e-9, rtol=0)
    assert weighted.log_likelihood == pytest.approx(repeated.log_likelihood, rel=1e-9)


def test_permuting_the_classes_permutes_the_ratios() -> None:
    log_probs, priors = random_pool(6, classes=4)
    order = torch.tensor([2, 0, 3, 1])
    permuted = accurately(log_probs[:, order], priors[order])
    torch.testing.assert_close(
        permuted.ratios, accurately(log_probs, priors).ratios[order], atol=1e-9, rtol=0
    )


def test_priors_may_be_counts() -> None:
    log_probs, priors = random_pool(7)
    shares, counts = accurately(log_probs, priors), accurately(log_probs, 1000 * priors)
    torch.testing.assert_close(counts.ratios, shares.ratios, atol=1e-12, rtol=0)
    assert counts.log_likelihood == pytest.approx(shares.log_likelihood, rel=1e-12)


def test_a_class_without_labelled_pixels_gets_ratio_zero_and_the_others_share_the_rest() -> None:
    log_probs, priors = random_pool(8, classes=4)
    priors = priors.clone()
    priors[2] = 0
    state = accurately(log_probs, priors)
    others = [0, 1, 3]
    alone = accurately(log_probs[:, others].log_softmax(dim=1), priors[others])
    assert state.ratios[2] == 0
    torch.testing.assert_close(state.ratios[others], alone.ratios, atol=1e-9, rtol=0)
    assert e_step(log_probs, state.ratios, priors).exp()[:, 2].max() == 0


def test_pixels_that_no_class_explains_are_left_out() -> None:
    log_probs, priors = random_pool(9)
    priors = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    nothing = torch.full((1, 3), -math.inf, dtype=torch.float64)
    only_unknown_class = torch.tensor([[-math.inf, -math.inf, 0.0]], dtype=torch.float64)
    padded = torch.cat([nothing, log_probs, only_unknown_class])
    with_gaps, without = accurately(padded, priors), accurately(log_probs, priors)
    torch.testing.assert_close(with_gaps.ratios, without.ratios, atol=1e-12, rtol=0)
    assert with_gaps.log_likelihood == pytest.approx(without.log_likelihood, rel=1e-12)
    step = m_step(e_step(padded, priors, priors))
    torch.testing.assert_close(step, m_step(e_step(log_probs, priors, priors)))


@pytest.mark.parametrize("empty", [torch.zeros(0, 3), torch.full((4, 3), -math.inf)])
def test_a_pool_that_says_nothing_gives_back_the_start(empty: Tensor) -> None:
    state = fit(empty, torch.tensor([2.0, 1.0, 1.0]), tolerance=1e-6, max_iterations=10)
    assert state.ratios.tolist() == [0.5, 0.25, 0.25]
    assert (state.iterations, state.converged) == (0, False)
    assert math.isnan(state.log_likelihood)


def test_sure_pixels_are_counted() -> None:
    log_probs = torch.tensor([[0.0, -math.inf], [0.0, -math.inf], [0.0, -math.inf], [-math.inf, 0.0]])
    state = fit(log_probs, torch.tensor([0.5, 0.5]), tolerance=1e-6, max_iterations=10)
    assert state.ratios.tolist() == [0.75, 0.25]
    assert state.converged


def test_log_probabilities_far_below_what_a_float_can_hold_still_decide() -> None:
    # Both classes have probability 0 in float32 against the third, whose prior says it is not there.
    log_probs = torch.tensor([[-300.0, -310.0, 0.0], [-310.0, -300.0, 0.0], [-310.0, -300.0, 0.0]])
    state = fit(log_probs, torch.tensor([0.5, 0.5, 0.0]), tolerance=1e-7, max_iterations=100)
    np.testing.assert_allclose(state.ratios, [1 / 3, 2 / 3, 0], atol=1e-4)


def test_not_a_number_is_refused() -> None:
    log_probs, priors = random_pool(10)
    log_probs[3, 1] = math.nan
    with pytest.raises(AssertionError, match="NaN"):
        accurately(log_probs, priors)


def test_a_warm_start_needs_fewer_steps_and_can_leave_zero() -> None:
    log_probs, _ = gaussian_pool(20_000, separation=2.0)
    cold = fit(log_probs, PRIORS, tolerance=1e-8, max_iterations=1000)
    warm = fit(log_probs, PRIORS, start=cold.ratios, tolerance=1e-8, max_iterations=1000)
    collapsed = torch.tensor([0.5, 0.5, 0.0, 0.0])
    revived = fit(log_probs, PRIORS, start=collapsed, tolerance=1e-8, max_iterations=1000)
    assert warm.iterations < cold.iterations
    torch.testing.assert_close(warm.ratios, cold.ratios, atol=1e-5, rtol=0)
    torch.testing.assert_close(revived.ratios, cold.ratios, atol=1e-5, rtol=0)


def test_pseudo_counts_are_pixels_seen_beforehand() -> None:
    # Ten sure pixels, eight of them of the first class, and thirty presumed ones, ten of them of the first.
    log_probs = torch.tensor([[0.0, -math.inf]] * 8 + [[-math.inf, 0.0]] * 2)
    options = {"pseudo_counts": torch.tensor([10.0, 20.0])}
    state = fit(log_probs, torch.tensor([0.5, 0.5]), tolerance=1e-9, max_iterations=100, **options)
    np.testing.assert_allclose(state.ratios, [18 / 40, 22 / 40], rtol=1e-6)
    step = m_step(log_probs, **options)
    np.testing.assert_allclose(step, [18 / 40, 22 / 40], rtol=1e-12)


def test_pseudo_counts_do_not_bring_back_a_class_without_labelled_pixels() -> None:
    log_probs, _ = random_pool(13)
    priors, counts = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.0, 100.0])
    state = accurately(log_probs, priors, pseudo_counts=counts)
    assert state.ratios[2] == 0
    assert math.isfinite(state.log_likelihood)


def test_with_pseudo_counts_the_penalised_log_likelihood_never_falls() -> None:
    log_probs, priors = random_pool(11, pixels=30)
    counts = torch.tensor([1.0, 40.0, 3.0])
    values = [
        fit(log_probs, priors, pseudo_counts=counts, tolerance=0, max_iterations=n).log_likelihood
        for n in range(20)
    ]
    assert min(np.diff(values)) > -1e-12


def test_standard_errors_are_binomial_where_classes_are_separate() -> None:
    log_probs = torch.eye(2).repeat_interleave(torch.tensor([300, 100]), dim=0).log()
    errors = standard_errors(log_probs, torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25]))
    np.testing.assert_allclose(errors, math.sqrt(0.75 * 0.25 / 400), rtol=1e-5)
    fewer = standard_errors(
        log_probs, torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25]), effective_count=100
    )
    np.testing.assert_allclose(fewer, 2 * errors, rtol=1e-6)


def test_standard_errors_are_the_spread_over_repeated_pools() -> None:
    fits, errors = [], []
    for seed in range(60):
        log_probs, _ = gaussian_pool(4000, separation=2.5, seed=seed)
        state = fit(log_probs, PRIORS, tolerance=1e-7, max_iterations=1000)
        fits.append(state.ratios)
        errors.append(standard_errors(log_probs, PRIORS, state.ratios))
    spread = torch.stack(fits).std(dim=0)
    # The deviation of 60 draws is itself uncertain by 1 / sqrt(120), a little under a tenth.
    torch.testing.assert_close(torch.stack(errors).mean(dim=0), spread, rtol=0.3, atol=0)


def test_classes_that_look_the_same_have_no_lower_bound() -> None:
    log_probs = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.4, 0.4]], dtype=torch.float64).log().repeat(50, 1)
    priors = torch.full((3,), 1 / 3, dtype=torch.float64)
    ratios = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    bound = confidence_lower_bound(ratios, standard_errors(log_probs, priors, ratios), confidence=0.95)
    assert bound[1:].tolist() == [0, 0]


def test_the_lower_bound_is_below_by_as_many_errors_as_the_confidence_asks() -> None:
    bound = confidence_lower_bound(torch.tensor([0.5, 0.01]), torch.tensor([0.1, 0.1]), confidence=0.975)
    np.testing.assert_allclose(bound, [0.5 - 0.1959964, 0], atol=1e-6)
