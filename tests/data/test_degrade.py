"""Damage to masks: what is drawn, and what applying it does, which draws nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from shapepu.data.degrade import (
    GROW,
    KEEP,
    SHRINK,
    Degradation,
    DegradeParameters,
    Shapes,
    add_shapes,
    change_structure,
    degrade,
    draw_degradation,
    swap_near_boundaries,
)
from shapepu.errors import InputError

CLASSES = 3
COUNT = 6
ALL_HARMED = Degradation(sound_share=0.0)
MORPHOLOGY_ALONE = Degradation(sound_share=0.0, shapes=0, swap_share=0.0)


def masks(count: int = COUNT, side: int = 24) -> Tensor:
    """Discs in rings, some of them cut off by the border of the image."""
    centres = torch.randint(4, side - 4, (count, 2), generator=torch.Generator().manual_seed(0))
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    far = torch.hypot(rows - centres[:, :1, None].float(), columns - centres[:, 1:, None].float())
    return ((far < 7).to(torch.uint8) + (far < 4)).to(torch.uint8)


def drawn(settings: Degradation | None = None, count: int = COUNT, seed: int = 0) -> DegradeParameters:
    return draw_degradation(settings or Degradation(), count, CLASSES, torch.Generator().manual_seed(seed))


def same(count: int, value: int) -> Tensor:
    return torch.full((count,), value)


def values_of(parameters: Any) -> dict[str, Any]:
    """Whatever was drawn, by name."""
    plain = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {name: values_of(value) if is_dataclass(value) else value for name, value in plain.items()}


def one_shape(label: int, middle: int, of: int, reach: tuple[float, float], *, disc: bool) -> Shapes:
    """A shape for one mask whose middle is number ``middle`` of ``of`` pixels that it may lie on."""
    return Shapes(
        drawn=torch.tensor([[True]]),
        label=torch.tensor([[label]]),
        place=torch.tensor([[(middle + 0.5) / of]]),
        reach=torch.tensor([[reach]]),
        disc=torch.tensor([[disc]]),
    )


def test_applying_draws_nothing_so_that_damage_can_be_done_again() -> None:
    parameters = drawn()
    state = torch.get_rng_state()
    first = degrade(masks(), CLASSES, parameters)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(degrade(masks(), CLASSES, parameters), first)
    assert not torch.equal(first, masks())


def test_the_generator_decides_what_is_drawn_and_nothing_else_does() -> None:
    one, again, other = drawn(seed=1), drawn(seed=1), drawn(seed=2)
    torch.testing.assert_close(values_of(one), values_of(again))
    assert one.seed != other.seed


def test_every_structure_operation_and_radius_is_drawn_within_the_settings() -> None:
    settings = Degradation(radius=2, swap_share=0.4, swap_reach=5)
    many = [drawn(settings, 50, seed) for seed in range(40)]
    turns = torch.cat([parameters.turns for parameters in many], dim=1)
    assert set(torch.cat([parameters.structure for parameters in many]).tolist()) == {1, 2}
    pairs = Counter(zip(*turns.tolist(), strict=True))
    assert len(pairs) == 9
    assert min(pairs.values()) > 0.8 * 2000 / 9
    assert {parameters.radius for parameters in many} == {1, 2}
    shares = torch.cat([parameters.swap_share for parameters in many])
    assert 0 <= shares.min() < 0.01
    assert 0.39 < shares.max() < 0.4
    assert {parameters.swap_reach for parameters in many} == {5}


@pytest.mark.parametrize("radius", [1, 2])
def test_growing_is_dilation_by_a_square_at_the_cost_of_the_others(radius: int) -> None:
    square = np.ones((2 * radius + 1, 2 * radius + 1))
    for label in (1, 2):
        grown = change_structure(masks(), CLASSES, same(COUNT, label), same(COUNT, GROW), radius)
        for before, after in zip(masks().numpy(), grown.numpy(), strict=True):
            wider = ndimage.binary_dilation(before == label, square)
            np.testing.assert_array_equal(after, np.where(wider, label, before))


@pytest.mark.parametrize("radius", [1, 2])
def test_shrinking_is_erosion_by_a_square_and_leaves_the_most_frequent_neighbour(radius: int) -> None:
    square = np.ones((2 * radius + 1, 2 * radius + 1))
    for label in (1, 2):
        shrunk = change_structure(masks(), CLASSES, same(COUNT, label), same(COUNT, SHRINK), radius)
        for before, after in zip(masks().numpy(), shrunk.numpy(), strict=True):
            # What lies beyond the image does not eat into a structure.
            kept = ndimage.binary_erosion(before == label, square, border_value=1)
            np.testing.assert_array_equal(after == label, kept)
            for y, x in np.argwhere((before == label) & ~kept):
                window = before[max(0, y - radius) : y + radius + 1, max(0, x - radius) : x + radius + 1]
                counts = [int((window == c).sum()) if c != label else -1 for c in range(CLASSES)]
                assert counts[after[y, x]] == max(counts)
            untouched = before != label
            np.testing.assert_array_equal(after[untouched], before[untouched])


def test_keeping_and_a_radius_of_0_change_nothing() -> None:
    for turn, radius in ((KEEP, 3), (GROW, 0), (SHRINK, 0)):
        assert torch.equal(
            change_structure(masks(), CLASSES, same(COUNT, 1), same(COUNT, turn), radius), masks()
        )


def test_each_mask_has_its_own_structure_and_turn() -> None:
    structure, turn = torch.tensor([1, 2, 1, 2, 1, 2]), torch.tensor([GROW, GROW, SHRINK, SHRINK, KEEP, KEEP])
    together = change_structure(masks(), CLASSES, structure, turn, 2)
    for i in range(COUNT):
        alone = change_structure(masks()[i : i + 1], CLASSES, structure[i : i + 1], turn[i : i + 1], 2)
        assert torch.equal(together[i : i + 1], alone)


def test_growing_then_shrinking_closes_a_gap_that_the_other_order_does_not() -> None:
    bars = torch.zeros(1, 9, 13, dtype=torch.uint8)
    bars[:, 2:7, 2:6] = 1
    bars[:, 2:7, 7:11] = 1  # a gap of one column
    quiet = replace(drawn(MORPHOLOGY_ALONE, 1), structure=same(1, 1), radius=1)
    closed = degrade(bars, 2, replace(quiet, turns=torch.tensor([[GROW], [SHRINK]])))
    opened = degrade(bars, 2, replace(quiet, turns=torch.tensor([[SHRINK], [GROW]])))
    assert (closed[0, 2:7, 6] == 1).all()
    assert torch.equal(opened, bars)


def test_a_disc_adds_a_structure_where_and_as_large_as_it_was_drawn() -> None:
    empty = torch.zeros(1, 9, 12, dtype=torch.uint8)
    # Reaches are shares of the 12 columns: 2 rows and 3 columns off row 4, column 5.
    [found] = add_shapes(empty, one_shape(2, 4 * 12 + 5, 9 * 12, (2 / 12, 3 / 12), disc=True))
    expected = torch.zeros(9, 12, dtype=torch.uint8)
    expected[4, 2:9] = 2
    expected[3, 3:8] = expected[5, 3:8] = 2  # (1/2)^2 + (2/3)^2 = .69, but + (3/3)^2 is more than 1
    expected[2, 5] = expected[6, 5] = 2
    assert found.dtype == torch.uint8
    assert torch.equal(found, expected)


def test_a_rectangle_has_its_corners_and_is_cut_off_by_the_border() -> None:
    empty = torch.zeros(1, 9, 12, dtype=torch.uint8)
    [found] = add_shapes(empty, one_shape(1, 0 * 12 + 10, 9 * 12, (2 / 12, 3 / 12), disc=False))
    expected = torch.zeros(9, 12, dtype=torch.uint8)
    expected[:3, 7:] = 1
    assert torch.equal(found, expected)


def test_a_hole_has_its_middle_on_a_structure() -> None:
    block = torch.zeros(1, 10, 10, dtype=torch.uint8)
    block[:, 3:6, 4:8] = 1
    # Number 6 of the 12 pixels of the structure is row 4, column 6.
    [found] = add_shapes(block, one_shape(0, 6, 12, (0.1, 0.1), disc=False))
    expected = block[0].clone()
    expected[3:6, 5:8] = 0
    assert torch.equal(found, expected)


@pytest.mark.parametrize("disc", [True, False])
def test_the_smallest_shape_is_its_middle_and_a_hole_in_nothing_is_nothing(disc: bool) -> None:
    empty = torch.zeros(1, 5, 5, dtype=torch.uint8)
    [found] = add_shapes(empty, one_shape(1, 7, 25, (0.0, 0.0), disc=disc))
    assert found.nonzero().tolist() == [[1, 2]]
    assert not add_shapes(empty, one_shape(0, 7, 25, (0.9, 0.9), disc=disc)).any()


def test_each_mask_has_its_own_shapes_and_a_later_one_covers_an_earlier_one() -> None:
    shapes = drawn(Degradation(shapes=3, shape_share=0.2)).shapes
    together = add_shapes(masks(), shapes)
    for i in range(COUNT):
        alone = masks()[i : i + 1]
        for layer in range(3):
            of_one = {name: value[layer : layer + 1, i : i + 1] for name, value in values_of(shapes).items()}
            alone = add_shapes(alone, Shapes(**of_one))
        assert torch.equal(together[i : i + 1], alone)
    undrawn = replace(shapes, drawn=torch.zeros_like(shapes.drawn))
    assert torch.equal(add_shapes(masks(), undrawn), masks())


def test_shapes_of_every_kind_are_drawn_within_the_settings() -> None:
    shapes = drawn(Degradation(shapes=2, shape_share=0.1), 4000).shapes
    numbers = torch.bincount(shapes.drawn.sum(dim=0)) / 4000
    assert numbers.tolist() == pytest.approx([1 / 3] * 3, abs=0.03)
    labels = torch.bincount(shapes.label.flatten()) / 8000
    assert labels.tolist() == pytest.approx([1 / 2, 1 / 4, 1 / 4], abs=0.03)
    assert float(shapes.disc.float().mean()) == pytest.approx(0.5, abs=0.03)
    for drawn_evenly, most in ((shapes.place, 1.0), (shapes.reach, 0.1)):
        quantiles = torch.quantile(drawn_evenly.flatten(), torch.tensor([0.1, 0.5, 0.9])) / most
        assert quantiles.tolist() == pytest.approx([0.1, 0.5, 0.9], abs=0.03)
    assert shapes.reach.max() <= 0.1


def test_shapes_make_false_blobs_far_from_every_structure_and_holes_within() -> None:
    harm = Degradation(sound_share=0.0, radius=0, shapes=2, shape_share=0.1, swap_share=0.0)
    disc = torch.zeros(200, 48, 48, dtype=torch.uint8)
    disc[:, 4:16, 4:16] = 1
    damaged = degrade(disc, CLASSES, drawn(harm, 200))
    assert 20 < (damaged[:, 24:, 24:] > 0).flatten(1).any(dim=1).sum() < 180
    assert 20 < (damaged[:, 6:14, 6:14] == 0).flatten(1).any(dim=1).sum() < 180


def test_some_masks_are_left_as_they_are() -> None:
    settings = Degradation(sound_share=0.3, radius=2, swap_share=0.5)
    parameters = drawn(settings, 2000)
    assert float(parameters.sound.float().mean()) == pytest.approx(0.3, abs=0.03)
    few = drawn(settings, COUNT)
    some = replace(few, sound=torch.tensor([True, False] * 3), swap_share=torch.ones(COUNT))
    changed = (degrade(masks(), CLASSES, some) != masks()).flatten(1).any(dim=1)
    assert changed.tolist() == [False, True] * 3
    assert drawn(count=2000).sound.float().mean() == pytest.approx(0.25, abs=0.03)
    assert not drawn(ALL_HARMED, 2000).sound.any()


def test_swapped_pixels_take_a_label_within_reach_and_so_differ_near_boundaries_alone() -> None:
    reach = 2
    swapped = swap_near_boundaries(masks(), replace(drawn(), swap_share=torch.ones(COUNT), swap_reach=reach))
    window = np.ones((2 * reach + 1, 2 * reach + 1))
    changed = 0
    for before, after in zip(masks().numpy(), swapped.numpy(), strict=True):
        for label in range(CLASSES):
            around = ndimage.binary_dilation(before == label, window)
            assert around[after == label].all()
        changed += int((before != after).sum())
    assert changed > 20 * COUNT


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_is_that_of_the_pixels_that_swap(share: float) -> None:
    # Every pixel has a label of its own, so that whoever takes another one's shows.
    unique = torch.arange(40 * 40).view(1, 40, 40).expand(4, -1, -1)
    parameters = replace(drawn(count=4), swap_share=torch.full((4,), share), swap_reach=3)
    moved = (swap_near_boundaries(unique, parameters) != unique).float().mean()
    # One in 49 of those who swap draws itself.
    assert float(moved) == pytest.approx(share * 48 / 49, abs=0.02)


def test_swaps_reach_evenly_in_all_directions_and_no_further() -> None:
    reach, side = 3, 60
    rows = torch.arange(side)[:, None].expand(side, side)
    parameters = replace(drawn(count=1), swap_share=torch.ones(1), swap_reach=reach)
    for plane in (rows, rows.T):
        steps = (swap_near_boundaries(plane[None], parameters)[0] - plane)[reach:-reach, reach:-reach]
        share = torch.bincount(steps.flatten() + reach).float() / steps.numel()
        assert len(share) == 2 * reach + 1
        assert (share - 1 / 7).abs().max() < 0.03


def test_whatever_is_drawn_there_are_no_new_labels() -> None:
    for seed in range(20):
        damaged = degrade(masks(), CLASSES, drawn(seed=seed))
        assert damaged.dtype == masks().dtype
        assert damaged.max() < CLASSES


@pytest.mark.parametrize(
    "wrong",
    [
        {"radius": -1},
        {"swap_reach": -1},
        {"swap_share": 1.5},
        {"sound_share": -0.5},
        {"shapes": -2},
        {"shape_share": 1.5},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: .*got {next(iter(wrong.values()))}"):
        Degradation(**wrong)  # type: ignore[arg-type]
