"""How columns are connected for imputation: which columns may predict which, and how much they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfseen._arrays import Booleans, Floats
from halfseen.data.columns import Column
from halfseen.data.schema import Codes, infer_codes, open_table

MOST_LEVELS = 50  # of a column whose indicators are compared; further levels count as one


@dataclass(frozen=True)
class Flux:
    """Influx and outflux of the columns of a table.

    Attributes
    ----------
    names : tuple of str
        The columns.
    observed : ndarray of shape (n_columns,)
        The share of observed values.
    influx : ndarray of shape (n_columns,)
        The number of pairs of cells in a row of which that of the column is missing and the other observed,
        divided by the number of observed cells of the table. A column with a high influx depends much on the
        imputation model, and is well connected to the observed values.
    outflux : ndarray of shape (n_columns,)
        The number of pairs of which that of the column is observed and the other missing, divided by the
        number of missing cells. A column with a high outflux is useful for imputing others.

    References
    ----------
    van Buuren (2018), Flexible Imputation of Missing Data, section 4.1.
    """

    names: tuple[str, ...]
    observed: Floats
    influx: Floats
    outflux: Floats

    def __str__(self) -> str:
        width = max(len("column"), *(len(name) for name in self.names))
        lines = [f"{'column':{width}}  observed  influx  outflux"]
        cells = zip(self.names, self.observed, self.influx, self.outflux, strict=True)
        lines += [f"{name:{width}}  {seen:8.2f}  {into:6.2f}  {out:7.2f}" for name, seen, into, out in cells]
        return "\n".join(lines)


def flux(X: Any) -> Flux:
    """Returns how much each column takes from the others, and how much it has for them.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table.

    Examples
    --------
    >>> import numpy as np
    >>> print(flux(np.array([[1.0, np.nan], [2.0, np.nan], [3.0, 4.0]])))
    column  observed  influx  outflux
    x0          1.00    0.00     1.00
    x1          0.33    0.50     0.00
    """
    table = open_table(X)
    missing = table.missing().astype(np.float64)
    seen = 1.0 - missing
    n_seen, n_missing = seen.sum(), missing.sum()
    into = (missing * seen.sum(axis=1, keepdims=True)).sum(axis=0)
    out = (seen * missing.sum(axis=1, keepdims=True)).sum(axis=0)
    return Flux(table.names, seen.mean(axis=0), into / max(n_seen, 1.0), out / max(n_missing, 1.0))


def quick_predictors(
    X: Any,
    *,
    min_correlation: float = 0.1,
    min_usable: float = 0.0,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    schema: Any = None,
) -> dict[str, list[str]]:
    """Chooses the predictors of each incomplete column, for `ChainedImputer(predictors=...)`.

    A column is a predictor if its correlation with the incomplete column, or with the indicator that this is
    missing, reaches a threshold. Use it for wide tables, in which regressions on all columns are unstable,
    and include all variables of the analysis.

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table.
    min_correlation : float, default=0.1
        The smallest absolute correlation. For columns with levels, the largest one of their indicators
        counts.
    min_usable : float, default=0.0
        The smallest share of the rows in which the incomplete column is missing and the predictor is
        observed.
    include, exclude : sequence of str
        Columns that are always predictors, and columns that never are.
    schema : dict, optional
        As in `GaussianImputer`.

    Returns
    -------
    dict of str to list of str
        The predictors of every incomplete column that is modelled.

    References
    ----------
    van Buuren, Boshuizen & Knook (1999), Multiple imputation of missing blood pressure covariates in survival
    analysis, for the rule.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.normal(size=(2, 500))
    >>> table = pd.DataFrame({"x": x, "noise": noise, "y": x + rng.normal(size=500)})
    >>> table.loc[:99, "y"] = np.nan
    >>> quick_predictors(table, min_correlation=0.2)
    {'y': ['x']}
    """
    for name, value in (("min_correlation", min_correlation), ("min_usable", min_usable)):
        if not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(f"{name} must be between 0 and 1, got {value!r}.")
    _, codes = infer_codes(open_table(X), schema)
    names = [column.name for column in codes.columns]
    for what, several in (("include", include), ("exclude", exclude)):
        if isinstance(several, str):
            raise ValueError(f"{what} must be a list of names, got {several!r}.")
        stray = next((name for name in several if name not in names), None)
        if stray is not None:
            raise ValueError(
                f"{what} refers to column {stray!r}, which is not a modelled column of the table."
            )
    features = [_features(column, codes, c) for c, column in enumerate(codes.columns)]
    found = {}
    for c, name in enumerate(names):
        lacking = ~codes.observed[:, c]
        if not lacking.any():
            continue
        chosen = []
        for j, other in enumerate(names):
            if j == c or other in exclude:
                continue
            seen = codes.observed[:, j]
            usable = float((seen & lacking).sum() / lacking.sum())
            with_values = _largest_correlation(features[c], features[j], seen & ~lacking)
            with_missing = _largest_correlation(lacking[:, None].astype(np.float64), features[j], seen)
            strong = max(with_values, with_missing) >= min_correlation and usable >= min_usable
            if strong or other in include:
                chosen.append(other)
        found[name] = chosen
    return found


def _features(column: Column, codes: Codes, position: int) -> Floats:
    """Returns the numbers (N, F) by which a column is compared: itself, or indicators of levels."""
    values = codes.values[:, position]
    if column.levels is None or column.kind == "ordinal":
        return values[:, None]
    return (values[:, None] == np.arange(min(len(column.levels), MOST_LEVELS))).astype(np.float64)


def _largest_correlation(one: Floats, other: Floats, rows: Booleans) -> float:
    """Returns the largest absolute correlation between columns of two arrays; 0 if they are constant."""
    if rows.sum() < 3:
        return 0.0
    scaled = []
    for part in (one[rows], other[rows]):
        largest = np.abs(part).max(axis=0)
        centred = part / np.where(largest > 0, largest, 1.0)  # squares of large numbers would overflow
        centred = centred - centred.mean(axis=0)
        size = np.sqrt((centred**2).sum(axis=0))
        scaled.append(np.divide(centred, size, out=np.zeros_like(centred), where=size > 1e-12))
    return float(np.abs(scaled[0].T @ scaled[1]).max())
