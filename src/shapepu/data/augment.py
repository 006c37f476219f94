"""Random training augmentation of a whole batch at once, on the device the batch is on.

:func:`draw` draws every random number; :func:`apply_spatial` and :func:`apply_intensity` only use them. The
same augmentation can so be replayed on other arrays, and by a resumed run. A patch is sampled straight from a
larger canvas: what turns or shifts into view is real image, not fill.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from shapepu.errors import InputError
from shapepu.labels import OUTSIDE
from shapepu.warp import (
    PixelGrid,
    affine_grid_in_pixels,
    centre_window,
    nearest_indices,
    sample_at,
    sample_linear,
    turn_back,
)


@dataclass(frozen=True)
class Augmentation:
    """How far each random change may go; 0 (1 for what multiplies) switches it off.

    Args:
        rotation_degrees: largest angle either way; 180 is any angle.
        scale: range of the magnification, drawn log-uniformly.
        stretch: largest ratio between the magnifications along two perpendicular directions.
        shift: largest shift along each axis, as a fraction of the patch.
        flip: mirror half of the images.
        elastic_pixels: standard deviation of a smooth random displacement.
        elastic_points: control points of that displacement along each side of the patch.
        contrast: range of the factor on the deviation from the image's mean, drawn log-uniformly.
        gamma: range of the exponent on intensities between the image's extremes, drawn log-uniformly; mean
            and standard deviation are restored after it.
        brightness: largest offset, in standard deviations of the image.
        noise: largest standard deviation of white noise, in standard deviations of the image.
        blur_pixels: largest standard deviation of a Gaussian blur.
        cutout_pixels: side of a square that becomes the mean intensity; scribbles in it are left out.
    """

    rotation_degrees: float = 180.0
    scale: tuple[float, float] = (0.8, 1.25)
    stretch: float = 1.1
    shift: float = 0.08
    flip: bool = True
    elastic_pixels: float = 0.0
    elastic_points: int = 8
    contrast: tuple[float, float] = (0.75, 1.33)
    gamma: tuple[float, float] = (0.7, 1.5)
    brightness: float = 0.2
    noise: float = 0.1
    blur_pixels: float = 0.0
    cutout_pixels: int = 0

    def __post_init__(self) -> None:
        for name in ("scale", "contrast", "gamma"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise InputError(
                    f"augmentation {name!r} needs two rising numbers above 0, as 0.8 and 1.25; "
                    f"got {low} and {high}."
                )
        if self.cutout_pixels < 0:
            raise InputError(
                f"augmentation 'cutout_pixels' is a side in pixels, 0 for none; got {self.cutout_pixels}."
            )
        if self.stretch < 1:
            raise InputError(
                f"augmentation 'stretch' is a ratio of 1 or more, 1 for none; got {self.stretch}."
            )


@dataclass(frozen=True)
class SpatialParameters:
    """Where the pixels of N patches come from.

    Args:
        matrix: (N, 2, 2), takes an (x, y) offset in pixels from the patch's centre to one in the canvas.
        shift: (N, 2), how far the content moves in (x, y), as a fraction of the patch.
        elastic: (N, 2, points, points), (x, y) displacements in canvas pixels, or None.
    """

    matrix: Tensor
    shift: Tensor
    elastic: Tensor | None = None


@dataclass(frozen=True)
class IntensityParameters:
    """What happens to the intensities of N patches; each tensor is (N,), None for what is switched off.

    Args:
        contrast, brightness, gamma, noise, blur_pixels: see :class:`Augmentation`.
        noise_seed: seed of the noise, which is as large as the batch and so is made where it is used.
        blur_radius: pixels on each side that the widest blur reaches.
    """

    contrast: Tensor
    brightness: Tensor
    gamma: Tensor | None = None
    noise: Tensor | None = None
    noise_seed: int = 0
    blur_pixels: Tensor | None = None
    blur_radius: int = 0


@dataclass(frozen=True)
class CutParameters:
    """A square for each of N patches.

    Args:
        place: (N, 2), rows and columns before it, as a fraction of those that are not in it.
        side: in pixels; a smaller patch is cut out altogether.
    """

    place: Tensor
    side: int


@dataclass(frozen=True)
class AugmentParameters:
    """What was drawn for a batch; nothing random is left. None changes nothing, bit for bit."""

    spatial: SpatialParameters | None = None
    intensity: IntensityParameters | None = None
    cut: CutParameters | None = None


IDENTITY = AugmentParameters()
"""Cuts the centre of each canvas and changes nothing."""


def draw(
    settings: Augmentation, count: int, generator: torch.Generator, device: torch.device | str = "cpu"
) -> AugmentParameters:
    """Draw an augmentation for each of ``count`` samples.

    Args:
        settings: how far each change may go.
        count: N, the number of samples.
        generator: the only source of randomness; a CPU generator gives the same numbers whatever the device.
        device: where the parameters are wanted.
    """
    return AugmentParameters(
        _draw_spatial(settings, count, generator, device),
        _draw_intensity(settings, count, generator, device),
        _draw_cut(settings, count, generator, device),
    )


def apply_spatial(
    images: Tensor, label_maps: Sequence[Tensor], parameters: AugmentParameters, patch: tuple[int, int]
) -> tuple[Tensor, list[Tensor]]:
    """Sample a patch of every canvas, the same way in its image and in each of its label maps.

    Args:
        images: canvases (N, C, H, W) of any float type. Beyond the canvas the patch repeats its border.
        label_maps: any number of maps (N, H, W). Beyond the canvas a patch is ``labels.OUTSIDE``.
        parameters: what to apply, on the same device.
        patch: height and width of the patch.

    Returns:
        float32 patches (N, C, *patch) and the patches of the label maps, in the type they came in.
    """
    if parameters.spatial is None:
        cut = [centre_window(labels, patch, fill=OUTSIDE) for labels in label_maps]
        return centre_window(images.float(), patch), cut
    source_size = (images.shape[-2], images.shape[-1])
    grid = _grid(parameters.spatial, patch, source_size)
    indices = nearest_indices(grid, source_size)
    return sample_linear(images, grid), [sample_at(labels, indices, OUTSIDE) for labels in label_maps]


def apply_intensity(images: Tensor, parameters: AugmentParameters) -> Tensor:
    """Change gamma, contrast and brightness, then blur, then add noise; images are (N, C, H, W) float32."""
    drawn = parameters.intensity
    if drawn is None:
        return images
    mean, deviation = _mean_and_deviation(images)
    if drawn.gamma is not None:
        images = _apply_gamma(images, drawn.gamma, mean, deviation)
    contrast, brightness = drawn.contrast[:, None, None, None], drawn.brightness[:, None, None, None]
    images = torch.addcmul(mean * (1 - contrast) + brightness * deviation, images, contrast)
    if drawn.blur_pixels is not None:
        images = _blur(images, drawn.blur_pixels, drawn.blur_radius)
    if drawn.noise is not None:
        generator = torch.Generator(images.device).manual_seed(drawn.noise_seed)
        white = torch.randn(images.shape, generator=generator, device=images.device, dtype=images.dtype)
        images.addcmul_(white, drawn.noise[:, None, None, None] * deviation)
    return images


def cut_out(
    images: Tensor, labels: Tensor, parameters: AugmentParameters, unlabelled: int
) -> tuple[Tensor, Tensor]:
    """Standardised patches (N, C, H, W) with a square at 0, scribbles (N, H, W) without those in it."""
    drawn = parameters.cut
    if drawn is None:
        return images, labels
    inside = torch.ones_like(labels, dtype=torch.bool)
    for axis, size in enumerate(labels.shape[1:]):
        side = min(drawn.side, size)
        first = (drawn.place[:, axis, None] * (size - side)).round()
        index = torch.arange(size, device=labels.device)
        along = (index >= first) & (index < first + side)
        inside &= along[:, :, None] if axis == 0 else along[:, None, :]
    cut = labels.masked_fill(inside & (labels != OUTSIDE), unlabelled)
    return images.masked_fill(inside[:, None], 0.0), cut


def _draw_cut(
    settings: Augmentation, count: int, generator: torch.Generator, device: torch.device | str
) -> CutParameters | None:
    if not settings.cutout_pixels:
        return None
    return CutParameters(_sent(torch.rand((count, 2), generator=generator), device), settings.cutout_pixels)


def _draw_spatial(
    settings: Augmentation, count: int, generator: torch.Generator, device: torch.device | str
) -> SpatialParameters:
    signed = torch.rand((count, 5), generator=generator) * 2 - 1
    unit = torch.rand((count, 2), generator=generator)
    matrix = _inverse_matrix(
        angle_degrees=signed[:, 0] * settings.rotation_degrees,
        scale=_between(unit[:, 0], settings.scale),
        stretch=torch.exp(signed[:, 1] * (math.log(settings.stretch) / 2)),
        stretch_direction_degrees=signed[:, 2] * 90,
        mirrored=(unit[:, 1] < 0.5) & settings.flip,
    )
    elastic = None
    if settings.elastic_pixels > 0:
        points = (count, 2, settings.elastic_points, settings.elastic_points)
        elastic = _sent(torch.randn(points, generator=generator) * settings.elastic_pixels, device)
    return SpatialParameters(_sent(matrix, device), _sent(signed[:, 3:5] * settings.shift, device), elastic)


def _draw_intensity(
    settings: Augmentation, count: int, generator: torch.Generator, device: torch.device | str
) -> IntensityParameters:
    unit = torch.rand((5, count), generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))
    return IntensityParameters(
        contrast=_sent(_between(unit[0], settings.contrast), device),
        brightness=_sent((unit[1] * 2 - 1) * settings.brightness, device),
        gamma=_sent(_between(unit[2], settings.gamma), device) if settings.gamma != (1, 1) else None,
        noise=_sent(unit[3] * settings.noise, device) if settings.noise > 0 else None,
        noise_seed=seed,
        blur_pixels=_sent(unit[4] * settings.blur_pixels, device) if settings.blur_pixels > 0 else None,
        blur_radius=math.ceil(3 * settings.blur_pixels),
    )


def _between(unit: Tensor, limits: tuple[float, float]) -> Tensor:
    """Numbers between the limits, uniform in their logarithm, from numbers between 0 and 1."""
    low, high = math.log(limits[0]), math.log(limits[1])
    return torch.exp(low + unit * (high - low))


def _sent(drawn: Tensor, device: torch.device | str) -> Tensor:
    """Numbers for a GPU, which goes on with its work meanwhile."""
    return drawn.to(device, non_blocking=True)


def _inverse_matrix(
    angle_degrees: Tensor, scale: Tensor, stretch: Tensor, stretch_direction_degrees: Tensor, mirrored: Tensor
) -> Tensor:
    """The inverse of: mirror left-right, stretch along a direction, turn, magnify."""
    towards, back = turn_back(stretch_direction_degrees), turn_back(-stretch_direction_degrees)
    stretched = torch.diag_embed(torch.stack((1 / stretch, stretch), dim=-1).double())
    sign = torch.where(mirrored, -1.0, 1.0)
    mirror = torch.diag_embed(torch.stack((sign, torch.ones_like(sign)), dim=-1).double())
    turned = turn_back(angle_degrees) / scale.double()[:, None, None]
    return (mirror @ back @ stretched @ towards @ turned).float()


def _grid(drawn: SpatialParameters, patch: tuple[int, int], source_size: tuple[int, int]) -> PixelGrid:
    """Where each pixel of the patch lies in the canvas."""
    pixels = torch.stack((drawn.shift[:, 0] * patch[1], drawn.shift[:, 1] * patch[0]), dim=1)
    # The content moves by `pixels` in the patch, so a patch pixel comes from that much earlier.
    shift = -(drawn.matrix @ pixels[:, :, None])[:, :, 0]
    grid = affine_grid_in_pixels(drawn.matrix, shift, patch, source_size)
    if drawn.elastic is None:
        return grid
    displacement = F.interpolate(drawn.elastic, size=patch, mode="bilinear", align_corners=True)
    return PixelGrid(grid.x + displacement[:, 0], grid.y + displacement[:, 1])


def _mean_and_deviation(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of each image, (N, C, 1, 1)."""
    # Images come standardised, so the difference of moments loses nothing that matters, and it costs a
    # twentieth of torch.std on a CPU.
    mean = images.mean(dim=(2, 3), keepdim=True)
    variance = images.square().mean(dim=(2, 3), keepdim=True) - mean.square()
    return mean, variance.clamp_min(0).sqrt()


