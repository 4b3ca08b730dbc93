"""Comparisons of imputers and of predictors: as a plain dict, and as a page or a part of another page."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from halfseen.data.leaving import baseline_words, grade
from halfseen.evaluation.comparison import SCORES, Comparison, Estimate, Standing
from halfseen.evaluation.prediction_result import (
    PREDICTION_SCORES,
    PredictionComparison,
    Treatment,
    say_average,
    say_best,
    say_expected,
    say_missingness,
    say_repeats,
    say_whether_to_impute,
)
from halfseen.evaluation.trial import PARTS
from halfseen.report import svg
from halfseen.report.render import _environment
from halfseen.report.result import FILLABLE, UNKNOWN_RUN, RunInfo
from halfseen.words import minus, names_words, plural

Summary = dict[str, Any]


NOTICE = (
    "The hidden values were known values. If the values that are really missing differ from them in ways "
    "that the table does not show, the methods are less accurate than they appear here."
)


FEWEST_HIDDEN = 10
"""With fewer hidden values in a repetition, columns have no verdict; a guess."""


def judge_compared(summary: Summary) -> list[Summary]:
    """Return, for each column, the best method and whether it is much better than the mean.

    Parameters
    ----------
    summary : dict
        The output of `halfseen.report.compare.summarize_comparison`. If the method ``mean`` was not compared,
        there is no baseline, and the list is empty.
    """
    names = [method["name"] for method in summary["methods"]]
    if "mean" not in names or min(summary["n_hidden"]) < FEWEST_HIDDEN:
        return []
    found = []
    for column in summary["columns"]:
        base, best = column["values"][names.index("mean")], column["best"]
        if base is None or best is None:
            continue
        number = column["score"] == "RMSE"
        measure = "error" if number else "accuracy"
        gain = _gain(number, base, best)
        verdict = "poor" if gain is None else grade(gain, gain)
        method = names[column["values"].index(best)]
        pattern = "RMSE {:.2f}, compared with {:.2f}" if number else "{:.0%} correct, compared with {:.0%}"
        found.append(
            {
                "name": column["name"],
                "verdict": verdict,
                "label": FILLABLE[verdict].format(baseline=baseline_words(measure)),
                "method": method,
                "why": f"{pattern.format(best, base)} for {baseline_words(measure)}.",
            }
        )
    return found


def _gain(number: bool, base: float, best: float) -> float | None:
    """Return the relative reduction of the baseline's squared error, or of its number of wrong levels."""
    if number:
        return 1 - (best / base) ** 2 if base > 0 else None
    return (best - base) / (1 - base) if base < 1 else None


def compare_lines(summary: Summary, verdicts: Sequence[Summary]) -> list[str]:
    """Return the sentences at the top of the page."""
    settings = summary["settings"]
    hidden = plural(summary["n_hidden"][0], "known value")
    methods = plural(len(summary["methods"]), "method")
    often = f", {settings['n_repeats']} times" if settings["n_repeats"] > 1 else ""
    best = [line for line in map(_best_line, summary["scores"]) if line]
    lines = [
        f"{hidden} of {plural(settings['n_rows'], 'row')} {'was' if summary['n_hidden'][0] == 1 else 'were'} "
        f"hidden, filled by {methods} and compared with the truth{often}.",
        *([" ".join(best)] if best else []),
    ]
    doubts = []
    poor = [one["name"] for one in verdicts if one["verdict"] == "poor"]
    if poor:
        doubts.append(
            f"No method fills {names_words(poor)} much better than the mean or the most frequent level."
        )
    failed = [method["name"] for method in summary["methods"] if method["n_failed"]]
    if failed:
        doubts.append(f"{names_words(failed)} failed in some repetitions.")
    return [*lines, " ".join([*doubts, NOTICE])]


def _best_line(score: Summary) -> str:
    """Return the best method by the errors of numbers, the accuracy of levels or whole distributions."""
    what = {"rmse": "numbers", "accuracy": "levels", "crps": "uncertainty about numbers"}.get(score["name"])
    if what is None or score["best"] is None:
        return ""
    ties = f" (statistically tied with {names_words(score['tied'])})" if score["tied"] else ""
    return f"Best for {what}: {score['best']}{ties}."


