"""Files of ratings: how commands fit a recommender to one, and predict the pairs of another."""

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import halfseen
from halfseen.cli.options import RecommenderName
from halfseen.cli.progress import Reporter
from halfseen.files.atomic import check_apart, check_writable
from halfseen.files.tables import TableError, TableFile, read_table
from halfseen.ratings.autorec import AutoRec
from halfseen.ratings.cfnade import CFNADE
from halfseen.ratings.ensemble import RatingEnsemble
from halfseen.ratings.matrix_factorization import MatrixFactorization
from halfseen.ratings.recommender import Recommender
from halfseen.ratings.table import NAMES, Floats, Ratings, find_column, read_ratings

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


@dataclass(frozen=True)
class RecommendRequest:
    """What a user asked for; see ``halfseen recommend --help``."""

    source: str | None
    user: str
    k: int = 10
    rows: str = "item"
    seed: int = 0
    model: str | None = None
    save_model: str | None = None
    reading: dict[str, Any] | None = None


def recommend(request: RecommendRequest, reporter: Reporter) -> None:
    """Print items with their predicted ratings as csv, by a recommender that is fitted or loaded."""
    _check_paths(request)
    origin = request.source if request.model is None else request.model
    model = _load(request.model) if request.model is not None else _fit(request, reporter)
    try:
        items, ratings = model.recommend(_find_user(request.user, model.users_.tolist()), request.k)
    except ValueError as error:
        raise TableError(f"{origin}: {error}") from error
    if request.save_model is not None:
        model.save(request.save_model)
        reporter.show("saved", request.save_model)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["item", "rating"])
    writer.writerows([item, f"{rating:.2f}"] for item, rating in zip(items, ratings, strict=True))
    reporter.done()


def _check_paths(request: RecommendRequest) -> None:
    if (request.source is None) == (request.model is None):
        raise TableError("give either a table of RATINGS to fit a recommender to, or a fitted one by --model")
    if request.save_model is None:
        return
    if request.model is not None:
        raise TableError("--save-model saves a fitted recommender; that of --model is a file already")
    check_writable(request.save_model)
    check_apart({"RATINGS": request.source}, {"--save-model": request.save_model})


def _fit(request: RecommendRequest, reporter: Reporter) -> Recommender:
    def check(ratings: Ratings) -> None:  # before a fit that may take minutes
        _find_user(request.user, ratings.users.values)

    settings = {"rows": request.rows, "random_state": request.seed}
    source, reading = str(request.source), request.reading or {}
    return fit_recommender(source, RecommenderName.autorec, reporter, reading, check, **settings)


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
