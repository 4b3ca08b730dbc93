r"""Structural missingness: columns that do not apply to some rows, such as ``pregnant`` for men.

A rule states that column *t* does not apply to rows in which column *c* has one of the values *V*. Rules are
given in the user's schema, or are inferred from the table. A value belongs to *V* if *t* is missing in every
row with this value, and if there are at least `MIN_ROWS` such rows. Wide tables need more rows: if cells are
missing at random, each with a probability of at most `COINCIDENCE`, a rule is found in at most a fraction
`FAILURES` of tables. There must also be at least `MIN_ROWS` rows in which *c* is observed with another value,
and *t* must be observed in most of them. Values are the levels of *c*, or zero if *c* is numeric.

A column may also mark where values are missing, such as ``TSH measured``, which says nothing about whether
they apply. A column with levels is such an *indicator* if its name contains that of the other column, or if
it has two levels, its name speaks of measuring (``blood drawn``), and it marks exactly where several columns
are missing. An indicator is not the condition of any rule, so what it marks is imputed. The name must speak
of measuring, because ``sex`` or ``employed`` may mark several columns exactly too, and these do not apply.

A cell that does not apply is treated as missing by models and stays empty. If *c* itself is missing in a row,
its imputed value decides; if *c* stays empty, so does *t*.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import numpy as np

from halfseen._arrays import Booleans, Floats, Integers
from halfseen.data._cells import plain
from halfseen.data.columns import LEVELLED, Column, SkipRule
from halfseen.data.frames import RawColumn, Table
from halfseen.data.incomplete import Incomplete
from halfseen.data.leaving import SEPARATE, explain_left, shortened
from halfseen.errors import SchemaError

MIN_ROWS = 20
COINCIDENCE = 0.8
FAILURES = 0.01
MOSTLY = 0.5
MAX_VALUES = 100  # a column with more levels is not used as a condition

PERIODS = frozenset(
    ("year", "yr", "cycle", "wave", "round", "period", "phase", "survey", "visit", "occasion", "release",
     "jahr", "welle", "runde", "erhebung")
)  # fmt: skip
"""Words in the names of columns that say when a row was collected; not all questions are asked each time."""

MEASURING = frozenset(
    ("measured", "measurement", "test", "tested", "lab", "drawn", "taken", "done", "performed", "sample",
     "sampled", "collected", "recorded", "observed", "obtained", "available", "assessed", "examined",
     "attended", "responded", "participated", "completed", "known", "missing", "indicator", "na", "isna",
     "gemessen", "erhoben", "getestet", "untersucht", "vorhanden", "bekannt", "fehlt", "fehlend")
)  # fmt: skip
"""Words in the names of columns that say whether values were measured, or are known."""

YEAR = re.compile(r"(19|20)\d\d(\D.*)?")


@dataclass(frozen=True)
class FoundRules:
    """What is inferred from a table: rules, by the columns that do not apply, and indicators.

    `indicators` has the names of the columns whose missing cells an indicator marks, by its name.
    """

    rules: dict[str, SkipRule]
    indicators: dict[str, list[str]]


@dataclass(frozen=True)
class Applicability:
    """The cells of a table that do not apply, before and after missing cells of conditions are imputed.

    `rules` contains, for each rule, the position of the column, the position of its condition, and the rows
    (N) in which the condition is observed with one of the values. Conditions come before columns that depend
    on them.
    """

    columns: Sequence[Column]
    missing: Booleans
    rules: tuple[tuple[int, int, Booleans], ...]

    @classmethod
    def of(cls, columns: Sequence[Column], table: Table, missing: Booleans) -> "Applicability":
        """Applies the rules of columns to the observed cells of a table."""
        position = {column.name: j for j, column in enumerate(columns)}
        rules = []
        for j in _in_order(columns, position):
            rule = columns[j].skip
            assert isinstance(rule, SkipRule)
            k = position[rule.column]
            rules.append((j, k, _matches(rule, columns[k], table.column(k))))
        return cls(columns, missing, tuple(rules))

    def empty_cells(self, completed: Sequence[Floats]) -> dict[int, Booleans]:
        """Returns, by position of the column, which of its missing cells (N) stay empty.

        `completed` has the codes of the missing cells of each modelled column, in the order of rows.
        """
        codes = dict(zip((j for j, c in enumerate(self.columns) if c.modelled), completed, strict=True))
        empty: dict[int, Booleans] = {}
        for j, k, holds in self.rules:
            unknown, condition = self.missing[:, k], self.columns[k]
            if condition.left is not None:
                holds = holds | unknown
            elif unknown.any():
                rule = self.columns[j].skip
                assert isinstance(rule, SkipRule)
                holds = holds.copy()
                filled = codes[k] if condition.modelled else np.full(unknown.sum(), condition.fill_code)
                holds[unknown] = _codes_match(rule, condition, filled)
                holds |= empty.get(k, np.False_)
            empty[j] = self.missing[:, j] & holds
        return empty

    @property
    def undecided(self) -> bool:
        """Whether imputed cells decide which cells do not apply."""
        return any((self.missing[:, j] & self.missing[:, k]).any() for j, k, _ in self.rules)


def check_rules(columns: Sequence[Column]) -> None:
    """Raises a SchemaError if a rule of the user refers to an invalid column or an impossible value."""
    known = {column.name: column for column in columns}
    for column in columns:
        if not isinstance(column.skip, SkipRule):
            continue
        condition = known.get(column.skip.column)
        if condition is None or condition is column:
            raise SchemaError(
                f"Column {column.name!r}: skip refers to {column.skip.column!r}, which is not another column "
                "of the table."
            )
        if condition.storage in ("time", "duration", "other"):
            raise SchemaError(
                f"Column {column.name!r}: skip depends on column {condition.name!r} of dtype "
                f"{condition.dtype}; it must have levels, numbers or booleans."
            )
        if condition.storage != "label":
            _numbers(column.skip, condition)
    try:
        list(_in_order(columns, {column.name: j for j, column in enumerate(columns)}))
    except CycleError as error:
        raise SchemaError(
            f"The skip rules of the schema are circular: {' -> '.join(error.args[1])}."
        ) from None


def find_rules(columns: Sequence[Column], missing: Booleans, codes: Incomplete) -> FoundRules:
    """Returns the rules inferred from a table, for columns without a setting of the user, and indicators.

    Parameters
    ----------
    columns : sequence of Column
        All columns of the table.
    missing : array of shape (N, P)
        Which cells are missing.
    codes : Incomplete
        The modelled columns (N, C).
    """
    targets = np.array([j for j, column in enumerate(columns) if _may_be_skipped(column)], dtype=np.int64)
    if not len(targets):
        return FoundRules({}, {})
    conditions = [k for k, column in enumerate(columns) if column.modelled]
    sizes = [_frequent(columns[k], x) for k, x in zip(conditions, _columns_of(codes), strict=True)]
    n_tests = len(targets) * sum(map(len, sizes))
    if n_tests == 0:
        return FoundRules({}, {})
    enough = max(MIN_ROWS, math.ceil(math.log(FAILURES / n_tests) / math.log(COINCIDENCE)))
    candidates: dict[int, list[_Candidate]] = {}
    for k, x, counted in zip(conditions, _columns_of(codes), sizes, strict=True):
        values = [value for value, count in counted.items() if count >= enough]
        for candidate in _candidates(k, x, values, targets[targets != k], missing):
            candidates.setdefault(candidate.target, []).append(candidate)
    marked = _find_marked(columns, candidates, missing)
    rest = {j: [one for one in several if one.condition not in marked] for j, several in candidates.items()}
    kept = _consistent(_best({j: several for j, several in rest.items() if several}, missing), missing)
    return FoundRules(
        {columns[j].name: _as_rule(kept[j], columns) for j in sorted(kept)},
        {columns[k].name: [columns[j].name for j in targets] for k, targets in marked.items()},
    )


@dataclass(frozen=True)
class _Candidate:
    """A candidate rule: `inside` are the rows (N) with one of its values, which are codes."""

    target: int
    condition: int
    values: tuple[float, ...]
    inside: Booleans

    def rank(self, missing: Booleans, off: Booleans | None = None) -> tuple[int, int, int]:
        """The rank of a rule: it is better if it leaves fewer missing cells unexplained, with fewer values.

        A cell is also explained if the condition itself does not apply (`off`).
        """
        explained = self.inside if off is None else self.inside | (off & missing[:, self.condition])
        n_unexplained = int((missing[:, self.target] & ~explained).sum())
        return n_unexplained, len(self.values), self.condition


def _find_marked(
    columns: Sequence[Column], candidates: Mapping[int, Sequence[_Candidate]], missing: Booleans
) -> dict[int, list[int]]:
    """Returns, by position of each indicator, the positions of the columns whose missing cells it marks."""
    named: dict[int, list[int]] = {}
    exact: dict[int, list[int]] = {}
    for j in sorted(candidates):
        for one in candidates[j]:
            k = one.condition
            if columns[k].kind not in LEVELLED or is_period(columns[k]):
                continue
            if contains_name(columns[k].name, columns[j].name):
                named.setdefault(k, []).append(j)
            measuring = columns[k].kind == "binary" and not MEASURING.isdisjoint(_words(columns[k].name))
            if measuring and not (missing[:, j] & ~one.inside & ~missing[:, k]).any():
                exact.setdefault(k, []).append(j)
    several = {k: targets for k, targets in exact.items() if len(targets) > 1}
    both = {k: sorted({*named.get(k, ()), *several.get(k, ())}) for k in {*named, *several}}
    return {k: both[k] for k in sorted(both)}


def contains_name(name: str, other: str) -> bool:
    """Returns whether the words of a name contain all words of another name, next to each other.

    Examples
    --------
    >>> contains_name("TSH measured", "TSH"), contains_name("is_na_income", "income")
    (True, True)
    >>> contains_name("language", "age"), contains_name("pregnant", "pregnant_weeks")
    (False, False)
    """
    words, others = _words(name), _words(other)
    return bool(others) and len(words) > len(others) and f" {' '.join(others)} " in f" {' '.join(words)} "


def is_period(column: Column) -> bool:
    """Returns whether a column says when rows were collected: its name does, or its levels are years."""
    levels = [str(level) for level in column.levels or ()]
    years = bool(levels) and all(YEAR.fullmatch(level) for level in levels)
    return years or not PERIODS.isdisjoint(_words(column.name))


def _words(name: str) -> list[str]:
    """Returns the words of a name, in lower case: ``SurveyYr`` and ``survey_yr`` are two words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", name).casefold().split()


