"""A diagnosis as a plain dict, and the dict as one self-contained page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup

from halfseen.data.columns import UNMODELLED
from halfseen.diagnosis.association import Association
from halfseen.diagnosis.summary import Diagnosis
from halfseen.diagnosis.wording import (
    ALPHA,
    duplicates_words,
    effect_words,
    p_words,
    pair_words,
    read_drift,
    read_sample,
    shift_words,
)
from halfseen.report import describe_svg, svg
from halfseen.report import describe_svg as curve_svg
from halfseen.report.render import _environment
from halfseen.report.result import FILLABLE, UNKNOWN_RUN, RunInfo
from halfseen.report.summarize import NOTICE, judge_check, sentence
from halfseen.words import names_words, plural

Summary = dict[str, Any]


UNCHECKED = {
    "verdict": "unchecked",
    "label": "not checked",
    "why": "There are too few known values to hide some of them.",
}


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
        verdict = judge_check(checks[name], FILLABLE) if name in checks else UNCHECKED
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
    copies = _duplicates_line(summary)
    if summary["n_missing"] == 0:
        return [*drift, "Nothing is missing.", *copies]
    share = svg.percent(summary["n_missing"] / max(summary["n_cells"], 1))
    lost = svg.percent(1 - summary["n_complete_rows"] / max(summary["n_rows"], 1))
    rest = ", and the remaining rows may not be representative" if summary["evidence"] else ""
    verb = "is" if summary["n_missing"] == 1 else "are"
    columns = f"{summary['n_incomplete_columns']:,} of {plural(summary['n_columns'], 'column')}"
    what = (
        f"{plural(summary['n_missing'], 'value')} of this table ({share}) {verb} missing, in {columns}. "
        f"Dropping every row with a missing value would lose {lost} of the rows{rest}."
    )
    return [*drift, what, *summary["sample_readings"], *copies, *_check_line(summary, verdicts), NOTICE]


def _duplicates_line(summary: Summary) -> list[str]:
    count = summary["n_duplicated_rows"]
    if not count:
        return []
    what = "1 row is a copy of an earlier one" if count == 1 else f"{count:,} rows are copies of earlier ones"
    return [f"{what}: {duplicates_words(count, summary['first_duplicates'])}."]


def _check_line(summary: Summary, verdicts: Sequence[Summary]) -> list[str]:
    words = {
        "good": "well",
        "fair": "roughly",
        "unclear": "not clearly better than by the mean or the most frequent level",
        "poor": "hardly better than by the mean or the most frequent level",
    }
    named = [one.get("detail", one["verdict"]) for one in verdicts]
    counts = {key: named.count(key) for key in words}
    n_checked = sum(counts.values())
    if n_checked == 0:
        return []
    parts = [f"{counts[key]:,} {word}" for key, word in words.items() if counts[key]]
    return [
        f"In a quick check with a {summary['check']['method']} model, hidden known values of "
        f"{plural(n_checked, 'incomplete column')} were filled: {names_words(parts)}."
    ]


MAX_COLUMNS = 60
MAX_PATTERN_COLUMNS = 40
MAX_HEAT_ROWS, MAX_HEAT_COLUMNS = 30, 36
MAX_PAIRS = {"value": 20, "missingness": 12}


def summarize_diagnosis(
    diagnosis: Diagnosis,
    *,
    reference: str = "",
    model: Summary | None = None,
    sensitivities: Sequence[Summary] = (),
    check: Summary | None = None,
    run: RunInfo = UNKNOWN_RUN,
) -> Summary:
    """Return what a page shows: counts, effect sizes and sentences, and no row of the table.

    Parameters
    ----------
    diagnosis : Diagnosis
        What `halfseen.describe` returned.
    reference : str
        The name of the table that it was compared with.
    model : dict, optional
        How the predictions of a model drift: the dict of a `VSPCurve`, its ``class`` and what is
        ``followed``.
    sensitivities : sequence of dict
        The dicts of `Sensitivity`: how estimates depend on the assumption of missing at random.
    check : dict, optional
        How well hidden known values were filled: the dict of a `FillCheck`.
    run : RunInfo
        How the report was made.

    Returns
    -------
    dict
        Numbers, strings, lists and dicts only: it survives ``json.dumps``.
    """
    content = diagnosis.to_dict()
    content["associations"].pop("pairs")
    emptiest = sorted((c for c in content["columns"] if c["n_missing"]), key=lambda c: -c["n_missing"])
    names = [column["name"] for column in emptiest]
    clear = diagnosis.associations.clear
    return {
        **content,
        **run.to_dict(),
        "reference": reference,
        "n_columns": len(diagnosis.columns),
        "n_cells": diagnosis.n_rows * len(diagnosis.columns),
        "n_complete_rows": diagnosis.patterns.n_complete_rows,
        "n_incomplete_columns": len(emptiest),
        "evidence": bool(diagnosis.little.p_value_robust < ALPHA or any(p.about == "value" for p in clear)),
        "patterns": _picture_patterns(diagnosis, names[:MAX_PATTERN_COLUMNS]),
        "blocks": _picture_positions(diagnosis, names[:MAX_COLUMNS]),
        "heat": {about: _grid(diagnosis, about) for about in MAX_PAIRS},
        "pairs": {about: _list_pairs(diagnosis.distinct_pairs(about), about) for about in MAX_PAIRS},
        "target_pairs": [
            _pair(pair)
            for pair in diagnosis.associations.about(diagnosis.target or "")
            if pair.about == "value" and diagnosis.target is not None
        ][: MAX_PAIRS["value"]],
        "shift": shift_words(diagnosis.little),
        "model": model,
        "sensitivities": list(sensitivities),
        "check": check,
        "reasons": explain_missingness(diagnosis),
        "drift_readings": list(read_drift(diagnosis)),
        "sample_readings": list(read_sample(diagnosis)),
    }


def _picture_patterns(diagnosis: Diagnosis, emptiest: Sequence[str]) -> Summary:
    table = diagnosis.patterns
    shown = [name for name in table.columns if name in set(emptiest)]
    rows = [
        {"missing": [name in row.missing for name in shown], "count": row.count, "share": row.share}
        for row in table.rows
    ]
    return {
        "columns": shown,
        "rows": rows,
        "n_patterns": table.n_patterns,
        "n_other": diagnosis.n_pattern_rows - sum(row.count for row in table.rows),
        "n_hidden_columns": len(table.columns) - len(shown),
        "n_single": table.n_single,
        "monotone": table.monotonicity.monotone,
        "monotone_share": table.monotonicity.share,
        "order": list(table.monotonicity.order),
        "together": [list(group) for group in table.together],
    }


def _picture_positions(diagnosis: Diagnosis, emptiest: Sequence[str]) -> Summary:
    shown = [column for column in diagnosis.columns if column.name in set(emptiest)]
    n_stretches = len(shown[0].positions) if shown else 0
    return {
        "columns": [column.name for column in shown],
        "edges": np.linspace(0, diagnosis.n_rows, n_stretches + 1).astype(int).tolist(),
        "shares": [list(column.positions) for column in shown],
    }


def _grid(diagnosis: Diagnosis, about: str) -> Summary | None:
    """Return the strengths of all pairs of one sort, for the columns with the strongest of them."""
    found: dict[tuple[str, str], Association] = {}
    for pair in diagnosis.associations.pairs:
        if pair.about == about:
            found[pair.column, pair.other] = pair
            if about == "missingness":
                found[pair.other, pair.column] = pair
    rows = _strongest(found, 0, MAX_HEAT_ROWS)
    columns = _strongest(found, 1, MAX_HEAT_COLUMNS) if about == "value" else rows
    place = {name: i for i, name in enumerate(column.name for column in diagnosis.columns)}
    rows, columns = (sorted(names, key=place.__getitem__) for names in (rows, columns))
    if not rows or len(columns) < 2:
        return None
    cells = [[_heat_cell(found.get((row, column))) for column in columns] for row in rows]
    return {"rows": rows, "columns": columns, "cells": cells}


def _strongest(found: dict[tuple[str, str], Association], side: int, at_most: int) -> list[str]:
    best: dict[str, float] = {}
    for names, pair in found.items():
        score = pair.strength + (pair.p_adjusted < ALPHA)
        best[names[side]] = max(best.get(names[side], 0.0), score)
    return sorted(best, key=lambda name: -best[name])[:at_most]


def _heat_cell(pair: Association | None) -> Summary | None:
    if pair is None:
        return None
    words = f"{pair_words(pair)}; strength {pair.strength:.2f}, {p_words(pair.p_adjusted)}"
    return {"strength": round(pair.strength, 4), "clear": pair.p_adjusted < ALPHA, "words": words}


def _list_pairs(pairs: Sequence[Association], about: str) -> Summary:
    return {"shown": [_pair(pair) for pair in pairs[: MAX_PAIRS[about]]], "n_clear": len(pairs)}


def _pair(pair: Association) -> Summary:
    return {
        "measure": pair.measure, "effect": pair.effect, "low": pair.low, "high": pair.high,
        "words": pair_words(pair), "numbers": effect_words(pair), "p": p_words(pair.p_adjusted),
        "clear": pair.p_adjusted < ALPHA,
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------ page


def render_diagnosis(summary: Summary) -> str:
    """Return the HTML page of a summary made by `summarize_diagnosis`; every name is escaped."""
    environment = _environment()
    environment.filters["p_words"] = lambda p: p_words(float("nan") if p is None else p)
    heat, blocks = summary["heat"], summary["blocks"]
    verdicts = judge_missingness(summary)
    pictures = {
        "lines": describe_lines(summary, verdicts),
        "verdicts": verdicts[:MAX_COLUMNS],
        "n_verdicts": len(verdicts),
        "key": Markup(describe_svg.key((0.03, 0.1, 0.3, 1.0))),
        "strips": [
            (name, Markup(svg.strip(shares, blocks["edges"], name)))
            for name, shares in zip(blocks["columns"], blocks["shares"], strict=True)
        ],
        "patterns": Markup(svg.pattern_grid(summary["patterns"])) if summary["n_missing"] else None,
        "heat_values": _draw_heat(heat["value"], "Strength of missingness with values"),
        "heat_holes": _draw_heat(heat["missingness"], "Strength of missingness with missingness"),
        "value_pairs": [_draw_pair(pair) for pair in summary["pairs"]["value"]["shown"]],
        "hole_pairs": [_draw_pair(pair) for pair in summary["pairs"]["missingness"]["shown"]],
        "target_pairs": [_draw_pair(pair) for pair in summary["target_pairs"]],
        "predictable": [_draw_auc(one) for one in summary["predictability"]],
        "changes": _draw_changes(summary["drift"]),
        "model_curve": None if summary["model"] is None else Markup(curve_svg.drift_curve(summary["model"])),
    }
    pictures["sensitivities"] = [
        {**found, "picture": Markup(curve_svg.sensitivity_curve(found))} for found in summary["sensitivities"]
    ]
    return environment.get_template("describe.html.jinja").render(summary=summary, **pictures)


def _draw_heat(grid: Summary | None, title: str) -> Markup | None:
    return None if grid is None else Markup(describe_svg.heat_map(grid, title))


def _draw_pair(pair: Summary) -> Summary:
    effect, low, high = pair["effect"], pair["low"], pair["high"]
    if pair["measure"] == "odds ratio":
        effect, low, high = (describe_svg.log_ratio(one or 1e-300) for one in (effect, low, high))
    picture = describe_svg.mark(
        effect, low, high, ends=(-1.0, 1.0), zero=0.0, words=pair["numbers"], clear=pair["clear"]
    )
    return {**pair, "picture": Markup(picture)}


def _draw_auc(one: Summary) -> Summary:
    if one["reason"] is not None:
        return {**one, "picture": "", "numbers": ""}
    clear = (one["p_adjusted"] or 0.0) < ALPHA
    numbers = f"AUC {one['auc']:.2f} (95% {one['low']:.2f} to {one['high']:.2f})"
    picture = describe_svg.mark(
        one["auc"], one["low"], one["high"], ends=(0.25, 1.0), zero=0.5, words=numbers, clear=clear
    )
    return {**one, "picture": Markup(picture), "numbers": numbers}


def _draw_changes(drift: Summary | None) -> list[Summary]:
    if drift is None:
        return []
    shown = [one for one in drift["columns"] if one["rate"] or one["reference_rate"]][:MAX_COLUMNS]
    most = max((max(one["rate"], one["reference_rate"]) for one in shown), default=1.0)
    return [{**one, "picture": Markup(describe_svg.rate_bars(one, most))} for one in shown]
