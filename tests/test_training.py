"""The loop: what it writes, what it repeats under a seed, when it ends and when it refuses to go on."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.eval_frame import OptimizedModule

from shapepu.averaging import WeightAverage
from shapepu.checkpoint import load_checkpoint, save_checkpoint
from shapepu.data.augment import Augmentation
from shapepu.errors import InputError
from shapepu.methods import Method
from shapepu.methods.base import Batch
from shapepu.progress import RunProgress
from shapepu.runfolder import RunFolder
from shapepu.schedule import Budget, learning_rate_factor
from shapepu.settings import Optimisation
from shapepu.training import Trainer, make_fabric, make_optimiser, named_by_class
from toys import toy_settings, toy_store, toy_trainer

PLAIN = Optimisation(batch_size=4, learning_rate=1e-2, average=0.9, warmup_share=0.0, clip_norm=0.0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(precision: str, tmp_path: Path) -> None:
    def trained(name: str, seed: int) -> dict[str, Tensor]:
        torch.manual_seed(len(name))  # whatever happened before
        settings = toy_settings("shapepu", seed=seed, precision=precision, epochs=4)
        return toy_trainer(tmp_path / name, settings).fit().state_dict()

    first, again, other = trained("first", 0), trained("again", 0), trained("other", 1)
    assert all(first[name].equal(again[name]) for name in first)
    assert not any(first[name].equal(other[name]) for name in first if name.endswith("convolution0.weight"))


def test_the_network_that_is_trained_is_compiled_when_asked_and_its_average_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(compiled: bool) -> dict[str, Tensor]:
        trainer = toy_trainer(tmp_path / str(compiled), toy_settings(compile=compiled, epochs=2))
        assert isinstance(_unwrapped(trainer.state.method.network), OptimizedModule) == compiled
        assert not isinstance(_unwrapped(trainer.state.average.method.network), OptimizedModule)
        assert list(trainer.state.method.state_dict()) == list(trainer.state.average.method.state_dict())
        return trainer.fit().state_dict()

    def _unwrapped(network: nn.Module) -> object:
        return network._forward_module

    # What the compiler makes of it is its own business, and would take half a minute.
    compile_as_asked = torch.compile
    monkeypatch.setattr(torch, "compile", partial(compile_as_asked, backend="eager"))
    plain, compiled = weights(False), weights(True)
    assert all(torch.allclose(plain[name], compiled[name], atol=1e-5) for name in plain)


def test_networks_compute_in_bfloat16_when_asked_and_losses_never_do(tmp_path: Path) -> None:
    kinds: dict[str, set[torch.dtype]] = {"bf16": set(), "fp32": set()}
    for precision, seen in kinds.items():
        trainer = toy_trainer(tmp_path / precision, toy_settings(precision=precision, epochs=1))
        method = trainer.state.method
        convolution = next(each for each in method.modules() if isinstance(each, nn.Conv2d))
        convolution.register_forward_hook(lambda *call, seen=seen: seen.add(call[-1].dtype))
        losses = method.losses

        def checked(batch: Batch, losses: Callable = losses) -> dict[str, Tensor]:
            terms = losses(batch)
            assert all(term.dtype == torch.float32 for term in terms.values())
            return terms

        method.losses = checked  # type: ignore[method-assign]
        trainer.fit()
        assert all(weight.dtype == torch.float32 for weight in method.parameters())
    assert kinds == {"bf16": {torch.bfloat16}, "fp32": {torch.float32}}


def test_a_step_is_that_of_the_optimiser_at_the_rate_of_the_schedule(tmp_path: Path) -> None:
    """One epoch replayed by hand: same batches, plain autograd, plain AdamW, rates worked out beforehand."""
    settings = toy_settings(optimisation=PLAIN, epochs=1)
    trainer, by_hand = (toy_trainer(tmp_path / name, settings) for name in ("loop", "by hand"))
    trainer.fit()
    method = by_hand.state.method
    optimiser = torch.optim.AdamW(method.parameters(), lr=1.0, weight_decay=PLAIN.weight_decay)
    method.train()
    steps = by_hand.batches.steps_per_epoch
    for step, batch in enumerate(by_hand.batches.epoch(torch.Generator().manual_seed(settings.seed))):
        optimiser.param_groups[0]["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * step / steps))
        optimiser.zero_grad()
        sum(method.losses(batch).values()).backward()  # type: ignore[union-attr]
        optimiser.step()
    for ours, theirs in zip(trainer.state.method.parameters(), method.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_gradients_are_scaled_down_to_the_norm_and_never_up(tmp_path: Path) -> None:
    def gradient_norms(clip_norm: float) -> list[float]:
        optimisation = Optimisation(batch_size=4, clip_norm=clip_norm)
        trainer = toy_trainer(tmp_path / str(clip_norm), toy_settings(optimisation=optimisation, epochs=2))
        norms: list[float] = []

        def note_norm(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            norms.append(float(torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in parameters]))))

        trainer.state.optimisers["segmenter"].optimizer.register_step_pre_hook(note_norm)
        trainer.fit()
        return norms

    free, clipped = gradient_norms(0.0), gradient_norms(0.01)
    assert min(free) > 0.01, "otherwise there is nothing to clip"
    assert clipped == pytest.approx([0.01] * len(clipped), rel=1e-3)
    assert gradient_norms(1e6)[0] == pytest.approx(free[0], rel=1e-5)


def test_what_predicts_in_the_end_is_the_running_average(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=3))
    followed: list[dict[str, Tensor]] = []
    update = WeightAverage.update

    def noted(average: WeightAverage, method: Method) -> None:
        update(average, method)
        followed.append({name: p.detach().clone() for name, p in method.named_parameters()})

    trainer.state.average.update = noted.__get__(trainer.state.average)  # type: ignore[method-assign]
    start = {name: p.detach().clone() for name, p in trainer.state.method.named_parameters()}
    trained = dict(trainer.fit().named_parameters())
    for name, expected in start.items():
        for count, weights in enumerate((each[name] for each in followed), start=1):
            decay = min(0.9, (1 + count) / (10 + count))
            expected = decay * expected + (1 - decay) * weights
        torch.testing.assert_close(trained[name.replace("_forward_module.", "")], expected)


def test_epochs_cover_every_slice_equally_often(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=4))
    seen: list[int] = []
    step = trainer.state.method.step

    def noted(batch: Batch, optimise: Any) -> Any:
        seen.extend(batch.slices.tolist())
        return step(batch, optimise)

    trainer.state.method.step = noted  # type: ignore[method-assign]
    trainer.fit()
    assert sorted(seen) == sorted(4 * list(range(len(toy_store()))))
    assert [row["step"] for row in trainer.state.rows] == [3, 6, 9, 12]


def test_figures_of_each_class_are_named_after_it() -> None:
    columns = named_by_class({"ratio": [0.5, 0.3, 0.2], "active": 1.0}, ("background", "ring", "disc"))
    assert columns == {"ratio.background": 0.5, "ratio.ring": 0.3, "ratio.disc": 0.2, "active": 1.0}


def test_validation_takes_its_share_of_the_time_and_the_last_epoch_is_always_scored(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=6, validation_share=0.0))
    trainer.fit()
    scored = ["validation.dice" in row for row in trainer.state.rows]
    assert scored == [True, False, False, False, False, True]
    always = toy_trainer(tmp_path / "always", toy_settings(epochs=3, validation_share=1.0))
    always.fit()
    assert all("validation.dice.disc" in row for row in always.state.rows)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_last_good_checkpoint(
    broken: float, tmp_path: Path
) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=5))
    losses = trainer.state.method.losses

    def breaking(batch: Batch) -> dict[str, Tensor]:
        terms = losses(batch)
        return {name: term * (broken if trainer.state.epoch == 2 else 1) for name, term in terms.items()}

    trainer.state.method.losses = breaking  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"loss\.positive became (nan|inf) in epoch 3; .*--precision fp32"):
        trainer.fit()
    kept = load_checkpoint(trainer.run.checkpoint)
    assert kept["epoch"] == 2
    assert all(bool(torch.isfinite(kept["method"][name]).all()) for name in kept["method"])
    resumed = toy_trainer(tmp_path, toy_settings(epochs=5))
    resumed.resume()
    assert len(resumed.fit().state_dict()) > 0


def test_weights_that_break_in_the_last_step_of_an_epoch_never_reach_the_checkpoint(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=2))
    optimise = trainer._optimise

    def breaking(group: str, loss: Tensor) -> None:
        optimise(group, loss)
        if trainer.state.step == trainer.batches.steps_per_epoch * 2 - 1:
            next(trainer.state.method.parameters()).data[0] = math.inf

    trainer._optimise = breaking  # type: ignore[method-assign]
    with pytest.raises(InputError, match="a weight became infinite or NaN in epoch 2"):
        trainer.fit()
    assert load_checkpoint(trainer.run.checkpoint)["epoch"] == 1


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    toy_trainer(tmp_path, toy_settings("pce", epochs=1)).fit()
    other = toy_trainer(tmp_path, toy_settings("shapepu", epochs=1))
    with pytest.raises(InputError, match=r"last\.pt: does not fit the settings in .*config\.yaml"):
        other.resume()


@pytest.mark.parametrize("missing", ["optimisers", "generator", "rows", "average"])
def test_a_checkpoint_that_lacks_something_is_refused(missing: str, tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings(epochs=1))
    trainer.fit()
    state = load_checkpoint(trainer.run.checkpoint)
    state.pop("format")
    save_checkpoint(trainer.run.checkpoint, {name: state[name] for name in state if name != missing})
    with pytest.raises(InputError, match="does not fit the settings"):
        toy_trainer(tmp_path, toy_settings(epochs=1)).resume()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match=r"'cuda' was asked for, but there is no usable GPU; take 'cpu'"):
        make_fabric(toy_settings(device="cuda"))
    assert make_fabric(toy_settings(device="auto")).device == torch.device("cpu")


def test_gpu_memory_that_runs_out_is_explained(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings())

    def too_large(batch: Batch) -> dict[str, Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    trainer.state.method.losses = too_large  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"too little memory.*--optimisation\.batch-size"):
        trainer.fit()


def test_adam_has_no_decay_and_adamw_the_one_that_was_chosen() -> None:
    weight = nn.Parameter(torch.zeros(1))
    adam = make_optimiser([weight], Optimisation(optimiser="adam", weight_decay=0.3))
    adamw = make_optimiser([weight], Optimisation(optimiser="adamw", weight_decay=0.3))
    assert (type(adam), adam.defaults["weight_decay"]) == (torch.optim.Adam, 0)
    assert (type(adamw), adamw.defaults["weight_decay"]) == (torch.optim.AdamW, 0.3)


def test_augmentation_is_off_when_it_is_switched_off(tmp_path: Path) -> None:
    still = Augmentation(
        *(0.0, (1.0, 1.0), 1.0, 0.0, False),
        contrast=(1.0, 1.0),
        gamma=(1.0, 1.0),
        brightness=0.0,
        noise=0.0,
    )
    trainer = toy_trainer(tmp_path, toy_settings(augmentation=still))
    store = toy_store()
    for batch in trainer.batches.epoch(torch.Generator().manual_seed(0)):
        expected = torch.from_numpy(store.images[batch.slices.numpy()].astype("float32"))
        torch.testing.assert_close(batch.images, expected, atol=1e-4, rtol=1e-4)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_person_at_a_terminal_sees_a_bar_and_no_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    trainer = toy_trainer(tmp_path, toy_settings(epochs=3))
    trainer.run.quiet = False
    trainer.fit()
    assert "training" in screen.getvalue()
    assert "%|" in screen.getvalue()
    assert "epoch 1: " not in screen.getvalue()
    assert (tmp_path / "train.log").read_text().count("epoch ") == 3


def test_a_long_epoch_gives_signs_of_life_in_a_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = RunProgress(RunFolder(tmp_path), Budget(epochs=2, minutes=None))
    with shown.during(0.0, seconds=0.0):
        for second in range(0, 180, 10):
            shown.step(1, share=second / 7200, seconds=float(second))
    assert capsys.readouterr().err.splitlines() == [
        "in epoch 1: 1 %, 1 h 59 min left",
        "in epoch 1: 2 %, 1 h 58 min left",
    ]


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr("shapepu.evaluation.report.figures.plot_progress", broken)
    toy_trainer(tmp_path, toy_settings(epochs=1)).fit()
    assert "progress.png was not drawn: no fonts" in (tmp_path / "train.log").read_text()


def test_minutes_alone_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that ticks a second whenever it is looked at, a run of a minute is over after a minute."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("shapepu.schedule.time.monotonic", lambda: float(next(ticks)))
    trainer: Trainer = toy_trainer(tmp_path, toy_settings(epochs=None, minutes=1.0, validation_share=0.0))
    trainer.fit()
    minutes = [row["minutes"] for row in trainer.state.rows]
    assert 0.9 < minutes[-1] < 1.3
    assert minutes == sorted(minutes)
    rates = [row["learning_rate"] for row in trainer.state.rows]
    assert rates[-1] < 0.1 * max(rates)
    assert learning_rate_factor(1.0, "cosine", 0.02) == pytest.approx(0)


def test_a_run_whose_time_runs_out_between_two_epochs_is_scored_and_stays_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing the first checkpoint takes longer than the run may."""
    seconds = [0.0]

    def slowly(path: Path, state: dict[str, Any]) -> None:
        save_checkpoint(path, state)
        seconds[0] += 100.0

    monkeypatch.setattr("shapepu.schedule.time.monotonic", lambda: seconds[0])
    monkeypatch.setattr("shapepu.training.save_checkpoint", slowly)
    settings = toy_settings(epochs=None, minutes=1.0, validation_share=0.0)
    trainer: Trainer = toy_trainer(tmp_path, settings)
    step = trainer.shown.step

    def ticking(*shown: Any) -> None:
        seconds[0] += 1.0
        step(*shown)

    monkeypatch.setattr(trainer.shown, "step", ticking)
    trainer.fit()
    last = trainer.state.rows[-1]
    assert last["minutes"] is not None
    assert last["minutes"] >= 1
    assert "validation.dice" in last
    resumed: Trainer = toy_trainer(tmp_path, settings)
    resumed.resume()
    assert resumed.progress_so_far == 1


@pytest.mark.parametrize("slices", [12, 20])
def test_a_run_by_steps_ends_after_exactly_as_many_on_data_of_any_size(slices: int, tmp_path: Path) -> None:
    trainer: Trainer = toy_trainer(tmp_path, toy_settings(epochs=None, steps=7), store=toy_store(slices))
    assert trainer.batches.steps_per_epoch == slices // 4
    trainer.fit()
    assert trainer.state.step == 7
    assert trainer.progress_so_far == 1
