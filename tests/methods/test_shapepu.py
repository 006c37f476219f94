"""ShapePU: what each switch of Table 1 adds, when the negative loss may begin, and an estimate that holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shapepu.errors import InputError
from shapepu.losses import negative_loss, partial_cross_entropy, rule_out
from shapepu.methods import Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.shapepu import ShapePU, ShapePUConfig
from shapepu.mixture import MixtureState, fit
from shapepu.reach import within_reach
from toys import TOY_OPTIONS, toy_batches, toy_method, toy_settings, toy_store, toy_trainer

STEADY = replace(TOY_OPTIONS["shapepu"], warmup_epochs=0, warmup_share=0.0, cutout=False, consistency=False)
PAPER = replace(ShapePUConfig(), view=TOY_OPTIONS["shapepu"].view, warmup_epochs=0)


def a_method(config: ShapePUConfig) -> ShapePU:
    method = toy_method(toy_settings("shapepu", method_options=config), toy_store())
    assert isinstance(method, ShapePU)
    return method


def a_batch(seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings("shapepu"), toy_store())
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def an_epoch_start(method: ShapePU, epoch: int = 0, progress: float = 0.0) -> EpochStart:
    def teacher(images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return method.eval().predict(images)

    batches = toy_batches(toy_settings("shapepu"), toy_store())
    return EpochStart(epoch, progress, batches, teacher, torch.Generator().manual_seed(0))


def sure_of_everything(epoch: int, scribbled: tuple[int, ...] = (0, 1, 2)) -> EpochStart:
    """Late in a run of a network that knows the truth; of the scribbles, those of some classes are there."""
    store = toy_store()
    assert store.masks is not None
    batches = toy_batches(toy_settings("shapepu"), store)
    truth = {
        tuple(image.ravel()[:9].tolist()): mask for image, mask in zip(store.images, store.masks, strict=True)
    }

    def teacher(images: torch.Tensor) -> torch.Tensor:
        masks = np.stack([truth[tuple(image.ravel()[:9].tolist())] for image in images.half().numpy()])
        labels = torch.from_numpy(masks).long().clamp(max=2)
        return torch.nn.functional.one_hot(labels, 3).movedim(-1, 1).float() * 0.97 + 0.01

    class Some:
        def __len__(self) -> int:
            return len(batches)

        def plain_batches(self, size: int, **drawn: Any) -> Iterator[Batch]:
            for batch in batches.plain_batches(size, **drawn):
                hidden = batch.labelled & ~torch.isin(
                    batch.labels, torch.tensor(scribbled, dtype=torch.uint8)
                )
                yield replace(batch, labels=batch.labels.masked_fill(hidden, batch.classes))

    return EpochStart(epoch, 0.9, Some(), teacher, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("switches", "terms"),
    [
        ({"cutout": False, "negative": False, "consistency": False}, {"positive"}),
        ({"cutout": True, "negative": False, "consistency": False}, {"positive"}),
        ({"cutout": False, "negative": True, "consistency": False}, {"positive", "negative"}),
        ({"cutout": True, "negative": True, "consistency": False}, {"positive", "negative"}),
        ({}, {"positive", "negative", "consistency"}),
    ],
    ids=["#1", "#2", "#3", "#4", "ShapePU"],
)
def test_each_row_of_table_1_has_its_terms(switches: dict[str, bool], terms: set[str]) -> None:
    assert set(a_method(replace(PAPER, **switches)).losses(a_batch())) == terms


def test_row_1_is_partial_cross_entropy() -> None:
    method, batch = (
        a_method(replace(PAPER, cutout=False, negative=False, consistency=False)).eval(),
        a_batch(),
    )
    expected = partial_cross_entropy(method.log_probs(batch.images), batch.labels, batch.labelled)
    torch.testing.assert_close(method.losses(batch)["positive"], expected)


def test_cutout_alone_adds_the_scribbles_of_a_second_view_and_leaves_out_the_cut_square() -> None:
    everything_cut = replace(PAPER.view, cut=10**6)
    method = a_method(replace(PAPER, view=everything_cut, negative=False, consistency=False)).eval()
    batch = a_batch()
    first_view_only = partial_cross_entropy(method.log_probs(batch.images), batch.labels, batch.labelled)
    torch.testing.assert_close(method.losses(batch)["positive"], first_view_only)


def test_the_negative_loss_of_the_paper_is_em_and_ranking_on_the_batch() -> None:
    method, batch = a_method(replace(PAPER, cutout=False, consistency=False)).eval(), a_batch()
    method.before_epoch(an_epoch_start(method))
    method.eval()
    log_probs = method.log_probs(batch.images)
    pixels = log_probs.movedim(1, -1)[batch.unlabelled]
    ratios = fit(pixels, method.label_shares, tolerance=1e-4, max_iterations=100).ratios
    expected = negative_loss(log_probs, rule_out(log_probs, batch.unlabelled, ratios), form="per-class")
    torch.testing.assert_close(method.losses(batch)["negative"], expected)
    torch.testing.assert_close(method.ratios, ratios)


def test_lambda_weighs_the_terms() -> None:
    plain, weighted = a_method(PAPER).eval(), a_method(replace(PAPER, consistency_weight=0.5)).eval()
    first, second = plain.losses(a_batch()), weighted.losses(a_batch())
    torch.testing.assert_close(10 * first["consistency"], second["consistency"])
    torch.testing.assert_close(first["positive"], second["positive"])


@pytest.mark.parametrize(
    ("epoch", "progress", "active"), [(0, 0.9, False), (9, 0.1, False), (3, 0.5, True), (9, 0.9, True)]
)
def test_the_negative_loss_waits_for_epochs_and_for_its_share_of_the_run(
    epoch: int, progress: float, active: bool
) -> None:
    method = a_method(replace(PAPER, warmup_epochs=3, warmup_share=0.5))
    method.before_epoch(an_epoch_start(method, epoch, progress))
    assert bool(method.active) == active
    assert (method.losses(a_batch())["negative"].item() > 0) == active


def test_the_negative_loss_waits_for_a_steady_estimate() -> None:
    """An untrained network misses whole classes on their own scribbles: nothing to build on."""
    config = replace(TOY_OPTIONS["shapepu"], readiness=0.25, warmup_epochs=0, warmup_share=0.0)
    method = a_method(config)
    for epoch in range(3):
        method.before_epoch(an_epoch_start(method, epoch, 0.9))
    assert not method.active


def test_the_negative_loss_begins_once_the_estimate_is_steady() -> None:
    method = a_method(replace(STEADY, readiness=0.25))
    for epoch, active in ((0, False), (1, True)):  # the first estimate has none to be compared with
        method.before_epoch(sure_of_everything(epoch))
        assert bool(method.active) == active, epoch


@pytest.mark.parametrize(("epochs_of_the_run", "apart"), [(10, 2), (50, 2), (75, 3), (1400, 56)])
def test_pools_lie_further_apart_in_longer_runs(epochs_of_the_run: int, apart: int) -> None:
    method = a_method(replace(PAPER, pool="epoch", pool_every=2, pool_share=0.04))
    asked: list[int] = []

    def teacher(images: torch.Tensor) -> torch.Tensor:
        asked.append(epoch)
        return method.predict(images)

    start = replace(an_epoch_start(method), teacher=teacher)
    for epoch in range(4 * apart):
        method.before_epoch(replace(start, epoch=epoch, progress=epoch / epochs_of_the_run))
    assert sorted(set(asked)) == [0, apart, 2 * apart, 3 * apart]
    asked.clear()
    epoch += method.config.pool_every
    method.before_epoch(replace(start, epoch=epoch, progress=0.01))
    assert asked, "a run that was made longer waits for what it has done already"


def test_slices_that_nobody_scribbled_leave_the_last_estimate_as_it_was() -> None:
    method = a_method(replace(STEADY, readiness=0.0))
    method.before_epoch(sure_of_everything(0))
    before = method.ratios.clone(), method.log_thresholds.clone()
    method.before_epoch(sure_of_everything(1, scribbled=()))
    torch.testing.assert_close((method.ratios, method.log_thresholds), before)


def test_a_class_that_no_drawn_slice_shows_is_not_ruled_out_anywhere() -> None:
    method = a_method(replace(STEADY, readiness=0.0, guard=0.0))
    method.before_epoch(sure_of_everything(0, scribbled=(0, 1)))
    assert method.log_thresholds[2] == -torch.inf
    assert method.log_thresholds[1] > -torch.inf


def test_beyond_reach_of_its_scribbles_a_class_is_ruled_out_before_there_is_any_estimate() -> None:
    method = a_method(replace(STEADY, reach=0.5, warmup_epochs=9)).eval()
    batch = a_batch()
    log_probs = method.log_probs(batch.images)
    beyond = ~within_reach(batch.labels, batch.classes, reach=0.5) & batch.unlabelled[:, None]
    assert beyond[:, 1:].any()
    expected = negative_loss(log_probs, beyond, form="per-class")
    torch.testing.assert_close(method.losses(batch)["negative"], expected)


def test_em_pools_only_pixels_within_reach_of_a_structure() -> None:
    pooled = []
    for reach in (-1.0, 0.5):
        method = a_method(replace(STEADY, reach=reach))
        pool, _, _ = method._look_around(sure_of_everything(0))
        near = [
            batch.unlabelled & within_reach(batch.labels, batch.classes, reach=reach)[:, 1:].any(dim=1)
            if reach >= 0
            else batch.unlabelled
            for batch in sure_of_everything(0).data.plain_batches(16)
        ]
        assert pool.total == sum(int(pixels.sum()) for pixels in near)
        pooled.append(pool.total)
    assert pooled[1] < pooled[0]


@pytest.mark.slow
def test_pooled_and_calibrated_ratios_come_close_to_the_truth(tmp_path: Path) -> None:
    """Scribbles of the toy are a random sample of the pixels: EM's assumption holds, truth is in reach."""
    trainer = toy_trainer(tmp_path, toy_settings("shapepu", epochs=25))
    trainer.fit()
    method = trainer.state.method
    assert isinstance(method, ShapePU)
    truth = torch.from_numpy(trainer.batches.store.true_ratios())
    torch.testing.assert_close(method.ratios, truth, atol=0.03, rtol=0)


