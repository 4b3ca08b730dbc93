"""Predictions for new rows as a plain dict and as a page: drift of missingness first, then the numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.report import svg
from halfseen.report.fills import choose_edges
from halfseen.report.render import _environment
from halfseen.report.result import UNKNOWN_RUN, RunInfo
from halfseen.report.summarize import sentence
from halfseen.words import names_words, plural

MAX_CLASSES = 12
"""Classes that are drawn; the others are gathered in one bar."""

UNSURE = 0.6
"""A row whose predicted class is less probable than this is called unsure."""

GROUPS = (0, 1, 2, 3)
"""Rows are grouped by the number of their missing inputs; the last group has this many and more."""

Summary = dict[str, Any]


def summarize_predictions(
    predicted: Sequence[Any],
    missing: Booleans,
    *,
    drift: Mapping[str, Any],
    probabilities: Floats | None = None,
    classes: Sequence[Any] = (),
    ends: tuple[Floats, Floats] | None = None,
    level: float = 0.9,
    dropped: Sequence[str] = (),
    score: str = "",
    target: str = "",
    model: str = "",
    imputing: Mapping[str, float] | None = None,
    run: RunInfo = UNKNOWN_RUN,
) -> Summary:
    """Return predictions as numbers, strings, lists and dicts.

    Parameters
    ----------
    predicted : sequence
        The prediction of each row.
    missing : array of shape (n_rows, n_inputs)
        Which inputs are missing.
    drift : mapping
        The dict of a `TrainingDrift`.
    probabilities : array of shape (n_rows, n_classes), optional
        The probabilities of the classes.
    classes : sequence
        The classes; empty for numbers.
    ends : tuple of arrays of shape (n_rows,), optional
        The ends of the intervals of numbers.
    level : float
        The level of the intervals.
    dropped : sequence of str
        Inputs that the table lacks.
    score : str
        How good the predictions are where the target is known, in a sentence; empty if it is not.
    target, model : str
        What was predicted, and by which class of model.
    imputing : mapping of str to float, optional
        The parts of the model that impute missing inputs before they predict, and their weights.
    run : RunInfo
        How the report was made.
    """
    n_rows, n_inputs = missing.shape
    values = np.array([str(one) for one in predicted]) if len(classes) else np.asarray(predicted, np.float64)
    sure = None if probabilities is None else probabilities.max(axis=1, initial=0.0)
    width = None if ends is None else ends[1] - ends[0]
    found = {
        **run.to_dict(),
        "target": target,
        "model": model,
        "treatment": treatment_words(model, imputing or {}),
        "n_rows": n_rows,
        "n_inputs": n_inputs,
        "n_missing": int(missing.sum()),
        "n_complete_rows": int((~missing.any(axis=1)).sum()),
        "n_empty_rows": int(missing.all(axis=1).sum()) if n_inputs else 0,
        "dropped": list(dropped),
        "training_drift": dict(drift),
        "level": level,
        "score": score,
        "picture": _picture(values, [str(one) for one in classes]) if n_rows else None,
        "n_unsure": None if sure is None else int((sure < UNSURE).sum()),
        "mean_sure": None if sure is None or not n_rows else float(sure.mean()),
        "median_width": None if width is None or not n_rows else float(np.median(width)),
        "groups": _groups(values, missing.sum(axis=1), sure, width),
    }  # fmt: skip
    return found | {"lines": prediction_lines(found)}


def _picture(values: npt.NDArray[Any], classes: Sequence[str]) -> Summary:
    """Return the distribution of the predictions: shares of classes, or of numbers in bins."""
    if classes:
        shares = [float((values == one).mean()) for one in classes]
        order = sorted(range(len(classes)), key=lambda place: -shares[place])
        shown, rest = order[:MAX_CLASSES], order[MAX_CLASSES:]
        gathered = [f"{len(rest):,} others"] if rest else []
        return {
            "levels": [*(classes[place] for place in shown), *gathered],
            "shares": [
                *(shares[place] for place in shown),
                *(sum(shares[p] for p in rest) for _ in gathered),
            ],
        }
    edges, clipped = choose_edges(values, values[:0])
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    quartiles = np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0]).tolist()
    return {
        "edges": edges.tolist(),
        "shares": (counts / len(values)).tolist(),
        "clipped": clipped,
        "quartiles": quartiles,
    }


def _groups(
    values: npt.NDArray[Any], n_missing: Integers, sure: Floats | None, width: Floats | None
) -> list[Summary]:
    """Return how sure the predictions are, by the number of missing inputs of a row."""
    found = []
    for number in GROUPS:
        last = number == GROUPS[-1]
        rows = n_missing >= number if last else n_missing == number
        if rows.any():
            found.append(
                {
                    "name": f"{number} or more" if last else str(number),
                    "n_rows": int(rows.sum()),
                    "mean": float(values[rows].mean()) if values.dtype.kind == "f" else None,
                    "sure": None if sure is None else float(sure[rows].mean()),
                    "width": None if width is None else float(np.median(width[rows])),
                }
            )
    return found


def prediction_lines(summary: Summary) -> list[str]:
    """Return the sentences at the top of the page; a change against training comes first."""
    n_rows, n_missing, n_complete = (summary[key] for key in ("n_rows", "n_missing", "n_complete_rows"))
    if n_rows == 0:
        return ["The table has no rows."]
    was = "was" if n_rows == 1 else "were"
    what = f"{plural(n_rows, 'row')} {was} predicted from {plural(summary['n_inputs'], 'input')}. "
    if n_missing:
        share = svg.percent(n_missing / (n_rows * summary["n_inputs"]))
        what += f"{plural(n_missing, 'value')} of the inputs ({share}) {_verb(n_missing)} missing, and "
        what += f"{plural(n_complete, 'row')} {_verb(n_complete)} complete."
    else:
        what += "Nothing is missing from them."
    if summary["dropped"]:
        verb = "are" if len(summary["dropped"]) > 1 else "is"
        names = names_words(summary["dropped"])
        what += f" The file lacks {names}, which {verb} treated as missing in every row."
    drift = summary["training_drift"]
    lines = [what, _distribution_line(summary)]
    lines.insert(0 if drift["n_changed"] else 1, sentence(drift["sentence"]))
    if summary["n_empty_rows"]:
        rows = f"{plural(summary['n_empty_rows'], 'row')} {_verb(summary['n_empty_rows'])}"
        lines.append(
            f"{rows} without any known input: the prediction is that of a row without any information."
        )
    if summary["score"]:
        lines.append(f"{summary['score']} If the model was fitted to some of these rows, that is optimistic.")
    return lines


def treatment_words(model: str, imputing: Mapping[str, float]) -> str:
    """Return what a model does with missing inputs, given its parts that impute them and their weights."""
    start = f"The saved {model}"
    if not imputing:
        return f"{start} predicted each row from its observed inputs; missing inputs were not imputed."
    names = names_words([f"{name} ({weight:.0%})" for name, weight in imputing.items()])
    if sum(imputing.values()) > 1 - 1e-9:
        by = "" if len(imputing) == 1 else f" by each of its parts, {names}"
        return f"{start} imputed the missing inputs of each row{by}, and predicted from the completed row."
    verb = "imputes" if len(imputing) == 1 else "impute"
    return (
        f"{start} is an average, of which {names} {verb} the missing inputs of a row before predicting; its "
        "other parts predict from the observed inputs."
    )


def _distribution_line(summary: Summary) -> str:
    picture = summary["picture"]
    if "levels" in picture:
        most, share = picture["levels"][0], svg.percent(picture["shares"][0])
        unsure = svg.percent(summary["n_unsure"] / summary["n_rows"])
        line = (
            f"The most frequent prediction is {most}, for {share} of the rows. The predicted class has a "
            f"probability of {svg.percent(summary['mean_sure'])} on average"
        )
        if summary["n_unsure"] == 0:
            return f"{line}, and of at least {UNSURE:.0%} in every row."
        return f"{line}. In {unsure} of the rows it is below {UNSURE:.0%}: do not rely on these predictions."
    low, middle, high = (svg.number(one, 4) for one in picture["quartiles"][1:4])
    line = f"Half of the predictions are between {low} and {high}, with median {middle}."
    if summary["median_width"] is not None:
        width = svg.number(summary["median_width"], 3)
        line += f" The {summary['level']:.0%} interval of a single row is typically {width} wide."
    return line


def _verb(number: int) -> str:
    return "is" if number == 1 else "are"


def render_predictions(summary: Summary) -> str:
    """Return the page of predictions: one HTML file, no script, no request."""
    picture = summary["picture"]
    title = f"Predictions of {summary['target'] or 'the target'}"
    drawn = None
    if picture is not None and "levels" in picture:
        drawn = Markup(svg.shares_of_levels(picture["levels"], picture["shares"], title))
    elif picture is not None:
        drawn = Markup(svg.distribution(picture["shares"], picture["edges"], title))
    template = _environment().get_template("predictions.html.jinja")
    return template.render(summary=summary, lines=summary["lines"], picture=drawn)
