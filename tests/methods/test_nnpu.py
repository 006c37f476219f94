"""nnPU: one risk a foreground class, true ratios that come from masks, and what it says without them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shapepu.data.case import Case, Dataset
from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.losses import non_negative_risk, partial_cross_entropy
from shapepu.methods import METHODS, Batch, Task
from shapepu.methods.nnpu import NNPU, NNPUConfig
from shapepu.prepare import cases_to_learn_from, make_task
from toys import LABELS, toy_batches, toy_method, toy_settings, toy_store

GIVEN = [name for name, entry in METHODS.items() if "true ratios" in entry.needs]


def a_method(config: NNPUConfig | None = None) -> NNPU:
    method = toy_method(toy_settings("nnpu", method_options=config or NNPUConfig()), toy_store())
    assert isinstance(method, NNPU)
    return method.eval()


def a_batch() -> Batch:
    return next(toy_batches(toy_settings("nnpu"), toy_store()).epoch(torch.Generator().manual_seed(0)))


def a_row(labels: list[int]) -> Batch:
    """One row of pixels with these labels."""
    return Batch(
        images=torch.zeros(1, 1, 1, len(labels)),
        labels=torch.tensor(labels, dtype=torch.uint8).view(1, 1, -1),
        classes=3,
        slices=torch.zeros(1, dtype=torch.long),
        generator=torch.Generator(),
    )


def probs_of(ring: list[float], disc: list[float]) -> Tensor:
    background = [1 - r - d for r, d in zip(ring, disc, strict=True)]
    return torch.tensor([background, ring, disc], dtype=torch.float64).view(1, 3, 1, -1)


def test_the_terms_are_the_risks_of_the_foreground_classes_and_cross_entropy() -> None:
    method, batch = a_method(), a_batch()
    terms = method.losses(batch)
    log_probs = method.log_probs(batch.images)
    risks = [
        non_negative_risk(
            log_probs[:, label].exp(),
            batch.labels == label,
            batch.unlabelled,
            ratio=float(toy_store().true_ratios()[label]),
            beta=0,
            gamma=1,
        )
        for label in (1, 2)
    ]
    torch.testing.assert_close(terms["non_negative"], risks[0] + risks[1])
    torch.testing.assert_close(
        terms["positive"], partial_cross_entropy(log_probs, batch.labels, batch.labelled)
    )
    assert set(a_method(NNPUConfig(positive=False)).losses(batch)) == {"non_negative"}


def test_each_class_turns_around_by_itself() -> None:
    # Ring: R- = .1 - .5 * .9 < 0, so it goes back. Disc: R- = .4 - .1 * .8 > 0, so it does not.
    method, batch = a_method(), a_row([1, 2, 3, 3])
    method.ratios = (0.4, 0.5, 0.1)
    probs = probs_of(ring=[0.9, 0.1, 0.1, 0.1], disc=[0.05, 0.8, 0.3, 0.5]).requires_grad_()
    loss = method.risk(probs, batch)
    loss.backward()
    assert loss.item() == pytest.approx(0.35 + (0.1 * 0.2 + 0.32))
    assert probs.grad is not None
    expected = torch.tensor([[0, 0, 0, 0], [0.5, 0, -0.5, -0.5], [0, -0.2, 0.5, 0.5]])
    torch.testing.assert_close(probs.grad[0, :, 0], expected.double())


def test_scribbles_of_other_classes_and_the_outside_are_in_no_risk() -> None:
    method, batch = a_method(), a_row([1, 0, 3, OUTSIDE])
    probs = probs_of(ring=[0.6, 0.2, 0.3, 0.9], disc=[0.1] * 4).requires_grad_()
    method.risk(probs, batch).backward()
    assert probs.grad is not None
    assert probs.grad[0, 1, 0, [1, 3]].tolist() == [0, 0]
    # No disc is scribbled here: what the batch says of it is no risk, and moves nothing.
    assert probs.grad[0, 2].abs().max() == 0


def test_a_batch_without_any_scribble_can_be_stepped_on() -> None:
    method, batch = a_method(), a_batch()
    empty = replace(batch, labels=torch.full_like(batch.labels, batch.classes))
    loss = torch.stack(tuple(method.losses(empty).values())).sum()
    loss.backward()
    assert loss == 0
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in method.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -0.1}, r"nnpu\.beta: expected 0 or more, got -0\.1"),
        ({"gamma": 1.5}, r"nnpu\.gamma: expected a number from 0 to 1, got 1\.5"),
    ],
)
def test_constants_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NNPUConfig(**options)


@pytest.mark.parametrize("name", GIVEN)
def test_the_ratios_given_are_those_counted_on_the_masks(name: str) -> None:
    store = toy_store()
    dataset = Dataset(Path("toy"), "folder", LABELS, store.cases)
    task = make_task(dataset, store, METHODS[name].needs)
    unlabelled = store.masks[store.labels == LABELS.unlabelled]  # type: ignore[index]
    shares = [float((unlabelled == label).mean()) for label in range(LABELS.count)]
    assert task.given_ratios() == pytest.approx(shares)
    method = toy_method(toy_settings(name), store)
    assert method.report()["ratio"] == pytest.approx(shares)


@pytest.mark.parametrize("name", METHODS)
def test_other_methods_are_told_no_ratios(name: str) -> None:
    store = toy_store()
    task = make_task(Dataset(Path("toy"), "folder", LABELS, store.cases), store, METHODS[name].needs)
    assert (task.true_ratios is not None) == (name in GIVEN)


@pytest.mark.parametrize("name", GIVEN)
def test_without_masks_the_error_says_what_would_provide_the_ratios(name: str) -> None:
    case = Case("first", (Path("first.nii.gz"),), scribble=Path("first_scribble.nii.gz"))
    dataset = Dataset(Path("hearts"), "folder", LABELS, (case,))
    with pytest.raises(InputError, match=r"hearts: .*true class ratios.*masks/ folder.*--method tedn"):
        cases_to_learn_from(dataset, METHODS[name].needs)
    with pytest.raises(InputError, match=r"true_ratios: .*Task\(true_ratios=\.\.\.\)"):
        METHODS[name].method(METHODS[name].options(), Task(3, 1, (1 / 3,) * 3), torch.nn.Identity)


def test_cases_without_a_mask_are_learnt_from_as_long_as_another_has_one() -> None:
    scribbled = Case("first", (Path("first.nii.gz"),), scribble=Path("first_scribble.nii.gz"))
    masked = replace(scribbled, name="second", mask=Path("second_gt.nii.gz"))
    dataset = Dataset(Path("hearts"), "folder", LABELS, (scribbled, masked))
    assert cases_to_learn_from(dataset, NNPU.needs) == (scribbled, masked)
