"""Make3D: outdoor images with coarse laser depth, as its authors published it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from onesigma.data.base import DEPTH, PixelDataset, Sample, TargetSpec, check_index
from onesigma.data.reading import nearest, read_image

# images, depth, and the beginnings of their names, as unpacked
_FOLDERS = {"train": ("Train400Img", "Train400Depth"), "test": ("Test134", "Test134Depth")}
_GRID = "Position3DGrid"


class Make3D(PixelDataset):
    """Make3D as `Train400Img/img-NAME.jpg` with `Train400Depth/depth_sph_corr-NAME.mat`.

    The laser's grid has 55 x 305 points. Reading it needs scipy. Depth beyond `max_depth` is the
    laser's maximum range, not a measurement, and NaN.

    Args:
        root: the folder that holds the folders above.
        split: "train" (400 images) or "test" (134).
        size: rows and columns of image and target; None for the image's own, with every laser point
            repeated over the pixels nearest to it.
        max_depth: in metres.
    """

    def __init__(
        self,
        root: str | Path,
        split: Literal["train", "test"] = "train",
        size: tuple[int, int] | None = None,
        max_depth: float = 70.0,
    ) -> None:
        if split not in _FOLDERS:
            raise ValueError(f"Make3D has the splits {tuple(_FOLDERS)}, got {split!r}.")
        self.size, self.max_depth = size, max_depth
        images, self.depths = (Path(root) / name for name in _FOLDERS[split])
        self.images = sorted(images.glob("img-*.jpg"))
        if not self.images:
            raise FileNotFoundError(f"{images} holds no img-*.jpg; give the root of Make3D.")
        self.names = [f"{path.parent.name}/{path.stem}" for path in self.images]
        self._scipy = _scipy_io()

    @property
    def spec(self) -> TargetSpec:
        """Depth in metres."""
        return DEPTH

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        path = self.images[check_index(index, len(self))]
        name = path.stem.removeprefix("img-")
        image = read_image(path, self.size)
        depth = nearest(self._depth(name), (image.shape[1], image.shape[2]))
        depth = np.where((depth > 0) & (depth <= self.max_depth), depth, np.float32(np.nan))
        return Sample(image=image, target=torch.from_numpy(depth[None]), name=name)

    def _depth(self, name: str) -> NDArray[np.float32]:
        path = self.depths / f"depth_sph_corr-{name}.mat"
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist, but the image img-{name}.jpg does.")
        try:
            content = self._scipy.loadmat(path)
        except Exception as error:  # scipy raises many kinds for a damaged file
            raise ValueError(f"{path} cannot be read as a .mat file: {error}") from error
        grid = content.get(_GRID)
        if grid is None or grid.ndim != 3 or grid.shape[2] != 4:
            raise ValueError(
                f"{path} has no {_GRID} of shape (rows, columns, 4); it holds "
                f"{sorted(key for key in content if not key.startswith('__'))}."
            )
        return grid[..., 3].astype(np.float32)


def _scipy_io() -> ModuleType:
    try:
        import scipy.io
    except ImportError as error:
        raise ImportError("Make3D's depth is in .mat files: pip install scipy.") from error
    return scipy.io
