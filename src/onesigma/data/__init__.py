"""Data sets with a target for every pixel: generated scenes, CamVid, NYUv2, Make3D, any folder."""

from __future__ import annotations

from onesigma.data.augmentation import Augment
from onesigma.data.base import PixelDataset, Sample, TargetSpec
from onesigma.data.camvid import CamVid
from onesigma.data.classes import STREET_CLASSES, STREET_PALETTE, VOID
from onesigma.data.folder import Folder
from onesigma.data.make3d import Make3D
from onesigma.data.nyuv2 import NYUv2, evaluation_crop
from onesigma.data.scenes import Scenes
from onesigma.data.spread import Spread
from onesigma.data.truth import SceneNoise

__all__ = [
    "STREET_CLASSES",
    "STREET_PALETTE",
    "VOID",
    "Augment",
    "CamVid",
    "Folder",
    "Make3D",
    "NYUv2",
    "PixelDataset",
    "Sample",
    "SceneNoise",
    "Scenes",
    "Spread",
    "TargetSpec",
    "evaluation_crop",
]
