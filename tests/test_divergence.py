from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from dense import dense_kl
from onesigma.block_inverse import mirror_, recursion, sweep_
from onesigma.covariance import BlockCovariance, LowRankCovariance
from onesigma.divergence import NotPositiveDefiniteError, kl_divergence
from onesigma.field import GaussianField

SHAPE = (3, 2, 2)


def leaves(kind: str, n: int, channels: int, seed: int) -> list[Tensor]:
    """The tensors a covariance of this kind is made of, ready for gradients."""
    g = torch.Generator().manual_seed(seed)
    _, h, w = SHAPE
    if kind == "shared factor":
        factor, diagonal = leaves("low rank", n, channels, seed)
        return [factor[:, :, :1].detach().clone().requires_grad_(), diagonal]
    if kind == "low rank":
        factor = torch.randn(n, 3, channels, h, w, generator=g, dtype=torch.float64)
        diagonal = torch.rand(n, channels, h, w, generator=g, dtype=torch.float64) + 0.1
        return [factor.requires_grad_(), diagonal.requires_grad_()]
    root = torch.randn(n, n + 2, channels, h, w, generator=g, dtype=torch.float64)
    blocks = torch.einsum("ikchw,jkchw->ijchw", root, root) / n
    return [blocks.requires_grad_()]


def field(mean: Tensor, tensors: list[Tensor]) -> GaussianField:
    covariance = LowRankCovariance(*tensors) if len(tensors) == 2 else BlockCovariance(*tensors)
    return GaussianField(mean, covariance)


