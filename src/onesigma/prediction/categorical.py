"""Predictive laws of labels: one of many classes, or each of many yes/no outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import repeat
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from onesigma.field import check_slice

# beartype has no Self
_AnyStored = TypeVar("_AnyStored", bound="_Stored")
_AnyMixture = TypeVar("_AnyMixture", bound="_Mixture")


class LabelPrediction(ABC):
    """Probabilities and the parts of their entropy, in nats; larger means less sure."""

    @property
    @abstractmethod
    def probs(self) -> Float[Tensor, "n c h w"]:
        """E p."""

    @property
    @abstractmethod
    def entropy(self) -> Tensor:
        """H(E p), the total uncertainty."""

    @property
    @abstractmethod
    def mutual_information(self) -> Tensor:
        """H(E p) - E H(p), what knowing the function would take away."""

    @abstractmethod
    def __getitem__(self, images: slice) -> LabelPrediction:
        """The prediction of these images alone."""

    @abstractmethod
    def log_prob(self, y: Tensor) -> Tensor:
        """Predictive log-probability log E p(y)."""

    @property
    def epistemic(self) -> Tensor:
        """The mutual information of label and function."""
        return self.mutual_information

    @property
    def aleatoric(self) -> Tensor:
        """E H(p), the entropy that remains when the function is known."""
        return (self.entropy - self.mutual_information).clamp_min(0)

    def __len__(self) -> int:
        return self.probs.shape[0]


class CategoricalLaw(LabelPrediction):
    """One label for each pixel."""

    @property
    def label(self) -> Int[Tensor, "n h w"]:
        """The most probable class."""
        return self.probs.argmax(1)

    def log_prob(self, y: Int[Tensor, "n h w"]) -> Float[Tensor, "n h w"]:
        """Predictive log-probability log E p_y, NaN where y is no class: forgotten masks show.

        Args:
            y: labels.
        """
        known = (y >= 0) & (y < self.probs.shape[1])
        index = torch.where(known, y, torch.zeros_like(y)).long()
        chosen = self.probs.gather(1, index[:, None])[:, 0]
        return torch.where(known, chosen.log(), torch.nan)


class BernoulliLaw(LabelPrediction):
    """A yes or no for each output of each pixel; all fields are per output."""

    @property
    @abstractmethod
    def complement(self) -> Float[Tensor, "n c h w"]:
        """E (1 - p), on its own so that it keeps its digits where p is nearly 1."""

    @property
    def label(self) -> Bool[Tensor, "n c h w"]:
        """Yes where it is the more probable."""
        return self.probs > 0.5

    def log_prob(self, y: Tensor) -> Float[Tensor, "n c h w"]:
        """Predictive log-probability log E p(y), NaN where y is neither 0 nor 1.

        Args:
            y: 0 and 1 of any type, shaped like `probs`.
        """
        value = torch.where(y == 1, self.probs.log(), self.complement.log())
        return torch.where((y == 0) | (y == 1), value, torch.nan)


class _Stored(LabelPrediction):
    """A law that holds its probabilities and entropies.

    Args:
        probs: E p.
        entropy: H(E p).
        mutual_information: H(E p) - E H(p), kept on its own so that small values keep their digits.
    """

    def __init__(
        self, probs: Float[Tensor, "n c h w"], entropy: Tensor, mutual_information: Tensor
    ) -> None:
        self._probs, self._entropy, self._information = probs, entropy, mutual_information

    @property
    def probs(self) -> Float[Tensor, "n c h w"]:
        """E p."""
        return self._probs

    @property
    def entropy(self) -> Tensor:
        """H(E p)."""
        return self._entropy

    @property
    def mutual_information(self) -> Tensor:
        """H(E p) - E H(p)."""
        return self._information

    def __getitem__(self: _AnyStored, images: slice) -> _AnyStored:
        check_slice(self, images)
        return type(self)(self.probs[images], self.entropy[images], self._information[images])


class CategoricalPrediction(_Stored, CategoricalLaw):
    """∫ softmax(f) q(f) df of every pixel, with its entropies (n h w).

    Args:
        probs: E p.
        entropy: H(E p).
        mutual_information: H(E p) - E H(p), kept on its own so that small values keep their digits.
    """

    @classmethod
    def from_logits(cls, logits: Float[Tensor, "n c h w"]) -> CategoricalPrediction:
        """The prediction of a deterministic network, p = softmax(logits): no mutual information.

        Args:
            logits: one for each class.
        """
        logs = logits.log_softmax(1)
        probs = logs.exp()
        # p log p → 0: exp(-∞) · -∞ is not a number
        entropy = -(probs * logs.clamp_min(torch.finfo(logs.dtype).min)).sum(1)
        return cls(probs, entropy, torch.zeros_like(entropy))


class BernoulliPrediction(_Stored, BernoulliLaw):
    """∫ sigmoid(f) q(f) df of every output, with its entropies (n c h w).

    Args:
        probs: E p.
        entropy: H(E p).
        mutual_information: H(E p) - E H(p).
        complement: E (1 - p), 1 - probs if left out.
    """

    def __init__(
        self,
        probs: Float[Tensor, "n c h w"],
        entropy: Float[Tensor, "n c h w"],
        mutual_information: Float[Tensor, "n c h w"],
        complement: Float[Tensor, "n c h w"] | None = None,
    ) -> None:
        super().__init__(probs, entropy, mutual_information)
        self._complement = 1 - probs if complement is None else complement

    @property
    def complement(self) -> Float[Tensor, "n c h w"]:
        """E (1 - p)."""
        return self._complement

    def __getitem__(self, images: slice) -> BernoulliPrediction:
        part = super().__getitem__(images)
        part._complement = self._complement[images]
        return part

    @classmethod
    def from_logits(cls, logits: Float[Tensor, "n c h w"]) -> BernoulliPrediction:
        """The prediction of a deterministic network, p = sigmoid(logits): no mutual information.

        Args:
            logits: one for each output.
        """
        probs, complement = logits.sigmoid(), (-logits).sigmoid()
        entropy = torch.special.entr(probs) + torch.special.entr(complement)
        return cls(probs, entropy, torch.zeros_like(entropy), complement)


class _Mixture(LabelPrediction):
    """Σ_i w_i p_i(y): the entropy of the mean, the mean of entropies."""

    averaged: ClassVar[tuple[str, ...]] = ("probs", "aleatoric")

    def __init__(
        self, members: Iterable[LabelPrediction], weights: Sequence[float] | None = None
    ) -> None:
        self._parts = _average(members, weights, self.averaged)

    @property
    def probs(self) -> Float[Tensor, "n c h w"]:
        """Σ_i w_i E p_i."""
        return self._parts["probs"]

    @property
    def aleatoric(self) -> Tensor:
        """Σ_i w_i E H(p_i)."""
        return self._parts["aleatoric"]

    @property
    def mutual_information(self) -> Tensor:
        """The entropy of the mean less the mean of the entropies, never negative."""
        return (self.entropy - self.aleatoric).clamp_min(0)

    def __getitem__(self: _AnyMixture, images: slice) -> _AnyMixture:
        check_slice(self, images)
        part = copy(self)
        part._parts = {name: values[images] for name, values in self._parts.items()}
        return part


class CategoricalMixture(_Mixture, CategoricalLaw):
    """Σ_i w_i p_i(y) of an ensemble or of samples: the entropy of the mean, the mean of entropies.

    Members are taken one at a time and not kept, so that a generator of many costs no memory.

    Args:
        members: the predictions.
        weights: positive, normalised here; equal if left out.
    """

    @property
    def entropy(self) -> Float[Tensor, "n h w"]:
        """H(Σ_i w_i E p_i)."""
        return categorical_entropy(self.probs)


class BernoulliMixture(_Mixture, BernoulliLaw):
    """Σ_i w_i p_i(y) for yes/no outputs; see `CategoricalMixture`.

    Args:
        members: the predictions.
        weights: positive, normalised here; equal if left out.
    """

    averaged: ClassVar[tuple[str, ...]] = ("probs", "complement", "aleatoric")

    @property
    def complement(self) -> Float[Tensor, "n c h w"]:
        """Σ_i w_i E (1 - p_i)."""
        return self._parts["complement"]

    @property
    def entropy(self) -> Float[Tensor, "n c h w"]:
        """H(Σ_i w_i E p_i)."""
        return torch.special.entr(self.probs) + torch.special.entr(self.complement)


def categorical_entropy(probs: Float[Tensor, "n c *pixels"]) -> Float[Tensor, "n *pixels"]:
    """-Σ_k p_k log p_k over axis 1, with 0 log 0 = 0."""
    return torch.special.entr(probs).sum(1)


def _average(
    members: Iterable[LabelPrediction], weights: Sequence[float] | None, names: Sequence[str]
) -> dict[str, Tensor]:
    """Weighted means of these properties, member by member."""
    total, sums = 0.0, dict[str, Tensor]()
    for member, weight in _paired(members, weights):
        parts = {name: getattr(member, name) * weight for name in names}
        sums = {name: sums[name] + part if sums else part for name, part in parts.items()}
        total += weight
    if not sums:
        raise ValueError("A mixture got no members; it wants at least one prediction.")
    return {name: value / total for name, value in sums.items()}


def _paired(
    members: Iterable[LabelPrediction], weights: Sequence[float] | None
) -> Iterable[tuple[LabelPrediction, float]]:
    if weights is None:
        return zip(members, repeat(1.0))
    if not all(weight > 0 for weight in weights):
        raise ValueError(
            f"A mixture got the weights {list(weights)}; it wants positive ones, "
            "leave out the members that should not count."
        )
    return zip(members, weights, strict=True)
