"""The optimisation loop, and EM."""
