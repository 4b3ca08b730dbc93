"""Experiments with Sparsity Normalization: ratings, series, gene expression and health records."""

from papers.sparsity import cells, dropout, health, made, optimisers, ratings, series, tuned, units

__all__ = ["cells", "dropout", "health", "made", "optimisers", "ratings", "series", "tuned", "units"]