def _apply_gamma(images: Tensor, gamma: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Intensities to the power of gamma between the extremes of each image, mean and deviation kept."""
    low, high = images.amin(dim=(2, 3), keepdim=True), images.amax(dim=(2, 3), keepdim=True)
    share = (images - low).div_((high - low).clamp_min(1e-6))
    # A power by its logarithm takes a third of the time on a CPU; 0 has one of -inf and stays 0.
    bent = share.log_().mul_(gamma[:, None, None, None]).exp_()
    bent_mean, bent_deviation = _mean_and_deviation(bent)
    gain = deviation / bent_deviation.clamp_min(1e-6)
    return bent.mul_(gain).add_(mean - bent_mean * gain)


def _blur(images: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Each image blurred by its own Gaussian; the border is repeated."""
    count, channels, height, width = images.shape
    offsets = torch.arange(-radius, radius + 1, device=images.device)
    kernels = torch.exp(-0.5 * (offsets / sigma.clamp_min(1e-3)[:, None]) ** 2)
    kernels = (kernels / kernels.sum(dim=1, keepdim=True)).to(images.dtype).repeat_interleave(channels, dim=0)
    planes = images.reshape(1, count * channels, height, width)
    planes = F.pad(planes, (radius, radius, radius, radius), mode="replicate")
    planes = F.conv2d(planes, kernels[:, None, None, :], groups=count * channels)
    planes = F.conv2d(planes, kernels[:, None, :, None], groups=count * channels)
    return planes.reshape(images.shape)
