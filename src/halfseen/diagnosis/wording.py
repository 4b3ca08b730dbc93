"""A diagnosis in sentences: first what it means, then the statistic.

No test confirms MCAR, and none distinguishes MAR from MNAR, so no sentence claims that one of them holds.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from halfseen.diagnosis.association import Association
from halfseen.diagnosis.cells import PatternTable
from halfseen.diagnosis.little import LittleTest, power_note
from halfseen.diagnosis.predictability import Predictability
from halfseen.words import minus, names_words, plural, share_words

if TYPE_CHECKING:
    from halfseen.diagnosis.drift import RateChange
    from halfseen.diagnosis.summary import Diagnosis


LIMITS = (
    "Whether missingness depends on the missing values themselves (MNAR), or only on observed values (MAR), "
    "cannot be tested from these data alone, because the values that such a test would need are missing.",
    "No evidence against MCAR is not evidence for it. With few rows or few missing values, tests have little "
    "power.",
    "With many rows, tests detect differences too small to matter. Read effect sizes before p-values.",
)
SIZES = ((0.1, "a very small"), (0.35, "a small"), (0.65, "a moderate"), (float("inf"), "a large"))
ALPHA = 0.05


def p_words(p: float) -> str:
    """Returns a p-value as people write it."""
    if p != p:
        return "not tested"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def size_words(effect: float) -> str:
    """Returns what to call a shift of means in standard deviations."""
    return next(words for limit, words in SIZES if effect < limit)


def ratio_words(ratio: float) -> str:
    """Returns an odds ratio with three significant digits, or a bound."""
    if ratio >= 1000:
        return "> 1000"
    return "< 0.001" if ratio < 0.001 else f"{ratio:#.3g}".removesuffix(".")


def effect_words(pair: Association) -> str:
    """Returns the effect size of a pair and its interval."""
    if pair.measure == "odds ratio":
        effect, low, high = (ratio_words(one) for one in (pair.effect, pair.low, pair.high))
        return f"odds ratio {effect} (95% {low} to {high})"
    return minus(f"{pair.measure} {pair.effect:.2f} (95% {pair.low:.2f} to {pair.high:.2f})")


def pair_words(pair: Association) -> str:
    """Returns the association of a pair in words, without the statistics of the test.

    Examples
    --------
    >>> numbers = {"p_value": 0.01, "p_adjusted": 0.02, "n_rows": 99, "n_missing": 9}
    >>> more = {"strength": 0.3, "level": None, "when_missing": 2.0, "when_seen": 1.0}
    >>> pair_words(Association("a", "b", "value", "rank-biserial", 0.5, 0.4, 0.6, **numbers, **more))
    'a is missing more often when b is higher (a row with a missing has the higher b in 75% of pairs of rows)'
    """
    rates = (
        f"{share_words(pair.when_missing)} of rows with {pair.column} missing, "
        f"{share_words(pair.when_seen)} of rows with {pair.column} observed"
    )
    if pair.about == "missingness":
        often = "more" if pair.effect > 1 else "less"
        return f"{pair.column} is missing {often} often when {pair.other} is missing ({rates})"
    if pair.level is not None:
        often = "more" if pair.when_missing > pair.when_seen else "less"
        return f"{pair.column} is missing {often} often for {pair.other} {pair.level} ({rates})"
    side = "higher" if pair.effect > 0 else "lower"
    return (
        f"{pair.column} is missing more often when {pair.other} is {side} (a row with {pair.column} missing "
        f"has the {side} {pair.other} in {(1 + abs(pair.effect)) / 2:.0%} of pairs of rows)"
    )


def read(diagnosis: "Diagnosis") -> tuple[str, ...]:
    """Returns the sentences on all parts, the verdict on MCAR first."""
    if diagnosis.n_missing == 0:
        return ("Nothing is missing.", *read_duplicates(diagnosis), *read_drift(diagnosis))
    return (
        *read_sample(diagnosis),
        *_read_verdict(diagnosis),
        *read_little(diagnosis.little),
        *_read_pairs(diagnosis),
        *_read_target(diagnosis),
        *_read_predictability(diagnosis.predictability),
        *_read_together(diagnosis.patterns),
        *read_duplicates(diagnosis),
        *read_drift(diagnosis),
    )


def read_sample(diagnosis: "Diagnosis") -> Iterable[str]:
    """Yields the sentences on what is found from some of the rows of a table in files."""
    sampled = diagnosis.sampled
    if sampled is None:
        return
    rows = plural(sampled.n_rows, "sampled row")
    tests = (
        "Little's test, the prediction of missingness and associations with values are computed from "
        f"{rows}, chosen at random by their numbers. Duplicated rows are not counted."
    )
    if sampled.n_patterns is None:
        what = "Missing values, their patterns and associations between them"
        yield f"{what} are counted in all {diagnosis.n_rows:,} rows. {tests}"
        return
    yield f"Missing values and complete rows are counted in all {diagnosis.n_rows:,} rows. {tests}"
    yield (
        f"There are more than {sampled.n_patterns:,} patterns of missing values, so they are not counted in "
        f"all rows: patterns and associations between missing values are those of the {rows}."
    )


def _read_verdict(diagnosis: "Diagnosis") -> Iterable[str]:
    values = [pair for pair in diagnosis.associations.clear if pair.about == "value"]
    if diagnosis.little.p_value_robust < ALPHA or values:
        yield (
            "Rows with missing values differ from the other rows, so an analysis of complete rows only may "
            "be biased. There is evidence against MCAR (missing completely at random)."
        )
    elif diagnosis.little.reason is None or diagnosis.associations.pairs:
        yield (
            "Rows with missing values do not differ significantly from the other rows. No evidence against "
            "MCAR (missing completely at random) was found. That is not evidence for it."
        )
    else:
        yield (
            "There are too few observed values to compare rows with missing values with the other rows, so "
            "MCAR (missing completely at random) cannot be tested."
        )


def read_little(test: LittleTest) -> Iterable[str]:
    """Yields the sentences on Little's test."""
    if test.reason is not None:
        yield f"Little's test was not performed. {test.reason}"
        return
    numbers = f"d² = {test.statistic:,.1f}, df = {test.df:,}, {p_words(test.p_value)}"
    robust = f"{p_words(test.p_value_robust)} adjusted for the tails of the data"
    if test.p_value_robust >= ALPHA:
        yield f"Little's test finds no evidence against MCAR ({numbers}; {robust})."
        if test.has_little_power:
            yield f"But {power_note(test.n_single_rows, test.n_rows)}"
        return
    yield (
        f"Little's test gives evidence against MCAR ({numbers}; {robust}). The means of rows with different "
        f"patterns of missing values differ from the overall means by {test.effect:.2f} standard deviations "
        "(root mean square over rows, all features together)."
    )
    if test.largest is not None:
        yield shift_words(test)


