"""The one data path: every slice once an epoch, nothing beyond the image, nothing that was not declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from shapepu.data.batches import BatchSource
from shapepu.labels import OUTSIDE
from shapepu.methods import Batch
from toys import LABELS, SIDE, toy_batches, toy_settings, toy_store


def an_epoch(source: BatchSource, seed: int = 0) -> list[Batch]:
    return list(source.epoch(torch.Generator().manual_seed(seed)))


def test_an_epoch_shows_every_slice_once() -> None:
    batches = an_epoch(toy_batches(toy_settings(), toy_store(12)))
    assert sorted(torch.cat([batch.slices for batch in batches]).tolist()) == list(range(12))
    assert [len(batch.images) for batch in batches] == [4, 4, 4]


def test_fewer_slices_than_a_batch_are_repeated_evenly() -> None:
    [batch] = an_epoch(toy_batches(toy_settings(), toy_store(2)))
    assert np.bincount(batch.slices).tolist() == [2, 2]


def test_the_same_generator_state_gives_the_same_batches() -> None:
    source = toy_batches(toy_settings(), toy_store())
    for first, second in zip(an_epoch(source), an_epoch(source), strict=True):
        assert torch.equal(first.images, second.images)
        assert torch.equal(first.labels, second.labels)
    assert not torch.equal(an_epoch(source)[0].images, an_epoch(source, seed=1)[0].images)


def test_pixels_beyond_the_image_are_neither_labelled_nor_unlabelled() -> None:
    for batch in an_epoch(toy_batches(toy_settings(), toy_store())):
        beyond = batch.labels == OUTSIDE
        assert beyond.any()
        assert not (beyond & (batch.labelled | batch.unlabelled)).any()
        assert (beyond | batch.labelled | batch.unlabelled).all()


def test_background_padding_calls_what_lies_beyond_the_image_background() -> None:
    source = replace(toy_batches(toy_settings(), toy_store()), padding="background")
    for batch in an_epoch(source):
        assert not (batch.labels == OUTSIDE).any()


def test_plain_batches_are_the_slices_as_they_are() -> None:
    store = toy_store()
    batches = list(toy_batches(toy_settings(), store).plain_batches(5))
    assert [len(batch.images) for batch in batches] == [5, 5, 2]
    np.testing.assert_array_equal(torch.cat([b.images for b in batches]), store.images.astype(np.float32))
    np.testing.assert_array_equal(torch.cat([b.labels for b in batches]), store.labels)


def test_a_limited_draw_of_plain_slices_is_without_repetition() -> None:
    source = toy_batches(toy_settings(), toy_store())
    batches = source.plain_batches(3, limit=7, generator=torch.Generator().manual_seed(1))
    chosen = torch.cat([batch.slices for batch in batches]).tolist()
    assert len(chosen) == len(set(chosen)) == 7


def test_unpaired_masks_come_from_the_other_patients_and_their_images_are_never_read() -> None:
    unpaired = toy_store(seed=7)
    poisoned = replace(unpaired, images=np.full_like(unpaired.images, np.nan))
    source = replace(
        toy_batches(toy_settings(), toy_store(), unpaired=poisoned), needs=frozenset({"unpaired masks"})
    )
    for batch in an_epoch(source):
        assert batch.images.isfinite().all()
        assert batch.unpaired_masks is not None
        assert batch.unpaired_masks.max() < LABELS.count
        assert batch.unpaired_masks.shape == (4, SIDE, SIDE)


@pytest.mark.parametrize(("slices", "steps"), [(2, 1), (12, 3), (13, 3), (15, 4)])
def test_an_epoch_has_full_batches_only(slices: int, steps: int) -> None:
    source = toy_batches(toy_settings(), toy_store(slices))
    assert source.steps_per_epoch == steps == len(an_epoch(source))


@pytest.mark.parametrize(("slices_per_epoch", "times_each"), [(24, {2}), (8, {0, 1}), (30, {2, 3})])
def test_an_epoch_may_take_more_or_fewer_slices_than_there_are(
    slices_per_epoch: int, times_each: set[int]
) -> None:
    source = replace(toy_batches(toy_settings(), toy_store(12)), slices_per_epoch=slices_per_epoch)
    batches = an_epoch(source)
    assert len(batches) == source.steps_per_epoch == round(slices_per_epoch / 4)
    assert set(np.bincount(torch.cat([b.slices for b in batches]), minlength=12)) == times_each
