"""Context images X': where the divergence is measured besides the data (paper section 2.1).

A generator takes the images of a batch and returns m *new* images. Noise is not clamped unless the
name says so: clamping at [0, 1] turns a variance of 0.1 into 0.066 on natural images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from onesigma.precision import at_least_single

# beyond it altered copies are mostly noise
MOST_STRENGTH = 1.5
# how far noise may carry images out of [0, 1]
_BEYOND = 0.5


class Context(ABC):
    """A recipe for context images."""

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise ValueError(f"A context generator makes at least one image, got count={count}.")
        self.count = count

    def __call__(
        self, images: Float[Tensor, "n k h w"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "m k h w"]:
        """Make `count` new images from a batch; the batch is not changed."""
        _check_images(images)
        chosen = _choose(images, self.count, generator)
        return self.alter(chosen, images, generator)

    @abstractmethod
    def alter(
        self,
        chosen: Float[Tensor, "m k h w"],
        images: Float[Tensor, "n k h w"],
        generator: torch.Generator | None,
    ) -> Float[Tensor, "m k h w"]:
        """Turn copies of randomly chosen images into context images."""


class NoisyCopies(Context):
    """x' = x + ε, ε ~ N(0, variance) per pixel and channel: the paper's, with variance 0.1.

    Args:
        count: how many images.
        variance: of the noise.
        clamp: cut the result to [0, 1], as the published code does.
    """

    def __init__(self, count: int = 1, variance: float = 0.1, clamp: bool = False) -> None:
        super().__init__(count)
        if not variance >= 0:
            raise ValueError(f"NoisyCopies got the variance {variance}; it wants one from 0 up.")
        self.variance, self.clamp = variance, clamp

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Add noise."""
        noisy = chosen + self.variance**0.5 * _normal(chosen.shape, chosen, generator)
        return noisy.clamp(0, 1) if self.clamp else noisy


class ShuffledPatches(Context):
    """The image cut into a grid of patches that change places: right textures, wrong layout.

    Args:
        count: how many images.
        grid: patches per side; rows and columns that do not fill a patch stay where they are.
    """

    def __init__(self, count: int = 1, grid: int = 4) -> None:
        super().__init__(count)
        self.grid = grid

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Permute the patches of each image on its own."""
        m, k, h, w = chosen.shape
        g, a, b = self.grid, h // self.grid, w // self.grid
        if not a or not b:
            raise ValueError(
                f"ShuffledPatches cannot cut a {h}×{w} image into {g}×{g} patches; lower grid."
            )
        inner = chosen[..., : g * a, : g * b].reshape(m, k, g, a, g, b)
        patches = inner.permute(0, 2, 4, 1, 3, 5).reshape(m, g * g, k, a, b)
        order = _uniform((m, g * g), chosen, generator).argsort(1)
        moved = patches[torch.arange(m, device=chosen.device)[:, None], order]
        moved = moved.reshape(m, g, g, k, a, b).permute(0, 3, 1, 4, 2, 5)
        chosen[..., : g * a, : g * b] = moved.reshape(m, k, g * a, g * b)
        return chosen


class ShiftedColours(Context):
    """Another camera, another hour: random gain, gamma and cast per channel, and blur.

    Args:
        count: how many images.
        strength: 0 changes nothing, 1 is strong.
        blur: largest standard deviation of the blur, in pixels.
    """

    def __init__(self, count: int = 1, strength: float = 0.7, blur: float = 3.0) -> None:
        super().__init__(count)
        self.strength, self.blur = strength, blur

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Mix channels, bend the tone curve, blur."""
        _check_range(chosen)
        m, k = chosen.shape[:2]
        mixing = torch.eye(k, dtype=chosen.dtype, device=chosen.device)
        mixing = mixing + 0.5 * self.strength * _normal((m, k, k), chosen, generator)
        cast = 0.3 * self.strength * _normal((m, k, 1, 1), chosen, generator)
        gamma = torch.exp(self.strength * _normal((m, 1, 1, 1), chosen, generator))
        toned = chosen.clamp(0, 1) ** gamma
        mixed = torch.einsum("mij,mjhw->mihw", mixing, toned) + cast
        width = self.blur * float(_uniform((), chosen, generator))
        return _gaussian_blur(mixed, width)


