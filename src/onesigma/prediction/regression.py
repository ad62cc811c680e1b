"""Predictive laws of regression targets: one likelihood's, and in a logarithmic unit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from onesigma.field import check_slice
from onesigma.prediction.noise import Noise, SymmetricNoise
from onesigma.prediction.solvers import CRPS_LEVELS, crps_by_quadrature, one_by_one
from onesigma.prediction.transforms import Affine, Log, Transform

# below this share of σ² the epistemic variance is treated as if it were this share
MIN_VARIANCE_RATIO = 1e-12
# above it the smaller tail 1 - u has fewer than three digits in float32
_NEARLY_ALL = 1 - 1e-4


class Moments(NamedTuple):
    """Mean and the two parts of the variance."""

    mean: Tensor
    epistemic: Tensor
    aleatoric: Tensor


class RegressionPrediction(ABC):
    """The predictive law of every output of every pixel; variances grow with uncertainty.

    The law of total variance splits Var y = Var_f E[y | f] + E_f Var[y | f].
    """

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "n c h w"]:
        """E y."""

    @property
    @abstractmethod
    def epistemic(self) -> Float[Tensor, "n c h w"]:
        """Var_f E[y | f]."""

    @property
    @abstractmethod
    def aleatoric(self) -> Float[Tensor, "n c h w"]:
        """E_f Var[y | f]."""

    @abstractmethod
    def __getitem__(self, images: slice) -> RegressionPrediction:
        """The prediction of these images alone."""

    @abstractmethod
    def in_unit(self, transform: Transform) -> RegressionPrediction:
        """The law of the target in its unit, when this one is the law of transform.to_model(y)."""

    @abstractmethod
    def log_prob(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """The log-density of the predictive law."""

    @abstractmethod
    def log_tails(
        self, y: Float[Tensor, "n c h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(log P(Y ≤ y), log P(Y > y))."""

    @abstractmethod
    def quantile(self, u: float | Float[Tensor, "..."]) -> Float[Tensor, "n c h w"]:
        """The y with P(Y ≤ y) = u; u is one level or a tensor of levels that broadcasts."""

    @abstractmethod
    def crps(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """E|Y - y| - ½ E|Y - Y'|, in the unit of y; smaller is better."""

    def exponential_moments(self, rate: Tensor) -> Moments:
        """Moments of exp(rate · y): what a logarithmic unit needs."""
        raise ValueError(
            f"A {type(self).__name__} is in the target's unit already; call in_unit once, on the "
            "prediction in the model's space."
        )

    def exponential_crps(self, y: Tensor, rate: Tensor) -> Tensor | None:
        """The CRPS of exp(rate · Y) at exp(rate · y) where it has a closed form."""
        return None

    @property
    def variance(self) -> Float[Tensor, "n c h w"]:
        """Var y = epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Float[Tensor, "n c h w"]:
        """√Var y."""
        return self.variance.sqrt()

    @property
    def median(self) -> Float[Tensor, "n c h w"]:
        """The ½-quantile."""
        return self.quantile(0.5)

    def cdf(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """P(Y ≤ y)."""
        return self.log_tails(y)[0].exp()

    def interval(self, level: float) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(lower, upper) with (1 - level)/2 of the mass on either side.

        Args:
            level: the probability inside, such as 0.9.
        """
        return self.quantile(_tail(level)), self.quantile(0.5 + 0.5 * level)


@dataclass(frozen=True, eq=False)
class LocationScalePrediction(RegressionPrediction):
    """y = f + σ e with f ~ N(location, spread): Gaussian epistemic, any noise.

    Attributes:
        location: E f.
        spread: Var f.
        scale: σ.
        noise: the law of e.
    """

    location: Float[Tensor, "n c h w"]
    spread: Float[Tensor, "n c h w"]
    scale: Float[Tensor, "n c h w"]
    noise: Noise

    @property
    def mean(self) -> Float[Tensor, "n c h w"]:
        """E f + σ E e."""
        return self.location + self.scale * self.noise.mean

    @property
    def epistemic(self) -> Float[Tensor, "n c h w"]:
        """Var f."""
        return self.spread

    @property
    def aleatoric(self) -> Float[Tensor, "n c h w"]:
        """σ² Var e."""
        return self.scale.square() * self.noise.variance

    @property
    def median(self) -> Float[Tensor, "n c h w"]:
        """E f if the noise is even, else the ½-quantile."""
        return self.location if isinstance(self.noise, SymmetricNoise) else super().median

    @property
    def ratio(self) -> Float[Tensor, "n c h w"]:
        """τ = s/σ, at least √MIN_VARIANCE_RATIO."""
        return (self.spread / self.scale.square()).clamp(min=MIN_VARIANCE_RATIO).sqrt()

    def standardise(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """(y - location)/σ."""
        return (y - self.location) / self.scale

    def __getitem__(self, images: slice) -> LocationScalePrediction:
        check_slice(self, images)
        return LocationScalePrediction(
            self.location[images], self.spread[images], self.scale[images], self.noise
        )

    def in_unit(self, transform: Transform) -> RegressionPrediction:
        """Affine: the same family, moved and stretched. Log: a `LogPrediction`."""
        if isinstance(transform, Log):
            return LogPrediction(self, transform)
        if not isinstance(transform, Affine):
            raise TypeError(f"in_unit got {transform!r}; it wants an Affine or a Log transform.")
        scale = transform.constants(self.location)[1]
        return LocationScalePrediction(
            transform.to_unit(self.location),
            self.spread * scale.square(),
            self.scale * scale,
            self.noise,
        )

    def log_prob(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Log ∫ p(y | f) q(f) df."""
        return self.noise.log_pdf(self.standardise(y), self.ratio) - self.scale.log()

    def log_tails(
        self, y: Float[Tensor, "n c h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(log P(Y ≤ y), log P(Y > y))."""
        return self.noise.log_tails(self.standardise(y), self.ratio)

    def cdf(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """P(Y ≤ y)."""
        return self.noise.cdf(self.standardise(y), self.ratio)

    def quantile(self, u: float | Float[Tensor, "..."]) -> Float[Tensor, "n c h w"]:
        """Location + σ x(u)."""
        level = levels(u, self.location)
        x = self.noise.quantile(level, self.ratio.to(level.dtype))
        return self.location + self.scale * x.to(self.location.dtype)

    def interval(self, level: float) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(lower, upper) with (1 - level)/2 of the mass on either side.

        Args:
            level: the probability inside, such as 0.9.
        """
        if not isinstance(self.noise, SymmetricNoise):
            return super().interval(level)
        lower = self.quantile(_tail(level))
        return lower, 2 * self.location - lower

    def crps(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """σ times the CRPS of the standardised law."""
        return self.scale * self.noise.crps(self.standardise(y), self.ratio)

    def exponential_moments(self, rate: Tensor) -> Moments:
        """Moments of exp(a y): with t = aσ and M(t) = E exp(t e).

        E = exp(a m + a²s²/2) M(t); Var_f E[· | f] = E² (exp(a²s²) - 1);
        E_f Var[· | f] = E² exp(a²s²) (M(2t)/M(t)² - 1). Infinite where M is.
        """
        # in float64, because M(2t)/M(t)² - 1 is a small difference for small t
        t, width = (rate * self.scale).double(), rate.square() * self.spread
        once, twice = self.noise.log_mgf(t), self.noise.log_mgf(2 * t)
        excess = torch.where(twice.isinf(), twice, torch.expm1(twice - 2 * once))
        mean = (rate * self.location + 0.5 * width + once.to(width)).exp()
        aleatoric = mean.square() * width.exp() * excess.to(width)
        epistemic = torch.where(width == 0, 0.0, mean.square() * torch.expm1(width))
        return Moments(mean, epistemic, aleatoric)

    def exponential_crps(self, y: Tensor, rate: Tensor) -> Tensor | None:
        """The closed form of the noise, if there is one, times exp(a · location)."""
        value = self.noise.exponential_crps(self.standardise(y), self.ratio, rate * self.scale)
        return None if value is None else (rate * self.location).exp() * value


@dataclass(frozen=True, eq=False)
class LogPrediction(RegressionPrediction):
    """The law of y = exp(shift + scale · z) - offset, z predicted: exact, as that of z is.

    Laplace noise with scale · σ ≥ 1 has no mean in this unit, with scale · σ ≥ ½ no variance; they
    are returned as inf. Median, quantiles, CDF and density always exist.

    Attributes:
        inner: the law of z.
        transform: the logarithm.
    """

    inner: RegressionPrediction
    transform: Log

    @property
    def mean(self) -> Float[Tensor, "n c h w"]:
        """E exp(shift + scale · z) - offset."""
        return self._moments.mean

    @property
    def median(self) -> Float[Tensor, "n c h w"]:
        """The median of the logarithm in the unit."""
        return self.transform.to_unit(self.inner.median)

    @property
    def epistemic(self) -> Float[Tensor, "n c h w"]:
        """Var_f E[y | f]."""
        return self._moments.epistemic

    @property
    def aleatoric(self) -> Float[Tensor, "n c h w"]:
        """E_f Var[y | f]."""
        return self._moments.aleatoric

    @property
    def _moments(self) -> Moments:
        shift, scale = self.transform.constants(self.inner.mean)
        mean, epistemic, aleatoric = self.inner.exponential_moments(scale)
        factor, offset = shift.exp(), self.transform.offset
        squared = factor.square()
        return Moments(mean * factor - offset, epistemic * squared, aleatoric * squared)

    def __getitem__(self, images: slice) -> LogPrediction:
        check_slice(self, images)
        return LogPrediction(self.inner[images], self.transform)

    def in_unit(self, transform: Transform) -> RegressionPrediction:
        """Refused: the prediction is in the unit already."""
        raise ValueError(
            "This prediction is in the target's unit already; call in_unit once, on the prediction "
            "in the model's space."
        )

    def log_prob(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Log p(z) + log |dz/dy|; -inf for y ≤ -offset."""
        safe, inside = _positive(y + self.transform.offset)
        value = self.inner.log_prob(self._plain.to_model(safe)) + self._plain.log_abs_det(safe)
        return torch.where(inside, value, -torch.inf)

    def log_tails(
        self, y: Float[Tensor, "n c h w"]
    ) -> tuple[Float[Tensor, "n c h w"], Float[Tensor, "n c h w"]]:
        """(log P(Y ≤ y), log P(Y > y)); no mass at y ≤ -offset."""
        safe, inside = _positive(y + self.transform.offset)
        lower, upper = self.inner.log_tails(self._plain.to_model(safe))
        return torch.where(inside, lower, -torch.inf), torch.where(inside, upper, 0.0)

    def quantile(self, u: float | Float[Tensor, "..."]) -> Float[Tensor, "n c h w"]:
        """The quantile of the logarithm in the unit."""
        return self.transform.to_unit(self.inner.quantile(u))

    def crps(self, y: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Closed form for Gaussian noise, else quadrature (about 1e-5 relative)."""
        shift, scale = self.transform.constants(y)
        above = y + self.transform.offset
        safe, inside = _positive(above)
        closed = self.inner.exponential_crps(self._plain.to_model(safe), scale)
        if closed is None:
            knots = [self.quantile(level) for level in CRPS_LEVELS]
            return crps_by_quadrature(one_by_one(self.log_tails), knots, y)
        # below the support the CRPS is that at its end plus the distance
        return torch.where(inside, shift.exp() * closed, shift.exp() * closed - above)

    @property
    def _plain(self) -> Log:
        """The transform of y + offset, whose support ends at 0: digits near it are kept."""
        return Log(self.transform.shift, self.transform.scale)


def levels(u: float | Tensor, like: Tensor) -> Tensor:
    """Levels as a tensor of the shape of `like`; in float64 where float32 would round 1 - u away.

    What is computed from them is then in float64 too.
    """
    if isinstance(u, Tensor):
        return _spread(u, like)
    if not 0 < u < 1:
        raise ValueError(f"quantile got u={u}; it wants a probability between 0 and 1.")
    dtype = torch.float64 if u > _NEARLY_ALL else like.dtype
    return torch.full_like(like, u, dtype=dtype)


def _spread(u: Tensor, like: Tensor) -> Tensor:
    try:
        return u.to(like).expand_as(like)
    except RuntimeError as error:
        raise ValueError(
            f"quantile got levels of shape {tuple(u.shape)} for outputs of shape "
            f"{tuple(like.shape)}; it wants one level, or levels that broadcast to the outputs. "
            "For several call it with each."
        ) from error


def _tail(level: float) -> float:
    """The mass on either side of a central interval."""
    if not 0 < level < 1:
        raise ValueError(
            f"interval got the level {level}; level is a probability between 0 and 1, such as 0.9."
        )
    return 0.5 - 0.5 * level


def _positive(y: Tensor) -> tuple[Tensor, Tensor]:
    positive = y > 0
    return torch.where(positive, y, torch.finfo(y.dtype).tiny), positive
