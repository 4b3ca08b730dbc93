"""A comparison of predictors as a plain dict and as a page: first what to do, then the numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from halfseen.evaluation.comparison import Estimate
from halfseen.evaluation.prediction_result import SCORES, PredictionComparison
from halfseen.evaluation.prediction_words import (
    Treatment,
    say_average,
    say_best,
    say_expected,
    say_missingness,
    say_repeats,
    say_whether_to_impute,
)
from halfseen.report.compare import dot_plot
from halfseen.report.render import _environment
from halfseen.report.run_info import UNKNOWN_RUN, RunInfo

Summary = dict[str, Any]
MEBIBYTE = 2**20


def summarize_prediction(
    comparison: PredictionComparison,
    *,
    target: str,
    classes: Sequence[Any] = (),
    shape: tuple[int, int],
    n_missing: int,
    treatments: Mapping[str, Treatment],
    descriptions: Mapping[str, str],
    budget: float = math.inf,
    run: RunInfo = UNKNOWN_RUN,
) -> Summary:
    """Return a comparison as numbers, strings, lists and dicts.

    Parameters
    ----------
    comparison : PredictionComparison
        The comparison.
    target : str
        The name of the target.
    classes : sequence
        Its classes; empty for numbers.
    shape : tuple of int
        Rows and columns that predictions are made from.
    n_missing : int
        The missing values among them.
    treatments, descriptions : mapping
        What each method does with missing values, as a kind and in words.
    budget : float
        The time limit in seconds.
    run : RunInfo
        How the report was made.
    """
    places = comparison.places()
    order = [place.method for place in places]
    order += [method for method in comparison.methods if method not in order]
    kinds = set(treatments.values())
    imputes = Treatment.IMPUTED in kinds and len(kinds) > 1
    said = [
        say_best(comparison),
        say_average(comparison),
        say_whether_to_impute(comparison, treatments, n_missing) if imputes else None,
        say_missingness(comparison),
        say_expected(comparison),
    ]
    sentences = [one for one in said if one is not None]
    if comparison.n_repeats > 0:
        sentences.append(say_repeats(comparison))
    return {
        **run.to_dict(),
        "target": target,
        "task": comparison.task,
        "classes": [str(one) for one in classes],
        "n_rows": shape[0],
        "n_columns": shape[1],
        "n_missing": n_missing,
        "n_splits": comparison.n_splits,
        "n_repeats": comparison.n_repeats,
        "weights": comparison.weights,
        "rates": list(comparison.rates),
        "sentences": sentences,
        "scores": [
            {"name": name, "label": SCORES[name][0], "main": name == comparison.main}
            for name in comparison.scores
        ],
        "pictures": [_picture(comparison, order, rate) for rate in range(len(comparison.rates))],
        "methods": [
            _method(comparison, name, treatments.get(name), descriptions.get(name, "")) for name in order
        ],
        "n_failed": sum(comparison.count(name, "failed") for name in comparison.methods),
        "n_stopped": sum(comparison.count(name, "out of budget") for name in comparison.methods),
        "n_runs": len(comparison.records),
        "budget": None if math.isinf(budget) else budget,
    }  # fmt: skip


def _method(
    comparison: PredictionComparison, name: str, treatment: Treatment | None, description: str
) -> Summary:
    place = next((one for one in comparison.places() if one.method == name), None)
    cost = comparison.cost(name)
    return {
        "name": name,
        "treatment": "" if treatment is None else treatment.value,
        "description": description,
        "best": place is not None and place.best,
        "tied": place is not None and place.tied,
        "scores": {score: _plain(comparison.estimate(name, score)) for score in comparison.scores},
        "by_rate": [
            _plain(comparison.estimate(name, comparison.main, rate)) for rate in range(len(comparison.rates))
        ],
        "fit_seconds": _number(cost["fit_seconds"]),
        "predict_seconds": _number(cost["predict_seconds"]),
        "mebibytes": _number(cost["memory"] / MEBIBYTE),
        "n_folds": comparison.count(name),
        "n_done": comparison.count(name, "ok"),
        "n_failed": comparison.count(name, "failed"),
        "n_stopped": comparison.count(name, "out of budget"),
        "errors": comparison.errors(name),
    }


def _picture(comparison: PredictionComparison, order: Sequence[str], rate: int) -> Summary:
    """Return the main score at a rate in the form that `dot_plot` draws."""
    places = {place.method: place for place in comparison.places(rate)}
    lines = []
    for name in order:
        place = places.get(name)
        estimate = comparison.estimate(name, comparison.main, rate)
        lines.append(
            {
                "method": _shortened(name),
                **_plain(estimate),
                "best": place is not None and place.best,
                "tied": place is not None and place.tied,
            }
        )
    return {
        "name": comparison.main,
        "label": SCORES[comparison.main][0],
        "direction": SCORES[comparison.main][1],
        "rate": comparison.rates[rate],
        "target": None,
        "parts": {"out": lines},
    }


def _shortened(name: str) -> str:
    """Return a name that fits beside a picture."""
    first, plus, last = name.partition("+")
    short = {"constant": "const", "gaussian": "gauss", "multiple": "multi", "boosting": "boost"}
    return f"{short.get(first, first)}+{short.get(last, last)}" if plus else name


def _plain(estimate: Estimate) -> Summary:
    return {key: _number(getattr(estimate, key)) for key in ("mean", "low", "high")}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def show_score(name: str, value: float | None) -> str:
    """Return a score as it is written."""
    if value is None:
        return "\N{EN DASH}"
    if name == "accuracy":
        return f"{100 * value:.1f}%"
    return f"{value:.4g}" if name in ("rmse", "mae") else f"{value:.3f}"


def render_prediction(summary: Summary) -> str:
    """Return the page of a comparison of predictors: one HTML file, no script, no request."""
    environment = _environment()
    environment.globals |= {"show": show_score}
    pictures = [Markup(dot_plot(score, "out")) for score in summary["pictures"]]
    template = environment.get_template("prediction.html.jinja")
    return template.render(summary=summary, pictures=pictures)
