"""Files of ratings: how commands fit a recommender to one, and predict the pairs of another."""

import csv
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import halfseen
from halfseen._arrays import Floats
from halfseen.cli.options import RecommenderName
from halfseen.cli.progress import Reporter
from halfseen.cli.requests import FitRequest, RecommendRequest
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.files.writing import check_overwriting, check_writable
from halfseen.ratings.autorec import AutoRec
from halfseen.ratings.cfnade import CFNADE
from halfseen.ratings.matrix_factorization import MatrixFactorization, RatingEnsemble
from halfseen.ratings.recommender import Recommender
from halfseen.ratings.table import NAMES, Positions, Ratings, find_column, read_ratings

RECOMMENDERS: dict[str, type[Recommender]] = {
    RecommenderName.autorec: AutoRec,
    RecommenderName.cfnade: CFNADE,
    RecommenderName.factorisation: MatrixFactorization,
    RecommenderName.ensemble: RatingEnsemble,
}
WITH_ROWS = (RecommenderName.autorec, RecommenderName.cfnade)


def save_recommender(request: FitRequest, reporter: Reporter) -> None:
    """Fit a recommender to a file of ratings and save it: ``halfseen fit --recommender``."""
    path = request.save_model
    check_writable(path)
    check_overwriting({"IN": request.source}, {"--save-model": path}, overwrite=request.overwrite)
    model = fit_recommender(
        request.source, str(request.recommender), reporter, request.reading.to_arguments(),
        random_state=request.seed,
    )  # fmt: skip
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
        known = {"user": model.users_, "item": model.items_}
        users, items = (_identifiers(file.table, what, known[what]) for what in known)
        predicted = model.predict(users, items)
    except ValueError as error:
        raise TableError(f"{file.source}: {error}") from error
    for what, asked in {"user": users, "item": items}.items():
        n_unknown = len(asked) - int(np.isin(np.array(asked), known[what]).sum())
        if n_unknown:
            words = {"user": "a user", "item": "an item"}[what]
            reporter.note(
                f"{n_unknown:,} rows with {words} without ratings in the training: predicted by means"
            )
    _show_error(predicted, file.table, reporter)
    return pa.array(predicted)


def _identifiers(table: pa.Table, what: str, known: npt.NDArray[Any]) -> list[Any]:
    """Return the identifiers of rows, with the type of known ones that are written in the same way."""
    by_text = {str(value): value for value in known.tolist()}
    column = table.column(find_column(table.column_names, what)).to_pylist()
    values: list[Any] = [by_text.get(str(value), value) for value in column]
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


def recommend(request: RecommendRequest, reporter: Reporter) -> None:
    """Print items with their predicted ratings as csv, by a recommender that is fitted or loaded."""
    _check_options(request)
    if sys.stdout is None:
        raise TableError("cannot write: standard output is closed")
    origin = request.source if request.model is None else request.model
    model = _load(request.model) if request.model is not None else _fit(request, reporter)
    try:
        user = _find_user(request.user, model.users_.tolist())
        items, ratings = model.recommend(user, request.k, min_ratings=request.min_ratings)
    except ValueError as error:
        raise TableError(f"{origin}: {error}") from error
    counts = model.item_counts_
    _show_order(counts, request.min_ratings, reporter)
    if request.save_model is not None:
        model.save(request.save_model)
        reporter.show("saved", request.save_model)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["item", "rating", "n_ratings"])
    known = dict(zip(model.items_.tolist(), counts.tolist(), strict=True))
    predicted = zip(items.tolist(), ratings, strict=True)
    writer.writerows([item, f"{rating:.2f}", known[item]] for item, rating in predicted)
    reporter.done()


def _show_order(counts: Positions, fewest: int, reporter: Reporter) -> None:
    """Report how many items were put last because they have few ratings."""
    n_few = int((counts < fewest).sum())
    if n_few:
        reporter.note(
            f"{n_few:,} of {len(counts):,} items have fewer than {fewest} ratings, which say little about "
            "them: they come after all other items, whatever their predicted ratings (--min-ratings)"
        )


def _check_options(request: RecommendRequest) -> None:
    if (request.source is None) == (request.model is None):
        raise TableError("give either a table of RATINGS to fit a recommender to, or a fitted one by --model")
    if request.model is not None and (request.recommender is not None or request.rows is not None):
        raise TableError("--recommender and --rows are of a recommender to fit; that of --model is fitted")
    if request.rows is not None and request.recommender not in WITH_ROWS:
        raise TableError(f"--rows needs --recommender {' or '.join(WITH_ROWS)}: others have no such choice")
    if request.save_model is None:
        return
    if request.model is not None:
        raise TableError("--save-model saves a fitted recommender; that of --model is a file already")
    check_writable(request.save_model)
    check_overwriting(
        {"RATINGS": request.source}, {"--save-model": request.save_model}, overwrite=request.overwrite
    )


def _fit(request: RecommendRequest, reporter: Reporter) -> Recommender:
    def check(ratings: Ratings) -> None:  # before a fit that may take minutes
        _find_user(request.user, ratings.users.values)

    name = RecommenderName.ensemble if request.recommender is None else request.recommender
    settings = {"random_state": request.seed} | ({} if request.rows is None else {"rows": str(request.rows)})
    return fit_recommender(str(request.source), name, reporter, request.reading, check, **settings)


def _load(path: str) -> Recommender:
    model = halfseen.load(path)
    if not isinstance(model, Recommender):
        raise TableError(f"{path} holds a {type(model).__name__}; --model needs a recommender")
    return model


def _find_user(text: str, users: Sequence[int | str]) -> int | str:
    """Return the user of the command line as users are in the file; raise a ValueError if it is not there."""
    is_number = isinstance(users[0], int)
    if is_number and not text.removeprefix("-").isdecimal():
        raise ValueError(f"Users are whole numbers, such as {users[0]}, got {text!r}.")
    user = int(text) if is_number else text
    if user not in users:
        raise ValueError(
            f"User {user!r} has no ratings. There are {len(users):,} users, such as {users[0]!r}."
        )
    return user
