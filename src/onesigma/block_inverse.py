"""Inverses and log-determinants of many small symmetric matrices, image axes leading.

`sweep` is what the library runs. `recursion` is the paper's algorithm with its slips corrected (the
Schur complement has K⁻¹, the off-diagonal block has a minus sign), kept as a twin for tests and
benchmarks: evaluated as printed it costs O(n⁴) per output and loses digits in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

ROW_GROUP = 6


class Swept(NamedTuple):
    """Inverses, log-determinants, and the smallest pivot of each matrix.

    A pivot that is not positive means that the matrix is not positive definite.
    """

    inverse: Tensor
    logdet: Tensor
    worst_pivot: Tensor


def sweep_(matrices: Float[Tensor, "n n p"]) -> Swept:
    """Invert in place by the sweep operator: O(n³) per output, no pivoting, symmetric throughout.

    For each k, with d = A_kk:  A ← A - A_:k A_k: / d,  A_:k, A_k: ← A_:k / d,  A_kk ← -1/d.
    After the last k, A is -(A⁻¹), and the d are the squared pivots of the Cholesky factorisation.
    Only the lower triangle is kept up to date, in groups of rows.

    Args:
        matrices: overwritten by their inverses.
    """
    n = len(matrices)
    groups = row_groups(n)
    pivots = matrices.new_empty(n, matrices.shape[2])
    for k in range(n):
        column = torch.cat([matrices[k, : k + 1], matrices[k + 1 :, k]])
        pivots[k] = column[k]
        row = column / column[k]
        for top, end in groups:
            matrices[top:end, :end].addcmul_(column[top:end, None], row[None, :end], value=-1)
        matrices[k, : k + 1] = row[: k + 1]
        matrices[k + 1 :, k] = row[k + 1 :]
        matrices[k, k] = -pivots[k].reciprocal()
    mirror_(matrices, groups)
    return Swept(matrices.neg_(), pivots.log().sum(0), pivots.amin(0))


def row_groups(n: int) -> list[tuple[int, int]]:
    """Rows top:end whose columns :end are treated together: little beyond the lower triangle."""
    return [(top, min(top + ROW_GROUP, n)) for top in range(0, n, ROW_GROUP)]


def mirror_(matrices: Float[Tensor, "n n p"], groups: list[tuple[int, int]]) -> None:
    """Copy the lower triangle, filled by groups of rows, to the upper one."""
    for top, end in groups:
        block = matrices[top:end, top:end]
        for i in range(end - top):
            block[:i, i] = block[i, :i]
        matrices[:top, top:end] = matrices[top:end, :top].transpose(0, 1)


def recursion(
    matrices: Float[Tensor, "p n n"],
) -> tuple[Float[Tensor, "p n n"], Float[Tensor, "p"]]:
    """Invert image by image with the block formulas of the paper (section 4), corrected.

    S = K_{n+1,n+1} - kᵀ K⁻¹ k,  A = K⁻¹(I + k S⁻¹ kᵀ K⁻¹),  B = -K⁻¹ k S⁻¹,
    det K_{:n+1} = det K_{:n} · S.
    """
    inverse = matrices[:, :1, :1].reciprocal()
    logdet = matrices[:, 0, 0].log()
    for n in range(1, matrices.shape[-1]):
        k = matrices[:, :n, n : n + 1]
        kt = k.transpose(1, 2)
        schur = matrices[:, n : n + 1, n : n + 1] - kt @ inverse @ k
        identity = torch.eye(n, dtype=matrices.dtype, device=matrices.device)
        top_left = inverse @ (identity + k @ schur.reciprocal() @ kt @ inverse)
        right = -inverse @ k @ schur.reciprocal()
        top = torch.cat([top_left, right], 2)
        bottom = torch.cat([right.transpose(1, 2), schur.reciprocal()], 2)
        inverse = torch.cat([top, bottom], 1)
        logdet = logdet + schur[:, 0, 0].log()
    return inverse, logdet
