"""The four hooks carry an adversarial method: two networks take turns in a loop that knows of neither."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional

import shapepu
from shapepu.checkpoint import load_checkpoint
from shapepu.cli import main
from shapepu.losses.partial_ce import partial_cross_entropy
from shapepu.methods import METHODS, MethodEntry, Task
from shapepu.methods.base import Batch, Method, NetworkBuilder, Optimise
from shapepu.training import Trainer
from small_runs import arguments, metrics, resume_arguments, train, weights, write_hearts
from toys import toy_settings, toy_store, toy_trainer


@dataclass(frozen=True)
class AdversarialConfig:
    """How strongly the critic counts."""

    critic_weight: float = 0.1


class Adversarial(Method):
    """Predictions should look like the masks of other patients, says a critic that learns, too."""

    Config = AdversarialConfig
    needs = frozenset({"scribbles", "unpaired masks"})

    def __init__(self, config: AdversarialConfig, task: Task, build_network: NetworkBuilder) -> None:
        super().__init__(config, task, build_network)
        self.critic = nn.Sequential(
            nn.Conv2d(task.classes, 8, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 1, 3, stride=2, padding=1),
        )

    def step(self, batch: Batch, optimise: Optimise) -> Mapping[str, Tensor]:
        log_probs = self.log_probs(batch.images)
        terms = {
            "positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled),
            "critic": self.config.critic_weight * self._surprise(log_probs.exp(), looks_real=True),
        }
        optimise("segmenter", terms["positive"] + terms["critic"])
        assert batch.unpaired_masks is not None, "declared in needs"
        real = functional.one_hot(batch.unpaired_masks.long(), batch.classes).movedim(-1, 1).float()
        judged = self._surprise(real, looks_real=True)
        judged = judged + self._surprise(log_probs.exp().detach(), looks_real=False)
        optimise("critic", judged)
        return {**terms, "judged": judged}

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {**super().parameter_groups(), "critic": list(self.critic.parameters())}

    def _surprise(self, probs: Tensor, *, looks_real: bool) -> Tensor:
        scores = self.critic(probs).float()
        return functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(looks_real)))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "adversarial", MethodEntry(Adversarial, "toy", "in a test"))


@pytest.fixture(scope="module")
def hearts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two patients with scribbles, two who lend their masks."""
    data = write_hearts(tmp_path_factory.mktemp("toy") / "hearts", train=4, masks_for_training=True)
    splits = {
        "train": ["train000", "train001"],
        "val": ["val000"],
        "unpaired_masks": ["train002", "train003"],
    }
    (data / "splits.json").write_text(json.dumps(splits))
    return data


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_turn_moves_its_own_weights_and_no_others(precision: str, tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings("adversarial", epochs=1, precision=precision))
    optimise, turns = trainer._optimise, []

    def watched(group: str, loss: Tensor) -> None:
        before = snapshot(trainer.state.method)
        optimise(group, loss)
        after = snapshot(trainer.state.method)
        turns.append((group, {name.split(".")[0] for name in before if not before[name].equal(after[name])}))

    trainer._optimise = watched  # type: ignore[method-assign]
    trainer.fit()
    steps = trainer.batches.steps_per_epoch
    assert turns == [("segmenter", {"network"}), ("critic", {"critic"})] * steps


def test_the_critic_teaches_the_segmenter(tmp_path: Path) -> None:
    trained = []
    for weight in (0.0, 0.1):
        settings = toy_settings("adversarial", method_options=AdversarialConfig(weight))
        trained.append(snapshot(toy_trainer(tmp_path / str(weight), settings).fit()))
    assert any(not trained[0][name].equal(trained[1][name]) for name in trained[0] if name.startswith("net"))


def test_both_learn_the_toy(tmp_path: Path) -> None:
    trainer = toy_trainer(tmp_path, toy_settings("adversarial", epochs=60))
    trainer.fit()
    first, last = trainer.state.rows[0], trainer.state.rows[-1]
    assert last["validation.dice"] > 0.85 > first["validation.dice"]
    assert last["loss.judged"] < first["loss.judged"]
    assert "loss.critic" in last


def test_an_interrupted_run_resumes_with_both_networks_and_both_optimisers(
    hearts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = train(hearts, tmp_path / "straight", "--quiet", method="adversarial", epochs=4)
    run, steps = tmp_path / "run", Trainer._steps

    def interrupted(trainer: Trainer, watch: Any) -> Any:
        if trainer.state.epoch == 2:
            raise KeyboardInterrupt
        return steps(trainer, watch)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_steps", interrupted)
        assert main(arguments(hearts, run, "--quiet", method="adversarial", epochs=4)) == 130
    assert main(resume_arguments(hearts, run, "--quiet")) == 0
    assert weights(run) == weights(straight)
    states = [load_checkpoint(each / "checkpoint/last.pt") for each in (straight, run)]
    assert set(states[0]["optimisers"]) == {"segmenter", "critic"}
    critics = [{k: v for k, v in state["method"].items() if k.startswith("critic.")} for state in states]
    assert len(critics[0]) == 4
    assert all(critics[0][name].equal(critics[1][name]) for name in critics[0])
    assert [row["loss.judged"] for row in metrics(run)] == [row["loss.judged"] for row in metrics(straight)]


def test_the_bundle_holds_the_segmenter_alone_and_predicts(hearts: Path, tmp_path: Path) -> None:
    options = ("--adversarial.critic-weight", "0.2", "--quiet")
    run = train(hearts, tmp_path / "run", *options, method="adversarial")
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["settings"]["method_options"] == {"critic_weight": 0.2}
    assert config["data"]["cases"]["unpaired"] == ["train002", "train003"]
    kept = safetensors.torch.load_file(run / "model/weights.safetensors")
    assert {name.split(".")[0] for name in kept} == {"network"}
    labels = shapepu.load(run).predict(hearts / "test/images/test000.nii.gz")
    assert labels.max() < 4


def test_images_of_patients_who_lend_their_masks_are_never_seen(tmp_path: Path) -> None:
    seen = []
    for shift in (0, 1):
        trainer = toy_trainer(tmp_path / str(shift), toy_settings("adversarial", epochs=1))
        assert trainer.batches.unpaired is not None
        lending = toy_store(seed=1)
        object.__setattr__(lending, "images", lending.images + shift)
        object.__setattr__(trainer.batches, "unpaired", lending)
        seen.append(snapshot(trainer.fit()))
    assert all(seen[0][name].equal(seen[1][name]) for name in seen[0])


def snapshot(method: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
