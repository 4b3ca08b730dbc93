"""NeuMiss: prediction when any subset of the inputs may be missing, and its layers for your own models."""

from halfseen.neumiss.gaussian_block import GaussianBlock
from halfseen.neumiss.network import NeuMissBlock, NeuMissLayers, NeuMissNetwork, NeuMissPredictor

__all__ = ["GaussianBlock", "NeuMissBlock", "NeuMissLayers", "NeuMissNetwork", "NeuMissPredictor"]
