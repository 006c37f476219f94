"""EMA teacher: which pixels it labels, what the student sees of that, and who the teacher is."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from shapepu.data.readers import read_dataset
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import partial_cross_entropy
from shapepu.methods import METHODS, Batch
from shapepu.methods.base import EpochStart
from shapepu.methods.ema_teacher import EMATeacher, EMATeacherConfig, confident_labels
from shapepu.prepare import prepare
from shapepu.settings import settings_for
from shapepu.views import ViewSettings, draw_view
from small_runs import cache_beside, write_hearts
from toys import LABELS, TOY_OPTIONS, toy_batches, toy_method, toy_settings, toy_store, toy_trainer

UNLABELLED = LABELS.unlabelled
SAME_VIEW = EMATeacherConfig(second_view=False, ramp_share=0.0, confidence=0.6)
SECOND_VIEW = replace(SAME_VIEW, second_view=True, view=ViewSettings(cut=8, rotation="right"))


class KnownTeacher:
    """Says the same of every image, and remembers which it was asked about."""

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs
        self.asked: list[Tensor] = []

    def __call__(self, images: Tensor) -> Tensor:
        self.asked.append(images)
        return self.probs


def a_batch(seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings("ema-teacher"), toy_store())
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def a_method(config: EMATeacherConfig, teacher: KnownTeacher, *, progress: float = 1.0) -> EMATeacher:
    """In evaluation mode, at the beginning of an epoch."""
    method = toy_method(toy_settings("ema-teacher", method_options=config), toy_store())
    assert isinstance(method, EMATeacher)
    batches = toy_batches(toy_settings("ema-teacher"), toy_store())
    method.before_epoch(EpochStart(0, progress, batches, teacher, torch.Generator()))
    method.eval()
    return method


def random_teacher(batch: Batch) -> KnownTeacher:
    """Sure of about every third pixel."""
    shape = (len(batch.images), LABELS.count, *batch.images.shape[-2:])
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(7))
    return KnownTeacher(logits.softmax(dim=1))


def test_exactly_the_pixels_from_the_threshold_on_are_labelled() -> None:
    first_class = torch.tensor([0.75, 0.7421875, 0.125, 0.5])
    probs = torch.stack((first_class, 1 - first_class)).view(1, 2, 1, 4)
    labels = torch.full((1, 1, 4), 2, dtype=torch.uint8)
    found = confident_labels(probs, labels, 0.75)
    assert found.dtype == torch.uint8
    assert found.flatten().tolist() == [0, 2, 1, 2]


def test_labels_agree_with_the_plain_loop_and_leave_scribbles_and_the_outside_alone() -> None:
    batch = a_batch()
    probs = random_teacher(batch).probs
    found = confident_labels(probs, batch.labels, 0.6)
    for n, y, x in np.ndindex(*batch.labels.shape):
        expected, claims = int(batch.labels[n, y, x]), probs[n, :, y, x].tolist()
        if expected == UNLABELLED and max(claims) >= 0.6:
            expected = claims.index(max(claims))
        assert int(found[n, y, x]) == expected
    assert bool((batch.labels == OUTSIDE).any())
    assert 0.1 < float((found != batch.labels).float().mean()) < 0.6


@pytest.mark.parametrize(("confidence", "labelled"), [(0.0, 1.0), (1.0, 0.0)])
def test_no_confidence_labels_all_that_is_unlabelled_and_full_confidence_nothing(
    confidence: float, labelled: float
) -> None:
    batch = a_batch()
    found = confident_labels(random_teacher(batch).probs, batch.labels, confidence)
    assert float((found[batch.unlabelled] < UNLABELLED).float().mean()) == labelled
    assert torch.equal(found[~batch.unlabelled], batch.labels[~batch.unlabelled])


def test_on_the_same_view_the_terms_are_cross_entropy_on_scribbles_and_on_sure_unlabelled_pixels() -> None:
    batch = a_batch()
    teacher = random_teacher(batch)
    method = a_method(replace(SAME_VIEW, weight=0.3), teacher)
    terms = method.losses(batch)
    log_probs = method.log_probs(batch.images)
    highest, classes = teacher.probs.max(dim=1)
    sure = batch.unlabelled & (highest >= 0.6)
    torch.testing.assert_close(
        terms["positive"], partial_cross_entropy(log_probs, batch.labels, batch.labelled)
    )
    torch.testing.assert_close(terms["pseudo"], 0.3 * partial_cross_entropy(log_probs, classes, sure))
    assert teacher.asked[0] is batch.images
    expected_share = float(sure.sum() / batch.unlabelled.sum())
    assert method.report()["pseudo_share"] == pytest.approx(expected_share)


@pytest.mark.parametrize("rotation", ["right", "any"])
def test_the_labels_follow_the_view_that_the_student_sees(rotation: str) -> None:
    batch = a_batch()
    teacher = random_teacher(batch)
    config = replace(SECOND_VIEW, view=ViewSettings(cut=8, rotation=rotation))  # type: ignore[arg-type]
    method = a_method(config, teacher)
    terms = method.losses(replace(batch, generator=torch.Generator().manual_seed(5)))
    view = draw_view(len(batch.images), (32, 32), config.view, torch.Generator().manual_seed(5))
    log_probs = method.log_probs(view.images(batch.images))
    seen = view.labels(batch.labels, unlabelled=UNLABELLED)
    targets = view.labels(confident_labels(teacher.probs, batch.labels, 0.6), unlabelled=UNLABELLED)
    sure = (seen == UNLABELLED) & (targets < UNLABELLED)
    torch.testing.assert_close(terms["positive"], partial_cross_entropy(log_probs, seen, seen < UNLABELLED))
    torch.testing.assert_close(terms["pseudo"], partial_cross_entropy(log_probs, targets, sure))
    assert teacher.asked[0] is batch.images, "the teacher sees the batch as it is"


def test_nothing_is_asked_of_what_is_cut_out() -> None:
    batch = a_batch()
    method = a_method(replace(SECOND_VIEW, view=ViewSettings(cut=10**6)), random_teacher(batch))
    assert [float(term.detach()) for term in method.losses(batch).values()] == [0, 0]


def test_only_sure_unlabelled_pixels_pull_at_the_student() -> None:
    batch = a_batch()
    teacher = random_teacher(batch)
    method = a_method(SAME_VIEW, teacher)
    logits = torch.zeros_like(teacher.probs).requires_grad_()
    method.log_probs = lambda images: logits.log_softmax(dim=1)  # type: ignore[method-assign]
    method.losses(batch)["pseudo"].backward()
    assert logits.grad is not None
    pulled = logits.grad.abs().amax(dim=1) > 0
    assert torch.equal(pulled, batch.unlabelled & (teacher.probs.amax(dim=1) >= 0.6))
    # Downhill is where the teacher points.
    assert torch.equal(logits.grad.argmin(dim=1)[pulled], teacher.probs.argmax(dim=1)[pulled])


@pytest.mark.parametrize(
    ("progress", "factor"), [(0.0, np.exp(-5)), (0.1, np.exp(-5 / 4)), (0.2, 1.0), (0.9, 1.0)]
)
def test_the_weight_rises_over_its_share_of_the_run(progress: float, factor: float) -> None:
    batch = a_batch()
    teacher = random_teacher(batch)
    risen = a_method(replace(SAME_VIEW, ramp_share=0.2), teacher, progress=progress).losses(batch)
    full = a_method(SAME_VIEW, teacher, progress=progress).losses(batch)
    torch.testing.assert_close(risen["pseudo"], full["pseudo"] * float(factor))
    torch.testing.assert_close(risen["positive"], full["positive"])


def test_the_teacher_is_the_average_of_the_run_and_follows_it_during_an_epoch(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings("ema-teacher", epochs=2))
    method, average = trainer.state.method, trainer.state.average
    assert isinstance(method, EMATeacher)
    images, heard = a_batch().images, []
    plain_losses = method.losses

    def listening(batch: Batch) -> dict[str, Tensor]:
        assert method.teacher is not None
        heard.append(method.teacher(images))
        torch.testing.assert_close(heard[-1], average.predict(images), atol=0, rtol=0)
        return plain_losses(batch)

    method.losses = listening  # type: ignore[method-assign]
    trainer.fit()
    assert len(heard) == 2 * trainer.batches.steps_per_epoch
    assert not heard[0].requires_grad
    assert all(not torch.equal(before, after) for before, after in pairwise(heard))


def test_the_teacher_is_neither_saved_nor_copied_nor_trained() -> None:
    batch = a_batch()
    method = a_method(SAME_VIEW, random_teacher(batch))
    method.teacher = toy_method(toy_settings("pce"), toy_store()).predict  # drags a whole network along
    assert {name.split(".")[0] for name in method.state_dict()} == {"network"}
    members = {id(parameter) for parameter in method.network.parameters()}
    assert {id(parameter) for parameter in method.parameters()} == members
    assert method.prediction_modules() == ("network",)
    assert copy.deepcopy(method).teacher is None
    assert method.teacher is not None


def test_an_unsure_teacher_leaves_partial_cross_entropy() -> None:
    batch = a_batch()
    unsure = KnownTeacher(torch.full_like(random_teacher(batch).probs, 1 / LABELS.count))
    method = a_method(SAME_VIEW, unsure)
    assert method.losses(batch)["pseudo"] == 0
    assert method.report() == {"pseudo_share": 0.0}


def test_a_run_without_an_average_has_no_teacher_and_is_refused(tmp_path: Path) -> None:
    data = write_hearts(tmp_path / "hearts")
    settings = settings_for("paper", "ema-teacher")
    assert settings.optimisation.average == 0
    with pytest.raises(
        InputError, match=r"optimisation.average: ema-teacher learns from .*--optimisation.average 0.99"
    ):
        prepare(read_dataset(data), settings, cache_beside(data), quiet=True)
    averaged = replace(settings, optimisation=replace(settings.optimisation, average=0.99))
    assert prepare(read_dataset(data), averaged, cache_beside(data), quiet=True).task.classes > 1
    assert [name for name, entry in METHODS.items() if entry.method.needs_average] == ["ema-teacher"]


def test_nothing_is_reported_before_anything_was_learnt() -> None:
    assert a_method(TOY_OPTIONS["ema-teacher"], random_teacher(a_batch())).report() == {}


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(InputError, match=r"confidence: expected a probability from 0 to 1, got 95"):
        EMATeacherConfig(confidence=95)
    with pytest.raises(InputError, match=r"ramp_share: expected a share.*got -1"):
        EMATeacherConfig(ramp_share=-1)
