"""Kernels of infinitely wide random convolutional networks, layer by layer."""

from onesigma.kernels.compose import DenseConcat, Residual, Sequential
from onesigma.kernels.inputs import ImageLayer, LocalContrast, Standardise
from onesigma.kernels.layers import (
    ChannelNorm,
    Conv,
    Erf,
    Layer,
    ReLU,
    Scale,
)
from onesigma.kernels.positive import Positive
from onesigma.kernels.presets import (
    dense_paper_kernel,
    paper_kernel,
    scene_kernel,
    texture_kernel,
)
from onesigma.kernels.resize import BilinearUpsampleApproximation, NearestUpsample
from onesigma.kernels.state import KernelState

__all__ = [
    "BilinearUpsampleApproximation",
    "ChannelNorm",
    "Conv",
    "DenseConcat",
    "Erf",
    "ImageLayer",
    "KernelState",
    "Layer",
    "LocalContrast",
    "NearestUpsample",
    "Positive",
    "ReLU",
    "Residual",
    "Scale",
    "Sequential",
    "Standardise",
    "dense_paper_kernel",
    "paper_kernel",
    "scene_kernel",
    "texture_kernel",
]
