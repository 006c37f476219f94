"""The pool of posteriors as a histogram: small, streamed, and as good as the pixels themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from shapepu.mixture import MixtureState, PosteriorHistogram, fit
from test_mixture import PRIORS, gaussian_pool


def histogram_of(log_probs: Tensor, **options: float) -> PosteriorHistogram:
    histogram = PosteriorHistogram(log_probs.shape[1], **options)  # type: ignore[arg-type]
    histogram.add(log_probs)
    return histogram


def fit_to(histogram: PosteriorHistogram, priors: Tensor = PRIORS) -> MixtureState:
    return fit(histogram.log_probs, priors, weights=histogram.weights, tolerance=1e-8, max_iterations=10_000)


def contents(histogram: PosteriorHistogram) -> Tensor:
    """A row a bin: weight and mean posterior, sorted by the probability of the first class."""
    rows = torch.cat([histogram.weights[:, None], histogram.log_probs.exp()], dim=1)
    return rows[rows[:, 1].argsort()]


def test_three_pixels_by_hand() -> None:
    # Two pixels that differ by less than a bin share one, at their mean; the third has its own.
    histogram = histogram_of(torch.tensor([[0.9, 0.1], [0.902, 0.098], [0.2, 0.8]]).log())
    assert len(histogram) == 2
    np.testing.assert_allclose(contents(histogram), [[1, 0.2, 0.8], [2, 0.901, 0.099]], rtol=1e-6)
    assert histogram.total == 3


def test_sure_pixels_of_a_class_share_one_bin_whatever_else_they_differ_in() -> None:
    logits = torch.tensor([[0.0, -30.0, -20.0], [0.0, -500.0, -17.0], [0.0, -20.0, -math.inf]])
    assert len(histogram_of(logits.log_softmax(dim=1))) == 1


def test_a_rare_class_is_resolved_at_one_in_a_million() -> None:
    rare = torch.tensor([1e-6, 2e-6])
    histogram = histogram_of(torch.stack([1 - rare, rare], dim=1).log())
    assert len(histogram) == 2


@pytest.mark.parametrize("separation", [2.0, 3.0, 5.0])
def test_ratios_from_the_histogram_are_those_of_the_pixels(separation: float) -> None:
    log_probs, _ = gaussian_pool(200_000, separation=separation)
    log_probs = log_probs.float()
    histogram = histogram_of(log_probs)
    exact = fit(log_probs, PRIORS, tolerance=1e-8, max_iterations=10_000)
    assert len(histogram) < len(log_probs) / 5
    torch.testing.assert_close(fit_to(histogram).ratios, exact.ratios, atol=2e-4, rtol=0.01)


def test_the_error_shrinks_with_the_square_of_the_bin_width() -> None:
    log_probs, _ = gaussian_pool(50_000)
    exact = fit(log_probs, PRIORS, tolerance=1e-10, max_iterations=10_000).ratios
    errors = [
        float((fit_to(histogram_of(log_probs, bin_width=width)).ratios - exact).abs().max())
        for width in (0.8, 0.2)
    ]
    # A quarter of the width: a sixteenth of an error of second order, a quarter of one of first order.
    assert errors[0] / errors[1] > 10


def test_chunks_and_their_order_change_nothing() -> None:
    log_probs, _ = gaussian_pool(5000)
    whole, streamed = histogram_of(log_probs), PosteriorHistogram(4)
    for chunk in reversed(log_probs.split(700)):
        streamed.add(chunk)
    torch.testing.assert_close(contents(streamed), contents(whole))


def test_more_pixels_than_a_chunk_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs, _ = gaussian_pool(1000)
    weights = torch.linspace(0, 2, 1000)
    monkeypatch.setattr("shapepu.mixture.PIXELS_PER_CHUNK", 300)
    histogram = PosteriorHistogram(4)
    histogram.add(log_probs, weights)
    mean = (weights[:, None] * log_probs.exp()).sum(dim=0)
    torch.testing.assert_close(histogram.weights @ histogram.log_probs.exp(), mean)
    assert histogram.total == pytest.approx(1000)


def test_rows_that_say_nothing_or_weigh_nothing_are_left_out() -> None:
    log_probs = torch.tensor([[0.5, 0.5], [-math.inf, -math.inf], [0.1, 0.9]]).log()
    log_probs[1] = -math.inf
    histogram = PosteriorHistogram(2)
    histogram.add(log_probs, torch.tensor([1.0, 1.0, 0.0]))
    histogram.add(torch.zeros(0, 2))
    np.testing.assert_allclose(contents(histogram), [[1, 0.5, 0.5]])


def test_the_number_of_bins_is_capped_by_coarser_bins() -> None:
    log_probs, _ = gaussian_pool(50_000)
    exact = fit(log_probs, PRIORS, tolerance=1e-8, max_iterations=1000).ratios
    capped = PosteriorHistogram(4, max_bins=3000)
    for chunk in log_probs.split(10_000):
        capped.add(chunk)
    assert len(capped) <= 3000
    assert capped.bin_width > 0.125
    assert capped.total == 50_000
    torch.testing.assert_close(fit_to(capped).ratios, exact, atol=1e-3, rtol=0.03)
    tiny = histogram_of(log_probs, max_bins=1)
    torch.testing.assert_close(tiny.log_probs.exp()[0], log_probs.exp().mean(dim=0))


def test_many_classes_stay_few_bins_where_posteriors_are_sure() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(20, (20_000,), generator=generator)
    logits = torch.randn(20_000, 20, generator=generator)
    logits[torch.arange(20_000), labels] += 40
    histogram = histogram_of(logits.log_softmax(dim=1))
    assert len(histogram) == 20
    shares = torch.bincount(labels, minlength=20) / 20_000
    ratios = fit_to(histogram, torch.full((20,), 1 / 20)).ratios
    torch.testing.assert_close(ratios, shares.double(), atol=1e-6, rtol=0)


def test_half_precision_posteriors_are_counted_in_single_precision() -> None:
    log_probs, _ = gaussian_pool(1000)
    half = log_probs.to(torch.bfloat16)
    torch.testing.assert_close(contents(histogram_of(half)), contents(histogram_of(half.float())))


def test_the_old_is_forgotten_at_the_rate_of_the_decay() -> None:
    histogram = histogram_of(torch.tensor([[0.9, 0.1]]).log().repeat(8, 1))
    histogram.decay(0.25)
    histogram.add(torch.tensor([[0.2, 0.8]]).log())
    np.testing.assert_allclose(contents(histogram), [[1, 0.2, 0.8], [2, 0.9, 0.1]], rtol=1e-6)
    for _ in range(40):
        histogram.decay(0.5)
        histogram.add(torch.tensor([[0.5, 0.5]]).log())
    assert len(histogram) == 1


def test_merged_pools_are_one_pool() -> None:
    log_probs, _ = gaussian_pool(4000)
    whole, merged = histogram_of(log_probs), histogram_of(log_probs[:1500])
    merged.merge(histogram_of(log_probs[1500:]))
    assert merged.total == 4000
    torch.testing.assert_close(fit_to(merged).ratios, fit_to(whole).ratios, atol=1e-4, rtol=0)


def test_a_saved_pool_goes_on_exactly_as_the_one_that_was_not_saved() -> None:
    log_probs, _ = gaussian_pool(6000)
    original = histogram_of(log_probs[:3000], max_bins=500)
    restored = PosteriorHistogram(4, max_bins=500)
    restored.load_state_dict(original.state_dict())
    for histogram in (original, restored):
        histogram.decay(0.9)
        histogram.add(log_probs[3000:])
    assert restored.bin_width == original.bin_width
    assert restored.state_dict()["keys"].equal(original.state_dict()["keys"])
    assert restored.state_dict()["sums"].equal(original.state_dict()["sums"])


def test_a_saved_state_does_not_change_with_the_pool() -> None:
    histogram = histogram_of(torch.tensor([[0.9, 0.1]]).log())
    state = histogram.state_dict()
    histogram.add(torch.tensor([[0.9, 0.1]]).log())
    assert state["sums"][0].tolist() == [1]


def test_a_state_of_other_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="3 classes, expected 4"):
        PosteriorHistogram(4).load_state_dict(PosteriorHistogram(3).state_dict())


def test_thresholds_cut_off_the_share_asked_for() -> None:
    log_probs, _ = gaussian_pool(100_000)
    ratios = torch.tensor([0.5, 0.2, 0.05, 0.01])
    thresholds = histogram_of(log_probs).thresholds(ratios)
    shares = (log_probs >= thresholds).double().mean(dim=0)
    torch.testing.assert_close(shares, ratios.double(), atol=0, rtol=0.02)


def test_thresholds_never_divide_pixels_of_one_bin() -> None:
    # Three sure pixels of class 1 in ten while the ratio says one in ten: all three are kept, nothing else.
    sure = torch.tensor([1e-9, 1e-8, 1e-7], dtype=torch.float64)
    foreground = torch.cat([1 - sure, torch.full((7,), 0.01)])
    log_probs = torch.stack([1 - foreground, foreground], dim=1).log()
    threshold = histogram_of(log_probs).thresholds(torch.tensor([0.9, 0.1]))[1]
    assert (log_probs[:, 1] >= threshold).tolist() == [True] * 3 + [False] * 7


def test_thresholds_of_nothing_and_of_everything_are_infinite() -> None:
    log_probs, _ = gaussian_pool(100)
    thresholds = histogram_of(log_probs).thresholds(torch.tensor([1.0, 0.0, 0.5, 0.5]))
    assert thresholds[:2].tolist() == [-math.inf, math.inf]
    assert PosteriorHistogram(2).thresholds(torch.tensor([0.5, 0.5])).tolist() == [-math.inf, -math.inf]
