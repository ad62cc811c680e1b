"""KL of a low-rank posterior: the fused pass against the paper's recursion and batched Cholesky.

All three start from the same factors, diagonals and prior blocks and end with the gradients of
mean, factors and diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from measuring import extra_megabytes, seconds, write
from onesigma.block_inverse import recursion
from onesigma.covariance import BlockCovariance, LowRankCovariance
from onesigma.divergence import kl_divergence
from onesigma.field import GaussianField

REPEATS = 3
CASES = {"5 x 5.5e5": (5, 20, 550_000), "33 x 4e4": (33, 20, 40_000)}


class Problem:
    """Random factors and a prior with the paper's image-image correlation."""

    def __init__(self, n: int, rank: int, outputs: int) -> None:
        g = torch.Generator().manual_seed(0)
        self.n = n
        self.factor = torch.randn(n, rank, 1, 1, outputs, generator=g) / rank**0.5
        self.diagonal = 0.05 + 0.2 * torch.rand(n, 1, 1, outputs, generator=g)
        self.mean = torch.randn(n, 1, 1, outputs, generator=g)
        features = 0.2 + 0.02 * torch.randn(n, 4, 1, 1, outputs, generator=g)
        self.prior = 0.1 * torch.eye(n)[:, :, None, None, None].repeat(1, 1, 1, 1, outputs)
        for r in range(4):
            self.prior.addcmul_(features[:, None, r], features[None, :, r])
        for tensor in (self.factor, self.diagonal, self.mean):
            tensor.requires_grad_()

    def step(self, kl: Callable[[Problem], Tensor]) -> None:
        """Forward and backward."""
        for tensor in (self.factor, self.diagonal, self.mean):
            tensor.grad = None
        kl(self).sum().backward()


def fused(problem: Problem) -> Tensor:
    q = GaussianField(problem.mean, LowRankCovariance(problem.factor, problem.diagonal))
    p = GaussianField(torch.zeros_like(problem.mean), BlockCovariance(problem.prior))
    return kl_divergence(q, p)


def dense_blocks(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    factor = problem.factor[:, :, 0, 0]
    sigma = torch.einsum("irp,jrp->pij", factor, factor)
    sigma = sigma + torch.diag_embed(problem.diagonal[:, 0, 0].T)
    return sigma, problem.prior[:, :, 0, 0].permute(2, 0, 1), problem.mean[:, 0, 0].T


def paper(problem: Problem) -> Tensor:
    sigma, prior, d = dense_blocks(problem)
    inverse, logdet = recursion(prior)
    _, own_logdet = recursion(sigma)
    quadratic = ((inverse @ d[..., None]).squeeze(-1) * d).sum(-1)
    trace = (inverse * sigma).sum((1, 2))
    return (trace - problem.n + quadratic + logdet - own_logdet) / 2


def cholesky(problem: Problem) -> Tensor:
    sigma, prior, d = dense_blocks(problem)
    prior_root, root = torch.linalg.cholesky(prior), torch.linalg.cholesky(sigma)
    ratio = torch.linalg.solve_triangular(prior_root, root, upper=False)
    white = torch.linalg.solve_triangular(prior_root, d[..., None], upper=False)
    logs = [r.diagonal(dim1=1, dim2=2).log().sum(1) for r in (prior_root, root)]
    squares = ratio.square().sum((1, 2)) + white.square().sum((1, 2))
    return (squares - problem.n) / 2 + logs[0] - logs[1]


METHODS: dict[str, Callable[[Problem], Tensor]] = {
    "fused": fused,
    "paper": paper,
    "cholesky": cholesky,
}


def gradient_gap(problem: Problem) -> float:
    """Largest relative difference of the factors' gradient between the fused pass and Cholesky."""
    grads = []
    for method in (fused, cholesky):
        problem.step(method)
        assert problem.factor.grad is not None
        grads.append(problem.factor.grad.clone())
    return float((grads[0] - grads[1]).norm() / grads[1].norm())


def compare(n: int, rank: int, outputs: int) -> dict[str, Any]:
    problem = Problem(n, rank, outputs)
    # memory first: what timing leaves behind would be used again
    memory = {
        name: extra_megabytes(lambda m=method: lambda: problem.step(m))  # type: ignore[misc]
        for name, method in METHODS.items()
    }
    times = seconds(
        {name: lambda m=method: problem.step(m) for name, method in METHODS.items()},  # type: ignore[misc]
        REPEATS,
    )
    gap = gradient_gap(problem)
    gradients = 4e-6 * sum(t.numel() for t in (problem.factor, problem.diagonal, problem.mean))
    beyond = {name: value - gradients for name, value in memory.items()}
    return {
        "seconds": times,
        "megabytes beyond inputs": memory,
        "megabytes of the gradients themselves": gradients,
        "times faster than": {k: times[k] / times["fused"] for k in ("paper", "cholesky")},
        "share of working memory of": {
            k: beyond["fused"] / beyond[k] for k in ("paper", "cholesky")
        },
        "relative difference of gradients": gap,
    }


def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    return {name: compare(*case) for name, case in CASES.items()}


if __name__ == "__main__":
    print(write("kl", run()))