class PastedMixtures(Context):
    """Blobs of one image pasted, enlarged and flipped, into another: known things, wrong places.

    Args:
        count: how many images.
        share: rough share of pixels that come from the other image.
    """

    def __init__(self, count: int = 1, share: float = 0.4) -> None:
        super().__init__(count)
        self.share = share

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Cut along the level lines of smooth noise."""
        others = _moved(_choose(images, len(chosen), generator), generator)
        shares = torch.full((len(chosen),), self.share, device=chosen.device)
        return torch.where(_blobs(shares, chosen, generator)[:, None], others, chosen)


class Strangers:
    """Things that do not belong: blobs of one image in another, moved, mirrored, in other colours.

    The rest of the image is as it was and keeps its targets; what a blob is, nobody says.

    Args:
        rate: share of the images that get some.
        size: mean share of the pixels of such an image.
    """

    def __init__(self, rate: float = 0.5, size: float = 0.05) -> None:
        if not (0 < rate <= 1 and 0 < size <= 0.5):
            raise ValueError(
                f"Strangers got the rate {rate} and the size {size}; it wants a rate in (0, 1] and "
                "a size in (0, 0.5]."
            )
        self.rate, self.size = rate, size
        self.colours = ShiftedColours(strength=0.35, blur=1.0)

    def __call__(
        self, images: Float[Tensor, "n k h w"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n k h w"], Bool[Tensor, "n h w"]]:
        """New images, and where the strangers are; the batch is not changed."""
        _check_images(images)
        n = len(images)
        others = _moved(_choose(images, n, generator), generator)
        others = self.colours.alter(others, images, generator).clamp(0, 1)
        sizes = 2 * self.size * _uniform((n,), images, generator)
        chosen = _uniform((n,), images, generator) < self.rate
        where = _blobs(sizes, images, generator) & chosen[:, None, None]
        return torch.where(where[:, None], others, images), where


class FrequencyNoise(Context):
    """Noise with the spectrum 1/f^power, alone or over an image: texture without objects.

    Args:
        count: how many images.
        power: 0 is white, 1 looks like natural texture, 2 like clouds.
        mix: share of the noise; 1 leaves nothing of the image.
    """

    def __init__(self, count: int = 1, power: float = 1.0, mix: float = 1.0) -> None:
        super().__init__(count)
        self.power, self.mix = power, mix

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Shape white noise in the Fourier domain, with the images' own mean and contrast."""
        h, w = chosen.shape[-2:]
        # half precision has no Fourier transform
        white = at_least_single(_normal(chosen.shape, chosen, generator))
        fy = torch.fft.fftfreq(h, device=chosen.device)[:, None]
        fx = torch.fft.rfftfreq(w, device=chosen.device)[None]
        frequency = torch.sqrt(fy.square() + fx.square()).clamp_min(1 / max(h, w))
        shaped = torch.fft.irfft2(torch.fft.rfft2(white) / frequency**self.power, s=(h, w))
        shaped = shaped - shaped.mean((-2, -1), keepdim=True)
        shaped = shaped / shaped.std((-2, -1), keepdim=True).clamp_min(1e-6)
        centre, contrast = chosen.mean((-2, -1), keepdim=True), chosen.std((-2, -1), keepdim=True)
        return (1 - self.mix) * chosen + self.mix * (centre + contrast * shaped.to(chosen.dtype))


