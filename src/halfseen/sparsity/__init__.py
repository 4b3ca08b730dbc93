"""Sparsity Normalization: networks whose output does not drift with the number of known inputs."""