def _best(candidates: Mapping[int, Sequence[_Candidate]], missing: Booleans) -> dict[int, _Candidate]:
    """Returns the best candidate for each column; in chains of conditions, the nearest condition."""
    first = {j: min(several, key=lambda one: one.rank(missing)) for j, several in candidates.items()}
    off = {j: one.inside for j, one in first.items()}
    return {
        j: min(several, key=lambda one: one.rank(missing, off.get(one.condition)))
        for j, several in candidates.items()
    }


def _may_be_skipped(column: Column) -> bool:
    enough = min(column.n_missing, column.n_observed) >= MIN_ROWS
    return column.left is None and column.skip in (None, True) and enough


def _columns_of(codes: Incomplete) -> Iterator[Floats]:
    for c in range(codes.x.shape[1]):
        yield np.where(codes.observed[:, c].numpy(), codes.x[:, c].numpy(), np.nan)


def _frequent(column: Column, x: Floats) -> dict[float, int]:
    """Returns the codes that occur often enough to be values of a rule, and their numbers of rows."""
    if column.kind in ("datetime", "duration") or len(column.levels or ()) > MAX_VALUES:
        return {}
    values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
    if column.levels is None:
        values, counts = values[values == 0], counts[values == 0]
    return {float(value): int(n) for value, n in zip(values, counts, strict=True) if n >= MIN_ROWS}


