"""Where a loss stopped being finite: the term, the image and the pixel."""

from __future__ import annotations

from torch import Tensor

from onesigma.training.method import Batch, Terms


def describe_non_finite(batch: Batch, terms: Terms | None, error: Exception | None = None) -> str:
    """A clause that names what is not finite.

    Args:
        batch: that was trained on.
        terms: of its loss, if they could be computed.
        error: why they could not.
    """
    cause = _in_input(batch)
    if cause is not None:
        return cause
    if terms is None:
        return f"the term kl cannot be computed ({error})"
    for name, values in terms.maps.items():
        place = _first(values)
        if place is not None:
            return _in_term(name, values, place, batch)
    if terms.kl is not None and not bool(terms.kl.isfinite()):
        return "the term kl is not finite"
    return f"the term fit is not finite; the batch was {_listed(batch)}"


def _in_input(batch: Batch) -> str | None:
    place = _first(batch.images)
    if place is not None:
        n, channel, row, col = place
        return (
            f"the term fit is not finite because the image {_name(batch, n)!r} holds "
            f"{float(batch.images[n, channel, row, col])} at row {row}, column {col}"
        )
    return None


def _in_term(name: str, values: Tensor, place: list[int], batch: Batch) -> str:
    *front, row, col = place
    where = f"at row {row}, column {col}"
    if name.startswith("fit"):
        return (
            f"the term {name} is {float(values[tuple(place)])} in the image "
            f"{_name(batch, front[0])!r} {where}"
        )
    return (
        f"the term {name} of output {front[0]} is {float(values[tuple(place)])} {where}; the "
        f"batch was {_listed(batch)}"
    )


def _first(values: Tensor) -> list[int] | None:
    """The index of the first value that is not finite."""
    broken = (~values.detach().isfinite()).nonzero()
    return [int(i) for i in broken[0]] if len(broken) else None


def _name(batch: Batch, n: int) -> str:
    return batch.names[n] if n < len(batch.names) else f"number {n} of the batch"


def _listed(batch: Batch) -> str:
    return ", ".join(repr(_name(batch, n)) for n in range(len(batch.images)))
