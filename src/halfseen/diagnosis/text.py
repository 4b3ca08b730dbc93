"""A diagnosis as plain text, for a file, a pipe or a notebook."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from halfseen.diagnosis.pattern_table import PatternTable
from halfseen.diagnosis.predictability import Predictability
from halfseen.diagnosis.wording import effect_words, p_words, pair_words, share_words
from halfseen.words import names_words, plural

if TYPE_CHECKING:
    from halfseen.diagnosis.summary import Diagnosis

TOP = 8
TOP_COLUMNS = 20


def write(diagnosis: "Diagnosis") -> str:
    """Returns a diagnosis as plain text."""
    sections: list[tuple[str, Iterable[str]]] = [
        (headline(diagnosis), ()),
        ("Summary", (f"- {line}" for line in diagnosis.readings)),
        ("Columns with missing values", _column_lines(diagnosis)),
        ("Patterns", _pattern_lines(diagnosis.patterns)),
        ("Associations with values of other columns", _pair_lines(diagnosis, "value")),
        ("Associations with missingness of other columns", _pair_lines(diagnosis, "missingness")),
        ("Predicting missingness from the rest of the row", _predictability_lines(diagnosis.predictability)),
        ("Compared with the reference", _drift_lines(diagnosis)),
        ("What cannot be known", (f"- {line}" for line in diagnosis.limits)),
    ]
    parts: list[str] = []
    for title, lines in sections:
        body = [f"  {line}" for line in lines]
        if body or not parts:
            parts.append("\n".join([title, *body]))
    return "\n\n".join(parts)


def headline(diagnosis: "Diagnosis") -> str:
    """Returns the size of a table and how much of it is missing."""
    n_cells = diagnosis.n_rows * len(diagnosis.columns)
    complete = diagnosis.patterns.n_complete_rows
    return (
        f"{plural(diagnosis.n_rows, 'row')}, {plural(len(diagnosis.columns), 'column')}, "
        f"{plural(diagnosis.n_missing, 'missing cell')} ({share_words(diagnosis.n_missing / n_cells)}), "
        f"{plural(complete, 'complete row')} ({share_words(complete / diagnosis.n_rows)})"
    )


def _column_lines(diagnosis: "Diagnosis") -> Iterable[str]:
    incomplete = sorted((c for c in diagnosis.columns if c.n_missing), key=lambda c: -c.n_missing)
    width = max((len(c.name) for c in incomplete[:TOP_COLUMNS]), default=0)
    for column in incomplete[:TOP_COLUMNS]:
        yield f"{column.name:{width}}  {column.n_missing:>9,}  {share_words(column.share):>6}"
    if len(incomplete) > TOP_COLUMNS:
        yield f"and {len(incomplete) - TOP_COLUMNS} more columns with fewer missing values"


def _pattern_lines(patterns: PatternTable) -> Iterable[str]:
    if not patterns.columns:
        return
    for row in patterns.rows[:TOP]:
        missing = names_words(row.missing, 6) or "nothing"
        yield f"{row.count:>9,}  {share_words(row.share):>6}  {missing} missing"
    if patterns.n_patterns > TOP:
        n_rarer = plural(patterns.n_patterns - TOP, "rarer one")
        yield f"and {n_rarer}; {patterns.n_single:,} of all patterns have one row only"
    if len(patterns.columns) > 1:
        nesting = patterns.monotonicity
        share = share_words(nesting.share)
        fit = "yes" if nesting.monotone else f"no; the best order of columns fits {share} of the rows"
        yield f"monotone: {fit}"


def _pair_lines(diagnosis: "Diagnosis", about: str) -> Iterable[str]:
    clear = diagnosis.distinct_pairs(about)
    for pair in clear[:TOP]:
        yield f"{pair_words(pair)}; {effect_words(pair)}, {p_words(pair.p_adjusted)}"
    if len(clear) > TOP:
        yield f"and {plural(len(clear) - TOP, 'weaker one')}"
    if clear:
        yield "(p by Holm's method over all pairs)"


def _predictability_lines(found: Sequence[Predictability]) -> Iterable[str]:
    width = max((len(one.column) for one in found[:TOP_COLUMNS]), default=0)
    for one in found[:TOP_COLUMNS]:
        numbers = f"AUC {one.auc:.2f} (95% {one.low:.2f} to {one.high:.2f}), {p_words(one.p_adjusted)}"
        yield f"{one.column:{width}}  {one.reason or numbers}"


def _drift_lines(diagnosis: "Diagnosis") -> Iterable[str]:
    drift = diagnosis.drift
    if drift is None:
        return
    shown = [one for one in drift.columns if one.rate or one.reference_rate][:TOP_COLUMNS]
    width = max((len(one.column) for one in shown), default=0)
    for one in shown:
        yield (
            f"{one.column:{width}}  {share_words(one.reference_rate):>6} to {share_words(one.rate):>6}  "
            f"difference 95% {one.low:+.1%} to {one.high:+.1%}, {p_words(one.p_adjusted)}"
        )
    if drift.effect == drift.effect:
        numbers = f"Cramér's V {drift.effect:.2f} (95% {drift.low:.2f} to {drift.high:.2f})"
        yield f"patterns: distance {drift.distance:.2f}, {numbers}, {p_words(drift.p_value)}"
    for title, names in (("here", drift.only_here), ("in the reference", drift.only_in_reference)):
        if names:
            yield f"columns only {title}: {names_words(names, 8)}"
