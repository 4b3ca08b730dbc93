"""The command ``halfseen recommend``: fit a recommender, or load one, and print the best items for a user."""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import halfseen
from halfseen.cli.atomic import check_apart, check_writable
from halfseen.cli.options import RecommenderName
from halfseen.cli.progress import Reporter
from halfseen.cli.ratings import fit_recommender
from halfseen.cli.tables import TableError
from halfseen.estimators._ratings import Ratings
from halfseen.estimators._recommender import Recommender


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
