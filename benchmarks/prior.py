"""The paper's prior on 5 images of 3×224×224 against propagating all pairs the plain way.

The plain way: all n² ordered pairs, variances of both arguments beside them, box sums by conv2d
with a kernel of ones, the ReLU kernel with acos. Same result.

Fresh memory has to be mapped page by page, which costs the plain way nearly half of its time. So
times are taken twice: in a fresh process, and warm, where the process keeps what it has freed, as
it does after other large work.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate

from measuring import extra_megabytes, seconds, write
from onesigma import kernels
from onesigma.priors import CNNGPPrior

IMAGES, SIZE = 5, 224
State = tuple[Tensor, Tensor, Tensor]  # cov(x, y) of all ordered pairs, var(x), var(y)


def each(state: State, function: Callable[[Tensor], Tensor]) -> State:
    def apply(maps: Tensor) -> Tensor:
        out = function(maps.reshape(-1, 1, *maps.shape[-2:]))
        return out.reshape(*maps.shape[:-2], *out.shape[-2:])

    xy, xx, yy = (apply(maps) for maps in state)
    return xy, xx, yy


def convolution(state: State, size: int = 3) -> State:
    ones = torch.ones(1, 1, size, size, dtype=state[0].dtype)
    return each(state, lambda maps: conv2d(maps, ones) * 0.2 + 0.08)


def relu(state: State) -> State:
    xy, xx, yy = state
    product = xx[:, None] * yy[None]
    cosine = (xy * product.rsqrt()).clamp(-1, 1)
    sine = (1 - cosine.square()).clamp_min(0).sqrt()
    xy = product.sqrt() * (sine + (math.pi - cosine.acos()) * cosine) / (2 * math.pi)
    return xy, xx / 2, yy / 2


def resize(state: State, mode: str, size: int) -> State:
    corners = False if mode == "bilinear" else None
    return each(
        state, lambda maps: interpolate(maps, (size, size), mode=mode, align_corners=corners)
    )


def all_pairs(x: Tensor, mode: str) -> Tensor:
    state = (x[:, None] * x[None]).mean(2), x.square().mean(1), x.square().mean(1)
    for _ in range(10):
        state = relu(convolution(state))
    for part in (20, 40, 60, 80):
        state = relu(convolution(resize(state, mode, SIZE * part // 100)))
    xy, _, _ = convolution(resize(state, mode, SIZE), size=1)
    return xy


def keep_freed_memory() -> None:
    """From now on no memory goes back to the system (glibc: M_MMAP_MAX = 0, M_TRIM_THRESHOLD)."""
    allocator = ctypes.CDLL(None)
    if not (allocator.mallopt(-4, 0) and allocator.mallopt(-1, 2**31 - 1)):
        raise OSError("The allocator does not keep freed memory; the warm times need glibc.")


def methods(x: Tensor, mode: str) -> dict[str, Callable[[], Any]]:
    prior = CNNGPPrior(kernels.paper_kernel(SIZE, SIZE, upsample=mode), 1, noise=0.0)  # type: ignore[arg-type]
    return {"packed": lambda: prior(x), "all pairs": lambda: all_pairs(x, mode)}


def times(x: Tensor, mode: str) -> dict[str, Any]:
    medians = seconds(methods(x, mode), repeats=31)
    return {"seconds": medians, "times faster": medians["all pairs"] / medians["packed"]}


def costs(x: Tensor, mode: str) -> dict[str, Any]:
    exact, ways = all_pairs(x.double(), mode), methods(x, mode)
    results = {
        "packed": ways["packed"]().covariance.blocks()[:, :, 0],
        "all pairs": ways["all pairs"](),
    }
    return {
        "megabytes": {k: extra_megabytes(lambda m=m: m) for k, m in ways.items()},  # type: ignore[misc]
        "largest relative error in float32": {
            k: float((result / exact - 1).abs().max()) for k, result in results.items()
        },
    }


@torch.no_grad()
def run() -> dict[str, Any]:
    torch.set_num_threads(1)
    x = torch.rand(IMAGES, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    modes = ("nearest", "bilinear")
    fresh = {mode: times(x, mode) for mode in modes}
    other = {mode: costs(x, mode) for mode in modes}
    keep_freed_memory()
    return {
        "images": list(x.shape),
        **{
            f"{mode}, 1 thread": {"fresh": fresh[mode], "warm": times(x, mode), **other[mode]}
            for mode in modes
        },
    }


if __name__ == "__main__":
    print(write("prior", run()))
