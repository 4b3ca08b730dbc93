"""What an estimator can do, which the rest of the library reads instead of probing for attributes."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Capabilities:
    """What an estimator can do with the parameters that it has.

    An estimator states it by its property `capabilities`. A class that adds something replaces fields of the
    record of its base class, so that everything else stays as it is.

    Parameters
    ----------
    tables : bool
        Whether it takes tables whose columns have names and kinds, and has a ``schema_``.
    images : bool
        Whether X holds images: rows of pixels by ``image_shape``, or arrays (N, H, W) or (N, H, W, C).
    imputes : bool
        Whether it imputes missing values of tables, by `transform`, `sample` and `interval`.
    predicts : {"numbers", "classes"} or None
        What it predicts from a table or a sequence: numbers, with `predict_interval`, or classes, with
        `predict_proba`.
    density : bool
        Whether there is a density of rows, so that `score_samples` is available.
    information_gain : bool
        Whether `information_gain` tells which missing value to measure next.
    limits : bool
        Whether it uses censored cells, of which only a bound is known; otherwise they are missing to it.
    models_missingness : bool
        Whether its model lets values be missing because of their size, so that they may lie beyond the
        observed ones.
    holds_out_rows : bool
        Whether `fit` holds out rows, so that no row may occur twice among those that it is fitted to.
    trains_in_epochs : bool
        Whether it is trained by gradients, so that a limit of time ends the training whatever the number of
        rows is.
    compares_methods : bool
        Whether it compares methods on hidden cells, and has ``reason_``, ``hidden_cells_`` and
        ``time_limit_met_``.
    reports_rows : bool
        Whether its model reports its progress through the rows of a chunk.
    draws_one_by_one : bool
        Whether its model needs no more memory for several draws than for one.
    relates_near_copies : bool
        Whether numbers that are nearly copies of each other are imputed by linear relations where its model
        draws them too widely; not if the columns that predict a column are prescribed.

    Examples
    --------
    >>> from halfseen import GaussianImputer, TreeImputer
    >>> GaussianImputer().capabilities.density, TreeImputer().capabilities.density
    (True, False)
    >>> GaussianImputer(missingness="self-masking-probit").capabilities.limits
    False
    """

    tables: bool = False
    images: bool = False
    imputes: bool = False
    predicts: Literal["numbers", "classes"] | None = None
    density: bool = False
    information_gain: bool = False
    limits: bool = False
    models_missingness: bool = False
    holds_out_rows: bool = False
    trains_in_epochs: bool = False
    compares_methods: bool = False
    reports_rows: bool = False
    draws_one_by_one: bool = False
    relates_near_copies: bool = False
