"""Experiments of the NeuMiss papers: prediction from incomplete Gaussian inputs."""

from papers.neumiss import capacity, depth, gaussian, linear

__all__ = ["capacity", "depth", "gaussian", "linear"]
