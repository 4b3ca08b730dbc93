"""NeuMiss: prediction when any subset of the inputs may be missing, and its layers for your own models."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.neumiss.gaussian_block import GaussianBlock
    from halfseen.neumiss.likelihood import NeuMissClassifier, NeuMissRegressor
    from halfseen.neumiss.network import (
        NeuMissBlock,
        NeuMissLayers,
        NeuMissNetwork,
        NeuMissNetworkClassifier,
        NeuMissNetworkRegressor,
        NeuMissPredictor,
    )

__all__ = [
    "GaussianBlock",
    "NeuMissBlock",
    "NeuMissClassifier",
    "NeuMissLayers",
    "NeuMissNetwork",
    "NeuMissNetworkClassifier",
    "NeuMissNetworkRegressor",
    "NeuMissPredictor",
    "NeuMissRegressor",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "gaussian_block": ["GaussianBlock"],
            "likelihood": ["NeuMissClassifier", "NeuMissRegressor"],
            "network": [
                "NeuMissBlock",
                "NeuMissLayers",
                "NeuMissNetwork",
                "NeuMissNetworkClassifier",
                "NeuMissNetworkRegressor",
                "NeuMissPredictor",
            ],
        },
    )
