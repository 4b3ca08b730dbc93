"""Which estimators meet which tables, and in which suite: a covering design.

Every law meets every estimator. In the fast suite it does so on all tables that do not repeat others; the
first imputer also meets the repetitions, which are the same cells in the frames of other libraries. Each of
the other imputers meets one repetition, in the slow suite. An estimator that shares all its code with others
is in the slow suite only, on one table. Names decide on which one, so that together all tables are met.

Laws run again on the instructions of other processors: on one table for each estimator, and of those that
share their code, on one in eight for each law.
"""

import zlib

FIRST = "gaussian"
SHARING = 8


def plan(law, row, cases=()):
    """Returns the suites, among "fast", "slow" and "laws", of a law of an estimator on each table by name.

    A table that is not in the answer is not met. `cases` are the tables of the law; if it has none, the only
    name is None.
    """
    turn = _number(row.name)
    plain = [case.name for case in cases if not case.repeats]
    repeated = [case.name for case in cases if case.repeats]
    ordered = plain or repeated or [None]
    chosen = ordered[turn % len(ordered)]
    if row.slow:
        again = _number(law + row.name) % SHARING == 0
        return {chosen: {"slow", "laws"} if again else {"slow"}}
    suites = {name: {"fast"} for name in (plain or [chosen])}
    if row.name == FIRST:
        suites |= {name: {"fast"} for name in repeated}
    elif repeated:
        suites.setdefault(repeated[turn % len(repeated)], {"slow"})
    suites[chosen].add("laws")
    return suites


def _number(text):
    return zlib.crc32(text.encode())
