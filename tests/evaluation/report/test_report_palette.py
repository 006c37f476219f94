from __future__ import annotations

from itertools import pairwise

from shapepu.evaluation.report.palette import (
    BACKGROUND,
    GRID,
    INK,
    MUTED,
    PAPER,
    STRUCTURES,
    TERMS,
    class_colours,
    structure_colours,
)


def test_a_known_structure_has_its_colour_whatever_stands_beside_it():
    alone = structure_colours(["LV"])["LV"]
    assert structure_colours(["rv", "myo", "lv"])["lv"] == alone
    assert structure_colours(["scar", "Left_Ventricle", "fat"])["Left_Ventricle"] == alone


def test_structures_differ_in_colour_as_long_as_there_are_colours():
    names = ["myo", "a", "b", "c", "d", "e", "f", "g"]
    colours = structure_colours(names)
    assert list(colours) == names
    assert set(colours.values()) == set(STRUCTURES)


def test_more_structures_than_colours_still_get_one_each():
    names = [f"organ {number}" for number in range(30)]
    colours = structure_colours(names)
    assert list(colours) == names
    assert all(first != second for first, second in pairwise(colours.values()))


def test_the_background_stands_apart_from_all_structures():
    assert class_colours(["anything", "rv"]) == {"anything": BACKGROUND, **structure_colours(["rv"])}


def test_colours_that_follow_the_page_are_used_for_nothing_else():
    themed = {INK, MUTED, GRID, PAPER}
    assert themed.isdisjoint({*STRUCTURES, *TERMS, BACKGROUND})


def test_every_structure_can_be_seen_on_a_white_and_on_a_dark_page():
    for colour in STRUCTURES:
        assert 2.3 < contrast(colour, "#ffffff") < 9
        assert 2.3 < contrast(colour, "#15181c") < 9


def contrast(first: str, second: str) -> float:
    """Contrast ratio of the Web Content Accessibility Guidelines 2.1."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