@pytest.mark.parametrize(("guard", "kept"), [(0.05, 0.95), (0.5, 0.5), (0.0, 0.0)])
def test_the_guard_keeps_what_looks_like_most_scribbles_whatever_the_estimate(
    guard: float, kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_but_background = MixtureState(torch.tensor([1.0, 0.0, 0.0]).double(), 1, True, 0.0)
    monkeypatch.setattr("shapepu.methods.shapepu.fit", lambda *_, **__: nothing_but_background)
    method = a_method(replace(TOY_OPTIONS["shapepu"], guard=guard, warmup_epochs=0))
    start = an_epoch_start(method, progress=0.9)
    method.before_epoch(start)
    for label in (1, 2):
        own = [
            start.teacher(batch.images).log()[:, label][batch.labels == label]
            for batch in start.data.plain_batches(16)
        ]
        above = (torch.cat(own) >= method.log_thresholds[label]).float().mean()
        assert float(above) == pytest.approx(kept, abs=0.02)


def test_slack_rules_a_structure_out_beyond_that_many_times_its_estimated_share() -> None:
    method = a_method(replace(STEADY, slack=3.0, guard=0.0))
    start = sure_of_everything(0)
    pool, _, _ = method._look_around(start)
    method.before_epoch(start)
    torch.testing.assert_close(method.log_thresholds, pool.thresholds((3 * method.ratios).clamp(max=1)))
    ranked_in_batch = a_method(replace(PAPER, slack=3.0, cutout=False, consistency=False))
    ranked_in_batch.before_epoch(an_epoch_start(ranked_in_batch))
    ranked_in_batch.eval()
    batch = a_batch()
    loss, log_probs = ranked_in_batch.losses(batch)["negative"], ranked_in_batch.log_probs(batch.images)
    shares = (3 * ranked_in_batch.ratios).clamp(max=1)
    expected = negative_loss(log_probs, rule_out(log_probs, batch.unlabelled, shares), form="per-class")
    torch.testing.assert_close(loss, expected)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="all losses are switched off"):
        ShapePUConfig(positive=False, negative=False, consistency=False)
    with pytest.raises(InputError, match=r"shapepu\.slack: expected 1.*got 0\.5"):
        ShapePUConfig(slack=0.5)
    with pytest.raises(InputError, match=r"pool_share from 0 to below 1; got 1, 0 and 1\.5"):
        ShapePUConfig(pool_share=1.5)
    with pytest.raises(InputError, match=r"ranking: 'pool' needs --shapepu\.pool epoch"):
        ShapePUConfig(ranking="pool")


def test_figures_for_the_log_have_one_ratio_a_class() -> None:
    report = a_method(PAPER).report()
    assert len(report["ratio"]) == 3  # type: ignore[arg-type]
    assert a_method(replace(PAPER, negative=False)).report() == {}