MAX_COLUMNS = 200
"""Columns that a page lists; a guess: a table of so many is searched by the browser rather than read."""

EXPLAINED = {
    "rmse": "Root mean squared error of single values, in standard deviations of the column",
    "mae": "Mean absolute error of single values, in standard deviations",
    "accuracy": "Fraction of levels imputed correctly",
    "log_loss": "Minus the log probability of the true level; only for methods with probabilities",
    "crps": "Error of the predictive distribution; for a single value, its absolute error",
    "coverage": "Share of true values within their interval",
    "width": "Mean width of the intervals, in standard deviations",
    "interval_score": "Width of the intervals, plus a penalty for values outside them",
    "energy": "Distance of completed rows from true rows as distributions",
    "sliced_wasserstein": "Transport distance of completed rows from true rows",
}
SHOWN = ("rmse", "mae", "accuracy", "log_loss", "crps", "coverage", "energy")
PICTURED = ("rmse", "mae", "accuracy", "log_loss", "crps", "coverage", "interval_score", "energy")
BOUNDS = {
    **dict.fromkeys(("accuracy", "coverage", "auc"), (0.0, 1.0)),
    **dict.fromkeys(("rmse", "mae", "log_loss", "crps", "width", "interval_score"), (0.0, math.inf)),
}
"""The smallest and the largest value of scores; an interval over few repetitions may exceed them."""
_ROW, _NAME, _WIDTH = 27.0, 92.0, 340.0


def summarize_comparison(
    comparison: Comparison,
    run: RunInfo = UNKNOWN_RUN,
) -> Summary:
    """Return a comparison as numbers, strings, lists and dicts only.

    Parameters
    ----------
    comparison : Comparison
        What `halfseen.evaluation.protocol.compare` returned.
    run : RunInfo
        How the report was made.
    """
    settings = comparison.settings
    parts = [part for part in PARTS if comparison.scores(part)]
    main = parts[-1] if parts else "out"
    shown = [score for score in SHOWN if any(score in comparison.scores(part) for part in parts)]
    return {
        **run.to_dict(),
        "settings": settings,
        "provenance": comparison.provenance,
        "n_hidden": settings["n_hidden"],
        "parts": parts,
        "main": main,
        "methods": [
            {
                "name": name,
                "seconds": _finite(comparison.standings("seconds", main)[place].estimate.mean),
                "n_failed": comparison.count(name, "failed"),
                "n_skipped": comparison.count(name, "not applicable"),
                "errors": comparison.errors(name),
                "warnings": sorted({w for r in comparison.records if r.method == name for w in r.warnings}),
            }
            for place, name in enumerate(comparison.methods)
        ],
        "scores": [_summarize_score(comparison, score, parts, main) for score in shown],
        "pictured": _choose_pictures(comparison, parts, main),
        "columns": _summarize_columns(comparison, main),
        "n_failed": sum(record.status == "failed" for record in comparison.records),
        "n_resumed": sum(record.resumed for record in comparison.records),
        "n_runs": len(comparison.records),
    }


def _choose_pictures(comparison: Comparison, parts: Sequence[str], main: str) -> list[Summary]:
    """Return the scores to draw: six panels for a table with numbers, whether it has levels or not."""
    has_levels = any("accuracy" in comparison.scores(part) for part in parts)
    names = [name for name in PICTURED if not has_levels or name not in ("mae", "interval_score")]
    known = [name for name in names if any(name in comparison.scores(part) for part in parts)]
    return [_summarize_score(comparison, name, parts, main) for name in known]


def _summarize_score(comparison: Comparison, score: str, parts: Sequence[str], main: str) -> Summary:
    label, direction = SCORES[score]
    standings = {part: comparison.standings(score, part) for part in parts}
    chosen = standings[main]
    return {
        "name": score,
        "label": label,
        "direction": direction,
        "explained": EXPLAINED[score],
        "target": comparison.settings["level"] if direction == "level" else None,
        "parts": {part: [_summarize_standing(one) for one in standings[part]] for part in parts},
        "best": next((one.method for one in chosen if one.best), None),
        "tied": [one.method for one in chosen if one.tied],
    }


