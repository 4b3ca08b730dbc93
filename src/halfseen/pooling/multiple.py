"""Multiple imputation in one call: completed tables that can be pooled.

Missing cells may stay empty, and observed ones be drawn beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import narwhals as nw
import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from halfseen.auto.imputer import AutoImputer
from halfseen.base.catalogue import find_method_of
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import check_whole
from halfseen.chained.imputer import ChainedImputer
from halfseen.data.frames import is_frame
from halfseen.data.schema import open_table
from halfseen.gaussian.bootstrap import BootstrapImputer

Flags = npt.NDArray[np.bool_]
_MARK = "_halfseen_where"  # a column that exists while cells are replaced


def read_where(where: Any, X: Any) -> Flags:
    """Returns which cells (N, P) of a table are to be drawn; raises a ValueError if that cannot be read."""
    table = open_table(X)
    shape = (table.n_rows, len(table.names))
    if is_frame(where):
        frame = nw.from_native(where, eager_only=True)
        if sorted(frame.columns) != sorted(table.names):
            raise ValueError(
                f"where must have the columns of the table, got {', '.join(map(str, frame.columns))}."
            )
        found = np.column_stack([frame[name].to_numpy() for name in table.names])
    else:
        found = np.asarray(where)
    if found.shape != shape or found.dtype != np.bool_:
        raise ValueError(
            f"where must be an array or a table of True and False with the shape {shape} of the table, got "
            f"the shape {found.shape} and the type {found.dtype}."
        )
    return found


def missing_cells(X: Any) -> Flags:
    """Returns which cells (N, P) of a table are missing."""
    return open_table(X).missing()


def keep_empty(tables: Sequence[Any], X: Any, empty: Flags) -> None:
    """Empties cells (N, P) of completed tables again; the sequence is changed."""
    if not empty.any():
        return
    for number, table in enumerate(tables):
        for j in np.flatnonzero(empty.any(axis=0)):
            table = replace_cells(table, X, int(j), empty[:, j])
        tables[number] = table  # type: ignore[index]


def draw_observed(imputer: Any, X: Any, tables: Sequence[Any], observed: Flags, row_ids: Any) -> list[Any]:
    """Returns completed tables with draws in observed cells (N, P) as well.

    The cells of one column after the other are emptied and drawn, given all other cells of their rows.
    """
    found = [table.copy() if isinstance(table, np.ndarray) else table for table in tables]
    for j in np.flatnonzero(observed.any(axis=0)):
        rows = observed[:, j]
        drawn = imputer.sample(replace_cells(X, None, int(j), rows), n_draws=len(tables), row_ids=row_ids)
        if bool((missing_cells(drawn[0])[:, j] & rows).any()):
            name = open_table(X).names[j]
            raise ValueError(
                f"where asks for draws of observed cells of column {name!r}, which {type(imputer).__name__} "
                "leaves empty: see columns_left_."
            )
        found = [replace_cells(one, other, int(j), rows) for one, other in zip(found, drawn, strict=True)]
    return found


def replace_cells(table: Any, other: Any, position: int, rows: Flags) -> Any:
    """Returns a copy of a table in which the cells of a column in some rows (N) are those of another table.

    Without another table the cells are empty.
    """
    if not is_frame(table):
        array = np.array(table, dtype=np.result_type(np.asarray(table), np.float32))
        array[rows, position] = np.nan if other is None else np.asarray(other)[rows, position]
        return array
    frame = nw.from_native(table, eager_only=True)
    name = frame.columns[position]
    marked = frame.with_columns(_flags(frame, rows).alias(_MARK))
    if other is None:
        chosen = nw.when(~nw.col(_MARK)).then(nw.col(name)).alias(name)
        return marked.with_columns(chosen).drop(_MARK).to_native()
    values = nw.from_native(other, eager_only=True)[name]
    own = frame[name]
    if own.dtype != values.dtype:
        values = values.cast(own.dtype) if not bool(values.is_null().any()) else values
    return frame.with_columns(own.zip_with(~marked[_MARK], values).alias(name)).to_native()


def _flags(frame: nw.DataFrame[Any], flags: Flags) -> nw.Series[Any]:
    """Returns flags (N) as a column that belongs to the rows of a frame."""
    if not frame.implementation.is_pandas_like():
        return nw.new_series(_MARK, flags, backend=frame.implementation)
    import pandas as pd

    return nw.from_native(pd.Series(flags, index=frame.to_native().index), series_only=True)


@dataclass(frozen=True)
class MultipleImputation(Sequence[Any]):
    """Several completed tables, and the imputer that completed them: a sequence of tables.

    Attributes
    ----------
    imputer : imputer
        Fitted so that its draws include the uncertainty of its parameters.
    draws : list of tables, or array of shape (n_draws, n_samples, n_features)
        The completed tables.
    overimputed : list of tables or None
        With `where` that asks for observed cells, the completed tables with draws in these cells as well.
    """

    imputer: Any
    draws: Any
    overimputed: list[Any] | None = None
    _where: Any = field(default=None, repr=False)

    @property
    def analysis(self) -> str | None:
        """The formula of the analysis with which the draws are compatible, if there is one."""
        found: str | None = getattr(self.draws, "analysis", None)
        return found

    @property
    def reservations(self) -> tuple[str, ...]:
        """Reasons why intervals pooled over these tables may be wrong, as sentences; usually empty."""
        return tuple(getattr(self.draws, "reservations", ()))

    def complete(self, X: Any, row_ids: Any = None) -> Any:
        """Completes new rows once for each draw, for predictions with `Pooled.predict`.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            A table with the columns of the training table.
        row_ids : array-like of shape (n_samples,), optional
            Integers or strings that name the rows, for tables that are completed in parts; see `sample` of
            imputers.
        """
        return self.imputer.sample(X, n_draws=len(self), row_ids=row_ids)

    def extended(self, X: Any, n_draws: int, row_ids: Any = None) -> "MultipleImputation":
        """Returns more completed tables: those that one call with this number of draws would have returned.

        The first ones are the tables that are there already, up to rounding. The model is fitted again with
        its seed, because each table has a draw of the parameters of its own.

        Parameters
        ----------
        X : table or array-like of shape (n_samples, n_features)
            The incomplete table of `multiple_imputation`.
        n_draws : int
            The number of completed tables in total.
        row_ids : array-like of shape (n_samples,), optional
            As in `multiple_imputation`.
        """
        check_whole("n_draws", n_draws, len(self))
        unfitted = properly(clone(self.imputer), n_draws).set_params(random_state=self.imputer.seed_)
        return _completed(unfitted.fit(X), X, n_draws, row_ids, self._where)

    def to_long(self, original: Any = None, *, draw: str = "draw", row: str = "row") -> Any:
        """Returns all completed tables below each other, for other software.

        Parameters
        ----------
        original : table, optional
            The incomplete table, which comes first, as draw 0.
        draw, row : str
            The names of the first two columns: the number of the draw, from 1, and of the row, from 0.

        Returns
        -------
        table
            Of the same type as the completed tables.
        """
        if not is_frame(self.draws[0]):
            raise ValueError("to_long needs tables with named columns: impute a data frame.")
        tables = [*self.draws] if original is None else [original, *self.draws]
        parts = []
        for number, table in enumerate(tables, start=int(original is None)):
            frame = nw.from_native(table, eager_only=True)
            taken = next((name for name in (draw, row) if name in frame.columns), None)
            if taken is not None:
                raise ValueError(f"There is a column {taken!r} already: pass other names for draw and row.")
            counts = {draw: [number] * len(frame), row: list(range(len(frame)))}
            names = nw.from_dict(counts, backend=frame.implementation)
            if frame.implementation.is_pandas_like():
                frame = nw.from_native(frame.to_native().reset_index(drop=True), eager_only=True)
            parts.append(nw.concat([names, frame], how="horizontal"))
        whole = nw.concat(parts).to_native()
        return whole.reset_index(drop=True) if hasattr(whole, "reset_index") else whole

    def __len__(self) -> int:
        return len(self.draws)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self.draws[index]


def multiple_imputation(
    X: Any,
    imputer: Any = None,
    *,
    n_draws: int = 20,
    analysis: str | None = None,
    family: str = "auto",
    groups: str | None = None,
    slopes: str | None = None,
    methods: Mapping[str, Any] | None = None,
    predictors: Mapping[str, Sequence[str]] | None = None,
    constraints: Sequence[str] | None = None,
    visit_order: Sequence[str] | None = None,
    blocks: Sequence[Sequence[str]] | None = None,
    n_cycles: int | None = None,
    where: Any = None,
    row_ids: Any = None,
    random_state: Any = None,
) -> MultipleImputation:
    """Completes a table several times by proper multiple imputation.

    The parameters of the model are drawn as well, once for each table: from their posterior distribution if
    the imputer offers that (`ChainedImputer`, and `GaussianImputer` under MAR), otherwise by fits to
    resampled rows (`BootstrapImputer`).

    Parameters
    ----------
    X : pandas, polars or pyarrow table, or array-like of shape (n_samples, n_features)
        The incomplete table, with all variables of the analysis, also the outcome.
    imputer : imputer, optional
        The model. It is cloned and fitted to `X`. By default a `ChainedImputer` if a column has levels, few
        values, a skewed distribution or a frequent value, or if rows are few, and the faster
        `GaussianImputer` otherwise.
    n_draws : int, default=20
        The number of completed tables.
    analysis : str, optional
        The formula of the analysis that will be pooled, such as ``"y ~ x * z + I(w ** 2)"``. Missing values
        are then drawn by a `ChainedImputer` so that interactions and powers of imputed columns are not biased
        towards zero. Without it, imputation models have main effects only.
    family : {"auto", "linear", "logistic", "poisson", "cox"}, default="auto"
        The model of the outcome of the analysis; see `ChainedImputer`. The outcome of a Cox model is
        ``Surv(time, event)``.
    groups : str, optional
        The column that says which rows belong together, such as the visits of a person or the pupils of a
        school. Missing values are then drawn by a `ChainedImputer` with a random intercept for each group. An
        `analysis` is then a mixed model, whose outcome has such an intercept as well; it cannot be a Cox
        model.
    slopes : str, optional
        A column of numbers, such as the time of a visit, whose slopes vary between groups as well.
    methods, predictors, constraints, visit_order, blocks, n_cycles : optional
        Parameters of a `ChainedImputer`, which then draws the missing values: the methods of single columns,
        the columns that may predict a column, the order constraints that imputed values obey, the order of
        the columns in a cycle, the columns that are drawn together, and the number of cycles.
    where : array or table of bool of shape (n_samples, n_features), optional
        The cells to draw; by default all missing cells. Missing cells that are not to be drawn stay empty.
        Observed cells are never replaced: where they are to be drawn (overimputation), the draws are in
        `overimputed` of the result, each drawn from a model of all rows, given the other cells of its row.
    row_ids : array-like of shape (n_samples,), optional
        Integers or strings that name the rows: the draws of a row then do not depend on the order of equal
        rows. See `sample` of imputers.
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
    asked: dict[str, Any] = {
        "analysis": analysis,
        "groups": groups,
        "slopes": slopes,
        "methods": methods,
        "predictors": predictors,
        "constraints": constraints,
        "visit_order": visit_order,
        "blocks": blocks,
        "n_cycles": n_cycles,
    }
    if analysis is not None:
        asked["family"] = family
    elif family != "auto":
        raise ValueError(f"family={family!r} is the model of the outcome of an analysis: pass analysis=.")
    imputer = _chained(imputer, {name: value for name, value in asked.items() if value is not None})
    chosen = properly(AutoImputer() if imputer is None else imputer, n_draws)
    if random_state is not None:
        chosen.set_params(random_state=random_state)
    flags = None if where is None else read_where(where, X)
    return _completed(chosen.fit(X), X, n_draws, row_ids, flags)


