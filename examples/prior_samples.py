"""Pictures of what priors see: `python examples/prior_samples.py [OUTPUT_FOLDER] [IMAGE_FOLDER]`.

Without a folder of images (equal sizes, at least four) it generates its own scenes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from onesigma import kernels
from onesigma.priors import CNNGPPrior

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZE = (96, 128)
LABELS = ("scene A", "A, moved 3 pixels", "A with noise", "scene B", "scene C")


def scene(generator: torch.Generator) -> Tensor:
    """Sky, ground, some boxes and fine texture, (3, h, w + 8)."""
    h, w = SIZE[0], SIZE[1] + 8
    colours = torch.rand(10, 3, 1, 1, generator=generator)
    image = colours[0].expand(3, h, w).clone()
    image[:, h // 2 :] = 0.5 * colours[1]
    for colour in colours[2:]:
        top, left, tall, wide = (torch.rand(4, generator=generator) * 50).long().tolist()
        image[:, top + 10 : top + 25 + tall, left * 2 : left * 2 + 10 + wide] = colour
    coarse = torch.rand(1, 3, h // 4, w // 4, generator=generator)
    texture = interpolate(coarse, (h, w), mode="bilinear")[0] - 0.5
    return (image + 0.3 * texture).clamp(0, 1)


def generated() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    a, b, c = (scene(generator) for _ in range(3))
    views = torch.stack([a[..., 4:-4], a[..., 7:-1], a[..., 4:-4], b[..., 4:-4], c[..., 4:-4]])
    views[2] += 0.3 * torch.randn(views[2].shape, generator=generator)
    return views.clamp(0, 1)


def read(folder: Path) -> Tensor:
    files = sorted(p for p in folder.iterdir() if p.suffix in {".jpg", ".png"})
    chosen = files[:: max(1, len(files) // len(LABELS))][: len(LABELS)]
    arrays = [np.asarray(Image.open(path).convert("RGB")) for path in chosen]
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255


def ready_kernels(height: int, width: int) -> dict[str, kernels.Layer]:
    return {
        "paper_kernel": kernels.paper_kernel(height, width),
        "dense_paper_kernel": kernels.dense_paper_kernel(height, width),
        "scene_kernel": kernels.scene_kernel(),
        "texture_kernel": kernels.texture_kernel(),
    }


def grid(rows: dict[str, Tensor], images: Tensor, labels: tuple[str, ...], path: Path) -> None:
    """Images above, one row of maps for each kernel, one colour scale in a row."""
    n = len(images)
    figure, axes = plt.subplots(len(rows) + 1, n, figsize=(2.1 * n, 1.75 * (len(rows) + 1)))
    for axis, image, label in zip(axes[0], images, labels, strict=True):
        axis.imshow(image.permute(1, 2, 0))
        axis.set_title(label, fontsize=9)
    for line, (name, maps) in zip(axes[1:], rows.items(), strict=True):
        low, high = float(maps.min()), float(maps.max())
        for axis, values in zip(line, maps, strict=True):
            axis.imshow(values, vmin=low, vmax=high, cmap="viridis")
        line[0].set_ylabel(f"{name}\n{low:.2f} … {high:.2f}", fontsize=8)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    save(figure, path)


def matrices(blocks: dict[str, Tensor], labels: tuple[str, ...], path: Path) -> None:
    figure, axes = plt.subplots(1, len(blocks), figsize=(3 * len(blocks), 3.6), sharey=True)
    for axis, (name, block) in zip(axes, blocks.items(), strict=True):
        deviation = torch.einsum("iihw->ihw", block).sqrt()
        rho = (block / (deviation[:, None] * deviation[None])).flatten(2).median(-1).values
        axis.imshow(rho, vmin=-1, vmax=1, cmap="RdBu_r")
        for i, j in np.ndindex(*rho.shape):
            ink = "white" if abs(rho[i, j]) > 0.6 else "black"
            axis.text(j, i, f"{rho[i, j]:.2f}", color=ink, ha="center", va="center", fontsize=7)
        axis.set_title(name, fontsize=9)
        axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
        axis.set_yticks(range(len(labels)), labels, fontsize=7)
    save(figure, path)


def save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=72)
    plt.close(figure)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)  # a third of the bytes


@torch.no_grad()
def main(out: Path, folder: Path | None = None) -> None:
    images = generated() if folder is None else read(folder)
    labels = LABELS if folder is None else tuple(f"image {i}" for i in range(len(images)))
    ready = ready_kernels(*images.shape[-2:])
    generator = torch.Generator().manual_seed(3)
    networks = {
        name: kernel.network(3, 64, generator)(images)[:, 0] for name, kernel in ready.items()
    }
    fields = {name: CNNGPPrior(kernel, 1, noise=1e-4)(images) for name, kernel in ready.items()}
    corner = (..., slice(24), slice(32))
    draws = {
        name: fields[name].sample(1, joint=True, generator=generator)[0, :, 0][corner]
        for name in ("paper_kernel", "scene_kernel", "texture_kernel")
    }
    blocks = {name: field.covariance.blocks()[:, :, 0] for name, field in fields.items()}
    out.mkdir(parents=True, exist_ok=True)
    grid(networks, images, labels, out / "priors_networks.png")
    grid(draws, images[corner], labels, out / "priors_draws.png")
    matrices(blocks, labels, out / "priors_correlations.png")


if __name__ == "__main__":
    main(*[Path(argument) for argument in sys.argv[1:]] or [Path("docs/images")])