def _summarize_standing(standing: Standing) -> Summary:
    estimate = standing.estimate
    return {
        "method": standing.method,
        "mean": _finite(estimate.mean),
        "low": _finite(estimate.low),
        "high": _finite(estimate.high),
        "best": standing.best,
        "tied": standing.tied,
    }


def _summarize_columns(comparison: Comparison, part: str) -> list[Summary]:
    found = []
    for name, methods in comparison.by_column(part).items():
        score = "rmse" if any("rmse" in scores for scores in methods.values()) else "accuracy"
        values = [_finite(methods.get(method, {}).get(score, math.nan)) for method in comparison.methods]
        known = [value for value in values if value is not None]
        best = (min if score == "rmse" else max)(known) if known else None
        found.append({"name": name, "score": SCORES[score][0], "values": values, "best": best})
    return found


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def verdict(score: Summary) -> str:
    """Return one sentence: the best method by a score, and those statistically tied with it."""
    if score["best"] is None:
        return f"{score['label']}: no method finished every repetition"
    ties = f", statistically tied with {_listed(score['tied'])}" if score["tied"] else ""
    return f"{score['label']}: {score['best']}{ties}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def show(score: Summary, value: float | None) -> str:
    """Return a value of a score as it is written: shares in per cent, distances with more digits."""
    if value is None:
        return "\N{EN DASH}"
    if score["name"] in ("accuracy", "coverage"):
        return f"{100 * value:.1f}%"
    return f"{value:.4f}" if score["name"] in ("energy", "sliced_wasserstein") else f"{value:.3f}"


def render_comparison(summary: Summary) -> str:
    """Return the page of a comparison: one HTML file, no script, no request."""
    environment = _compare_environment()
    verdicts = judge_compared(summary)
    opening = {"lines": compare_lines(summary, verdicts), "verdicts": verdicts[:MAX_COLUMNS]}
    template = environment.get_template("compare.html.jinja")
    listed = {"columns": summary["columns"][:MAX_COLUMNS], "n_verdicts": len(verdicts)}
    return str(template.render(summary=summary, **opening, **listed, **_pictures(summary)))


def render_scores(summary: Summary) -> Markup:
    """Return pictures and table of a comparison as a fragment.

    The page needs the style of the reports, and ``compare_style.css.jinja`` after it.
    """
    template = _compare_environment().get_template("compare_scores.html.jinja")
    return Markup(template.render(summary=summary, **_pictures(summary)))


def _compare_environment() -> Any:
    environment = _environment()
    environment.filters |= {"verdict": verdict, "listed": _listed}
    environment.globals |= {"show": show}
    return environment


def _pictures(summary: Summary) -> dict[str, Any]:
    drawn = {score["name"]: Markup(dot_plot(score, summary["main"])) for score in summary["pictured"]}
    return {"pictures": drawn}


def dot_plot(score: Summary, main: str) -> str:
    """Draw a score: a line per method, its mean and interval on new rows, and faintly on fitted rows."""
    score = _within_bounds(score)
    rows = score["parts"][main]
    ends = [
        value
        for part in score["parts"].values()
        for one in part
        for value in (one["mean"], one["low"], one["high"])
        if value is not None
    ]
    ends += [score["target"]] if score["target"] is not None else []
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    pad = 0.06 * (high - low) or max(abs(high), 1e-9) * 0.05
    axis = _Axis(low - pad, high + pad, _ROW * len(rows) + 6)
    parts = axis.lines(score)
    for place, one in enumerate(rows):
        y = 14 + _ROW * place
        name = svg.shorten(one["method"], 13)
        parts.append(
            svg._text("level strong" if one["best"] else "level", _NAME - 10, y + 4, name, anchor="end")
        )
        for part in sorted(score["parts"], key=lambda part: part == main):
            parts += axis.mark(score, score["parts"][part][place], part, y, faint=part != main)
    return svg._svg(parts, f"{score['label']} of each method", _WIDTH, axis.floor + 24)


