"""Inverses and log-determinants of many small symmetric matrices, image axes leading.

`sweep_` is what the library runs. `recursion` is the paper's algorithm with its slips corrected
(the Schur complement has K⁻¹, the off-diagonal block has a minus sign), kept as a twin for tests
and benchmarks: evaluated as printed it costs O(n⁴) per output and loses digits in float32.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

ROW_GROUP = 6


def sweep_(matrices: Float[Tensor, "n n p"]) -> Float[Tensor, "n p"]:
    """Turn A into -(A⁻¹) in place, in the lower triangle: O(n³) per output, no pivoting.

    For each k, with d = A_kk and v = A_:k / √d:  A ← A - v vᵀ,  A_:k, A_k: ← v / √d,  A_kk ← -1/d.

    Args:
        matrices: only the lower triangle is read; the upper one is left as it falls.

    Returns:
        The pivots d, the squared diagonal of the Cholesky factor. One that is not positive means
        that the matrix is not positive definite.
    """
    n, _, outputs = matrices.shape
    pivots, v = matrices.new_empty(2, n, outputs)
    tiles = [(matrices[a:b, :b], v[a:b, None], v[None, :b]) for a, b in row_groups(n)]
    for k in range(n):
        left, below = matrices[k, : k + 1], matrices[k + 1 :, k]
        pivots[k] = matrices[k, k]
        root = pivots[k].rsqrt()
        torch.mul(left, root, out=v[: k + 1])
        torch.mul(below, root, out=v[k + 1 :])
        for tile, rows, columns in tiles:
            tile.addcmul_(rows, columns, value=-1)
        torch.mul(v[: k + 1], root, out=left)
        torch.mul(v[k + 1 :], root, out=below)
        torch.mul(root, -root, out=matrices[k, k])
    return pivots


def row_groups(n: int) -> list[tuple[int, int]]:
    """Rows top:end whose columns :end are treated together: little beyond the lower triangle."""
    return [(top, min(top + ROW_GROUP, n)) for top in range(0, n, ROW_GROUP)]


def mirror_(matrices: Float[Tensor, "n n p"]) -> None:
    """Copy the lower triangle to the upper one."""
    for i in range(1, len(matrices)):
        matrices[:i, i] = matrices[i, :i]


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
