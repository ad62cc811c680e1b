"""What flows through a kernel: the same-pixel covariances of all image pairs, packed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class KernelState:
    """K_ij(p) = E[mean over channels of z_i(p) z_j(p)] for the image pairs i ≤ j and every pixel p.

    Only the upper triangle is kept: first the n variances K_ii, then K_ij for i < j, row by row.
    The two flags say which of the next operations are exact.

    Attributes:
        maps: the packed covariances, n (n + 1) / 2 of them.
        images: n.
        gaussian: the activations are Gaussian with equally distributed channels, so that a
            nonlinearity has a closed form.
        fresh: the activations have mean zero given everything before the innermost branch point
            (they come from new weights), so that they may be added to a skip connection.
        source: the images themselves while nothing but image layers was applied, else None.
    """

    maps: Float[Tensor, "pairs h w"]
    images: int
    gaussian: bool = False
    fresh: bool = False
    source: Float[Tensor, "n k h w"] | None = None

    def __post_init__(self) -> None:
        pairs, wanted = self.maps.shape[0], self.images * (self.images + 1) // 2
        if pairs != wanted:
            raise ValueError(
                f"KernelState got {pairs} maps for {self.images} images; it wants {wanted}: "
                "n variances, then the strict upper triangle row by row."
            )

    @staticmethod
    def of_images(images: Float[Tensor, "n k h w"]) -> KernelState:
        """The input kernel K_ij = mean over channels of x_i x_j."""
        n, _, height, width = images.shape
        # K_ij(p) = 1/k Σ_c x_ic(p) x_jc(p)
        pairs = [(images, images), *((images[i], images[i + 1 :]) for i in range(n - 1))]
        if images.requires_grad and torch.is_grad_enabled():
            maps = torch.cat([_mean_product(*pair) for pair in pairs])
        else:
            maps = images.new_empty(n * (n + 1) // 2, height, width)
            parts = maps.split_with_sizes([n, *range(n - 1, 0, -1)])
            for pair, out in zip(pairs, parts, strict=True):
                _mean_product(*pair, out=out)
        return KernelState(maps, n, source=images)

    @property
    def size(self) -> tuple[int, int]:
        """(h, w)."""
        return self.maps.shape[1], self.maps.shape[2]

    def pairs(self) -> tuple[Int[Tensor, " cross"], Int[Tensor, " cross"]]:
        """The images (i, j), i < j, of the maps after the n variances."""
        rows, columns = torch.triu_indices(
            self.images, self.images, offset=1, device=self.maps.device
        )
        return rows, columns

    def move(
        self, maps: Tensor, gaussian: bool | None = None, fresh: bool | None = None
    ) -> KernelState:
        """The state after a layer: new maps, flags as before unless said."""
        return replace(
            self,
            maps=maps,
            source=None,
            gaussian=self.gaussian if gaussian is None else gaussian,
            fresh=self.fresh if fresh is None else fresh,
        )

    def blocks(self) -> Float[Tensor, "n n h w"]:
        """All ordered pairs: one symmetric n × n matrix for every pixel."""
        n = self.images
        rows, columns = self.pairs()
        index = torch.arange(n, device=self.maps.device).diag()
        index[rows, columns] = torch.arange(n, len(self.maps), device=self.maps.device)
        index[columns, rows] = index[rows, columns]
        # faster than maps[index]: whole maps are copied
        return self.maps.index_select(0, index.view(-1)).view(n, n, *self.size)


def _mean_product(one: Tensor, other: Tensor, out: Tensor | None = None) -> Tensor:
    """1/k Σ_c x_c y_c of (..., k, h, w), channel by channel: faster than a sum over few."""
    channels = list(zip(one.unbind(-3), other.unbind(-3), strict=True))
    share = 1 / len(channels)
    total = torch.addcmul(one.new_zeros(()), *channels[0], value=share, out=out)
    for x, y in channels[1:]:
        total = total.addcmul_(x, y, value=share)
    return total