def _candidates(
    condition: int, x: Floats, values: Sequence[float], targets: Integers, missing: Booleans
) -> Iterator[_Candidate]:
    found: dict[int, list[float]] = {}
    for value in values:
        rows = np.flatnonzero(x == value)
        some = targets[missing[np.ix_(rows[:MIN_ROWS], targets)].all(axis=0)]  # few rows rule out most
        for j in some[missing[np.ix_(rows, some)].all(axis=0)].tolist():
            found.setdefault(j, []).append(value)
    rows_of: dict[tuple[float, ...], Booleans] = {}  # shared by the columns with equal rules
    for j, chosen in ((j, tuple(several)) for j, several in found.items()):
        inside = rows_of.setdefault(chosen, np.isin(x, chosen))
        outside = ~inside & ~np.isnan(x)
        n_outside, n_observed = int(outside.sum()), int((outside & ~missing[:, j]).sum())
        if n_outside >= MIN_ROWS and n_observed > MOSTLY * n_outside:
            yield _Candidate(j, condition, chosen, inside)


def _consistent(best: Mapping[int, _Candidate], missing: Booleans) -> dict[int, _Candidate]:
    """Removes rules that would be circular, or whose condition does not apply where their column does."""
    kept: dict[int, _Candidate] = {}
    for j in sorted(best, key=lambda j: best[j].rank(missing)):
        k = best[j].condition
        while k in kept and k != j:
            k = kept[k].condition
        if k != j:
            kept[j] = best[j]
    off = {j: candidate.inside & missing[:, j] for j, candidate in kept.items()}
    return {
        j: rule for j, rule in kept.items() if not (off.get(rule.condition, False) & ~missing[:, j]).any()
    }