class MixedContext(Context):
    """Each context image from one of several generators, chosen at random.

    Args:
        generators: what to choose from, all of the above when left out; their own counts are not
            used.
        count: how many images.
        weights: how often each is chosen, equal when left out.
    """

    def __init__(
        self,
        generators: Sequence[Context] | None = None,
        count: int = 1,
        weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(count)
        if generators is None:
            kinds = (NoisyCopies, ShuffledPatches, ShiftedColours, PastedMixtures, FrequencyNoise)
            generators = [kind() for kind in kinds]
        if not generators or (weights is not None and len(weights) != len(generators)):
            raise ValueError(
                f"MixedContext got {len(generators)} generators and "
                f"{None if weights is None else len(weights)} weights; it wants one weight each."
            )
        odd = [part for part in generators if not isinstance(part, Context)]
        if odd:
            raise TypeError(
                f"MixedContext got {odd[0]!r} among its generators; it wants context generators "
                "that are made already, such as NoisyCopies()."
            )
        self.generators = tuple(generators)
        self.weights = torch.tensor(weights or [1.0] * len(generators))

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Let a randomly chosen generator alter each image."""
        weights = self.weights if generator is None else self.weights.to(generator.device)
        picks = torch.multinomial(weights, len(chosen), replacement=True, generator=generator)
        parts = [
            self.generators[pick].alter(chosen[i : i + 1], images, generator)
            for i, pick in enumerate(picks.tolist())
        ]
        return torch.cat(parts)


class AlteredCopies(MixedContext):
    """Images whose targets still hold: as they are, in other colours and blurred, under noise.

    A network errs on them much as it does on images it has not seen. There the noise is learned
    that it will have; on the training images themselves, that of what it knows by heart.

    Args:
        count: how many images.
        strength: of colours and noise, above 0 and at most `MOST_STRENGTH`.
    """

    def __init__(self, count: int = 1, strength: float = 1.0) -> None:
        if not 0 < strength <= MOST_STRENGTH:
            raise ValueError(
                f"AlteredCopies got the strength {strength}; it wants one above 0 and at most "
                f"{MOST_STRENGTH}."
            )
        colours, noise = ShiftedColours(strength=0.7 * strength), FrequencyNoise(mix=0.6 * strength)
        super().__init__([_Copies(), colours, noise], count)

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Each as one of the three, its values in [0, 1] like those of a photograph."""
        _check_range(chosen)
        return super().alter(chosen, images, generator).clamp(0, 1)


class _Copies(Context):
    """Images as they are."""

    def alter(self, chosen: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
        """Nothing."""
        return chosen


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or not len(images) or not images.is_floating_point():
        raise ValueError(
            f"A context generator got images of shape {tuple(images.shape)} and type "
            f"{images.dtype}; it wants at least one RGB image in [0, 1], floating-point of shape "
            "(n, k, h, w). Of bytes take images / 255, of a single image images[None]."
        )


def _check_range(images: Tensor) -> None:
    """Raise where clamping to [0, 1] would cut off more than noise."""
    low, high = (float(value) for value in images.aminmax())
    if low < -_BEYOND or high > 1 + _BEYOND:
        raise ValueError(
            f"A context generator that clamps to [0, 1] got images from {low:.3g} to {high:.3g}; "
            "it wants RGB in [0, 1]. Normalise inside the network, as its first layer."
        )


def _choose(images: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """`count` images of the batch, without repetition while that is possible."""
    order = _uniform((len(images),), images, generator).argsort()
    return images[order.repeat(-(-count // len(images)))[:count]].clone()


def _normal(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)


def _uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.rand(tuple(shape), generator=generator, dtype=like.dtype, device=like.device)


def _moved(images: Tensor, generator: torch.Generator | None) -> Tensor:
    """Mirrored, then rolled by random numbers of rows and columns."""
    shift = [int(s * float(_uniform((), images, generator))) for s in images.shape[-2:]]
    return torch.roll(images.flip(-1), shift, (-2, -1))


def _blobs(shares: Tensor, images: Tensor, generator: torch.Generator | None) -> Tensor:
    """Masks (n, h, w) of these shares of the pixels, cut along level lines of smooth noise."""
    n, _, h, w = images.shape
    field = _smooth_noise(n, h, w, images, generator)
    pairs = zip(field.flatten(1).float(), shares.float(), strict=True)
    level = torch.stack([torch.quantile(values, 1 - share) for values, share in pairs])
    return field > level.to(field.dtype)[:, None, None]


def _smooth_noise(
    m: int, h: int, w: int, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    coarse = _normal((m, 1, 5, 5), like, generator)
    return functional.interpolate(coarse, (h, w), mode="bicubic", align_corners=False)[:, 0]


def _gaussian_blur(images: Tensor, width: float) -> Tensor:
    """Separable Gaussian blur with replicated borders; narrower than 0.3 pixels it does nothing."""
    if width < 0.3:
        return images
    radius = max(1, int(2.5 * width))
    offsets = torch.arange(-radius, radius + 1, dtype=images.dtype, device=images.device)
    taps = torch.exp(-offsets.square() / (2 * width**2))
    taps = (taps / taps.sum()).expand(images.shape[1], 1, -1)
    padded = functional.pad(images, (radius,) * 4, mode="replicate")
    rows = functional.conv2d(padded, taps[:, :, None], groups=images.shape[1])
    return functional.conv2d(rows, taps[..., None], groups=images.shape[1])
