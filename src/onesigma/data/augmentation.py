"""Random changes of image and target together, by kornia, with randomness that the caller gives."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from onesigma.data.classes import VOID


class Augment(nn.Module):
    """Random scale, crop, flip and colour of a batch; targets are moved, never interpolated.

    Colours change by factors drawn uniformly from [1 − a, 1 + a] for brightness, contrast and
    saturation, and hue turns by an angle from [−a, a] of the circle; a is the argument's value.

    Args:
        crop: rows and columns to cut out at random; what is beyond the image is void.
        flip: probability of a mirror image, left for right.
        brightness: a of the factor on all values.
        contrast: a of the factor on differences from the image's mean grey.
        saturation: a of the factor on saturation.
        hue: a of the turn, at most 0.5.
        scale: smallest and largest zoom, or None; depth is divided by it.
        true_zoom: at which depth is that of the file: what predicted images have.
    """

    def __init__(
        self,
        crop: tuple[int, int] | None = None,
        flip: float = 0.5,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        hue: float = 0.0,
        scale: tuple[float, float] | None = None,
        true_zoom: float = 1.0,
    ) -> None:
        super().__init__()
        for name, value, most in (
            ("flip", flip, 1.0),
            ("brightness", brightness, 1.0),
            ("contrast", contrast, 1.0),
            ("saturation", saturation, 1.0),
            ("hue", hue, 0.5),
        ):
            if not 0 <= value <= most:
                raise ValueError(f"{name} must be in [0, {most}], got {value}.")
        if scale is not None and not 0 < scale[0] <= scale[1]:
            raise ValueError(f"scale is (smallest, largest) zoom above 0, got {scale}.")
        if true_zoom <= 0:
            raise ValueError(f"true_zoom must be above 0, got {true_zoom}.")
        self.crop, self.flip, self.scale, self.true_zoom = crop, flip, scale, true_zoom
        self.brightness, self.contrast = brightness, contrast
        self.saturation, self.hue = saturation, hue

    def forward(
        self, image: Float[Tensor, "n 3 h w"], target: Tensor, generator: torch.Generator
    ) -> tuple[Float[Tensor, "n 3 hh ww"], Tensor]:
        """The batch changed at random, every image on its own.

        Args:
            image: RGB in [0, 1].
            target: labels (n, h, w) or depth (n, 1, h, w).
            generator: source of all randomness, on the CPU.
        """
        if image.shape[-2:] != target.shape[-2:] or len(image) != len(target):
            raise ValueError(
                f"image {tuple(image.shape)} and target {tuple(target.shape)} do not belong "
                "together: the number and size of images must agree."
            )
        if self.scale is not None or self.crop is not None:
            image, target = self._cut(image, target, generator)
        mirror = torch.rand(len(image), generator=generator) < self.flip
        image, target = _mirror(image, mirror), _mirror(target, mirror)
        return self._recolour(image, generator), target

    def _cut(
        self, image: Tensor, target: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        zoom, rows, cols = self._windows(image.shape, generator)
        down, across = (
            _triangles(places, full, zoom).to(image)
            for places, full in zip((rows, cols), image.shape[-2:], strict=True)
        )
        cut = down[:, None] @ image @ across[:, None].mT
        target = _gather(target, rows.floor().long(), cols.floor().long())
        if target.is_floating_point():
            # what is seen s times larger is s times nearer
            target = target * (self.true_zoom / zoom).to(target)[:, None, None, None]
        return cut, target

    def _windows(
        self, shape: torch.Size, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        # the zoom of every image, and where in it the rows and columns of what is cut out lie
        low, high = self.scale or (1.0, 1.0)
        draws = torch.rand(3, shape[0], generator=generator, dtype=torch.float64)
        zoom = low * (high / low) ** draws[0]
        places = [
            _places(full, out, zoom, place)
            for full, out, place in zip(shape[-2:], self.crop or shape[-2:], draws[1:], strict=True)
        ]
        return zoom, places[0], places[1]

    def _recolour(self, image: Tensor, generator: torch.Generator) -> Tensor:
        from kornia import enhance

        draws = (2 * torch.rand(4, len(image), generator=generator) - 1).to(image)
        if self.brightness:
            image = enhance.adjust_brightness_accumulative(image, 1 + self.brightness * draws[0])
        if self.contrast:
            image = enhance.adjust_contrast_with_mean_subtraction(
                image, 1 + self.contrast * draws[1]
            )
        if self.saturation:
            image = enhance.adjust_saturation(image, 1 + self.saturation * draws[2])
        if self.hue:
            image = enhance.adjust_hue(image, self.hue * draws[3] * 2 * torch.pi)
        return image.clamp(0, 1)


def _mirror(values: Tensor, which: Tensor) -> Tensor:
    shape = (-1, *[1] * (values.ndim - 1))
    return torch.where(which.to(values.device).view(shape), values.flip(-1), values)


def _places(full: int, out: int, zoom: Tensor, place: Tensor) -> Tensor:
    extent = out / zoom
    room = full - extent
    # without a zoom pixels fall on pixels: choose one of the whole corners
    whole = (place * (room.abs() + 1)).floor() * room.sign()
    corner = torch.where(zoom == 1, whole, place * room)
    steps = (torch.arange(out, dtype=torch.float64) + 0.5) / out
    return corner[:, None] + steps * extent[:, None]


def _triangles(
    places: Float[Tensor, "n out"], full: int, zoom: Tensor
) -> Float[Tensor, "n out full"]:
    """Weights of the pixels around each place, as wide as what is made smaller: no aliases.

    Those with which an image is resized for evaluation; 0 for places beyond the image.
    """
    # the centre of pixel i is at i + ½
    distance = places[:, :, None] - (torch.arange(full, dtype=places.dtype) + 0.5)
    weights = (1 - distance.abs() * zoom.clamp(max=1)[:, None, None]).clamp_min(0)
    inside = (places >= 0) & (places < full)
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-9) * inside[:, :, None]


def _gather(target: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    h, w = target.shape[-2:]
    outside = ((rows < 0) | (rows >= h))[:, :, None] | ((cols < 0) | (cols >= w))[:, None]
    image = torch.arange(len(target))[:, None, None]
    # channels last, so that the three indices stand side by side
    planes = target if target.ndim == 3 else target.movedim(1, -1)
    cut = planes[image, rows.clamp(0, h - 1)[:, :, None], cols.clamp(0, w - 1)[:, None]]
    void = torch.nan if target.is_floating_point() else VOID
    if target.ndim == 3:
        return cut.masked_fill(outside.to(cut.device), void)
    return cut.movedim(-1, 1).masked_fill(outside[:, None].to(cut.device), void)
