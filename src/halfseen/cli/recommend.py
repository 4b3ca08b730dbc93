"""The command ``halfseen recommend``: read ratings, fit a recommender, print the best items for a user."""

import csv
import sys
import time
from dataclasses import dataclass
from typing import Any

from halfseen.cli.progress import Reporter
from halfseen.cli.tables import TableError, read_table
from halfseen.estimators.recommenders import AutoRec


@dataclass(frozen=True)
class Request:
    """What a user asked for; see ``halfseen recommend --help``."""

    source: str
    user: str
    k: int = 10
    rows: str = "item"
    seed: int = 0
    save: str | None = None
    reading: dict[str, Any] | None = None


def recommend(request: Request, reporter: Reporter) -> None:
    """Fit AutoRec to a file of ratings and print items with their predicted ratings as csv."""
    started = time.perf_counter()
    file = read_table(request.source, **request.reading or {})
    reporter.say("read", f"{file.source}: {file.table.num_rows:,} ratings")
    with reporter.noting_warnings(), reporter.progress("fitting", "AutoRec") as move:
        model = AutoRec(request.rows, random_state=request.seed, callback=move)
        try:
            model.fit(file.table)
            items, ratings = model.recommend(_identifier(request.user, model), request.k)
        except ValueError as error:
            raise TableError(f"{file.source}: {error}") from error
    model.set_params(callback=None)
    if request.save is not None:
        model.save(request.save)
        reporter.say("saved", request.save)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["item", "rating"])
    writer.writerows([item, f"{rating:.2f}"] for item, rating in zip(items, ratings, strict=True))
    reporter.say("done", f"in {time.perf_counter() - started:.1f} s", "bold green")


def _identifier(text: str, model: AutoRec) -> int | str:
    """Return the user of the command line as users are in the file."""
    is_number = model.users_.dtype.kind == "i"
    if is_number and not text.lstrip("-").isdecimal():
        raise ValueError(f"Users are whole numbers, such as {model.users_[0]}, got {text!r}.")
    return int(text) if is_number else text
