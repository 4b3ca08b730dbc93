"""The summary of a comparison: which method to use, and which columns no method imputes well."""

from collections.abc import Sequence
from typing import Any

from halfseen.data.reliability import baseline_words, grade
from halfseen.diagnosis.wording import names_words, plural

LABELS = {
    "good": "can be filled well",
    "fair": "can be filled roughly",
    "poor": "hardly better than {baseline}: better left empty",
}
NOTICE = (
    "The hidden values were known values. If the values that are really missing differ from them in ways "
    "that the table does not show, the methods are less accurate than they appear here."
)

Summary = dict[str, Any]


def judge_compared(summary: Summary) -> list[Summary]:
    """Return, for each column, the best method and whether it is much better than the mean.

    Parameters
    ----------
    summary : dict
        The output of `halfseen.report.compare.summarize_comparison`. If the method ``mean`` was not compared,
        there is no baseline, and the list is empty.
    """
    names = [method["name"] for method in summary["methods"]]
    if "mean" not in names:
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
                "label": LABELS[verdict].format(baseline=baseline_words(measure)),
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
    best = [line for line in map(_best_line, summary["scores"]) if line]
    lines = [
        f"{hidden} of {settings['n_rows']:,} rows were hidden, filled by {methods} and compared with the "
        f"truth, {settings['n_repeats']} times.",
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
