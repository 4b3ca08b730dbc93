"""Experiments of the NeuMiss papers: prediction from incomplete Gaussian inputs."""

from papers.neumiss import depth, gaussian, linear

__all__ = ["depth", "gaussian", "linear"]
