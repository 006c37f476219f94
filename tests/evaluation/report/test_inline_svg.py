from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from shapepu.evaluation.report.inline_svg import inline_svg
from shapepu.evaluation.report.palette import INK


def figure(title: str = "A title") -> Figure:
    drawn = Figure(figsize=(2, 2))
    axes = drawn.add_subplot()
    axes.plot([1, 2, 3], color=INK, marker="o")
    axes.imshow(np.arange(9).reshape(3, 3), interpolation="none")
    axes.set_title(title, parse_math=False)
    return drawn


def identifiers(svg: str) -> list[str]:
    return re.findall(r'\bid="([^"]*)"', svg)


def test_identifiers_carry_the_name_and_every_reference_leads_to_one():
    svg = inline_svg(figure(), "curves", "")
    assert identifiers(svg)
    assert len(set(identifiers(svg))) == len(identifiers(svg))
    assert all(name.startswith("curves-") for name in identifiers(svg))
    references = re.findall(r'href="#([^"]*)"', svg) + re.findall(r"url\(#([^)]*)\)", svg)
    assert references
    assert set(references) <= set(identifiers(svg))


def test_two_figures_in_a_page_share_no_identifier():
    first, second = (inline_svg(figure(), name, "") for name in ("first", "second"))
    assert set(identifiers(first)).isdisjoint(identifiers(second))


def test_the_same_figure_gives_the_same_bytes():
    assert inline_svg(figure(), "a", "text") == inline_svg(figure(), "a", "text")


def test_nothing_reaches_out_of_the_element():
    svg = inline_svg(figure(), "a", "text")
    assert "http" not in svg
    assert {element.tag for element in ElementTree.fromstring(svg).iter()} <= {
        "svg",
        "g",
        "defs",
        "path",
        "use",
        "clipPath",
        "rect",
        "image",
    }
    assert svg.count("data:image/png;base64,") == 1


def test_coordinates_of_paths_are_rounded_to_what_can_be_seen():
    paths = re.findall(r'\bd="([^"]*)"', inline_svg(figure(), "a", ""))
    numbers = [float(number) for path in paths for number in re.findall(r"-?\d+\.?\d*", path)]
    assert max(numbers) > 100
    assert all(round(number, 2) == number for number in numbers)


def test_ink_follows_the_page():
    svg = inline_svg(figure(), "a", "text")
    assert INK not in svg
    assert "stroke: var(--ink)" in svg


@pytest.mark.parametrize("text", ['"><script>alert(1)</script>', "--><b>", "]]>&amp;"])
def test_hostile_text_stays_text(text):
    svg = inline_svg(figure(text), "a", text)
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == text
    assert "<script" not in svg
    assert "<b>" not in svg
    assert "<!--" not in svg