def shift_words(test: LittleTest) -> str:
    """Returns the clearest shift of a pattern in words."""
    shift = test.largest
    if shift is None:
        return ""
    what = (
        f"the mean of {shift.column}"
        if shift.level is None
        else f"the share of {shift.level} in {shift.column}"
    )
    side = "above" if shift.shift > 0 else "below"
    who = f"with {names_words(shift.missing)} missing" if shift.missing else "without missing values"
    rows = plural(shift.n_rows, "row")
    return (
        f"The clearest difference: in the {rows} {who}, {what} lies {abs(shift.shift):.2f} standard "
        f"deviations {side} the overall value, {size_words(abs(shift.shift))} shift."
    )


def _read_pairs(diagnosis: "Diagnosis") -> Iterable[str]:
    pairs = diagnosis.associations.pairs
    if not pairs:
        yield "No pair of columns has enough missing and observed values to compare."
    for about, words in (("value", "the values"), ("missingness", "the missingness")):
        some = [pair for pair in pairs if pair.about == about]
        clear = [pair for pair in some if pair.p_adjusted < ALPHA]
        distinct = diagnosis.distinct_pairs(about)
        if clear:
            verb = "is" if len(clear) == 1 else "are"
            strongest = ""
            if distinct:
                strongest = f" The strongest: {pair_words(distinct[0])}; {effect_words(distinct[0])}."
            yield (
                f"Whether a value is missing is associated with {words} of other columns: {len(clear):,} of "
                f"{plural(len(some), 'pair')} of columns {verb} significant (5% level, Holm's correction)."
                f"{strongest}"
            )
        elif some:
            count = plural(len(some), "pair")
            yield (
                f"Whether a value is missing is not associated with {words} of other columns: none of "
                f"{count} "
                "of columns is significant (5% level, Holm's correction)."
            )


def _read_target(diagnosis: "Diagnosis") -> Iterable[str]:
    if diagnosis.target is None:
        return
    pairs = [pair for pair in diagnosis.associations.about(diagnosis.target) if pair.about == "value"]
    clear = [pair for pair in pairs if pair.p_adjusted < ALPHA]
    if not pairs:
        yield (
            f"There are too few missing or observed values to test associations with the target "
            f"{diagnosis.target}."
        )
    elif clear:
        yield (
            f"The target {diagnosis.target} is associated with the missingness of "
            f"{names_words([pair.column for pair in clear])}. The missingness is informative there: add "
            "missingness indicators to a model, and do not drop incomplete rows."
        )
    else:
        yield f"No significant association of missingness with the target {diagnosis.target} was found."