def _completed(fitted: Any, X: Any, n_draws: int, row_ids: Any, where: Any) -> MultipleImputation:
    """Completes a table by a fitted imputer, in the cells (N, P) that are to be drawn."""
    draws = fitted.sample(X, n_draws=n_draws, row_ids=row_ids)
    if where is None:
        return MultipleImputation(fitted, draws)
    missing = missing_cells(X)
    keep_empty(draws, X, missing & ~where)
    observed, overimputed = where & ~missing, None
    if observed.any():
        overimputed = draw_observed(fitted, X, draws, observed, row_ids)
    return MultipleImputation(fitted, draws, overimputed, where)


def _chained(imputer: Any, asked: dict[str, Any]) -> Any:
    """Returns a `ChainedImputer` with the parameters that were asked for; the imputer if there are none."""
    if not asked:
        return imputer
    if imputer is None:
        return ChainedImputer(**asked)
    if not isinstance(imputer, ChainedImputer):
        raise ValueError(
            f"{next(iter(asked))}= is a parameter of ChainedImputer, got {imputer!r}: pass no imputer, or "
            f"leave {', '.join(f'{name}=' for name in asked)} out."
        )
    return clone(imputer).set_params(**asked)


def properly(imputer: Any, n_draws: int) -> Any:
    """Returns an unfitted imputer whose draws include the uncertainty of the parameters."""
    if isinstance(imputer, BootstrapImputer):
        return clone(imputer).set_params(n_resamples=max(n_draws, imputer.n_resamples))
    if not isinstance(imputer, BaseImputer):
        raise ValueError(f"imputer must be an imputer of tables, got {imputer!r}.")
    method = find_method_of(imputer)
    if method is not None and method.draws_parameter is not None:
        if method.assumption(imputer) == method.missingness[0]:
            return clone(imputer).set_params(**{method.draws_parameter: n_draws})
    return BootstrapImputer(clone(imputer), n_draws, random_state=imputer.random_state)
