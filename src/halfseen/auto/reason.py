"""What was chosen and why, in sentences: the text of ``AutoImputer.reason_``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from halfseen.auto.scoring import COMBINATION
from halfseen.base.catalogue import CATALOGUE
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.leaving import shortened
from halfseen.data.schema import Column
from halfseen.words import names_words

LIMIT_MET = (
    "The time limit was reached, so that the speed of the computer decided how much was done: another run "
    "may give other values."
)
MOST_SKEWNESS = 1.0  # of a column that passes for normal, half of that of an exponential one; a guess
MOST_FREQUENT = 0.1  # the share of the most frequent value of a column that passes for continuous; a guess
ROWS_PER_COLUMN = 20  # below which the ridge of a joint Gaussian matters; a guess
MOST_COLUMNS = 30  # of a small table; wide tables need the ridge
FEWEST_VALUES = 30  # of which a share can be estimated

_TOLD = [("RMSE", "rmse"), ("CRPS", "crps"), ("accuracy", "accuracy")]


@dataclass(frozen=True)
class ChoiceFacts:
    """What the sentences say."""

    # The mean weights over the columns of the methods, in distributions and in single values.
    weights: Mapping[str, float]
    point_weights: Mapping[str, float]
    fitted_to: Mapping[str, Mapping[str, int]]  # as `fitted_to_` of the imputer
    scores: Sequence[Mapping[str, Any]]  # as `scores_` of the imputer
    left_out: Mapping[str, str]  # the candidates that were not used, and why
    mixed: Mapping[str, float]  # the share of mixtures by what they predict, as in `ChosenWeights`
    # The rows of the table, and the hidden cells.
    n_rows: int
    n_cells: int
    without_trees: Sequence[str]  # the columns that were to be imputed by trees and have none


def explain(facts: ChoiceFacts) -> str:
    """Returns the sentences."""
    text = _say_methods(facts)
    if len(facts.weights) > 1:
        text += _say_mixtures(facts.mixed)
    text += _say_fits(facts) + _say_scores(facts.scores)
    for name, why in facts.left_out.items():
        text += f" {label(name)} was not used: {why}."
    if facts.without_trees:
        verb = "counts" if len(facts.without_trees) == 1 else "count"
        text += (
            f" No trees could be grown for {shortened(list(facts.without_trees))}, which {verb} as Gaussian: "
            "there were too few values, too many levels, or no time."
        )
    return text


def explain_briefly(by_column: Mapping[str, Mapping[str, float]], scores: Sequence[Mapping[str, Any]]) -> str:
    """Returns the methods with their mean weights, and the scores: the two sentences that matter most.

    Examples
    --------
    >>> weights = {"a": {"trees": 1.0}, "b": {"gaussian": 0.25, "trees": 0.75}}
    >>> explain_briefly(weights, [{"candidate": "mean"}])
    'AutoImputer combines Trees (88%) and Gaussian (12%).'
    """
    shares = mean_weights(by_column)
    named = [f"{label(name)} ({share:.0%})" for name, share in shares.items()]
    how = (
        f"combines {names_words(named, len(named))}"
        if len(named) > 1
        else f"uses {label(next(iter(shares)))}"
    )
    return f"AutoImputer {how}.{_say_scores(scores)}"


def mean_weights(by_column: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean weights of methods over columns, the largest first.

    Examples
    --------
    >>> mean_weights({"a": {"trees": 1.0}, "b": {"gaussian": 0.25, "trees": 0.75}})
    {'trees': 0.875, 'gaussian': 0.125}
    """
    total: dict[str, float] = {}
    for shares in by_column.values():
        for name, weight in shares.items():
            total[name] = total.get(name, 0.0) + weight / len(by_column)
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def label(name: str) -> str:
    """Returns the name of a method in reports."""
    return next((method.label for method in CATALOGUE if method.name == name), name)


