"""Which estimators meet which tables, and in which suite: a covering design.

Every law meets every estimator, and every estimator meets every table that does not repeat another. Which
table it is for a law and an estimator follows from their names.

fast : one representative of each family, on one table. The first imputer meets all tables that do not repeat
    others here, and the repetitions, which are the same cells in the frames of other libraries, in the slow
    suite.
laws : every estimator on one table, on the instructions of other processors. Of the presets, which share all
    their code with others, one in eight for each law.
slow : every estimator on a second table, where the law has one; a preset on its only one.

A new estimator is in the suites "laws" and "slow": the fast suite does not grow with the library.
"""

import zlib

FIRST = "gaussian"
REPRESENTATIVES = {
    FIRST,
    "mixture",
    "latent",
    "gaussian-regressor",
    "sparsity-norm-classifier",
    "sparsity-normalizer",
    "convac-classifier",
    "skeleton-sequences",
    "autorec",
    "made",
    "autoimpute",
    "self-masked",
    "circuit-trees",
}
"""The estimators and densities in the fast suite: one for each family of models and each family of data."""
SHARING = 8


def plan(law, row, cases=()):
    """Returns the suites, among "fast", "slow" and "laws", of a law of an estimator on each table by name.

    A table that is not in the answer is not met. `cases` are the tables of the law; if it has none, the only
    name is None.
    """
    turn = _number(law + row.name)
    plain = [case.name for case in cases if not case.repeats]
    repeated = [case.name for case in cases if case.repeats]
    ordered = plain or repeated or [None]
    chosen = ordered[turn % len(ordered)]
    if row.slow:
        return {chosen: {"slow", "laws"} if turn % SHARING == 0 else {"slow"}}
    suites = {chosen: {"fast", "laws"} if row.name in REPRESENTATIVES else {"laws"}}
    if row.name == FIRST:
        return {name: {"fast"} for name in plain} | {name: {"slow"} for name in repeated} | suites
    seconds = [name for name in (*plain, *_one(repeated, row)) if name != chosen]
    if seconds:
        suites[seconds[turn // SHARING % len(seconds)]] = {"slow"}
    return suites


def _one(repeated, row):
    """One of the repeated tables, always the same for an estimator: each table is a model more to fit."""
    return repeated[_number(row.name) % len(repeated) :][:1] if repeated else []


def _number(text):
    return zlib.crc32(text.encode())
