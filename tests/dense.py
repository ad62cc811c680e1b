"""The slow and obvious twin: a field as one big multivariate normal over all outputs and images."""

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl

from onesigma.field import GaussianField


def dense_covariance(field: GaussianField) -> Tensor:
    """The (n·c·h·w)² matrix, filled entry by entry of its block structure."""
    n, c, h, w = field.mean.shape
    blocks = field.covariance.blocks().expand(n, n, c, h, w)  # type: ignore[attr-defined]
    outputs = c * h * w
    full = blocks.new_zeros(n, outputs, n, outputs)
    for i in range(n):
        for j in range(n):
            full[i, torch.arange(outputs), j, torch.arange(outputs)] = blocks[i, j].reshape(-1)
    return full.reshape(n * outputs, n * outputs)


def dense_kl(q: GaussianField, p: GaussianField) -> Tensor:
    """KL over everything at once, by torch.distributions."""
    return kl.kl_divergence(
        MultivariateNormal(q.mean.reshape(-1), dense_covariance(q)),
        MultivariateNormal(p.mean.reshape(-1), dense_covariance(p)),
    )
