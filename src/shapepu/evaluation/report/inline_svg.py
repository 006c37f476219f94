"""A Matplotlib figure as an SVG element that may stand inside an HTML page.

Matplotlib writes a stand-alone file: with random identifiers that would clash between figures, a style rule
that would reach the whole page, and fixed colours. Here identifiers are counted, the rule is moved to the
element itself, and ink, grid and paper become variables of the page, so that a figure follows it into the
dark.
"""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from matplotlib.figure import Figure

from shapepu.evaluation.report.palette import GRID, INK, MUTED, PAPER

_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_NAMESPACE = re.compile(r"\{[^}]*\}")
_REFERENCE = re.compile(r"#([\w.:-]+)")
_THEMED = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--paper)"}
_COLOUR = re.compile("|".join(_THEMED))


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as one ``<svg>`` element.

    Args:
        figure: drawn in the colours of the palette.
        name: unique in the page; identifiers inside the element start with it.
        description: what a person sees in the figure, for one who does not.
    """
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(stream.getvalue())
    for child in [child for child in root if _local(child.tag) == "metadata"]:
        root.remove(child)
    _drop_style_rules(root)
    identifiers = _renamed_identifiers(root, name)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _rewritten(key, attributes[key], identifiers) for key in attributes})
    width = root.attrib["width"]
    for unused in ("width", "height", "version"):
        root.attrib.pop(unused, None)
    root.attrib |= {
        "role": "img",
        "aria-label": description,
        "style": f"width:100%;max-width:{width};stroke-linejoin:round;stroke-linecap:butt",
    }
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """An element or attribute name without its namespace, which HTML supplies itself."""
    return _NAMESPACE.sub("", name)


def _drop_style_rules(root: ElementTree.Element) -> None:
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) == "style"]:
            parent.remove(child)


def _renamed_identifiers(root: ElementTree.Element, name: str) -> dict[str, str]:
    """Old identifier to new, counted in the order of the document: the same bytes for the same figure."""
    old = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    return {identifier: f"{name}-{index}" for index, identifier in enumerate(dict.fromkeys(old))}


def _rewritten(key: str, value: str, identifiers: dict[str, str]) -> str:
    if key == "id":
        return identifiers[value]
    if "image-rendering" in value:  # pixels of an image are interpolated, as a viewer of images does
        return ""
    if key == "d":  # a hundredth of a point is not seen, and contours have many of them
        return _LONG_NUMBER.sub(lambda match: f"{float(match.group()):.2f}", " ".join(value.split()))
    if key == "style" or key in ("fill", "stroke"):
        value = _COLOUR.sub(lambda match: _THEMED[match.group()], value)
    if key == "href" and value.startswith("data:"):
        return value
    return _REFERENCE.sub(lambda match: "#" + identifiers.get(match.group(1), match.group(1)), value)
