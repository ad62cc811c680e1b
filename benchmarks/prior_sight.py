"""How much each kernel sees of photographs: `python benchmarks/prior_sight.py FOLDER`.

The folder holds frames of videos in order. Five neighbouring pairs are taken at equal distances;
"near" is the correlation within a pair, "far" between pairs, "noisy" between an image and itself
plus noise of deviation 0.3.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from measuring import write
from onesigma import kernels
from onesigma.priors import CNNGPPrior, prior_report

PAIRS = 5


def read(folder: Path) -> Tensor:
    files = sorted(path for path in folder.iterdir() if path.suffix in {".jpg", ".png"})
    step = len(files) // PAIRS
    chosen = [files[i * step + j] for i in range(PAIRS) for j in range(2)]
    arrays = [np.asarray(Image.open(path).convert("RGB")) for path in chosen]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255


def correlations(prior: CNNGPPrior, x: Tensor) -> Tensor:
    blocks = prior.covariance(x).squeeze(2)
    deviation = torch.einsum("iihw->ihw", blocks).sqrt()
    return blocks / (deviation[:, None] * deviation[None])


def look(kernel: kernels.Layer, x: Tensor) -> dict[str, Any]:
    prior = CNNGPPrior(kernel, outputs=1)
    report = prior_report(prior, x)
    rho = correlations(prior, x)
    i, j = torch.triu_indices(len(x), len(x), offset=1)
    pair = i // 2 == j // 2
    noise = 0.3 * torch.randn(x[::2].shape, generator=torch.Generator().manual_seed(0))
    noisy = correlations(prior, torch.cat([x[::2], x[::2] + noise]))
    return {
        "correlation quantiles": {f"{100 * q:g} %": v for q, v in report.correlation.items()},
        "near": float(rho[i[pair], j[pair]].median()),
        "far": float(rho[i[~pair], j[~pair]].median()),
        "noisy": float(noisy[range(PAIRS), range(PAIRS, 2 * PAIRS)].median()),
        "effective rank": report.effective_rank,
        "variance range": [report.variance[0.0], report.variance[1.0]],
    }


def pixel_correlations(image: Tensor, width: int = 128, networks: int = 30) -> dict[str, float]:
    """Within one image, of the paper's network, by distance along a row: Monte Carlo."""
    h, w = image.shape[-2:]
    kernel, generator = kernels.paper_kernel(h, w), torch.Generator().manual_seed(0)
    draws = [kernel.network(3, width, generator)(image[None])[0] for _ in range(networks)]
    z = torch.cat(draws)
    z = z / z.square().mean(0).sqrt()
    return {str(d): float((z[..., d:] * z[..., : w - d]).mean()) for d in (1, 4, 16, w - 1)}


def run(folder: Path) -> dict[str, Any]:
    x = read(folder)
    h, w = x.shape[-2:]
    ready = {
        "paper_kernel, bilinear": kernels.paper_kernel(h, w, upsample="bilinear"),
        "paper_kernel, nearest": kernels.paper_kernel(h, w),
        "dense_paper_kernel": kernels.dense_paper_kernel(h, w),
        "scene_kernel": kernels.scene_kernel(),
        "texture_kernel": kernels.texture_kernel(),
    }
    with torch.no_grad():
        seen = {name: look(kernel, x) for name, kernel in ready.items()}
        pixels = pixel_correlations(x[0, :, 60:108, 60:108])
    return {
        "images": list(x.shape),
        "kernels": seen,
        "paper_kernel: correlation of pixels by distance, 48x48": pixels,
    }


if __name__ == "__main__":
    print(write("prior_sight", run(Path(sys.argv[1]))))
