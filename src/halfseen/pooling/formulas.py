"""Formulas of statsmodels as analyses of completed tables."""

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt

from halfseen.data.frames import is_frame
from halfseen.errors import warn_user
from halfseen.pooling.weighted import weighted_formula

Floats = npt.NDArray[np.float64]

TWO_CLASSES = ("logit", "probit")
_PARSERS = (("patsy", "PatsyError"), ("formulaic.errors", "FormulaicError"))


def analyse_formula(formula: str, model: Any, weights: Floats | None) -> Callable[[Any], Any]:
    """Returns a function that fits a formula of statsmodels to a table.

    Parameters
    ----------
    formula : str
        Such as ``"y ~ x + C(group)"``.
    model : str or callable
        A name in ``statsmodels.formula.api``, or a function of the formula and a pandas data frame.
    weights : array of shape (n_samples,) or None
        The weights of the rows.
    """
    build = _named_model(model) if isinstance(model, str) else model
    weighted = None if weights is None else weighted_formula(formula, model, weights)
    errors = tuple(_parser_errors())

    def analyse(table: Any) -> Any:
        if not is_frame(table):
            raise ValueError(f"The formula {formula!r} names columns, but the completed tables are arrays.")
        frame = nw.from_native(table, eager_only=True).to_pandas()
        if isinstance(model, str):
            _check_target(formula, model, frame)
        try:
            if weighted is not None:
                return weighted(frame)
            found = build(formula, frame)
        except errors as error:
            reason = str(error).splitlines()[0]
            columns = ", ".join(map(str, frame.columns))
            raise ValueError(
                f"The formula {formula!r} cannot be used: {reason}. Columns: {columns}."
            ) from error
        _warn_of_missing(formula, found, len(frame))
        quiet = {"disp": False} if "disp" in inspect.signature(found.fit).parameters else {}
        return found.fit(**quiet)

    return analyse


def _check_target(formula: str, model: str, frame: Any) -> None:
    """Raises if the target of a model of numbers is a column of text or categories."""
    target = formula.partition("~")[0].strip()
    if target not in frame.columns or nw.from_native(frame, eager_only=True)[target].dtype.is_numeric():
        return
    levels = sorted(set(frame[target].dropna()), key=str)
    if len(levels) == 2 and model in TWO_CLASSES:
        low, high = (repr(level) for level in levels)
        raise ValueError(
            f"Column {target!r} contains {low} and {high}, and {model} needs 0 and 1. Code it in every "
            f"table, for example by table.assign({target}=(table[{target!r}] == {high}).astype(int))."
        )
    if model in ("ols", "wls", "glm", "poisson", *TWO_CLASSES):
        raise ValueError(f"Column {target!r} does not contain numbers, which the target of {model} must.")


def _warn_of_missing(formula: str, found: Any, n_rows: int) -> None:
    n_used = len(getattr(found, "endog", np.empty(n_rows)))
    if n_used < n_rows:
        warn_user(
            f"The formula {formula!r} uses {n_used} of {n_rows} rows of a completed table; the others have "
            "missing values in its columns. Were the tables completed?"
        )


def _named_model(name: str) -> Any:
    try:
        import statsmodels.formula.api as formulas
    except ImportError as error:
        raise ImportError(
            "Formulas need statsmodels: pip install statsmodels. A function or a scikit-learn model does not."
        ) from error
    offered = sorted(key for key in vars(formulas) if key.islower() and callable(getattr(formulas, key)))
    if name not in offered:
        raise ValueError(f"model must be one of {', '.join(offered)} or a function, got {name!r}.")
    return getattr(formulas, name)


def _parser_errors() -> list[type[Exception]]:
    """Returns the errors of the libraries by which statsmodels reads formulas, if they are installed."""
    installed = [(module, name) for module, name in _PARSERS if find_spec(module.partition(".")[0])]
    return [getattr(import_module(module), name) for module, name in installed]
