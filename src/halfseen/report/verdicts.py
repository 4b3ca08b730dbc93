"""The summary of a report: what was missing, how well it is imputed, and what is unreliable."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from halfseen.data.reliability import baseline_words, evidence_words, grade
from halfseen.report import svg
from halfseen.words import names_words, plural

NARROW = 0.05
"""Intervals are called too narrow if their coverage falls short of their level by more than this."""

LABELS = {
    "good": "filled well",
    "fair": "filled roughly",
    "poor": "barely better than {baseline}: better left empty",
    "unchecked": "filled, not checked",
    "left": "not filled",
}
NOTICE = (
    "The table cannot show whether values are missing because of their own size, as when high incomes are "
    "not reported."
)

Summary = dict[str, Any]


def judge_check(check: Mapping[str, Any], labels: Mapping[str, str] = LABELS) -> Summary:
    """Return verdict, label and evidence of a column from its check on hidden known values."""
    verdict = grade(check["skill"], check["skill_low"])
    baseline = baseline_words(check["measure"])
    evidence = sentence(evidence_words(check["measure"], check["value"], check["baseline"])).rstrip(".")
    return {
        "verdict": verdict,
        "label": labels[verdict].format(baseline=baseline),
        "why": f"{evidence} ({plural(check['n_cells'], 'hidden known value')}).",
    }


def judge_fill(fill: Mapping[str, Any], check: Mapping[str, Any] | None, level: float) -> Summary:
    """Return verdict, label and evidence of a column with filled values.

    Without a check, the width of the intervals or the probabilities of the levels decide.
    """
    if check is not None:
        return judge_check(check)
    if fill.get("relative_width") is not None:
        unconditional = 2 * NormalDist().inv_cdf((1 + level) / 2)
        skill = 1 - (fill["relative_width"] / unconditional) ** 2
        measure, why = "error", f"the median {level:.0%} interval is {fill['relative_width']:.2f} standard "
        why += "deviations wide"
    elif fill.get("top_probability") is not None and max(fill["observed"]) < 1:
        share = max(fill["observed"])
        skill = (fill["top_probability"] - share) / (1 - share)
        measure, why = "accuracy", f"the chosen level has a probability of {fill['top_probability']:.0%} "
        why += "on average"
    else:
        return {
            "verdict": "unchecked",
            "label": LABELS["unchecked"],
            "why": "There are too few known values to hide some of them.",
        }
    verdict = grade(skill, skill)
    label = LABELS[verdict].format(baseline=baseline_words(measure))
    return {
        "verdict": verdict,
        "label": label,
        "why": f"According to the model itself: {why}; not checked on hidden known values.",
    }


def judge_columns(summary: Summary) -> list[Summary]:
    """Return a verdict for each column with missing values, the worst filled first among equals in size.

    Parameters
    ----------
    summary : dict
        What `halfseen.report.summarize.summarize` returned.
    """
    fills = {fill["name"]: fill for fill in summary["fills"]}
    reasons = {one["name"]: one["why"] for one in summary["left"]}
    checks = (summary["check"] or {}).get("columns", {})
    found = []
    for column in sorted(summary["columns"], key=lambda one: -one["n_missing"]):
        name, n_left = column["name"], column["n_left"]
        if column["n_missing"] == 0:
            continue
        if n_left == column["n_missing"]:
            why = reasons.get(name) or "the method gives no value for it"
            verdict = {"verdict": "left", "label": LABELS["left"], "why": sentence(why)}
        else:
            verdict = judge_fill(fills.get(name, {}), checks.get(name), summary["level"])
            if n_left:
                why = reasons.get(name, "")
                more = f"{plural(n_left, 'value')} left empty{': ' + why if why else ''}."
                verdict["why"] = f"{verdict['why']} {more}"
        found.append({"name": name, "n_missing": column["n_missing"], "share": column["share"], **verdict})
    return found


def sentence(words: str) -> str:
    """Return words as a sentence, with a capital and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


def count_verdicts(verdicts: Sequence[Summary]) -> str:
    """Return how many columns have which verdict, in words."""
    words = {
        "good": "filled well",
        "fair": "filled roughly",
        "poor": "filled hardly better than by the mean or the most frequent level",
        "unchecked": "filled but could not be checked",
        "left": "not filled",
    }
    counts = {verdict: sum(one["verdict"] == verdict for one in verdicts) for verdict in words}
    parts = [f"{counts[verdict]} {'is' if counts[verdict] == 1 else 'are'} {words[verdict]}"
             for verdict in words if counts[verdict]]  # fmt: skip
    return names_words(parts, len(parts) + 1)


def impute_lines(summary: Summary, verdicts: Sequence[Summary]) -> list[str]:
    """Return the sentences at the top of the report of an imputation."""
    if summary["n_missing"] == 0:
        return ["No values were missing, so nothing was filled."]
    n_missing, n_left = summary["n_missing"], summary["n_left"]
    share = svg.percent(n_missing / max(summary["n_cells"], 1))
    done = "all of them were filled"
    if n_left:
        done = f"{n_missing - n_left:,} were filled, {n_left:,} left empty"
    columns = f"{summary['n_incomplete_columns']:,} of {plural(summary['n_columns'], 'column')}"
    verb = "was" if n_missing == 1 else "were"
    lines = [f"{plural(n_missing, 'value')} of this table ({share}) {verb} missing, in {columns}: {done}."]
    lines.append(f"Of the columns with missing values, {count_verdicts(verdicts)}.")
    doubts = []
    poor = [one["name"] for one in verdicts if one["verdict"] == "poor"]
    if poor:
        doubts.append(f"Do not rely on the filled values of {names_words(poor)}.")
    doubts += _interval_doubts(summary["check"])
    return [*lines, " ".join([*doubts, NOTICE])]


def _interval_doubts(check: Mapping[str, Any] | None) -> list[str]:
    if check is None or check["covered"] is None or check["covered"] >= check["level"] - NARROW:
        return []
    return [
        f"The {check['level']:.0%} intervals are too narrow: they contained {check['covered']:.0%} of the "
        "hidden known values."
    ]
