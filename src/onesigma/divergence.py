"""The exact KL divergence between Gaussian fields, forward and backward in one pass over outputs.

For every output (c, h, w), with d = m_q - m_p and n × n matrices Σ of q and K of p,

    KL = ½ [tr(K⁻¹Σ) - n + dᵀK⁻¹d + log|K| - log|Σ|].

Outputs are treated in chunks that stay in cache: the blocks are formed from their factors, inverted
by the sweep and turned into gradients chunk by chunk, so that the only large tensor kept for the
backward pass is the gradient with respect to Σ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from onesigma.block_inverse import mirror_, row_groups, sweep_
from onesigma.covariance import BlockCovariance, Covariance, JointCovariance, LowRankCovariance
from onesigma.field import GaussianField

# matrices of a chunk: in the second-level cache if rows of outputs stay long, else in the third
SMALL_CHUNK, LARGE_CHUNK, LONG_ROW = 1 << 17, 1 << 22, 4096


class NotPositiveDefiniteError(ValueError):
    """A covariance over images is not positive definite at some output."""


def kl_divergence(
    q: GaussianField, p: GaussianField, jitter: float = 0.0
) -> Float[Tensor, "c h w"]:
    """KL(q ‖ p) of every output, exact, with the covariance between images; not reduced.

    KL = ½ [tr(K⁻¹Σ) - n + dᵀK⁻¹d + log|K| - log|Σ|]

    Gradients reach the means, factors, diagonals and blocks of both fields. A prior whose
    covariance has one channel is factorised once for all classes. Half precision is computed and
    returned in float32, since a sum over pixels would overflow.

    Args:
        q: field with a `LowRankCovariance` or `BlockCovariance`.
        p: field over the same images, likewise.
        jitter: variance of white noise added to both fields; the divergence of two noisy fields is
            a lower bound of the divergence without noise.

    Raises:
        NotPositiveDefiniteError: naming field, images, output and pixel.
    """
    _check_pair(q, p)
    q_form, q_tensors = _form(q.covariance, "q")
    p_form, p_tensors = _form(p.covariance, "p")
    if jitter:
        q_tensors, p_tensors = (
            q_form.add_noise(q_tensors, jitter),
            p_form.add_noise(p_tensors, jitter),
        )
    dtype = _working_dtype(q.mean.dtype)
    tensors = [t.to(dtype) for t in (q.mean, p.mean, *q_tensors, *p_tensors)]
    kl, worst_pivots = _FusedKL.apply(q_form, p_form, *tensors)
    _check_pivots(worst_pivots, q, p, jitter)
    return kl


def marginal_divergence(q: GaussianField, p: GaussianField) -> Float[Tensor, "n c h w"]:
    """KL(q(f_i) ‖ p(f_i)) of every image by itself: ½ [v/κ − 1 − log v/κ + (m − μ)²/κ].

    Args:
        q: any field; only its means m and variances v enter.
        p: likewise, μ and κ.
    """
    prior, ratio = p.variance, q.variance / p.variance
    return 0.5 * (ratio - 1 - ratio.log() + (q.mean - p.mean).square() / prior)


class _LowRank:
    """Blocks from factors (n, r, c or 1, p) and diagonals (n, c, p)."""

    size = 2

    @staticmethod
    def add_noise(tensors: tuple[Tensor, ...], noise: float) -> tuple[Tensor, ...]:
        return tensors[0], tensors[1] + noise

    @staticmethod
    def channels(tensors: tuple[Tensor, ...]) -> int:
        return tensors[1].shape[1]

    @staticmethod
    def blocks(tensors: tuple[Tensor, ...], cut: slice, out: Tensor) -> Iterator[Tensor]:
        """Σ_ij = Σ_r g_ri g_rj + δ_ij D_i, class by class; a shared product is formed once."""
        factor, diagonal = tensors[0][..., cut], tensors[1][..., cut]
        own = torch.diagonal(out, dim1=0, dim2=1)
        for c in range(diagonal.shape[1]):
            if c < factor.shape[2]:
                _gram(factor[:, :, c], out)
                squares = own.clone()
            torch.add(squares, diagonal[:, c].movedim(0, -1), out=own)
            yield out

    @staticmethod
    def pull_back(
        grads: tuple[Tensor, ...], tensors: tuple[Tensor, ...], blocks: Tensor, weight: Tensor
    ) -> None:
        """∂g_ri = Σ_j 2∂Σ_ij g_rj,  ∂D_i = ∂Σ_ii for a symmetric 2∂Σ."""
        (d_factor, d_diagonal), (factor, _) = grads, tensors
        own = torch.diagonal(blocks).movedim(-1, 0) * weight
        torch.div(own.sum_to_size(d_diagonal.shape), 2, out=d_diagonal)
        for c, d_sigma in enumerate(_weighted(blocks, weight, factor.shape[2])):
            for top, end in row_groups(len(d_sigma)):
                rows, out = d_sigma[top:end, :, None], d_factor[top:end, :, c]
                torch.mul(rows[:, 0], factor[None, 0, :, c], out=out)
                for j in range(1, len(d_sigma)):
                    out.addcmul_(rows[:, j], factor[None, j, :, c])


def _gram(factor: Tensor, out: Tensor) -> None:
    """Σ_r g_ri g_rj of factors (n, r, p), by rank-one updates that stay in cache."""
    for top, end in row_groups(len(out)):
        rows = out[top:end, :end].zero_()
        for r in range(factor.shape[1]):
            rows.addcmul_(factor[top:end, None, r], factor[None, :end, r])
    mirror_(out)


class _Blocks:
    """Explicit blocks (n, n, c, p)."""

    size = 1

    @staticmethod
    def add_noise(tensors: tuple[Tensor, ...], noise: float) -> tuple[Tensor, ...]:
        eye = torch.eye(len(tensors[0]), dtype=tensors[0].dtype, device=tensors[0].device)
        return (tensors[0] + noise * eye[:, :, None, None],)

    @staticmethod
    def channels(tensors: tuple[Tensor, ...]) -> int:
        return tensors[0].shape[2]

    @staticmethod
    def blocks(tensors: tuple[Tensor, ...], cut: slice, out: Tensor) -> Iterator[Tensor]:
        yield from tensors[0][..., cut].unbind(2)

    @staticmethod
    def pull_back(
        grads: tuple[Tensor, ...], tensors: tuple[Tensor, ...], blocks: Tensor, weight: Tensor
    ) -> None:
        for c, d_sigma in enumerate(_weighted(blocks, weight, grads[0].shape[2])):
            torch.div(d_sigma, 2, out=grads[0][:, :, c])


_Form = type[_LowRank] | type[_Blocks]


def _form(covariance: Covariance, name: str) -> tuple[_Form, tuple[Tensor, ...]]:
    if isinstance(covariance, LowRankCovariance):
        return _LowRank, (covariance.factor.flatten(3), covariance.diagonal.flatten(2))
    if isinstance(covariance, BlockCovariance):
        return _Blocks, (covariance.tensor.flatten(3),)
    raise TypeError(
        f"kl_divergence got a {type(covariance).__name__} for {name}; it needs the covariance "
        "between images: a LowRank- or BlockCovariance (call the model, not its marginals)."
    )


class _Chunk(NamedTuple):
    """Σ, -(Σ⁻¹) and K⁻¹ of one class and some pixels, with the pivots of both inversions."""

    c: int
    cut: slice
    sigma: Tensor
    minus_inverse: Tensor
    precision: Tensor
    q_pivots: Tensor
    p_pivots: Tensor


class _FusedKL(torch.autograd.Function):
    """KL of all outputs; each output's gradient is local to it and formed beside its value."""

    @staticmethod
    def forward(
        ctx: Any, q_form: _Form, p_form: _Form, q_mean: Tensor, p_mean: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        q_tensors, p_tensors = tensors[: q_form.size], tensors[q_form.size :]
        difference = (q_mean - p_mean).flatten(2)
        n, classes, pixels = difference.shape
        kl = difference.new_empty(classes, pixels)
        pivots = difference.new_empty(2, classes, pixels)
        needs_q = any(ctx.needs_input_grad[4 : 4 + q_form.size])
        needs_p = any(ctx.needs_input_grad[4 + q_form.size :])
        d_q = difference.new_empty(n, n, classes, pixels) if needs_q else None
        d_p = difference.new_empty(n, n, classes, pixels) if needs_p else None
        for chunk in _inverted_chunks(q_form, q_tensors, p_form, p_tensors, difference.shape):
            c, cut, sigma, minus_inverse, precision, *both_pivots = chunk
            d = difference[:, c, cut]
            # K⁻¹d, the gradient with respect to m_q
            weighted = _product(precision, d[:, None]).squeeze(1)
            # ½ [tr(K⁻¹Σ) - n + dᵀK⁻¹d + log|K| - log|Σ|]
            q_logdet, p_logdet = (pivot.log().sum(0) for pivot in both_pivots)
            squares = _trace(precision, sigma) + (d * weighted).sum(0)
            kl[c, cut] = (squares - n + p_logdet - q_logdet) / 2
            difference[:, c, cut] = weighted  # in the place of d, which is done with
            pivots[0, c, cut], pivots[1, c, cut] = (pivot.amin(0) for pivot in both_pivots)
            if d_q is not None:
                # 2 ∂KL/∂Σ = K⁻¹ - Σ⁻¹
                torch.add(precision, minus_inverse, out=d_q[:, :, c, cut])
            if d_p is not None:
                d_p[:, :, c, cut] = _prior_gradient(sigma, precision, weighted)
        ctx.forms = q_form, p_form
        ctx.save_for_backward(difference, d_q, d_p, *tensors)
        ctx.mean_shape = q_mean.shape
        ctx.mark_non_differentiable(pivots)
        return kl.view(q_mean.shape[1:]), pivots.view(2, *q_mean.shape[1:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_kl: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q_form, p_form = ctx.forms
        d_mean, d_q, d_p, *tensors = ctx.saved_tensors
        grad_kl = grad_kl.flatten(1)
        grad_mean = (d_mean * grad_kl).view(ctx.mean_shape)
        q_tensors, p_tensors = tuple(tensors[: q_form.size]), tuple(tensors[q_form.size :])
        q_grads = _pull_back(q_form, q_tensors, d_q, grad_kl)
        p_grads = _pull_back(p_form, p_tensors, d_p, grad_kl)
        return None, None, grad_mean, -grad_mean, *q_grads, *p_grads


def _trace(left: Tensor, right: Tensor) -> Tensor:
    """tr(AB) of symmetric matrices (n, n, p), row by row without a temporary of all products."""
    return torch.stack([(a * b).sum(0) for a, b in zip(left, right, strict=True)]).sum(0)


def _prior_gradient(sigma: Tensor, inverse: Tensor, weighted: Tensor) -> Tensor:
    """2 ∂KL/∂K = K⁻¹ - K⁻¹ΣK⁻¹ - K⁻¹d dᵀK⁻¹."""
    outer = weighted[:, None] * weighted[None]
    return inverse - outer - _product(_product(inverse, sigma), inverse)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Σ_j A_ij B_jk of matrices (i, j, p) and (j, k, p), without a temporary of all products."""
    out = left.new_zeros(left.shape[0], *right.shape[1:])
    for j in range(len(right)):
        out.addcmul_(left[:, j, None], right[None, j])
    return out


def _pull_back(
    form: _Form, tensors: tuple[Tensor, ...], d_blocks: Tensor | None, grad_kl: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of a covariance's tensors from twice its blocks'; classes that share one add up."""
    if d_blocks is None:
        return (None,) * form.size
    grads = tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors)
    for cut in _chunks(len(d_blocks), grad_kl.shape[1]):
        d_here, here = (tuple(t[..., cut] for t in each) for each in (grads, tensors))
        form.pull_back(d_here, here, d_blocks[..., cut], grad_kl[:, cut])
    return grads


def _weighted(blocks: Tensor, weight: Tensor, channels: int) -> Iterator[Tensor]:
    """Blocks (n, n, c, p) times weights (c, p), class by class, or their sum for one channel."""
    for c in range(channels):
        total = blocks[:, :, c] * weight[c]
        for other in range(1, blocks.shape[2] if channels == 1 else 1):
            total.addcmul_(blocks[:, :, other], weight[other])
        yield total


def _inverted_chunks(
    q_form: _Form,
    q_tensors: tuple[Tensor, ...],
    p_form: _Form,
    p_tensors: tuple[Tensor, ...],
    shape: torch.Size,
) -> Iterator[_Chunk]:
    """Walk over (class, chunk of pixels); what the classes share is inverted once per chunk."""
    n, classes, pixels = shape
    q_shared, p_shared = q_form.channels(q_tensors) == 1, p_form.channels(p_tensors) == 1
    cuts = _chunks(n, pixels)
    desk = q_tensors[0].new_empty(4, n, n, cuts[0].stop)  # used again: new memory is slow
    for cut in cuts:
        q_desk, minus_inverse, p_desk, precision = desk[..., : cut.stop - cut.start]
        q_blocks = q_form.blocks(q_tensors, cut, q_desk)
        p_blocks = p_form.blocks(p_tensors, cut, p_desk)
        for c in range(classes):
            if c == 0 or not q_shared:
                sigma = next(q_blocks)
                q_pivots = sweep_(minus_inverse.copy_(sigma))
                mirror_(minus_inverse)
            if c == 0 or not p_shared:
                p_pivots = sweep_(precision.copy_(next(p_blocks)))
                mirror_(precision.neg_())
            yield _Chunk(c, cut, sigma, minus_inverse, precision, q_pivots, p_pivots)


def _chunks(n: int, pixels: int) -> list[slice]:
    size = max(SMALL_CHUNK // (n * n), min(LONG_ROW, max(LARGE_CHUNK // (n * n), 1)))
    size = -(-pixels // -(-pixels // size))  # equal chunks, no small rest
    return [slice(start, min(start + size, pixels)) for start in range(0, pixels, size)]


def _working_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype


def _check_pair(q: GaussianField, p: GaussianField) -> None:
    if q.mean.shape != p.mean.shape:
        raise ValueError(
            f"kl_divergence got q over {tuple(q.mean.shape)} and p over {tuple(p.mean.shape)} "
            "(images, outputs, height, width); both must be fields over the same images, context "
            "included: p = prior(torch.cat([images, context]))."
        )


def _check_pivots(pivots: Tensor, q: GaussianField, p: GaussianField, jitter: float) -> None:
    """One look at all pivots of the call; the culprit is found again only when there is one."""
    bad = ~(pivots > 0)
    if not bool(bad.any()):
        return
    which, c, h, w = bad.nonzero()[0].tolist()
    name, field = ("q", q) if which == 0 else ("p", p)
    raise NotPositiveDefiniteError(
        _diagnosis(name, field, (c, h, w), int(bad[which].sum()), jitter)
    )


def _diagnosis(
    name: str, field: GaussianField, output: tuple[int, int, int], count: int, jitter: float
) -> str:
    assert isinstance(field.covariance, JointCovariance)
    c, h, w = output
    _, channels, height, width = field.covariance.shape
    position = ((0 if channels == 1 else c) * height + h) * width + w
    matrix = field.covariance.blocks(slice(position, position + 1))[..., 0].detach().double()
    if not bool(matrix.isfinite().all()):
        image = int((~matrix.isfinite()).sum(0).argmax())
        return (
            f"The covariance of {name} is no number (NaN or infinite) at output {c}, pixel "
            f"({h}, {w}) (and {count - 1} other outputs), image {image}: look for NaN in the "
            "images, then in the weights, which a step that was too long may have broken."
        )
    image = _first_dependent(matrix + jitter * torch.eye(len(matrix), dtype=torch.float64))
    correlation = (
        matrix[image] / (matrix.diagonal() * matrix[image, image]).clamp_min(1e-300).sqrt()
    )
    correlation[image] = 0
    partner = int(correlation.abs().argmax())
    return (
        f"The covariance of {name} is not positive definite at output {c}, pixel ({h}, {w}) "
        f"(and {count - 1} other outputs): image {image}, given the images before it, has no "
        f"variance left (variance {float(matrix[image, image]):.3g}, correlation "
        f"{float(correlation[partner]):.6f} with image {partner}). Equal images need a positive "
        "diagonal: raise min_diagonal of the posterior or noise of the prior, or pass jitter=1e-6."
    )


def _first_dependent(matrix: Tensor) -> int:
    """The first image whose pivot is not positive (the last one if rounding hid it in float64)."""
    for size in range(1, len(matrix) + 1):
        _, info = torch.linalg.cholesky_ex(matrix[:size, :size])
        if int(info) or not bool(matrix[:size, :size].isfinite().all()):
            return size - 1
    return len(matrix) - 1