def _within_bounds(score: Summary) -> Summary:
    """Return a score with intervals that end where its values end, such as shares at 0 and 1."""
    if score["name"] not in BOUNDS:
        return score
    bounds = BOUNDS[score["name"]]
    parts = {}
    for part, rows in score["parts"].items():
        ends = [{end: row[end] for end in ("low", "high") if row[end] is not None} for row in rows]
        parts[part] = [
            row | {end: min(max(value, bounds[0]), bounds[1]) for end, value in drawn.items()}
            for row, drawn in zip(rows, ends, strict=True)
        ]
    return score | {"parts": parts}


class _Axis:
    """A horizontal scale and what is drawn on it."""

    def __init__(self, low: float, high: float, floor: float) -> None:
        self.low, self.high, self.floor = low, high, floor

    def place(self, value: float) -> float:
        return _NAME + (_WIDTH - _NAME - 8) * (value - self.low) / (self.high - self.low)

    def lines(self, score: Summary) -> list[str]:
        parts = [f'<path class="axis" d="M{_NAME} {self.floor:.1f}H{_WIDTH - 4}" fill="none"/>']
        for tick in svg.nice_ticks(self.low, self.high, 4):
            x = self.place(tick)
            label = f"{100 * tick:g}%" if score["name"] in ("accuracy", "coverage") else svg.number(tick)
            parts.append(f'<path class="gridline" d="M{x:.1f} 2V{self.floor:.1f}"/>')
            parts.append(svg._text("tick", x, self.floor + 16, label, anchor="middle"))
        if score["target"] is not None:
            x = self.place(score["target"])
            parts.append(f'<path class="target" d="M{x:.1f} 2V{self.floor:.1f}"/>')
        return parts

    def mark(self, score: Summary, one: Summary, part: str, y: float, *, faint: bool) -> list[str]:
        if one["mean"] is None:
            if faint:
                return []
            return [svg._text("tick", _NAME + 6, y + 4, "does not apply")]
        where = "rows that were fitted" if part == "in" else "new rows"
        band = ""
        if one["low"] is not None:
            band = f" ({show(score, one['low'])} to {show(score, one['high'])})"
        title = escape(f"{one['method']}, {where}: {show(score, one['mean'])}{band}")
        shade = " fitted" if faint else ""
        y = y + 7 if faint else y
        parts = [f"<g><title>{title}</title>"]
        if one["low"] is not None:
            start, end = self.place(one["low"]), self.place(one["high"])
            parts.append(f'<path class="interval{shade}" d="M{start:.1f} {y:.1f}H{end:.1f}"/>')
        radius = 2.6 if faint else 4.6
        best = " best" if one["best"] and not faint else ""
        x = self.place(one["mean"])
        parts.append(f'<circle class="dot{shade}{best}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/></g>')
        return parts


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
    imputes = Treatment.IMPUTED in kinds and bool({Treatment.NONE, Treatment.CONSTANT} & kinds)
    short = [
        say_best(comparison),
        say_whether_to_impute(comparison, treatments, n_missing) if imputes else None,
    ]
    others = [
        say_average(comparison),
        say_missingness(comparison),
        say_expected(comparison),
        say_repeats(comparison) if comparison.n_repeats > 0 else None,
    ]
    lines, findings = ([one for one in said if one is not None] for said in (short, others))
    return {
        **run.to_dict(),
        "fitted": False,
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
        "sentences": [*lines, *findings],
        "n_short": len(lines),
        "scores": [
            {"name": name, "label": PREDICTION_SCORES[name][0], "main": name == comparison.main}
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
        "label": PREDICTION_SCORES[comparison.main][0],
        "direction": PREDICTION_SCORES[comparison.main][1],
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


def show_score(name: str, value: float | None, scale: float | None = None) -> str:
    """Return a score as it is written; errors in the unit of the target have the decimals of `scale`."""
    if value is None:
        return "\N{EN DASH}"
    if name == "accuracy":
        return f"{100 * value:.1f}%"
    if name in ("rmse", "mae"):
        return svg.number_to(value, (scale or value) / 10)
    return minus(f"{value:.3f}")


def render_prediction(summary: Summary) -> str:
    """Return the page of a comparison of predictors: one HTML file, no script, no request."""
    environment = _environment()
    environment.globals |= {"show": show_score}
    pictures = [Markup(dot_plot(score, "out")) for score in summary["pictures"]]
    template = environment.get_template("prediction.html.jinja")
    return template.render(summary=summary, pictures=pictures)
