"""Multiple imputation, Rubin's rules, tests of several parameters, and sensitivity analysis."""

from typing import TYPE_CHECKING

from halfseen._lazy import lazy_names

if TYPE_CHECKING:
    from halfseen.pooling.hypotheses import PooledTest, likelihood_ratio_test, pool_chi_squares
    from halfseen.pooling.multiple import MultipleImputation, multiple_imputation
    from halfseen.pooling.repeated import pool
    from halfseen.pooling.rules import Pooled, pool_estimates
    from halfseen.pooling.selection import SelectionModel
    from halfseen.pooling.sensitivity import Sensitivity
    from halfseen.pooling.statistic import c_index, correlation, quantile, r_squared
    from halfseen.pooling.survival import nelson_aalen

__all__ = [
    "MultipleImputation",
    "Pooled",
    "PooledTest",
    "SelectionModel",
    "Sensitivity",
    "c_index",
    "correlation",
    "likelihood_ratio_test",
    "multiple_imputation",
    "nelson_aalen",
    "pool",
    "pool_chi_squares",
    "pool_estimates",
    "quantile",
    "r_squared",
]
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "hypotheses": ["PooledTest", "likelihood_ratio_test", "pool_chi_squares"],
            "multiple": ["MultipleImputation", "multiple_imputation"],
            "repeated": ["pool"],
            "rules": ["Pooled", "pool_estimates"],
            "selection": ["SelectionModel"],
            "sensitivity": ["Sensitivity"],
            "statistic": ["c_index", "correlation", "quantile", "r_squared"],
            "survival": ["nelson_aalen"],
        },
    )
