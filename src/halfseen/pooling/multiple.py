"""Multiple imputation in one call: completed tables that can be pooled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from sklearn.base import clone

from halfseen.base.catalogue import CATALOGUE
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import check_whole
from halfseen.gaussian.bootstrap import BootstrapImputer
from halfseen.gaussian.imputer import GaussianImputer


@dataclass(frozen=True)
class MultipleImputation(Sequence[Any]):
    """Several completed tables, and the imputer that completed them: a sequence of tables.

    Attributes
    ----------
    imputer : imputer
        Fitted so that its draws include the uncertainty of its parameters.
    draws : list of tables, or array of shape (n_draws, n_samples, n_features)
        The completed tables.
    """

    imputer: Any
    draws: Any

    @property
    def reservations(self) -> tuple[str, ...]:
        """Reasons why intervals pooled over these tables may be wrong, as sentences; usually empty."""
        return tuple(getattr(self.draws, "reservations", ()))

    def complete(self, X: Any) -> Any:
        """Completes new rows once for each draw, for predictions with `Pooled.predict`.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.
        """
        return self.imputer.sample(X, n_draws=len(self))

    def __len__(self) -> int:
        return len(self.draws)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.draws[index]


def multiple_imputation(
    X: Any, imputer: Any = None, *, n_draws: int = 20, random_state: Any = None
) -> MultipleImputation:
    """Completes a table several times by proper multiple imputation.

    The parameters of the model are drawn as well, once for each table: from their posterior distribution if
    the imputer offers that (`GaussianImputer` under MAR), otherwise by fits to resampled rows
    (`BootstrapImputer`).

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table, with all variables of the analysis, also the outcome.
    imputer : imputer, optional
        The model; by default ``GaussianImputer()``. It is cloned and fitted to `X`.
    n_draws : int, default=20
        The number of completed tables.
    random_state : int, numpy generator or None, default=None
        Replaces the random state of the imputer unless it is None.

    Returns
    -------
    MultipleImputation
        A sequence of completed tables to pass to `pool`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=200)
    >>> X[:60, 1] = np.nan
    >>> tables = multiple_imputation(X, n_draws=5, random_state=0)
    >>> len(tables), tables[0].shape, tables.reservations
    (5, (200, 2), ())
    """
    check_whole("n_draws", n_draws, 1)
    chosen = properly(GaussianImputer() if imputer is None else imputer, n_draws)
    if random_state is not None:
        chosen.set_params(random_state=random_state)
    fitted = chosen.fit(X)
    return MultipleImputation(fitted, fitted.sample(X, n_draws=n_draws))


def properly(imputer: Any, n_draws: int) -> Any:
    """Returns an unfitted imputer whose draws include the uncertainty of the parameters."""
    if isinstance(imputer, BootstrapImputer):
        return clone(imputer).set_params(n_resamples=max(n_draws, imputer.n_resamples))
    if not isinstance(imputer, BaseImputer):
        raise ValueError(f"imputer must be an imputer of tables, got {imputer!r}.")
    method = next((m for m in CATALOGUE if m.class_name == type(imputer).__name__), None)
    if method is not None and method.draws_parameter is not None:
        assumed = getattr(imputer, "missingness", method.missingness[0])
        if assumed == method.missingness[0]:
            return clone(imputer).set_params(**{method.draws_parameter: n_draws})
    return BootstrapImputer(clone(imputer), n_draws, random_state=getattr(imputer, "random_state", None))