def _read_predictability(found: Sequence[Predictability]) -> Iterable[str]:
    tested = [one for one in found if one.reason is None]
    clear = [one for one in tested if one.p_adjusted < ALPHA]
    if clear:
        best = clear[0]
        yield (
            f"Which values are missing can be predicted from the rest of the row better than by chance in "
            f"{len(clear)} of {plural(len(tested), 'column')}; best for {best.column} (AUC {best.auc:.2f}, "
            "95% "
            f"{best.low:.2f} to {best.high:.2f})."
        )
    elif tested:
        count = plural(len(tested), "column")
        yield (
            "Which values are missing cannot be predicted from the rest of the row: in none of "
            f"{count} is the prediction significantly better than chance."
        )


def _read_together(patterns: PatternTable) -> Iterable[str]:
    for group in patterns.together[:3]:
        yield f"These columns are always missing together: {names_words(group, 8)}."
    nesting = patterns.monotonicity
    if len(nesting.order) > 1 and nesting.monotone:
        yield (
            "The missingness is monotone: columns can be ordered so that everything after a missing value is "
            "missing too."
        )
    elif len(nesting.order) > 1 and nesting.share > 0.9:
        yield f"The missingness is nearly monotone: {nesting.share:.1%} of the rows fit an order of columns."


def read_duplicates(diagnosis: "Diagnosis") -> Iterable[str]:
    """Yields a sentence on rows that are copies of others, if there are any."""
    count = diagnosis.n_duplicated_rows
    if not count:
        return
    verb, what = ("is", "a copy of an earlier row") if count == 1 else ("are", "copies of earlier rows")
    named = duplicates_words(count, diagnosis.first_duplicates)
    yield (
        f"{plural(count, 'row')} ({share_words(count / diagnosis.n_rows)}) {verb} {what}, with the same "
        f"value or a missing value in every column: {named}. If they were recorded twice by mistake, "
        "remove them: they count twice in every analysis, and checks on hidden values are too optimistic."
    )


def duplicates_words(n_copies: int, first: Sequence[Sequence[int]]) -> str:
    """Returns which rows are copies of which, counted from 1 below the header.

    Examples
    --------
    >>> duplicates_words(3, [(4, 1), (5, 1)])
    'row 5 of row 2, row 6 of row 2 and 1 more, counted without the header'
    """
    pairs = [f"row {copy + 1:,} of row {original + 1:,}" for copy, original in first]
    rest = n_copies - len(pairs)
    listed = f"{', '.join(pairs)} and {rest:,} more" if rest else names_words(pairs, len(pairs))
    return f"{listed}, counted without the header"


def read_drift(diagnosis: "Diagnosis") -> Iterable[str]:
    """Yields the sentences on changes against the reference table."""
    drift = diagnosis.drift
    if drift is None:
        return
    changed = [one for one in drift.columns if one.p_adjusted < ALPHA]
    if changed:
        most = changed[0]
        yield (
            f"Compared with the reference, the rate of missing values changed in {len(changed)} of "
            f"{plural(len(drift.columns), 'column')}; most in {most.column}, from "
            f"{share_words(most.reference_rate)} to {share_words(most.rate)} ({difference_words(most)})."
        )
    else:
        yield "In no column does the rate of missing values differ significantly from the reference."
    if drift.n_new_patterns:
        yield (
            f"{plural(drift.n_new_patterns, 'pattern')} of missing values, in "
            f"{plural(drift.n_new_rows, 'row')}, did not occur in the reference."
        )


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
    copies = diagnosis.n_duplicated_rows
    duplicates = f", {plural(copies, 'duplicated row')}" if copies else ""
    return (
        f"{plural(diagnosis.n_rows, 'row')}, {plural(len(diagnosis.columns), 'column')}, "
        f"{plural(diagnosis.n_missing, 'missing cell')} ({share_words(diagnosis.n_missing / n_cells)}), "
        f"{plural(complete, 'complete row')} ({share_words(complete / diagnosis.n_rows)})"
        f"{duplicates}"
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


def difference_words(one: "RateChange") -> str:
    """Returns the interval of the difference of two rates in percentage points."""
    return minus(f"95% interval of the difference {100 * one.low:+.1f} to {100 * one.high:+.1f} points")


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
            f"{difference_words(one)}, {p_words(one.p_adjusted)}"
        )
    if drift.effect == drift.effect:
        numbers = f"Cramér's V {drift.effect:.2f} (95% {drift.low:.2f} to {drift.high:.2f})"
        yield f"patterns: distance {drift.distance:.2f}, {numbers}, {p_words(drift.p_value)}"
    for title, names in (("here", drift.only_here), ("in the reference", drift.only_in_reference)):
        if names:
            yield f"columns only {title}: {names_words(names, 8)}"
