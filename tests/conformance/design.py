"""Which laws run in which suite: a rule in one sentence.

The fast suite runs every law on one representative of each family and the table penguins, the suite "laws" on
every estimator and the same table, and the slow suite on the presets, on the table "nasty" and, for the
Gaussian imputer, on all other tables.

A new estimator is in the suites "laws" and "slow": the fast suite does not grow with the library.
"""

from conformance.tables import NASTY, PENGUINS

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


def suites(row, case=None):
    """Returns the suites, among "fast", "slow" and "laws", in which an estimator meets a table.

    None is for laws that make tables of their own. Presets share all their code with other estimators.
    """
    if case is None or case == PENGUINS:
        if row.slow:
            return {"slow"}
        return {"fast", "laws"} if row.name in REPRESENTATIVES else {"laws"}
    return {"slow"} if row.name == FIRST or (case == NASTY and not row.slow) else set()