def _as_rule(candidate: _Candidate, columns: Sequence[Column]) -> SkipRule:
    condition = columns[candidate.condition]
    if condition.levels is not None:
        return SkipRule(condition.name, tuple(condition.levels[int(code)] for code in candidate.values))
    return SkipRule(condition.name, tuple(plain(code) for code in candidate.values))


def _in_order(columns: Sequence[Column], position: Mapping[str, int]) -> Iterator[int]:
    """Yields the positions of columns with a rule, conditions first; raises a CycleError if there is none."""
    rules = {c.name: {c.skip.column} for c in columns if isinstance(c.skip, SkipRule)}
    for name in TopologicalSorter(rules).static_order():
        if name in rules:
            yield position[name]


def _matches(rule: SkipRule, condition: Column, raw: RawColumn) -> Booleans:
    """Returns which cells (N) of the condition are observed and have one of the values."""
    if raw.storage == "label" and condition.levels is not None:
        wanted = set(map(str, rule.values))
        table = np.array([*(str(plain(label)) in wanted for label in raw.labels), False])
        return table[np.where(np.isnan(raw.values), len(raw.labels), raw.values).astype(np.int64)]
    if raw.storage in ("empty", "other"):
        return np.zeros(len(raw.values), dtype=bool)
    values = raw.values if raw.storage != "label" else condition.encode(raw)
    return np.isin(values, _numbers(rule, condition))


def _codes_match(rule: SkipRule, condition: Column, codes: Floats) -> Booleans:
    """Returns which codes (N) equal one of the values after they are written to a table."""
    if condition.levels is None:
        return np.isin(condition.constrain(codes), _numbers(rule, condition))
    wanted = set(map(str, rule.values))
    if condition.storage != "label":
        numbers = _numbers(rule, condition)
        table = np.array([float(level) in numbers for level in condition.levels])
    else:
        table = np.array([str(level) in wanted for level in condition.levels])
    return table[condition.constrain(codes).astype(np.int64)]


def _numbers(rule: SkipRule, condition: Column) -> list[float]:
    """Returns the values of a rule as numbers."""
    words = {"true": True, "false": False}
    try:
        return [float(words.get(str(value).lower(), value)) for value in rule.values]
    except (TypeError, ValueError):
        raise SchemaError(
            f"A skip rule refers to the values {list(rule.values)!r} of column {condition.name!r} of dtype "
            f"{condition.dtype}; give numbers, or true and false."
        ) from None


