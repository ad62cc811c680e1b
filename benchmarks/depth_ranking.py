"""What is known of depth errors beforehand: by pixel, by row and by image, on folds of NYUv2.

    python benchmarks/depth_ranking.py --root NYUV2 --runs RUNS --folds 3 4

Reads the runs of `real_images.py train nyuv2`. Squared errors e² of onesigma are explained by the
predicted depth d and the row r from 0, top, to 1, bottom,

    log E e² = a + b log d + c r,

with e²/E e² of the gamma family: on images that the run did not see, on training images, and on
these as they are altered to learn the noise. And over images not seen, the rank correlation of the
root mean square error with that of the predicted deviation, and with the disagreement of three
networks (deterministic, heteroscedastic, onesigma). Writes `results/depth_ranking.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from measuring import RESULTS
from onesigma import AlteredCopies
from onesigma.data import NYUv2, Spread
from onesigma.data.base import PixelDataset
from onesigma.training import load
from real_images import DEPTH_SIZE, FOLDS, Predict, fold_parser, unseen
from scores import mean_over

NETWORKS = ("ours", "deterministic", "heteroscedastic")
# in m²: errors below 3 cm say no more
LEAST = 1e-3
SEEN_IMAGES = 60


def errors(predict: Predict, data: PixelDataset, alter: Callable[[Tensor], Tensor]) -> Any:
    """Mean relative error, and b and c."""
    relative, rows = [], []
    for i in range(len(data)):
        target = data[i]["target"][None]
        law, valid = predict(alter(data[i]["image"][None])), target.isfinite()
        height = torch.linspace(0, 1, target.shape[2])[:, None].expand_as(target)
        square = (law.mean - target).square().clamp_min(LEAST)
        columns = (law.mean.log(), height, torch.ones_like(target), square)
        rows.append(torch.stack([x[valid] for x in columns], 1))
        relative.append((law.median - target).abs()[valid] / target[valid])
    table = torch.cat(rows).double()
    depth, row, _ = gamma_regression(table[:, :3], table[:, 3]).tolist()
    return {"rel": float(torch.cat(relative).mean()), "log depth": depth, "row": row}


def gamma_regression(x: Tensor, y: Tensor, steps: int = 50) -> Tensor:
    """The w that minimises Σ x·w + y exp(-x·w), by damped Newton steps; x ends with a 1."""
    w = torch.zeros(x.shape[1], dtype=x.dtype)
    w[-1] = y.mean().log()
    for _ in range(steps):
        ratio = y * torch.exp(-(x @ w))
        gradient, hessian = x.T @ (1 - ratio), x.T @ (x * ratio[:, None])
        w = w - 0.7 * torch.linalg.solve(hessian, gradient)
    return w


def known_of_images(predicts: dict[str, Predict], data: PixelDataset) -> dict[str, float]:
    """Rank correlations of the error of an image with what is said of it."""
    error, said, disagreement = [], [], []
    for i in range(len(data)):
        image, target = data[i]["image"][None], data[i]["target"][None]
        laws = {name: predict(image) for name, predict in predicts.items()}
        own, valid = laws["ours"], target.isfinite()
        means = torch.stack([law.mean for law in laws.values()])
        error.append((own.mean - target)[valid].square().mean())
        said.append(own.variance[valid].mean())
        disagreement.append(means.var(0)[valid].mean())
    return {
        "predicted deviation": rank_correlation(said, error),
        "disagreement": rank_correlation(disagreement, error),
    }


def rank_correlation(x: list[Tensor], y: list[Tensor]) -> float:
    """Spearman's, without ties."""
    ranks = torch.stack([torch.stack(each).argsort().argsort() for each in (x, y)])
    return float(torch.corrcoef(ranks.double())[0, 1])


def main() -> None:
    options = fold_parser(__doc__).parse_args()
    torch.set_num_threads(1)
    altered, generator = AlteredCopies(), torch.Generator().manual_seed(0)
    found = []
    for k in options.folds:
        predicts = {
            name: load(options.runs / "nyuv2" / f"{name}-fold{k}").predict for name in NETWORKS
        }
        new = unseen(options.root, k)
        train = NYUv2(options.root, "train", DEPTH_SIZE, crop=True, fold=(k, FOLDS))
        seen = Spread(train, SEEN_IMAGES)
        found.append(
            {
                "not seen": errors(predicts["ours"], new, lambda x: x),
                "seen": errors(predicts["ours"], seen, lambda x: x),
                "seen, altered": errors(
                    predicts["ours"], seen, lambda x: altered.alter(x, x, generator)
                ),
                "images": known_of_images(predicts, new),
            }
        )
    result = {"folds": options.folds, "mean": mean_over(found), "by fold": found}
    (RESULTS / "depth_ranking.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
