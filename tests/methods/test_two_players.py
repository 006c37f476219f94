"""Methods with two players: whose weights a turn moves, what each player sees, and what each is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shapepu.bundle import BundleSpec, load_bundle, save_bundle
from shapepu.data.degrade import degrade, draw_degradation
from shapepu.errors import InputError
from shapepu.losses import partial_cross_entropy, partial_dice_loss, weighted_partial_cross_entropy
from shapepu.losses.adversarial import least_squares_segmenter, minimax_discriminator, minimax_segmenter
from shapepu.methods import Batch, Method
from shapepu.methods.accl import ACCL, ACCLConfig
from shapepu.methods.maag import MAAG, MAAGConfig
from shapepu.methods.postdae import PostDAE, PostDAEConfig
from shapepu.networks.attention_unet import class_pyramid
from shapepu.networks.blocks import one_hot
from toys import LABELS, PREPROCESSING, SIDE, toy_batches, toy_method, toy_settings, toy_store

TURNS = {
    "accl": [("discriminator", "discriminator"), ("segmenter", "network")],
    "maag": [("discriminator", "discriminator"), ("segmenter", "network")],
    "postdae": [("segmenter", "network"), ("denoiser", "denoiser")],
}
"""The turns of a step in order, and the child of the method whose parameters each may move."""

every_player = pytest.mark.parametrize("name", TURNS)


def a_method(name: str, options: Any = None) -> Any:
    changes = {} if options is None else {"method_options": options}
    return toy_method(toy_settings(name, **changes), toy_store())


def a_batch(name: str, seed: int = 0) -> Batch:
    batches = toy_batches(toy_settings(name), toy_store(), unpaired=toy_store(seed=1))
    return next(batches.epoch(torch.Generator().manual_seed(seed)))


def parameters(method: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in method.named_parameters()}


def optimisers(method: Method) -> dict[str, torch.optim.Optimizer]:
    return {group: torch.optim.Adam(members, 1e-2) for group, members in method.parameter_groups().items()}


def take_a_step(method: Method, batch: Batch, turn: Callable[[str, Tensor], None]) -> dict[str, Tensor]:
    return dict(method.step(batch, turn))


def nothing_is_learnt(group: str, loss: Tensor) -> None:
    """For steps of which only the terms are looked at."""


@every_player
def test_a_turn_moves_all_parameters_of_its_player_and_none_of_the_other(name: str) -> None:
    method, batch = a_method(name).train(), a_batch(name)
    players, moved = optimisers(method), []

    def turn(group: str, loss: Tensor) -> None:
        before = parameters(method)
        players[group].zero_grad()
        loss.backward()
        players[group].step()
        changed = {each for each, value in parameters(method).items() if not value.equal(before[each])}
        moved.append((group, changed))

    for _ in range(2):  # gates that start at 0 let their own weights feel nothing in the first step
        moved.clear()
        take_a_step(method, batch, turn)
    assert [group for group, _ in moved] == [group for group, _ in TURNS[name]]
    for (_, child), (_, changed) in zip(TURNS[name], moved, strict=True):
        assert changed == {each for each in parameters(method) if each.startswith(f"{child}.")}


@every_player
def test_no_gradient_of_one_players_loss_reaches_the_other(name: str) -> None:
    method, batch = a_method(name).train(), a_batch(name)
    reached = []

    def turn(group: str, loss: Tensor) -> None:
        method.zero_grad()
        loss.backward()
        reached.append({each.split(".")[0] for each, p in method.named_parameters() if p.grad is not None})

    take_a_step(method, batch, turn)
    assert reached == [{child} for _, child in TURNS[name]]


@every_player
def test_the_other_player_sees_no_image(name: str) -> None:
    """Not in training, where a hook looks at all that it is shown; so what it learns is of shapes alone."""
    method, batch = a_method(name), a_batch(name)
    shown: list[Tensor] = []

    def look(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        maps = arguments[0]
        shown.extend([maps] if isinstance(maps, Tensor) else maps)

    other = method.denoiser if name == "postdae" else method.discriminator
    other.register_forward_pre_hook(look)
    take_a_step(method, batch, nothing_is_learnt)
    assert shown
    for maps in shown:
        assert maps.shape[1] == LABELS.count
        assert maps.detach().min() >= 0
        assert (maps.detach().sum(dim=1) - 1).abs().max() < 1e-4


def test_accl_is_partial_cross_entropy_and_the_weighted_minimax_loss() -> None:
    method, batch = a_method("accl", ACCLConfig(adversarial_weight=0.3)).eval(), a_batch("accl")
    assert isinstance(method, ACCL)
    assert batch.unpaired_masks is not None
    terms = take_a_step(method, batch, nothing_is_learnt)
    log_probs = method.log_probs(batch.images)
    predicted = method.discriminator(log_probs.exp())
    drawn = method.discriminator(one_hot(batch.unpaired_masks, batch.classes))
    expected = {
        "positive": partial_cross_entropy(log_probs, batch.labels, batch.labelled),
        "adversarial": 0.3 * minimax_segmenter(predicted),
        "discriminator": minimax_discriminator(drawn, predicted),
    }
    assert terms.keys() == expected.keys()
    for term, value in expected.items():
        torch.testing.assert_close(terms[term], value)


def test_the_segmenter_of_accl_learns_what_makes_its_predictions_look_drawn() -> None:
    """Of the gradient that reaches the network, the adversary's part is that of the segmenter's loss."""
    method, batch = a_method("accl", ACCLConfig(adversarial_weight=0.3)).eval(), a_batch("accl")
    taken: dict[str, Tensor] = {}
    take_a_step(method, batch, lambda group, loss: taken.setdefault(group, loss) and None)
    probe = method.network.head.weight
    (found,) = torch.autograd.grad(taken["segmenter"], probe)
    log_probs = method.log_probs(batch.images)
    loss = partial_cross_entropy(log_probs, batch.labels, batch.labelled) + 0.3 * minimax_segmenter(
        method.discriminator(log_probs.exp())
    )
    torch.testing.assert_close(found, torch.autograd.grad(loss, probe)[0])


def test_the_supervised_loss_of_maag_is_scaled_to_the_adversarial_one_and_logged_unscaled() -> None:
    options = MAAGConfig(adversarial_weight=0.5, noise=0.0)
    method, batch = a_method("maag", options).eval(), a_batch("maag")
    assert isinstance(method, MAAG)
    taken: dict[str, Tensor] = {}
    terms = take_a_step(method, batch, lambda group, loss: taken.setdefault(group, loss) and None)
    maps = [logits.log_softmax(dim=1) for logits in method.network(batch.images)]
    adversarial = least_squares_segmenter(method.discriminator([each.exp() for each in maps]))
    supervised = weighted_partial_cross_entropy(maps[0], batch.labels, batch.labelled)
    torch.testing.assert_close(terms["positive"], supervised)
    torch.testing.assert_close(terms["adversarial"], 0.5 * adversarial)
    # |L_adv / L_sup| L_sup + .5 L_adv
    torch.testing.assert_close(taken["segmenter"], 1.5 * adversarial)
    probe = method.network.backbone.head.weight
    (found,) = torch.autograd.grad(taken["segmenter"], probe, retain_graph=True)
    weight = float(adversarial.detach() / supervised.detach())
    (expected,) = torch.autograd.grad(weight * supervised + 0.5 * adversarial, probe)
    torch.testing.assert_close(found, expected)


def test_scribbles_supervise_the_full_resolution_and_the_adversary_all_of_them() -> None:
    method, batch = a_method("maag").train(), a_batch("maag")
    assert batch.unpaired_masks is not None
    judged: list[list[Tensor]] = []
    method.discriminator.register_forward_pre_hook(lambda module, arguments: judged.append(arguments[0]))
    take_a_step(method, batch, nothing_is_learnt)
    drawn, detached, predicted = judged
    expected = class_pyramid(one_hot(batch.unpaired_masks, batch.classes), method.strides)
    assert len(drawn) == len(method.strides) >= 2
    for found, wanted, maps, again in zip(drawn, expected, detached, predicted, strict=True):
        torch.testing.assert_close(found, wanted)
        assert maps.shape == wanted.shape
        torch.testing.assert_close(maps, again)
        assert not maps.requires_grad
        assert again.requires_grad


def test_the_denoiser_is_taught_the_sound_masks_from_damaged_ones() -> None:
    method, batch = a_method("postdae").eval(), a_batch("postdae")
    assert isinstance(method, PostDAE)
    masks = batch.unpaired_masks
    assert masks is not None
    state = batch.generator.get_state()
    loss = method.denoising_loss(batch)
    batch.generator.set_state(state)
    damage = draw_degradation(method.config.degradation, len(masks), batch.classes, batch.generator)
    damaged = degrade(masks, batch.classes, damage)
    assert (damaged != masks).float().mean() > 0.01
    mended = method.denoiser(one_hot(damaged, batch.classes)).softmax(dim=1)
    torch.testing.assert_close(loss, partial_dice_loss(mended, masks, torch.ones_like(masks).bool()))


@pytest.mark.parametrize("weighted", [False, True])
def test_the_network_of_postdae_never_hears_of_the_denoiser(weighted: bool) -> None:
    method, batch = a_method("postdae", PostDAEConfig(weighted, widths=(8, 8))).eval(), a_batch("postdae")
    taken: dict[str, Tensor] = {}
    take_a_step(method, batch, lambda group, loss: taken.setdefault(group, loss) and None)
    loss = weighted_partial_cross_entropy if weighted else partial_cross_entropy
    expected = loss(method.log_probs(batch.images), batch.labels, batch.labelled)
    torch.testing.assert_close(taken["segmenter"], expected)


def test_a_prediction_is_the_denoisers_answer_to_the_most_probable_classes() -> None:
    method = a_method("postdae").eval()
    images = torch.randn(2, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    labels = method.network(images).argmax(dim=1)
    predicted = method.predict(images)
    torch.testing.assert_close(predicted, method.denoiser(one_hot(labels, 3)).softmax(dim=1))
    assert (predicted - method.network(images).softmax(dim=1)).abs().max() > 0.05


@pytest.mark.parametrize(("name", "child"), [("accl", "discriminator"), ("maag", "discriminator")])
def test_the_adversary_stays_behind_when_the_model_travels(name: str, child: str, tmp_path: Path) -> None:
    settings, method = toy_settings(name), a_method(name)
    spec = BundleSpec(
        method=name,
        network=settings.network,
        network_options=settings.network_options,
        labels=LABELS,
        channels=("image",),
        preprocessing=PREPROCESSING,
    )
    assert child not in method.prediction_modules()
    save_bundle(tmp_path / "with", method=method, spec=spec)
    with torch.no_grad():
        for parameter in getattr(method, child).parameters():
            parameter.add_(1)
    save_bundle(tmp_path / "other", method=method, spec=spec)
    kept, other = ((tmp_path / each / "weights.safetensors").read_bytes() for each in ("with", "other"))
    assert kept == other
    load_bundle(tmp_path / "with")


@pytest.mark.parametrize(
    ("config", "wrong", "message"),
    [
        (ACCLConfig, {"adversarial_weight": -1}, "accl: expected an adversarial weight of 0 or more"),
        (ACCLConfig, {"levels": 0}, "levels of 1 or more; got 0.05, 16, 0"),
        (MAAGConfig, {"noise": -0.1}, "maag: expected an adversarial weight and noise of 0 or more"),
        (PostDAEConfig, {"widths": ()}, "postdae.widths: expected one or more widths"),
    ],
)
def test_options_out_of_range_are_refused(config: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(**wrong)