def means(n: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(7)
    return [
        torch.randn(n, *SHAPE, generator=g, dtype=torch.float64).requires_grad_() for _ in range(2)
    ]


def symmetric(grad: Tensor, tensor: Tensor) -> Tensor:
    """Gradients of explicit blocks are compared on symmetric directions only."""
    return grad + grad.transpose(0, 1) if tensor.ndim == 5 and len(grad) == grad.shape[1] else grad


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(
    ("q_kind", "q_channels", "p_kind", "p_channels"),
    [
        (*q, *p)
        for q, p in itertools.product(
            itertools.product(["low rank", "block", "shared factor"], [1, 3]),
            itertools.product(["block", "low rank", "shared factor"], [1, 3]),
        )
    ],
)
def test_value_and_all_gradients_equal_the_dense_normal(  # type: ignore[no-untyped-def]
    n, q_kind, q_channels, p_kind, p_channels
) -> None:
    q_mean, p_mean = means(n)
    q_leaves, p_leaves = leaves(q_kind, n, q_channels, 1), leaves(p_kind, n, p_channels, 2)
    everything = [q_mean, p_mean, *q_leaves, *p_leaves]
    ours = kl_divergence(field(q_mean, q_leaves), field(p_mean, p_leaves))
    dense = dense_kl(field(q_mean, q_leaves), field(p_mean, p_leaves))
    assert ours.shape == SHAPE
    torch.testing.assert_close(ours.sum(), dense, rtol=1e-10, atol=1e-10)
    our_grads = torch.autograd.grad(ours.sum(), everything)
    dense_grads = torch.autograd.grad(dense, everything)
    for tensor, a, b in zip(everything, our_grads, dense_grads, strict=True):
        torch.testing.assert_close(
            symmetric(a, tensor), symmetric(b, tensor), rtol=1e-10, atol=1e-10
        )


def test_each_output_has_its_own_divergence() -> None:
    q_mean, p_mean = means(4)
    q_leaves, p_leaves = leaves("low rank", 4, 3, 1), leaves("block", 4, 1, 2)
    q, p = field(q_mean, q_leaves), field(p_mean, p_leaves)
    kl = kl_divergence(q, p)
    for c, i, j in itertools.product(*map(range, SHAPE)):
        one_q = field(
            q_mean[:, c : c + 1, i : i + 1, j : j + 1],
            [t[..., c : c + 1, i : i + 1, j : j + 1] for t in q_leaves],
        )
        one_p = field(
            p_mean[:, c : c + 1, i : i + 1, j : j + 1],
            [t[..., :1, i : i + 1, j : j + 1] for t in p_leaves],
        )
        torch.testing.assert_close(kl[c, i, j], dense_kl(one_q, one_p))


@pytest.mark.parametrize("kind", ["low rank", "shared factor", "block"])
@pytest.mark.parametrize("channels", [1, 3])
def test_each_output_has_its_own_upstream_gradient(kind, channels) -> None:  # type: ignore[no-untyped-def]
    n = 3
    q_mean, p_mean = means(n)
    q_leaves, p_leaves = leaves(kind, n, channels, 1), leaves("low rank", n, 1, 2)
    weights = torch.rand(SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def weighted(mean: Tensor, *tensors: Tensor) -> Tensor:
        # finite differences must stay among symmetric blocks
        even = [(t + t.transpose(0, 1)) / 2 if kind == "block" else t for t in tensors]
        return (kl_divergence(field(mean, even), field(p_mean, p_leaves)) * weights).sum()

    torch.autograd.gradcheck(weighted, (q_mean, *q_leaves))


@pytest.mark.parametrize("n", [2, 3, 5, 9, 17, 33, 64])
def test_float32_is_right_to_five_digits(n) -> None:  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(n)
    factor = 0.3 * torch.randn(n, 20, 2, 10, 12, generator=g) / 20**0.5
    diagonal = 1e-3 + 0.2 * torch.rand(n, 2, 10, 12, generator=g)
    mean = torch.randn(n, 2, 10, 12, generator=g)
    # entries around 0.15, image-image correlations of 0.99: the paper's prior, white noise 0.1
    features = 0.19 + 0.02 * torch.randn(n, 4, 1, 10, 12, generator=g)
    blocks = torch.einsum("irchw,jrchw->ijchw", features, features)
    blocks = blocks + 0.1 * torch.eye(n)[:, :, None, None, None]
    exact = [t.double().requires_grad_() for t in (mean, factor, diagonal, blocks)]
    single = [t.clone().requires_grad_() for t in (mean, factor, diagonal, blocks)]

    def kl(tensors: list[Tensor]) -> Tensor:
        m, f, d, k = tensors
        return kl_divergence(field(m, [f, d]), field(torch.ones_like(m), [k]))

    truth, value = kl(exact), kl(single)
    assert value.dtype == torch.float32
    assert ((value - truth).abs() / truth).max() < 1e-5
    for a, b in zip(
        torch.autograd.grad(value.sum(), single),
        torch.autograd.grad(truth.sum(), exact),
        strict=True,
    ):
        assert (a - b).norm() / b.norm() < 1e-5


def test_chunks_do_not_show() -> None:
    """Many times the pixels of one chunk, two of them repeated at both ends."""
    g = torch.Generator().manual_seed(0)
    factor = torch.randn(5, 3, 2, 90, 150, generator=g, dtype=torch.float64)
    diagonal = torch.rand(5, 2, 90, 150, generator=g, dtype=torch.float64) + 0.1
    mean = torch.randn(5, 2, 90, 150, generator=g, dtype=torch.float64)
    for tensor in (factor, diagonal, mean):
        tensor[..., -1, -1] = tensor[..., 0, 0]
        tensor.requires_grad_()
    prior = torch.eye(5, dtype=torch.float64)[:, :, None, None, None].repeat(1, 1, 1, 90, 150)
    kl = kl_divergence(field(mean, [factor, diagonal]), field(torch.zeros_like(mean), [prior]))
    torch.testing.assert_close(kl[:, 0, 0], kl[:, -1, -1], rtol=1e-14, atol=0)
    kl.sum().backward()
    for tensor in (factor, diagonal, mean):
        assert tensor.grad is not None
        torch.testing.assert_close(
            tensor.grad[..., 0, 0], tensor.grad[..., -1, -1], rtol=1e-14, atol=0
        )


def test_equal_images_with_a_positive_diagonal_are_fine() -> None:
    mean, _ = means(2)
    factor, diagonal = leaves("low rank", 2, 3, 1)
    twice = [factor[:1].expand(2, *factor.shape[1:]), diagonal[:1].expand(2, *diagonal.shape[1:])]
    same = field(mean[:1].expand(2, *SHAPE), twice)
    noisy = torch.full((2, 2, 1, 2, 2), 0.15, dtype=torch.float64)
    noisy = noisy + 0.1 * torch.eye(2, dtype=torch.float64)[:, :, None, None, None]
    kl = kl_divergence(same, field(torch.zeros(2, *SHAPE, dtype=torch.float64), [noisy]))
    kl.sum().backward()
    assert kl.isfinite().all()
    assert factor.grad is not None
    assert factor.grad.isfinite().all()


def test_what_is_not_positive_definite_is_named() -> None:
    mean, other = (m.detach() for m in means(4))
    good = [t.detach() for t in leaves("low rank", 4, 3, 1)]
    bad = torch.eye(4, dtype=torch.float64)[:, :, None, None, None].repeat(1, 1, 3, 2, 2)
    bad[0, 2, 1, 1, 0] = bad[2, 0, 1, 1, 0] = 1.0
    with pytest.raises(
        NotPositiveDefiniteError,
        match=r"of p .* output 1, pixel \(1, 0\) .*image 2.* with image 0",
    ):
        kl_divergence(field(mean, good), field(other, [bad]))
    with pytest.raises(NotPositiveDefiniteError, match=r"of q "):
        kl_divergence(field(mean, [bad]), field(other, good))
    assert kl_divergence(field(mean, good), field(other, [bad]), jitter=1e-3).isfinite().all()
    bad[3, 3, 0, 0, 0] = float("nan")
    with pytest.raises(NotPositiveDefiniteError, match=r"output 0, pixel \(0, 0\).* image 3"):
        kl_divergence(field(mean, good), field(other, [bad]))


def test_jitter_is_white_noise_on_both() -> None:
    mean, other = means(3)
    q, p = leaves("low rank", 3, 3, 1), leaves("block", 3, 1, 2)
    eye = 0.2 * torch.eye(3, dtype=torch.float64)[:, :, None, None, None]
    torch.testing.assert_close(
        kl_divergence(field(mean, q), field(other, p), jitter=0.2),
        kl_divergence(field(mean, [q[0], q[1] + 0.2]), field(other, [p[0] + eye])),
    )


@pytest.mark.usefixtures("as_users_call")
def test_a_field_against_itself_and_against_what_it_is_not() -> None:
    mean, _ = means(4)
    q = field(mean, leaves("low rank", 4, 3, 1))
    assert kl_divergence(q, q).abs().max() < 1e-12
    _, diagonal = leaves("low rank", 4, 3, 1)
    independent = field(mean, [torch.empty(4, 0, *SHAPE, dtype=torch.float64), diagonal])
    assert kl_divergence(independent, independent).abs().max() < 1e-12
    with pytest.raises(TypeError, match="call the model, not its marginals"):
        kl_divergence(q.marginals(), q)
    with pytest.raises(ValueError, match="same images"):
        kl_divergence(q, q[:2])


def test_half_precision_is_computed_in_single() -> None:
    mean, other = (m.detach() for m in means(3))
    q, p = leaves("low rank", 3, 3, 1), leaves("low rank", 3, 1, 2)
    half = [t.detach().bfloat16() for t in (mean, other, *q, *p)]

    def kl(m: Tensor, o: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return kl_divergence(field(m, [a, b]), field(o, [c, d]))

    value, wanted = kl(*half), kl(*[t.float() for t in half])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 20])
def test_sweep_and_recursion_invert(n) -> None:  # type: ignore[no-untyped-def]
    g = torch.Generator().manual_seed(n)
    root = torch.randn(11, n, n + 3, generator=g, dtype=torch.float64)
    matrices = root @ root.mT
    swept = matrices.permute(1, 2, 0).clone(memory_format=torch.contiguous_format)
    pivots = sweep_(swept)
    mirror_(swept)
    inverse, logdet = recursion(matrices)
    identity = torch.eye(n, dtype=torch.float64).expand(11, n, n)
    torch.testing.assert_close(-swept.permute(2, 0, 1) @ matrices, identity)
    torch.testing.assert_close(inverse @ matrices, identity)
    torch.testing.assert_close(pivots.log().sum(0), torch.linalg.slogdet(matrices).logabsdet)
    torch.testing.assert_close(logdet, torch.linalg.slogdet(matrices).logabsdet)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_no_number_is_called_so(bad: float) -> None:
    ones = torch.ones(3, 2, 4, 5)
    factor = torch.zeros(3, 1, 2, 4, 5)
    p = GaussianField(ones, LowRankCovariance(factor.clone(), ones))
    factor[1, 0, 1, 2, 3] = bad
    q = GaussianField(ones, LowRankCovariance(factor, ones))
    with pytest.raises(NotPositiveDefiniteError, match=r"NaN.*output 1, pixel \(2, 3\).*image 1"):
        kl_divergence(q, p)
