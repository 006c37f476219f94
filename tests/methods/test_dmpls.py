"""DMPLS: how the pseudo labels are mixed, what they may not touch, and that two decoders learn from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import partial_cross_entropy, partial_dice_loss
from shapepu.methods import METHODS, Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.dmpls import DMPLS, FAST, DMPLSConfig, mixed_pseudo_labels
from toys import LABELS, PREPROCESSING, toy_batches, toy_method, toy_settings, toy_store, toy_trainer

PAPER = DMPLSConfig()


def a_method(config: DMPLSConfig = PAPER) -> DMPLS:
    method = toy_method(toy_settings("dmpls", method_options=config), toy_store())
    assert isinstance(method, DMPLS)
    return method


def a_batch(seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings("dmpls"), toy_store())
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def random_probs(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double().softmax(dim=1)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.42, 1), (0.44, 0), (1.0, 0)])
def test_the_mixture_decides_by_hand(share: float, expected: int) -> None:
    # .9 a + .2 (1 - a) exceeds one half from a = 3/7 = .4286 on.
    first, second = (torch.tensor(p).view(1, 2, 1, 1) for p in ([0.9, 0.1], [0.2, 0.8]))
    assert mixed_pseudo_labels(first, second, torch.tensor([[[2]]]), share).item() == expected


def test_a_class_that_neither_decoder_prefers_can_win_the_mixture() -> None:
    first, second = (torch.tensor(p).view(1, 3, 1, 1) for p in ([0.55, 0.45, 0.0], [0.0, 0.45, 0.55]))
    assert mixed_pseudo_labels(first, second, torch.tensor([[[3]]]), 0.5).item() == 1


def test_pseudo_labels_agree_with_the_plain_loop_and_leave_scribbles_and_the_outside_alone() -> None:
    first, second = random_probs(0, 2, 3, 6, 7), random_probs(1, 2, 3, 6, 7)
    labels = torch.randint(4, (2, 6, 7), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    labels[0, :2] = OUTSIDE
    found = mixed_pseudo_labels(first, second, labels, 0.3)
    assert found.dtype == labels.dtype
    for n, y, x in np.ndindex(2, 6, 7):
        mixed = [float(0.3 * first[n, k, y, x] + 0.7 * second[n, k, y, x]) for k in range(3)]
        expected = max(range(3), key=lambda k: mixed[k]) if labels[n, y, x] == 3 else int(labels[n, y, x])
        assert int(found[n, y, x]) == expected


def test_the_objective_is_half_of_each_decoder_and_lambda_halves_of_dice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method, batch = a_method(replace(PAPER, weight=0.7)).eval(), a_batch()
    shares = recorded_shares(monkeypatch)
    terms = method.losses(batch)
    first, second = (logits.softmax(dim=1) for logits in method.auxiliary(method.network, batch.images))
    mixed = (shares[0] * first + (1 - shares[0]) * second).argmax(dim=1)
    targets = torch.where(batch.unlabelled, mixed, batch.labels.long())
    inside = batch.labels != OUTSIDE
    positive = sum(partial_cross_entropy(p.log(), batch.labels, batch.labelled) for p in (first, second))
    pseudo = sum(partial_dice_loss(p, targets, inside) for p in (first, second))
    torch.testing.assert_close(terms["positive"], 0.5 * positive, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(terms["pseudo"], 0.7 * 0.5 * pseudo, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(first, second, atol=0.01)


def test_the_share_is_drawn_anew_at_every_step_evenly_from_0_to_1(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch, shares = a_method(), a_batch(), recorded_shares(monkeypatch)
    logits = torch.zeros(len(batch.images), LABELS.count, *batch.images.shape[-2:])
    monkeypatch.setattr(method, "both_log_probs", lambda _: (logits, logits))
    for _ in range(200):
        method.losses(batch)
    np.testing.assert_allclose(np.quantile(shares, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.1)


def test_the_share_comes_from_the_generator_that_is_saved_with_a_run() -> None:
    method, batch = a_method().eval(), a_batch()
    seeds = (3, 3, 4)
    pseudo = [
        method.losses(replace(batch, generator=torch.Generator().manual_seed(seed)))["pseudo"].item()
        for seed in seeds
    ]
    assert pseudo[0] == pseudo[1] != pseudo[2]


def test_scribbles_outweigh_decoders_that_agree_on_another_class_and_the_outside_gets_no_gradient() -> None:
    method, batch = a_method(), a_batch()
    # Both decoders call everything background.
    logits = torch.zeros(len(batch.images), LABELS.count, *batch.images.shape[-2:])
    logits[:, 0] = 1.0
    leaves = [logits.clone().requires_grad_() for _ in range(2)]
    method.both_log_probs = lambda _: tuple(each.log_softmax(dim=1) for each in leaves)  # type: ignore[method-assign,assignment,return-value]
    assert bool((batch.labels == 1).any())
    assert bool((batch.labels == OUTSIDE).any())
    method.losses(batch)["pseudo"].backward()
    for each in leaves:
        assert each.grad is not None
        by_pixel = each.grad.movedim(1, -1)
        assert by_pixel[batch.labels == OUTSIDE].abs().max() == 0
        assert bool((by_pixel[batch.labels == 1][:, 1] < 0).all())
        assert bool((by_pixel[batch.unlabelled][:, 0] < 0).all())


def test_both_decoders_learn_and_stay_different(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings("dmpls", epochs=30))
    method = trainer.state.method
    assert isinstance(method, DMPLS)
    before = toy_dice(method)
    trainer.fit()
    after = toy_dice(method)
    for i in range(2):
        assert after[i] > max(0.5, before[i] + 0.2)
    first, second = (each.exp() for each in method.eval().both_log_probs(a_batch().images))
    assert (first - second).abs().mean().item() > 1e-3


def test_the_decoders_start_apart() -> None:
    method = a_method()
    weights = method.network.head.weight, method.auxiliary.decoder.head.weight  # type: ignore[union-attr]
    assert not torch.equal(*weights)  # type: ignore[arg-type]


def test_only_the_first_decoder_predicts_and_travels(tmp_path: Path) -> None:
    method = a_method().eval()
    with torch.no_grad():
        images = a_batch().images
        torch.testing.assert_close(method.predict(images), method.network(images).softmax(dim=1))
    spec = BundleSpec("dmpls", "fast_unet", LABELS, ("image",), PREPROCESSING)
    spec = replace(spec, network_options=toy_settings().network_options, method_options=PAPER)
    bundle = load_bundle(save_bundle(tmp_path / "model", method=method, spec=spec))
    assert [name for name, _ in bundle.method.named_children()] == ["network"]


def test_both_decoders_run_in_the_precision_of_the_run(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings("dmpls", precision="bf16"))
    method = trainer.state.method
    assert isinstance(method, DMPLS)
    kinds: list[Any] = []
    for decoder in (method.network, method.auxiliary.decoder):
        decoder.head.register_forward_hook(lambda *args: kinds.append(args[2].dtype))  # type: ignore[union-attr]
    first, second = method.both_log_probs(a_batch().images)
    assert kinds == [torch.bfloat16] * 2
    assert first.dtype == second.dtype == torch.float32


@pytest.mark.parametrize(("progress", "factor"), [(0.0, np.exp(-5)), (0.25, np.exp(-1.25)), (0.5, 1), (1, 1)])
def test_the_weight_rises_over_its_share_of_the_run(progress: float, factor: float) -> None:
    gentle, plain = a_method(replace(PAPER, ramp_share=0.5)), a_method()
    start = EpochStart(0, progress, toy_batches(toy_settings(), toy_store()), torch.relu, torch.Generator())
    for method in (gentle, plain):
        method.before_epoch(start)
        method.eval()
    full, risen = plain.losses(a_batch()), gentle.losses(a_batch())
    torch.testing.assert_close(risen["pseudo"], full["pseudo"] * float(factor))
    torch.testing.assert_close(risen["positive"], full["positive"])


def test_the_defaults_are_those_of_the_paper_and_short_schedules_only_add_a_rise() -> None:
    assert (PAPER.weight, PAPER.dropout, PAPER.ramp_share) == (0.5, 0.5, 0.0)
    assert replace(FAST, ramp_share=0.0) == PAPER == METHODS["dmpls"].options("paper")
    assert METHODS["dmpls"].options("fast") == FAST


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"dropout: expected a probability.*got 1"):
        DMPLSConfig(dropout=1.0)
    with pytest.raises(InputError, match=r"ramp_share: expected a share.*got 2"):
        DMPLSConfig(ramp_share=2)


def recorded_shares(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    shares: list[float] = []

    def record(first: Tensor, second: Tensor, labels: Tensor, share: float) -> Tensor:
        shares.append(share)
        return mixed_pseudo_labels(first, second, labels, share)

    monkeypatch.setattr("shapepu.methods.dmpls.mixed_pseudo_labels", record)
    return shares


def toy_dice(method: DMPLS) -> list[float]:
    """Mean Dice of the structures by each decoder, on images that it does not train on."""
    store = toy_store(seed=3)
    truth = torch.from_numpy(store.masks).long()
    with torch.no_grad():
        both = method.eval().both_log_probs(torch.from_numpy(store.images).float())
    scores = []
    for log_probs in both:
        found = log_probs.argmax(dim=1).where(truth != OUTSIDE, 0)
        pairs = [(found == k, truth == k) for k in (1, 2)]
        dice = [2 * int((a & b).sum()) / int(a.sum() + b.sum()) for a, b in pairs]
        scores.append(sum(dice) / len(dice))
    method.train()
    return scores
