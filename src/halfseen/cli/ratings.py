"""Files of ratings: how commands fit a recommender to one, and predict the pairs of another."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from halfseen.cli.atomic import check_apart, check_writable
from halfseen.cli.options import RecommenderName
from halfseen.cli.progress import Reporter
from halfseen.cli.tables import TableError, TableFile, read_table
from halfseen.estimators._ratings import NAMES, Floats, Ratings, find_column, read_ratings
from halfseen.estimators._recommender import Recommender
from halfseen.estimators.cfnade import CFNADE
from halfseen.estimators.matrix_factorization import MatrixFactorization
from halfseen.estimators.rating_ensemble import RatingEnsemble
from halfseen.estimators.recommenders import AutoRec

RECOMMENDERS: dict[str, type[Recommender]] = {
    RecommenderName.autorec: AutoRec,
    RecommenderName.cfnade: CFNADE,
    RecommenderName.factorisation: MatrixFactorization,
    RecommenderName.ensemble: RatingEnsemble,
}


def save_recommender(
    source: str, name: str, path: str, seed: int, reporter: Reporter, reading: dict[str, Any]
) -> None:
    """Fit a recommender to a file of ratings and save it: ``halfseen fit --recommender``."""
    check_writable(path)
    check_apart({"IN": source}, {"--save-model": path})
    model = fit_recommender(source, name, reporter, reading, random_state=seed)
    model.save(path)
    reporter.show("model", f"{path}: {type(model).__name__}")
    reporter.done()


def fit_recommender(
    source: str,
    name: str,
    reporter: Reporter,
    reading: dict[str, Any],
    check: Callable[[Ratings], None] | None = None,
    **settings: Any,
) -> Recommender:
    """Fit a recommender to a file of ratings.

    Parameters
    ----------
    source, name : str
        The file, and one of `RECOMMENDERS`.
    reporter : Reporter
        The reporter of progress.
    reading : dict
        Options of `read_table`.
    check : callable, optional
        Called with the ratings before the fit; a ValueError that it raises is reported.
    **settings : object
        Parameters of the recommender.
    """
    file = read_table(source, **reading)
    reporter.show("read", f"{file.source}: {file.table.num_rows:,} ratings")
    kind = RECOMMENDERS[name]
    with reporter.noting_warnings(), reporter.progress("fitting", kind.__name__) as move:
        model = kind(**settings)
        reports = "callback" in model.get_params(deep=False)
        if reports:
            model.set_params(callback=move)
        try:
            if check is not None:
                check(read_ratings(file.table))
            model.fit(file.table)
        except ValueError as error:
            raise TableError(f"{file.source}: {error}") from error
    return model.set_params(callback=None) if reports else model


def predict_pairs(model: Recommender, file: TableFile, reporter: Reporter) -> pa.Array:
    """Return the predicted rating of each row, a pair of a user and an item; note which are unknown."""
    try:
        users, items = (_identifiers(file.table, what) for what in ("user", "item"))
        predicted = model.predict(users, items)
    except ValueError as error:
        raise TableError(f"{file.source}: {error}") from error
    for what, known in {"user": model.users_, "item": model.items_}.items():
        asked = users if what == "user" else items
        n_unknown = len(asked) - int(np.isin(np.array(asked), known).sum())
        if n_unknown:
            words = {"user": "a user", "item": "an item"}[what]
            reporter.note(
                f"{n_unknown:,} rows with {words} without ratings in the training: predicted by means"
            )
    _show_error(predicted, file.table, reporter)
    return pa.array(predicted)


def _identifiers(table: pa.Table, what: str) -> list[Any]:
    values: list[Any] = table.column(find_column(table.column_names, what)).to_pylist()
    return values


def _show_error(predicted: Floats, table: pa.Table, reporter: Reporter) -> None:
    """Report the error of the predictions of known ratings."""
    names = [name for name in table.column_names if name in NAMES["rating"]]
    if len(names) != 1 or table[names[0]].null_count == len(predicted):
        return
    ratings = table[names[0]].type
    if pa.types.is_integer(ratings) or pa.types.is_floating(ratings):
        errors = predicted - table[names[0]].cast(pa.float64()).to_numpy()
        known = errors[~np.isnan(errors)]
        if not len(known):
            return
        error = float(np.sqrt(np.mean(known**2)))
        reporter.show(
            "score", f"{names[0]!r} is known in {len(known):,} rows: root mean squared error {error:.4f}"
        )
