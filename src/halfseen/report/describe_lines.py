"""The summary of a diagnosis: what changed, what is missing, and how well it can be imputed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from halfseen.data.columns import UNMODELLED
from halfseen.diagnosis.association import Association
from halfseen.diagnosis.summary import Diagnosis
from halfseen.diagnosis.wording import ALPHA, names_words, pair_words, plural
from halfseen.report import svg
from halfseen.report.verdicts import NOTICE, judge_check, sentence

LABELS = {
    "good": "can be filled well",
    "fair": "can be filled roughly",
    "poor": "hardly better than {baseline}: better left empty",
}
UNCHECKED = {
    "verdict": "unchecked",
    "label": "not checked",
    "why": "There are too few known values to hide some of them.",
}

Summary = dict[str, Any]


def explain_missingness(diagnosis: Diagnosis) -> dict[str, str]:
    """Return, for each column with missing values, its strongest association in words."""
    words = {}
    for column in diagnosis.columns:
        if column.n_missing == 0:
            continue
        found = (_seen_from(pair, column.name) for pair in diagnosis.associations.pairs)
        pairs = [pair for pair in found if pair is not None]
        clear = [pair for pair in pairs if pair.p_adjusted < ALPHA]
        clear.sort(key=lambda pair: (pair.about != "value", -pair.strength))
        if clear:
            words[column.name] = pair_words(clear[0]).removeprefix(f"{column.name} is ")
        elif pairs:
            words[column.name] = "no significant association with other columns"
        else:
            words[column.name] = "too few missing or observed values to test associations"
    return words


def _seen_from(pair: Association, name: str) -> Association | None:
    """Return a pair as an association of the missingness of a column, None if it is not about that."""
    if pair.column == name or pair.about == "value" or pair.other != name:
        return pair if pair.column == name else None
    both = pair.when_missing * pair.n_missing
    n_missing = both + pair.when_seen * (pair.n_rows - pair.n_missing)
    return replace(
        pair,
        column=name,
        other=pair.column,
        n_missing=round(n_missing),
        when_missing=both / n_missing,
        when_seen=(pair.n_missing - both) / (pair.n_rows - n_missing),
    )


def judge_missingness(summary: Summary) -> list[Summary]:
    """Return, for each column with missing values, how well it can be filled and what is known about why.

    Parameters
    ----------
    summary : dict
        What `halfseen.report.describe.summarize_diagnosis` returned.
    """
    checks = (summary["check"] or {}).get("columns", {})
    found = []
    for column in sorted(summary["columns"], key=lambda one: -one["n_missing"]):
        name = column["name"]
        if column["n_missing"] == 0:
            continue
        verdict = judge_check(checks[name], LABELS) if name in checks else UNCHECKED
        if column["kind"] in UNMODELLED:
            why = f"A column of kind {column['kind']} is not modelled."
            verdict = {"verdict": "left", "label": "is left empty", "why": why}
        reason = sentence(summary["reasons"][name])
        counts = {key: column[key] for key in ("name", "share", "n_missing")}
        found.append(counts | verdict | {"reason": reason})
    return found


def describe_lines(summary: Summary, verdicts: Sequence[Summary]) -> list[str]:
    """Return the sentences at the top of the page; a change against the reference comes first."""
    drift = summary["drift_readings"][:1]
    if summary["n_missing"] == 0:
        return [*drift, "Nothing is missing."]
    share = svg.percent(summary["n_missing"] / max(summary["n_cells"], 1))
    lost = svg.percent(1 - summary["n_complete_rows"] / max(summary["n_rows"], 1))
    rest = ", and the remaining rows may not be representative" if summary["evidence"] else ""
    verb = "is" if summary["n_missing"] == 1 else "are"
    columns = f"{summary['n_incomplete_columns']:,} of {plural(summary['n_columns'], 'column')}"
    what = (
        f"{plural(summary['n_missing'], 'value')} of this table ({share}) {verb} missing, in {columns}. "
        f"Dropping every row with a missing value would lose {lost} of the rows{rest}."
    )
    return [*drift, what, *_check_line(summary, verdicts), NOTICE]


def _check_line(summary: Summary, verdicts: Sequence[Summary]) -> list[str]:
    words = {"good": "well", "fair": "roughly", "poor": "hardly better than by the mean"}
    counts = {key: sum(one["verdict"] == key for one in verdicts) for key in words}
    n_checked = sum(counts.values())
    if n_checked == 0:
        return []
    parts = [f"{counts[key]:,} {word}" for key, word in words.items() if counts[key]]
    return [
        f"In a quick check with a {summary['check']['method']} model, hidden known values of "
        f"{plural(n_checked, 'incomplete column')} were filled: {names_words(parts)}."
    ]
