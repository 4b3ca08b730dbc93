"""Five tables on which the field's usual simulators miss their rates, and every mechanism with a rate."""

import numpy as np

from halfseen import missingness as ms


def _correlated(rng, n_rows):
    root = rng.normal(size=(6, 2))
    return rng.normal(size=(n_rows, 2)) @ root.T + 0.1 * rng.normal(size=(n_rows, 6)) + rng.normal(size=6)


def _mixed(rng, n_rows):
    z = rng.normal(size=n_rows)
    return np.column_stack(
        [
            z + rng.normal(size=n_rows),
            z + rng.normal(size=n_rows) > 0.8,
            rng.poisson(np.exp(0.5 * z)),
            rng.integers(0, 4, n_rows),
            np.round(20 + 5 * z),
        ]
    ).astype(float)


TABLES = {
    "skewed": lambda rng, n: rng.lognormal(0.0, [0.5, 1.0, 1.5, 2.0, 2.5], size=(n, 5)),
    "scaled": lambda rng, n: rng.normal(size=(n, 6)) * 10.0 ** np.arange(-3, 3) + [0, 1, -5, 0, 900, 1e6],
    "correlated": _correlated,
    "heavy-tailed": lambda rng, n: rng.standard_t(1.5, size=(n, 5)) + 0.3 * rng.standard_t(1.5, size=(n, 1)),
    "mixed": _mixed,
}
RATES = (0.1, 0.3, 0.5, 0.7)


def table(name, n_rows=4000, seed=0):
    """Returns one of the five tables, training rows and as many test rows."""
    both = TABLES[name](np.random.default_rng(seed), 2 * n_rows)
    return both[:n_rows], both[n_rows:]


RATED = {
    "MCAR cells": lambda rate: ms.MCAR(rate),
    "MCAR rows": lambda rate: ms.MCAR(rate, unit="rows"),
    "MCAR blocks": lambda rate: ms.MCAR(rate, unit="blocks", blocks=[[0, 2], [1], [3, 4]]),
    "MARLogistic": lambda rate: ms.MARLogistic(rate),
    "MARLogistic, two raw predictors": lambda rate: ms.MARLogistic(
        rate, predictors=[1, 2], standardize=False
    ),
    "LogisticSelfMasking": lambda rate: ms.LogisticSelfMasking(rate),
    "LogisticSelfMasking, steep and falling": lambda rate: ms.LogisticSelfMasking(rate, steepness=-20.0),
    "ProbitSelfMasking": lambda rate: ms.ProbitSelfMasking(rate),
    "ProbitSelfMasking, raw": lambda rate: ms.ProbitSelfMasking(rate, slope=0.5, standardize=False),
    "GaussianSelfMasking": lambda rate: ms.GaussianSelfMasking(rate),
    "GaussianSelfMasking, low": lambda rate: ms.GaussianSelfMasking(rate, shift=-1.0, amplitude=0.9),
    "QuantileCensoring upper": lambda rate: ms.QuantileCensoring(rate, "upper"),
    "QuantileCensoring lower": lambda rate: ms.QuantileCensoring(rate, "lower"),
    "QuantileCensoring both": lambda rate: ms.QuantileCensoring(rate, "both"),
    "MonotoneDropout": lambda rate: ms.MonotoneDropout(rate),
    "MonotoneDropout, steep": lambda rate: ms.MonotoneDropout(rate, steepness=3.0),
    "Compose": lambda rate: ms.ByColumn({0: ms.MCAR(rate), (1, 2): ms.QuantileCensoring(rate)}),
}


def wanted_rates(mechanism, rate, n_columns):
    """Returns the rate asked for in each column."""
    wanted = np.zeros(n_columns)
    wanted[mechanism.columns_] = mechanism.rates_ if isinstance(mechanism, ms.MonotoneDropout) else rate
    return wanted
