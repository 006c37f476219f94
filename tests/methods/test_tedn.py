"""(TED)^n: what is held out, when discarding begins, and ratios near the truth."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from shapepu.bbe import best_bin
from shapepu.data.store import SliceStore
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.methods import Batch, Task
from shapepu.methods.base import EpochStart
from shapepu.methods.tedn import TEDN, TEDNConfig
from shapepu.mixture import PosteriorHistogram
from toys import toy_batches, toy_method, toy_settings, toy_store

AT_ONCE = TEDNConfig(warmup_share=0.0, held_out_share=0.3)
INTENSITIES = torch.tensor([-0.5, 1.5, 0.5])


def a_method(store: SliceStore, config: TEDNConfig = AT_ONCE, seed: int = 0) -> TEDN:
    method = toy_method(toy_settings("tedn", method_options=config, seed=seed), store)
    assert isinstance(method, TEDN)
    return method.eval()


def knowing(images: Tensor) -> Tensor:
    """Posteriors under the noise that the toy images were made with."""
    distance = images[:, :1].double() - INTENSITIES.double().view(1, -1, 1, 1)
    return (-distance.square() / (2 * 0.2**2)).softmax(dim=1)


def a_start(store: SliceStore, progress: float = 0.0) -> EpochStart:
    batches = toy_batches(toy_settings("tedn"), store)
    return EpochStart(0, progress, batches, knowing, torch.Generator().manual_seed(0))


def whole(store: SliceStore) -> Batch:
    return next(toy_batches(toy_settings("tedn"), store).plain_batches(len(store)))


def test_the_ratios_of_a_well_separated_mixture_are_found() -> None:
    store = toy_store(60)
    method = a_method(store)
    method.before_epoch(a_start(store))
    assert method.ratios.tolist() == pytest.approx(store.true_ratios().tolist(), abs=0.03)
    assert float(method.ratios.sum()) == pytest.approx(1)


def test_the_estimate_sees_held_out_pixels_alone_and_the_ranking_the_others() -> None:
    store = toy_store(20)
    method, batch = a_method(store), whole(store)
    method.before_epoch(a_start(store))
    log_probs = knowing(batch.images).clamp(min=1e-30).log().movedim(1, -1)
    held_out = method.held_out.view(-1, 1, 1)
    for label in (1, 2):
        own = log_probs[(batch.labels == label) & held_out][:, label]
        others = log_probs[batch.unlabelled & held_out][:, label]
        assert float(method.ratios[label]) == best_bin(own, others).ratio
    pool = PosteriorHistogram(3)
    pool.add(log_probs[batch.unlabelled & ~held_out])
    torch.testing.assert_close(method.log_limits, pool.thresholds(method.ratios))


def test_nothing_is_learnt_from_held_out_slices() -> None:
    store = toy_store()
    method, batch = a_method(store), whole(store)
    held_out = method.held_out.view(-1, 1, 1)
    (loss,) = method.losses(batch).values()
    other_labels = torch.where(held_out & (batch.labels != OUTSIDE), 2, batch.labels)
    torch.testing.assert_close(method.losses(replace(batch, labels=other_labels))["value_ignoring"], loss)
    changed = torch.where(~held_out & (batch.labels != OUTSIDE), 2, batch.labels)
    assert method.losses(replace(batch, labels=changed))["value_ignoring"] != loss


def test_a_batch_of_held_out_slices_alone_moves_nothing() -> None:
    store = toy_store()
    method, batch = a_method(store), whole(store)
    method.held_out.fill_(True)
    (loss,) = method.losses(batch).values()
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in method.parameters())


@pytest.mark.parametrize(("slices", "expected"), [(0, 0), (1, 0), (2, 1), (3, 1), (12, 4), (60, 18)])
def test_so_many_slices_are_held_out_and_one_at_least_is_learnt_from(slices: int, expected: int) -> None:
    task = Task(3, 1, (1 / 3,) * 3, training_slices=slices)
    assert int(TEDN(AT_ONCE, task, torch.nn.Identity).held_out.sum()) == expected


def test_the_seed_decides_what_is_held_out() -> None:
    store = toy_store(40)
    first, again, other = (a_method(store, seed=seed).held_out for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_holding_out_does_not_change_the_initial_weights() -> None:
    settings, store = toy_settings("pce"), toy_store()
    for mine, theirs in zip(
        a_method(store).network.parameters(), toy_method(settings, store).network.parameters(), strict=True
    ):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(("progress", "begun"), [(0.0, False), (0.49, False), (0.5, True), (0.9, True)])
def test_it_starts_warm_and_discards_nothing_for_a_share_of_any_run(progress: float, begun: bool) -> None:
    store = toy_store()
    method = a_method(store, replace(AT_ONCE, warmup_share=0.5))
    method.before_epoch(a_start(store, progress))
    batch = whole(store)
    assert bool(method.discarded(knowing(batch.images).log(), batch)[:, 1:].any()) == begun
    assert (method.report()["ratio"] != [1.0, 0.0, 0.0]) == begun


def test_a_class_without_held_out_scribbles_keeps_its_ratio() -> None:
    store = toy_store()
    method = a_method(store)
    held_out = method.held_out.numpy()[:, None, None]
    labels = store.labels.copy()
    labels[held_out & (labels == 2)] = 3
    method.ratios.copy_(torch.tensor([0.625, 0.125, 0.25]))
    method.before_epoch(a_start(replace(store, labels=labels)))
    assert float(method.ratios[2]) == 0.25
    assert float(method.ratios[1]) != 0.125


def test_a_large_hold_out_is_thinned_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = toy_store(60)
    whole_estimate, thinned = a_method(store), a_method(store)
    whole_estimate.before_epoch(a_start(store))
    monkeypatch.setattr("shapepu.methods.tedn.HELD_OUT_PIXELS", 4000)
    assert thinned._thinning(whole(store)) == 5
    thinned.before_epoch(a_start(store))
    assert thinned.ratios.tolist() != whole_estimate.ratios.tolist()
    torch.testing.assert_close(thinned.ratios, whole_estimate.ratios, atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"held_out_share": 0.0}, r"tedn\.held_out_share: expected a number between 0 and 1, got 0\.0"),
        ({"warmup_share": 1.0}, r"tedn\.warmup_share: expected 0 or more and less than 1, got 1\.0"),
        ({"delta": 1.0}, r"tedn\.delta: expected a number between 0 and 1, got 1\.0"),
        ({"pool_slices": -3}, "pool_slices: expected 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TEDNConfig(**options)  # type: ignore[arg-type]
