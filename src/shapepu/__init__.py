"""Train a medical image segmentation model from scribbles alone, and know how good it is."""

from shapepu._version import __version__

__all__ = ["__version__"]