def _say_methods(facts: ChoiceFacts) -> str:
    names = [*facts.weights, *(name for name in facts.point_weights if name not in facts.weights)]
    chosen = f", chosen by predictions of {facts.n_cells:,} known cells that were hidden."
    if len(names) == 1:
        return f"AutoImputer uses {label(names[0])}{chosen}"
    how = "combines" if any(share > 0 for share in facts.mixed.values()) else "uses"
    said = []
    for position, name in enumerate(names):
        both = [f"{shares.get(name, 0.0):.0%}" for shares in (facts.weights, facts.point_weights)]
        unit = " of the weight" if position == 0 else ""
        words = f"{both[0]}{unit}" if both[0] == both[1] else f"{both[0]}{unit}, {both[1]} in single values"
        said.append(f"{label(name)} ({words})")
    return f"AutoImputer {how} {', '.join(said[:-1])} and {said[-1]}{chosen}"


def _say_mixtures(mixed: Mapping[str, float]) -> str:
    """Returns why there are mixtures, or single methods, for what is predicted."""
    tested = "in rows that were not used to find their weights"
    text = ""
    if mixed.get("distributions"):
        text = f" Distributions are mixed, because mixtures predicted better than single methods {tested}."
    elif "distributions" in mixed:
        text = (
            " The distribution of each column of numbers is that of one method, because mixtures did not "
            f"predict better {tested}."
        )
    averaged = [kind for kind in ("single values", "levels") if mixed.get(kind)]
    if averaged:
        text += f" Weights of {' and '.join(averaged)} are between those that predicted best and equal ones."
    return text


def _say_fits(facts: ChoiceFacts) -> str:
    """Returns to what each method was fitted; methods that were fitted to the same in one sentence."""
    groups: dict[str, list[str]] = {}
    for name, fit in facts.fitted_to.items():
        rows, hidden = fit["rows"], fit["hidden_cells"]
        whole = f"all {rows:,} rows" if rows == facts.n_rows else f"{rows:,} of {facts.n_rows:,} rows"
        groups.setdefault(f"{whole}, without {hidden:,} hidden cells" if hidden else whole, []).append(name)
    text = ""
    for what, names in groups.items():
        *most, last = [label(name) for name in names]
        who = f"{', '.join(most)} and {last} were" if most else f"{last} was"
        text += f" {who} fitted to {what}."
    return text


def _say_scores(scores: Sequence[Mapping[str, Any]]) -> str:
    """Returns the scores of the combination on the hidden cells, beside those of the first candidate."""
    by_name = {row["candidate"]: row for row in scores}
    base, found = scores[0], by_name.get(COMBINATION)
    if found is None:
        return ""
    shown = ", ".join(f"{word} {found[key]:.3f}" for word, key in _TOLD if found[key] is not None)
    against = ", ".join(f"{base[key]:.3f}" for _, key in _TOLD if base[key] is not None)
    if not shown:
        return ""
    return f" On the hidden cells, this has {shown} ({label(base['candidate'])}: {against})."


def why_not_normal(columns: Sequence[Column], codes: Incomplete) -> str | None:
    """Returns why a joint Gaussian could bias analyses of a table (N, C), or None if it is not expected to.

    Levels enter a joint Gaussian as indicators, whose conditional distributions are linear in other columns;
    those of levels are not. Skewed numbers and numbers with a frequent value, such as zero, are transformed,
    and relations between transformed columns are not those of an analysis. With few rows, a joint Gaussian
    shrinks correlations by a ridge, which biases coefficients towards zero.
    """
    if len(codes) < ROWS_PER_COLUMN * len(columns) and len(columns) <= MOST_COLUMNS:
        return f"there are only {len(codes)} rows for {len(columns)} columns"
    for c, column in enumerate(columns):
        if column.levels is not None:
            return f"column {column.name!r} has levels"
        if column.codes is not None:
            return f"column {column.name!r} has few distinct values"
        x = codes.x[codes.observed[:, c], c]
        if len(x) < 2:
            continue
        values = Incomplete(x[:, None], torch.ones(len(x), 1, dtype=torch.bool))
        scaled = Standardizer.fit(values).forward(values.x)
        if float(scaled.pow(3).mean().abs()) > MOST_SKEWNESS:
            return f"column {column.name!r} is skewed"
        if int(x.unique(return_counts=True)[1].max()) > MOST_FREQUENT * len(x) and len(x) >= FEWEST_VALUES:
            return f"column {column.name!r} has a frequent value"
    return None
