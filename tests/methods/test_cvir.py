"""CVIR: which pixels an epoch discards, over the pool and not the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import value_ignoring_risk
from shapepu.methods import Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.cvir import CVIR, CVIRConfig
from toys import toy_batches, toy_method, toy_settings, toy_store

STEP = 0.2
"""Between the log-odds of two pixels: more than a bin of the histogram, so none are taken together."""


@dataclass(frozen=True)
class Slices:
    """Training data whose images are the logits that the teacher is to give."""

    batches: tuple[Batch, ...]

    def __len__(self) -> int:
        return sum(len(batch.images) for batch in self.batches)

    def plain_batches(
        self, size: int, *, limit: int | None = None, generator: torch.Generator | None = None
    ) -> Iterator[Batch]:
        yield from self.batches


def teacher(images: Tensor) -> Tensor:
    return images.double().softmax(dim=1)


def a_slice(ring: Tensor, disc: Tensor, labels: Tensor | None = None) -> Batch:
    logits = torch.stack([torch.zeros_like(ring), ring, disc])[None]
    return Batch(
        images=logits,
        labels=torch.full(logits[:, 0].shape, 3, dtype=torch.uint8) if labels is None else labels,
        classes=3,
        slices=torch.zeros(1, dtype=torch.long),
        generator=torch.Generator(),
    )


def ranked(method: CVIR, *batches: Batch) -> CVIR:
    method.before_epoch(EpochStart(0, 0.0, Slices(batches), teacher, torch.Generator()))
    return method


def a_method(*ratios: float) -> CVIR:
    method = toy_method(toy_settings("cvir"), toy_store())
    assert isinstance(method, CVIR)
    if ratios:
        method.ratios.copy_(torch.tensor(ratios, dtype=torch.float64))
    return method.eval()


def discarded(method: CVIR, batch: Batch) -> Tensor:
    return method.discarded(teacher(batch.images).log(), batch)[0]


def shuffled_steps(count: int, seed: int) -> Tensor:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return (STEP * (order - count / 2)).view(6, -1)


def highest(scores: Tensor, among: Tensor, share: float) -> set[int]:
    """Positions of the highest ``share`` of the pixels ``among``, rounded up, by sorting them."""
    positions = [i for i in range(scores.numel()) if among.flatten()[i]]
    positions.sort(key=lambda i: -float(scores.flatten()[i]))
    return set(positions[: math.ceil(share * len(positions))])


def test_the_discarded_are_the_highest_share_of_each_class_sorted_by_hand() -> None:
    labels = torch.full((1, 6, 10), 3, dtype=torch.uint8)
    labels[0, 0, :7] = torch.tensor([0, 1, 2, 0, 1, 2, OUTSIDE])
    batch = a_slice(shuffled_steps(60, 0), shuffled_steps(60, 1), labels)
    probs = teacher(batch.images)[0]
    found = discarded(ranked(a_method(0.5, 0.3, 0.1), batch), batch)
    for label, share in ((1, 0.3), (2, 0.1)):
        expected = highest(probs[label], batch.unlabelled[0], share)
        assert set(found[label].flatten().nonzero()[:, 0].tolist()) == expected
        assert len(expected) == {1: 16, 2: 6}[label]


def test_the_ranking_is_over_all_slices_so_one_without_the_class_loses_nothing() -> None:
    with_ring = a_slice(shuffled_steps(60, 0).abs(), shuffled_steps(60, 1))
    without = a_slice(shuffled_steps(60, 2) - 10, shuffled_steps(60, 3))
    method = ranked(a_method(0.6, 0.2, 0.2), with_ring, without)
    assert int(discarded(method, with_ring)[1].sum()) == pytest.approx(0.2 * 120, abs=1)
    assert not discarded(method, without)[1].any()


def test_pixels_that_are_equally_sure_are_never_told_apart() -> None:
    ring = torch.full((6, 10), -5.0)
    ring[:2] = 40.0
    batch = a_slice(ring, torch.full((6, 10), -5.0))
    found = discarded(ranked(a_method(0.8, 0.1, 0.1), batch), batch)
    assert found[1].flatten().nonzero()[:, 0].tolist() == list(range(20))


def test_before_the_first_ranking_every_unlabelled_pixel_is_a_negative() -> None:
    batch = a_slice(shuffled_steps(60, 0), shuffled_steps(60, 1))
    assert not discarded(a_method(), batch)[1:].any()


def test_a_class_of_ratio_0_has_nothing_discarded() -> None:
    batch = a_slice(shuffled_steps(60, 0), shuffled_steps(60, 1))
    found = discarded(ranked(a_method(0.7, 0.3, 0.0), batch), batch)
    assert found[1].any()
    assert not found[2].any()


def test_each_epoch_ranks_anew() -> None:
    batch = a_slice(shuffled_steps(60, 0), shuffled_steps(60, 1))
    method = ranked(a_method(0.6, 0.2, 0.2), batch)
    higher = a_slice(shuffled_steps(60, 0) + 3, shuffled_steps(60, 1))
    assert int(discarded(method, higher)[1].sum()) > 12
    assert int(discarded(ranked(method, higher), higher)[1].sum()) == 12


def test_the_loss_is_the_risk_without_the_discarded() -> None:
    method = toy_method(toy_settings("cvir"), toy_store())
    assert isinstance(method, CVIR)
    batches = toy_batches(toy_settings("cvir"), toy_store())
    method.eval()

    def untrained(images: Tensor) -> Tensor:
        with torch.no_grad():
            return method.predict(images)

    generator = torch.Generator().manual_seed(0)
    method.before_epoch(EpochStart(0, 0.0, batches, untrained, generator))
    batch = next(batches.epoch(generator))
    log_probs = method.log_probs(batch.images)
    left_out = batch.unlabelled[:, None] & (log_probs >= method.log_limits.view(1, -1, 1, 1))
    assert 0 < left_out[:, 1].float().mean() < 0.6
    (loss,) = method.losses(batch).values()
    torch.testing.assert_close(loss, value_ignoring_risk(log_probs, batch.labels, left_out))


def test_only_so_many_slices_are_looked_at() -> None:
    batches = toy_batches(toy_settings("cvir"), toy_store())
    seen = []

    def counting(images: Tensor) -> Tensor:
        seen.append(len(images))
        return torch.full((len(images), 3, *images.shape[-2:]), 1 / 3)

    method = toy_method(toy_settings("cvir", method_options=CVIRConfig(pool_slices=5)), toy_store())
    method.before_epoch(EpochStart(0, 0.0, batches, counting, torch.Generator().manual_seed(0)))
    assert sum(seen) == 5


def test_a_negative_pool_is_refused() -> None:
    with pytest.raises(InputError, match="pool_slices: expected 0"):
        CVIRConfig(pool_slices=-1)