def rule_announcements(applicability: Applicability, found: FoundRules) -> list[str]:
    """Returns a sentence for each rule, or one for many columns that do not apply in the same rows.

    Indicators are announced too.

    Parameters
    ----------
    applicability : Applicability
        The rules on the training table.
    found : FoundRules
        What was recognised; the other rules are the user's.
    """
    columns = applicability.columns
    groups: dict[tuple[SkipRule, bool], list[tuple[int, int, Booleans]]] = {}
    for j, k, holds in applicability.rules:
        rule = columns[j].skip
        assert isinstance(rule, SkipRule)
        groups.setdefault((rule, columns[j].name in found.rules), []).append((j, k, holds))
    sentences = [_mark_words(name, targets) for name, targets in found.indicators.items()]
    for (rule, recognised), members in groups.items():
        where = describe_rule(rule, columns)
        names = [columns[j].name for j, _, _ in members]
        if not recognised:
            sentences += [
                f"Column {name!r} is left empty where {where}, as the schema requires." for name in names
            ]
        elif len(members) > SEPARATE:
            n_rows = int(members[0][2].sum())
            many = (
                f"{len(names):,} columns ({shortened(names)}) are missing wherever {where} ({n_rows:,} rows)"
            )
            sentences.append(many + _consequence(columns[members[0][1]], "were they", "they are"))
        else:
            sentences += [_sentence(applicability, j, k, holds, where) for j, k, holds in members]
    return sentences


def describe_rule(rule: SkipRule, columns: Sequence[Column]) -> str:
    """Returns a description of the rows to which a rule applies."""
    condition = next(column for column in columns if column.name == rule.column)
    values = [condition.show(value) for value in rule.values]
    more = f" or one of {len(values) - SEPARATE} more" if len(values) > SEPARATE else ""
    return f"{rule.column!r} is {' or '.join(values[:SEPARATE])}{more}"


def never_filled(columns: Sequence[Column], table: Table) -> set[str]:
    """Returns the names of columns that do not apply in any row in which they are missing."""
    position = {column.name: j for j, column in enumerate(columns)}
    found = set()
    for j, column in enumerate(columns):
        if isinstance(column.skip, SkipRule):
            k = position[column.skip.column]
            holds = _matches(column.skip, columns[k], table.column(k))
            if not (np.isnan(table.column(j).values) & ~holds).any():
                found.add(column.name)
    return found


def why_empty(columns: Sequence[Column]) -> dict[str, str]:
    """Returns, by name, why columns stay empty, entirely or in some rows."""
    whole = {column.name: explain_left(column) for column in columns if column.left is not None}
    rules = {column.name: column.skip for column in columns if isinstance(column.skip, SkipRule)}
    parts = {}
    for name, rule in rules.items():
        itself = " or itself does not apply" if rule.column in rules else ""
        parts[name] = f"does not apply where {describe_rule(rule, columns)}{itself}"
    return parts | whole


def _sentence(applicability: Applicability, j: int, k: int, holds: Booleans, where: str) -> str:
    outside = ~holds & ~applicability.missing[:, k]
    share = 1 - applicability.missing[outside, j].mean()
    start = (
        f"Column {applicability.columns[j].name!r} is missing wherever {where} ({int(holds.sum()):,} rows) "
        f"and observed in {share:.0%} of the other rows"
    )
    return start + _consequence(applicability.columns[k], "was it", "it is")


def _consequence(condition: Column, ask: str, state: str) -> str:
    """Returns what is done about columns with a rule; if rows differ by period, a question comes first."""
    fill = '--no-skip-rules, or "skip": false in the schema,'
    if not is_period(condition):
        return f": {state} treated as not applicable and left empty there ({fill} imputes these cells)."
    return (
        f". {ask.capitalize()} not asked or measured there? These cells are left empty; if the values exist, "
        f"{fill} imputes them."
    )


def _mark_words(name: str, targets: Sequence[str]) -> str:
    """Returns the announcement of an indicator."""
    quoted = [repr(target) for target in targets]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
    verb = "is" if len(quoted) == 1 else "are"
    if len(quoted) > SEPARATE:
        listed = shortened(quoted)
    return (
        f"Column {name!r} marks where {listed} {verb} missing, not where values do not exist: they are "
        'imputed there (a "skip" rule in the schema leaves them empty).'
    )
