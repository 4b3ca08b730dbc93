"""A diagnosis in sentences that claim no more than the numbers can.

No test confirms MCAR, and none tells MAR from MNAR: nothing here says that one of them holds.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from halfseen.evaluation.association import Association
from halfseen.evaluation.little import LittleTest
from halfseen.evaluation.pattern_table import PatternTable
from halfseen.evaluation.predictability import Predictability

if TYPE_CHECKING:
    from halfseen.evaluation.diagnosis import Diagnosis

LIMITS = (
    "Whether holes depend on the values that are missing (MNAR), or only on what was seen (MAR), cannot be "
    "tested from these data alone: the values that would tell are the ones that are missing.",
    "No evidence against MCAR is not evidence for it. With few rows or few holes a test sees little.",
    "With many rows a test sees differences too small to matter. Read effect sizes first, then p-values.",
)
SIZES = ((0.1, "a very small"), (0.35, "a small"), (0.65, "a moderate"), (float("inf"), "a large"))
ALPHA = 0.05


def p_words(p: float) -> str:
    """Returns a p-value as people write it."""
    if p != p:
        return "not tested"
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def names_words(names: Sequence[str], at_most: int = 4) -> str:
    """Returns names in a list that stays short.

    Examples
    --------
    >>> names_words(["a", "b", "c"]), names_words(list("abcdef"))
    ('a, b and c', 'a, b, c and 3 more')
    """
    if len(names) > at_most:
        return f"{', '.join(names[: at_most - 1])} and {len(names) - at_most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def size_words(effect: float) -> str:
    """Returns what to call a shift of means in standard deviations."""
    return next(words for limit, words in SIZES if effect < limit)


def plural(number: int, noun: str) -> str:
    """Returns a count with its noun."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def ratio_words(ratio: float) -> str:
    """Returns an odds ratio with as many digits as it deserves."""
    if ratio >= 1000:
        return "> 1000"
    return "< 0.001" if ratio < 0.001 else f"{ratio:.3g}"


def effect_words(pair: Association) -> str:
    """Returns the effect size of a pair and its interval."""
    if pair.measure == "odds ratio":
        effect, low, high = (ratio_words(one) for one in (pair.effect, pair.low, pair.high))
        return f"odds ratio {effect} (95% {low} to {high})"
    return f"{pair.measure} {pair.effect:.2f} (95% {pair.low:.2f} to {pair.high:.2f})"


def share_words(share: float) -> str:
    """Returns a share as a percentage that is 0% or 100% only if it is exactly that."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return "<0.1%" if share < 0.001 else ">99.9%" if share > 0.999 else f"{share:.1%}"


def pair_words(pair: Association) -> str:
    """Returns what a pair says, without the numbers of the test.

    Examples
    --------
    >>> numbers = {"p_value": 0.01, "p_adjusted": 0.02, "n_rows": 99, "n_missing": 9}
    >>> more = {"strength": 0.3, "level": None, "when_missing": 2.0, "when_seen": 1.0}
    >>> pair_words(Association("a", "b", "value", "rank-biserial", 0.5, 0.4, 0.6, **numbers, **more))
    'holes in a go with higher b: of two rows, the one with the hole has the higher value 75% of the time'
    """
    rates = f"{share_words(pair.when_missing)} of these rows against {share_words(pair.when_seen)}"
    if pair.about == "missingness":
        often = "more" if pair.effect > 1 else "fewer"
        return f"holes in {pair.column} go with {often} holes in {pair.other}: {rates}"
    if pair.level is not None:
        often = "more" if pair.when_missing > pair.when_seen else "less"
        return f"holes in {pair.column} go with {pair.other}, {often} often {pair.level}: {rates}"
    side = "higher" if pair.effect > 0 else "lower"
    return (
        f"holes in {pair.column} go with {side} {pair.other}: of two rows, the one with the hole has the "
        f"{side} value {(1 + abs(pair.effect)) / 2:.0%} of the time"
    )


def read(diagnosis: "Diagnosis") -> tuple[str, ...]:
    """Returns the readings of all parts, the verdict on MCAR first."""
    if diagnosis.n_missing == 0:
        return ("Nothing is missing.", *_read_drift(diagnosis))
    return (
        *_read_verdict(diagnosis),
        *read_little(diagnosis.little),
        *_read_pairs(diagnosis),
        *_read_target(diagnosis),
        *_read_predictability(diagnosis.predictability),
        *_read_together(diagnosis.patterns),
        *_read_drift(diagnosis),
    )


def _read_verdict(diagnosis: "Diagnosis") -> Iterable[str]:
    values = [pair for pair in diagnosis.associations.clear if pair.about == "value"]
    if diagnosis.little.p_value_robust < ALPHA or values:
        yield (
            "There is evidence against MCAR (missing completely at random): rows with holes differ from rows "
            "without in what they show. Results from complete rows alone may be biased."
        )
    elif diagnosis.little.reason is None or diagnosis.associations.pairs:
        yield "No evidence against MCAR was found. That is not evidence for it."
    else:
        yield "Too little is seen to say anything about MCAR."


def read_little(test: LittleTest) -> Iterable[str]:
    """Yields what Little's test says."""
    if test.reason is not None:
        yield f"Little's test was not made. {test.reason}"
        return
    numbers = f"d2 = {test.statistic:,.1f}, df = {test.df:,}, {p_words(test.p_value)}"
    robust = f"{p_words(test.p_value_robust)} with allowance for the tails of the data"
    if test.p_value_robust >= ALPHA:
        yield f"Little's test finds no evidence against MCAR ({numbers}; {robust})."
        yield from (f"But {note}" for note in test.notes if note.endswith("sees little."))
        return
    yield (
        f"Little's test speaks against MCAR ({numbers}; {robust}). The means of rows with different holes "
        f"lie {test.effect:.2f} standard deviations from the mean of all (all features together, root mean "
        "square over rows)."
    )
    if test.largest is not None:
        yield shift_words(test)


