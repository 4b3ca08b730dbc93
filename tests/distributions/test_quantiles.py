"""Quantiles of mixtures of the distributions of columns."""

import torch

from halfseen.distributions.leaves import GaussianLeaf
from halfseen.distributions.quantiles import mixture_quantiles


class Numbers:
    """An observation model of two columns of numbers."""

    numeric = (0, 1)
    columns_of_features = torch.arange(2)

    def __init__(self):
        leaf = GaussianLeaf(2)
        self.cdf, self.mean, self.variance = leaf.cdf, leaf.mean, leaf.variance


def test_quantiles_are_those_of_the_distribution_function_whether_or_not_rows_share_the_parameters(generator):
    model = Numbers()
    shared = torch.randn(4, 1, 4, dtype=torch.float64, generator=generator)
    weights = torch.rand(4, 30, 2, dtype=torch.float64, generator=generator)
    weights = weights / weights.sum(dim=0)
    levels = (0.05, 0.5, 0.9)
    found = mixture_quantiles(model, shared, weights, levels, tolerance=1e-7)
    own = mixture_quantiles(model, shared.expand(-1, 30, -1), weights, levels, tolerance=1e-7)
    assert torch.equal(found, own)
    for level, x in zip(levels, found, strict=True):
        below = (weights * model.cdf(shared, x)).sum(dim=0)
        torch.testing.assert_close(below, torch.full_like(below, level), rtol=0, atol=1e-9)
