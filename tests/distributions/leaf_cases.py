"""One leaf of each family, and every value it can take."""

import math

import torch

from halfseen.distributions.leaves import GaussianLeaf, LogNormalLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_counts import (
    CategoricalLeaf,
    NegativeBinomialLeaf,
    OrdinalLeaf,
    PoissonLeaf,
    ZeroInflatedPoissonLeaf,
)
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf

LOC, SCALE = torch.tensor([5.0, 20.0]).double(), torch.tensor([2.0, 8.0]).double()
ZEROS = torch.tensor([0.2, 0.6]).double()
MAX_COUNT = 3000
GROUPS = [torch.tensor([2, 0, 1, 3]), torch.tensor([0, 1]), torch.tensor([1, 0, 2, 2, 0])]
SHARES = [
    torch.tensor([0.1, 0.4, 0.3, 0.2]),
    torch.tensor([0.7, 0.3]),
    torch.tensor([0.1, 0.2, 0.3, 0.3, 0.1]),
]

CONTINUOUS = {
    "gaussian": lambda: GaussianLeaf(2),
    "shared-gaussian": lambda: SharedGaussianLeaf(2),
    "student-t": lambda: StudentTLeaf(2),
    "log-normal": lambda: LogNormalLeaf(LOC, SCALE, torch.tensor([1.4, 2.8]), torch.tensor([0.6, 0.3])),
}
COUNTS = {
    "poisson": lambda: PoissonLeaf(LOC, SCALE, LOC),
    "negative-binomial": lambda: NegativeBinomialLeaf(LOC, SCALE, LOC, torch.tensor([0.5, 4.0])),
    "zero-inflated-poisson": lambda: ZeroInflatedPoissonLeaf(LOC, SCALE, LOC / (1 - ZEROS), ZEROS),
}
PIXELS = {
    "bernoulli": lambda: BernoulliLeaf(2),
    "signed-bernoulli": lambda: BernoulliLeaf(2, low=-1.0),
    "discretised-logistic": lambda: DiscretisedLogisticLeaf(2, low=0.0, high=1.0, n_bins=256),
}
LEVELS = {
    "categorical": lambda: CategoricalLeaf([2, 4, 1, 3], torch.arange(1.0, 11.0)),
    "ordinal": lambda: OrdinalLeaf(GROUPS, SHARES),
}
ALL = CONTINUOUS | COUNTS | PIXELS | LEVELS


def leaf_of(name):
    return ALL[name]().double()


def some_parameters(leaf, generator, *shape):
    """Not far from the neutral ones, so that every quadrature below covers the mass."""
    noise = torch.randn(*shape, leaf.n_parameters, generator=generator, dtype=torch.float64)
    return leaf.neutral_parameters() + 0.5 * noise


def uniforms(generator, *shape):
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def quadrature(name):
    """Features (G, 2) and weights (G, 2) that integrate over the support: a double-exponential rule."""
    t = torch.linspace(-4.5, 4.5, 6001, dtype=torch.float64)
    node = torch.sinh(math.pi / 2 * torch.sinh(t))
    weight = (t[1] - t[0]) * math.pi / 2 * torch.cosh(t) * torch.cosh(math.pi / 2 * torch.sinh(t))
    if name != "log-normal":
        return node[:, None].expand(-1, 2), weight[:, None].expand(-1, 2)
    log_value = torch.linspace(-15, 20, 6001, dtype=torch.float64)[:, None].expand(-1, 2)
    x = (log_value.exp() - LOC) / SCALE
    return x, (log_value[1] - log_value[0]) * log_value.exp() / SCALE


def support(leaf, name):
    """Every value (V, W) that a discrete leaf can take, the same in all its columns, with weights of one."""
    if name in COUNTS:
        return (torch.arange(MAX_COUNT + 1.0).double()[:, None] - LOC) / SCALE
    if name == "discretised-logistic":
        return torch.linspace(0, 1, 256, dtype=torch.float64)[:, None].expand(-1, 2)
    return torch.tensor([leaf.low, leaf.high]).double()[:, None].expand(-1, 2)


def grid(leaf, name):
    """Features (G, J) and weights (G, J) of all that a numeric leaf or a pixel can be."""
    if name in CONTINUOUS:
        return quadrature(name)
    values = support(leaf, name)
    return values, torch.ones_like(values)


def one_hots(leaf):
    """Yields for each column the indicators (V, W) of each of its groups, zero elsewhere."""
    start = 0
    for width in leaf.widths:
        yield torch.eye(leaf.width, dtype=torch.float64)[start : start + width]
        start += width