def shift_words(test: LittleTest) -> str:
    """Returns the clearest shift of a pattern in words."""
    shift = test.largest
    if shift is None:
        return ""
    what = shift.column if shift.level is None else f"the share of {shift.level} in {shift.column}"
    side = "above" if shift.shift > 0 else "below"
    who = f"that miss {names_words(shift.missing)}" if shift.missing else "without a hole"
    rows = plural(shift.n_rows, "row")
    return (
        f"Most clearly: in the {rows} {who}, {what} lies {abs(shift.shift):.2f} sd {side} the mean of all, "
        f"{size_words(abs(shift.shift))} shift."
    )


def _read_pairs(diagnosis: "Diagnosis") -> Iterable[str]:
    pairs = diagnosis.associations.pairs
    if not pairs:
        yield "No pair of columns has enough holes and values to compare."
    for about, words in (("value", "values"), ("missingness", "holes")):
        some = [pair for pair in pairs if pair.about == about]
        clear = [pair for pair in some if pair.p_adjusted < ALPHA]
        told = diagnosis.distinct_pairs(about)
        if clear:
            strongest = f" The strongest: {pair_words(told[0])}; {effect_words(told[0])}." if told else ""
            yield (
                f"Holes go with {words} of other columns in {len(clear):,} of {plural(len(some), 'pair')} "
                f"(5% level, Holm's correction).{strongest}"
            )
        elif some:
            count = plural(len(some), "pair")
            yield f"Holes go clearly with {words} of another column in none of {count} (Holm's correction)."


def _read_target(diagnosis: "Diagnosis") -> Iterable[str]:
    if diagnosis.target is None:
        return
    pairs = [pair for pair in diagnosis.associations.about(diagnosis.target) if pair.about == "value"]
    clear = [pair for pair in pairs if pair.p_adjusted < ALPHA]
    if not pairs:
        yield f"How holes go with the target {diagnosis.target} cannot be said: too few holes or values."
    elif clear:
        yield (
            f"The target {diagnosis.target} differs between rows with and without a hole in "
            f"{names_words([pair.column for pair in clear])}. Holes tell something of the target there: give "
            "a model indicators of holes, and do not drop these rows."
        )
    else:
        yield f"No clear relation of holes with the target {diagnosis.target} was found."


def _read_predictability(found: Sequence[Predictability]) -> Iterable[str]:
    tested = [one for one in found if one.reason is None]
    clear = [one for one in tested if one.p_adjusted < ALPHA]
    if clear:
        best = clear[0]
        yield (
            f"From the values and holes of the rest of a row, the holes of {len(clear)} of "
            f"{plural(len(tested), 'column')} can be predicted better than by chance; best those of "
            f"{best.column} (AUC {best.auc:.2f}, 95% {best.low:.2f} to {best.high:.2f})."
        )
    elif tested:
        count = plural(len(tested), "column")
        yield f"In none of {count} could holes clearly be predicted from the rest of a row."


def _read_together(patterns: PatternTable) -> Iterable[str]:
    for group in patterns.together[:3]:
        yield f"Always missing together: {names_words(group, 8)}."
    nesting = patterns.monotonicity
    if len(nesting.order) > 1 and nesting.monotone:
        yield "The holes are monotone: in some order of columns, all that follows a hole is a hole too."
    elif len(nesting.order) > 1 and nesting.share > 0.9:
        yield f"The holes are nearly monotone: {nesting.share:.1%} of the rows fit an order of columns."


def _read_drift(diagnosis: "Diagnosis") -> Iterable[str]:
    drift = diagnosis.drift
    if drift is None:
        return
    changed = [one for one in drift.columns if one.p_adjusted < ALPHA]
    if changed:
        most = changed[0]
        yield (
            f"Against the reference, {len(changed)} of {plural(len(drift.columns), 'column')} changed their "
            f"rate of holes; most {most.column}, from {share_words(most.reference_rate)} to "
            f"{share_words(most.rate)} (difference 95% {most.low:+.1%} to {most.high:+.1%})."
        )
    else:
        yield "No column's rate of holes differs clearly from the reference."
    if drift.n_new_patterns:
        yield (
            f"{plural(drift.n_new_patterns, 'pattern')} of holes, in {plural(drift.n_new_rows, 'row')}, "
            "did not occur in the reference."
        )
