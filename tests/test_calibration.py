"""The temperature that makes posteriors honest."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import oracles
from shapepu.calibration import (
    COOLEST,
    HOTTEST,
    Calibration,
    apply_temperature,
    fit_calibration,
    fit_temperature,
)


def labelled_logits(pixels: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose softmax is exactly the distribution the labels are drawn from."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(pixels, 3, generator=generator, dtype=torch.float64)
    return logits, torch.multinomial(logits.softmax(dim=1), 1, generator=generator)[:, 0]


def test_by_hand() -> None:
    # Two classes, logit difference 2, right three times in four: softmax(2 / T) = 3/4, so T = 2 / log 3.
    logits = torch.tensor([[2.0, 0.0]] * 4)
    temperature = fit_temperature(logits, torch.tensor([0, 0, 0, 1]))
    assert temperature == pytest.approx(2 / math.log(3), rel=1e-6)


@pytest.mark.parametrize("overconfidence", [0.3, 1.0, 4.0])
def test_the_scale_that_was_put_on_honest_logits_is_found(overconfidence: float) -> None:
    logits, labels = labelled_logits(20_000)
    assert fit_temperature(overconfidence * logits, labels) == pytest.approx(overconfidence, rel=0.05)


def test_no_other_temperature_has_a_lower_loss() -> None:
    logits, labels = labelled_logits(50)
    temperature = fit_temperature(logits, labels)
    best = oracles.tempered_log_loss(logits.numpy(), labels.numpy(), temperature)
    for factor in (0.5, 0.99, 1.01, 2.0):
        assert oracles.tempered_log_loss(logits.numpy(), labels.numpy(), factor * temperature) > best


def test_log_probabilities_serve_as_logits() -> None:
    logits, labels = labelled_logits(200)
    assert fit_temperature(logits.log_softmax(dim=1), labels) == pytest.approx(
        fit_temperature(logits, labels), rel=1e-6
    )


def test_a_weight_is_as_good_as_repetition() -> None:
    logits, labels = labelled_logits(30)
    times = torch.arange(30) % 3
    repeated = fit_temperature(logits.repeat_interleave(times, dim=0), labels.repeat_interleave(times))
    assert fit_temperature(logits, labels, weights=times) == pytest.approx(repeated, rel=1e-6)


def test_labels_all_predicted_right_or_wrong_stop_at_the_limits() -> None:
    logits = torch.tensor([[0.5, 0.0], [0.0, 0.5]])
    assert fit_temperature(logits, torch.tensor([0, 1])) == pytest.approx(COOLEST, rel=1e-3)
    assert fit_temperature(logits, torch.tensor([1, 0])) == pytest.approx(HOTTEST, rel=1e-3)


def test_a_class_that_is_impossible_everywhere_changes_nothing() -> None:
    logits, labels = labelled_logits(200)
    padded = torch.cat([logits, torch.full((200, 1), -math.inf)], dim=1)
    assert fit_temperature(padded, labels) == pytest.approx(fit_temperature(logits, labels), rel=1e-9)


def test_wildly_overconfident_logits_are_softened_to_the_limit() -> None:
    logits = torch.tensor([[1e5, -1e5], [1e5, 0.0]])
    assert fit_temperature(logits, torch.tensor([1, 0])) == pytest.approx(HOTTEST, rel=1e-3)


def test_without_pixels_the_posteriors_are_left_as_they_are() -> None:
    assert fit_temperature(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)) == 1.0


def test_applying_a_temperature_divides_the_log_odds() -> None:
    log_probs = torch.tensor([0.8, 0.2]).log().view(1, 2, 1, 1)
    softened = apply_temperature(log_probs, 2.0).exp().flatten()
    np.testing.assert_allclose(softened, [2 / 3, 1 / 3], rtol=1e-6)


def test_a_bias_and_a_scale_put_on_honest_logits_are_undone() -> None:
    logits, labels = labelled_logits(50_000)
    distorted = 2.5 * logits + torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)
    corrected = fit_calibration(distorted, labels).apply(distorted)
    torch.testing.assert_close(corrected.exp(), logits.softmax(dim=1), atol=0.03, rtol=0)


def test_the_mean_posterior_over_the_labelled_pixels_becomes_their_share() -> None:
    logits, labels = labelled_logits(500)
    distorted = 0.4 * logits + torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    corrected = fit_calibration(distorted, labels, ridge=1e-9).apply(distorted).exp()
    shares = torch.bincount(labels, minlength=3) / 500
    torch.testing.assert_close(corrected.mean(dim=0), shares.double(), atol=1e-6, rtol=0)


def test_no_neighbouring_correction_has_a_lower_loss() -> None:
    logits, labels = labelled_logits(60)
    best = fit_calibration(logits, labels, ridge=1e-9)

    def loss(calibration: Calibration) -> float:
        return float(-calibration.apply(logits).gather(1, labels[:, None]).mean())

    for direction in range(4):
        for step in (-0.02, 0.02):
            biases = best.biases.clone()
            biases[direction - 1] += step if direction else 0.0
            moved = Calibration(best.sharpness + (0.0 if direction else step), biases)
            assert loss(moved) > loss(best)


def test_classes_that_are_never_confused_and_classes_that_are_absent_stay_finite() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]]).repeat(50, 1)
    calibration = fit_calibration(logits, torch.tensor([0, 1]).repeat(50))
    assert calibration.biases.isfinite().all()
    assert 0 < calibration.sharpness < 10
    assert calibration.apply(logits).isfinite().all()


def test_nothing_labelled_corrects_nothing() -> None:
    calibration = fit_calibration(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    logits = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(calibration.apply(logits), logits.log_softmax(dim=1))
