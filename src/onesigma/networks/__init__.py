"""Feature networks: images to features of the same size, with `out_channels` of them."""

from onesigma.networks.backbone import Backbone, Normalise
from onesigma.networks.densenet import (
    FCDenseNet,
    fc_densenet56,
    fc_densenet67,
    fc_densenet103,
    fc_densenet_small,
)
from onesigma.networks.unet import UNet, unet_small

__all__ = [
    "Backbone",
    "FCDenseNet",
    "Normalise",
    "UNet",
    "fc_densenet56",
    "fc_densenet67",
    "fc_densenet103",
    "fc_densenet_small",
    "unet_small",
]
