"""Probabilistic circuits: sums and products of column likelihoods, whose marginals are all exact."""
