"""Summary of an imputation: counts and shares as a plain dict, then verdicts on the columns in sentences.

The dict has no rows of the table, so that reports on many rows stay small.
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from halfseen.data.leaving import baseline_words, evidence_words, grade, name_verdict
from halfseen.report import svg
from halfseen.report.fills import summarize_fill
from halfseen.report.result import FILLABLE, FILLED, ColumnLike, ImputationResult, missing_cells
from halfseen.words import names_words, plural

MAX_COLUMNS = 60
MAX_PATTERNS = 20
MAX_PATTERN_COLUMNS = 40
MAX_BLOCKS = 80

Summary = dict[str, Any]


def summarize(result: ImputationResult) -> Summary:
    """Count missing values, and compare imputed with observed values.

    Returns
    -------
    dict
        Numbers, strings, lists and dicts only: it survives ``json.dumps``.
    """
    known = {column.name: column for column in result.schema.columns}
    found = _summarize_missing(result, known)
    return {
        **result.run.to_dict(),
        **found,
        "method": result.method,
        "reason": result.reason,
        "time_limit_met": bool(result.time_limit_met),
        "weights": None if result.weights is None else result.weights.name,
        "seed": result.seed,
        "level": float(result.level),
        "n_draws": len(result.draws),
        "proper": bool(result.proper),
        "training_drift": result.training_drift,
        "structure": result.structure,
        "check": None if result.check is None else dict(result.check),
        "fills": [
            _summarize_fill(known[name], result) for name in _emptiest(found["columns"]) if name in known
        ],
    }


def _summarize_missing(result: ImputationResult, known: Mapping[str, ColumnLike]) -> Summary:
    """Return what is missing from a table: counts, columns, patterns, and blocks of rows."""
    table, filled, kept = result.table, result.filled, result.kept
    empty = np.column_stack([missing_cells(table, name, kept) for name in table.column_names])  # (N, D)
    n_left = np.array([missing_cells(filled, name, kept).sum() for name in table.column_names])
    columns = [
        _summarize_column(name, table[name], known.get(name), int(missing), int(still))
        for name, missing, still in zip(table.column_names, empty.sum(axis=0), n_left, strict=True)
    ]
    return {
        **_count(empty, n_left),
        "left": _summarize_left(columns, result.left),
        "columns": columns,
        "patterns": summarize_patterns(empty, table.column_names),
        "blocks": summarize_blocks(empty, table.column_names),
    }


def _count(empty: np.ndarray, n_left: np.ndarray) -> dict[str, int]:
    """Return counts of cells, rows and columns, from the missing cells (N, D) and those left empty (D)."""
    per_column = empty.sum(axis=0)
    return {
        "n_rows": len(empty),
        "n_columns": len(n_left),
        "n_cells": int(empty.size),
        "n_missing": int(per_column.sum()),
        "n_left": int(n_left.sum()),
        "n_left_columns": int((n_left > 0).sum()),
        "n_complete_rows": int((~empty.any(axis=1)).sum()),
        "n_complete_columns": int((per_column == 0).sum()),
        "n_incomplete_columns": int((per_column > 0).sum()),
        "n_filled_columns": int((per_column > n_left).sum()),
    }


def _summarize_fill(column: ColumnLike, result: ImputationResult) -> Summary:
    """Return the result of `summarize_fill`; an error names the column."""
    try:
        return summarize_fill(column, result)
    except Exception as error:  # raised again, with the name
        error.add_note(f"column {column.name!r}")
        raise


def _summarize_left(columns: Sequence[Summary], why: Mapping[str, str]) -> list[Summary]:
    """Return the columns with the most cells left empty, with the reason."""
    some = sorted((column for column in columns if column["n_left"]), key=lambda column: -column["n_left"])
    return [
        {key: column[key] for key in ("name", "n_left", "n_missing")} | {"why": why.get(column["name"], "")}
        for column in some[:MAX_COLUMNS]
    ]


def _emptiest(columns: Sequence[Summary]) -> list[str]:
    """Return the names of the columns with filled cells, those with the most missing cells first."""
    some = [column for column in columns if column["n_missing"] > column["n_left"]]
    return [column["name"] for column in sorted(some, key=lambda column: -column["n_missing"])[:MAX_COLUMNS]]


def _summarize_column(
    name: str, column: pa.ChunkedArray, known: ColumnLike | None, n_missing: int, n_left: int
) -> Summary:
    return {
        "name": name,
        "kind": known.kind if known is not None else "unknown",
        "dtype": str(known.dtype if known is not None else column.type),
        "reason": known.reason if known is not None else "",
        "n_observed": len(column) - n_missing,
        "n_missing": n_missing,
        "n_left": n_left,
        "share": n_missing / max(len(column), 1),
    }


def _most_missing(missing: np.ndarray, at_most: int) -> np.ndarray:
    """Return the positions of incomplete columns; those with most missing values if there are many."""
    counts = missing.sum(axis=0)
    chosen = np.argsort(-counts, kind="stable")[:at_most]
    return np.sort(chosen[counts[chosen] > 0])


def summarize_patterns(missing: np.ndarray, names: Sequence[str]) -> Summary:
    """Count the combinations of columns that are missing together, the most frequent first."""
    places = _most_missing(missing, MAX_PATTERN_COLUMNS)
    if len(places) == 0:
        return {
            "columns": [],
            "rows": [],
            "n_patterns": int(len(missing) > 0),
            "n_other": 0,
            "n_hidden_columns": 0,
        }
    part = missing[:, places]
    packed = np.zeros((len(part), 8 * -(-len(places) // 64)), dtype=np.uint8)
    bits = np.packbits(part, axis=1)
    packed[:, : bits.shape[1]] = bits
    keys = np.ascontiguousarray(packed).view(np.uint64)  # whole words sort much faster than rows of booleans
    unique = (keys[:, 0],) if keys.shape[1] == 1 else (keys,)
    _, first, counts = np.unique(
        *unique, return_index=True, return_counts=True, axis=None if keys.shape[1] == 1 else 0
    )
    order = np.lexsort((first, -counts))[:MAX_PATTERNS]
    rows = [
        {
            "missing": part[first[place]].tolist(),
            "count": int(counts[place]),
            "share": float(counts[place] / len(part)),
        }
        for place in order
    ]
    return {
        "columns": [names[place] for place in places],
        "rows": rows,
        "n_patterns": len(counts),
        "n_other": int(len(part) - sum(row["count"] for row in rows)),
        "n_hidden_columns": int((missing.any(axis=0)).sum() - len(places)),
    }


def summarize_blocks(missing: np.ndarray, names: Sequence[str]) -> Summary:
    """Return the share of missing cells per column and block of consecutive rows."""
    places = _most_missing(missing, MAX_COLUMNS)
    n_blocks = min(MAX_BLOCKS, len(missing))
    if len(places) == 0 or n_blocks == 0:
        return {"columns": [], "edges": [], "shares": []}
    edges = np.linspace(0, len(missing), n_blocks + 1).astype(int)
    counts = np.add.reduceat(missing[:, places].astype(np.int64), edges[:-1], axis=0)  # (blocks, columns)
    shares = counts / np.diff(edges)[:, None]
    return {
        "columns": [names[place] for place in places],
        "edges": edges.tolist(),
        "shares": shares.T.round(4).tolist(),
    }


NARROW = 0.05
"""Intervals are called too narrow if their coverage falls short of their level by more than this."""

LABELS = {
    **FILLABLE,
    "good": FILLED["good"],
    "fair": FILLED["fair"],
    "unchecked": "filled, not checked",
    "left": "not filled",
}
NOTICE = (
    "The table cannot show whether values are missing because of their own size, as when high incomes are "
    "not reported."
)


def judge_check(check: Mapping[str, Any], labels: Mapping[str, str] = LABELS) -> Summary:
    """Return verdict, label and evidence of a column from its check on hidden known values.

    A poor verdict may be unclear, which the entry ``"detail"`` says.
    """
    verdict = grade(check["skill"], check["skill_low"])
    detail = name_verdict(check["skill"], check["skill_low"])
    baseline = baseline_words(check["measure"])
    evidence = sentence(evidence_words(check["measure"], check["value"], check["baseline"])).rstrip(".")
    return {
        "verdict": verdict,
        "detail": detail,
        "label": labels[detail].format(baseline=baseline),
        "why": f"{evidence} ({plural(check['n_cells'], 'hidden known value')}).",
    }


def judge_fill(fill: Mapping[str, Any], check: Mapping[str, Any] | None, level: float) -> Summary:
    """Return verdict, label and evidence of a column with filled values.

    Without a check, the width of the intervals or the probabilities of the levels can show that a column is
    filled hardly better than by the mean, but not that it is filled well: a wrong model can be sure.
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
    verdict = "poor" if grade(skill, skill) == "poor" else "unchecked"
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
        "good": FILLED["good"],
        "fair": FILLED["fair"],
        "unclear": "not clearly filled better than by the mean or the most frequent level",
        "poor": "filled hardly better than by the mean or the most frequent level",
        "unchecked": "filled but could not be checked",
        "left": "not filled",
    }
    named = [one.get("detail", one["verdict"]) for one in verdicts]
    counts = {verdict: named.count(verdict) for verdict in words}
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
