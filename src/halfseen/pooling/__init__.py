"""Pooling of analyses of several completed tables: Rubin's rules, and tests of several parameters."""

from halfseen.pooling.hypotheses import PooledTest, likelihood_ratio_test, pool_chi_squares
from halfseen.pooling.repeated import pool
from halfseen.pooling.rules import Pooled, pool_estimates

__all__ = [
    "Pooled",
    "PooledTest",
    "likelihood_ratio_test",
    "pool",
    "pool_chi_squares",
    "pool_estimates",
]
