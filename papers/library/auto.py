"""The automatic choice of imputers on ten real tables, 30% of whose known cells are hidden.

Cells are hidden completely at random, by logistic regression on columns that stay observed (MAR), or by their
own size (self-masking). Imputers are fitted to the table with hidden cells, which are then scored: RMSE and
CRPS in standard deviations of the observed cells, the coverage of 90% intervals, and the accuracy of levels.
Tables are cut to 1,000 rows, drawn once; at the scale "paper" to 10,000. The imputers of scikit-learn see
standardised numbers and an indicator of every level. The scale "small" has one mask per table, completely at
random, and leaves out networks, mixtures and circuits by themselves, which take part in the automatic choice.
"""

import time
from typing import Any

import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401, needed before the next import
from sklearn.impute import IterativeImputer, KNNImputer

from halfseen.auto.imputer import AutoImputer
from halfseen.circuits.imputer import CircuitImputer
from halfseen.evaluation.candidates import enter
from halfseen.evaluation.scores import Scale
from halfseen.gaussian.imputer import GaussianImputer, MeanImputer
from halfseen.latent.presets import MIWAEImputer
from halfseen.missingness import MCAR, LogisticSelfMasking, MARLogistic
from halfseen.mixtures.imputer import MixtureImputer
from halfseen.trees.imputer import TreeImputer
from papers.amputed_table import LEVEL, AmputedTable, read_source
from papers.claims import Better, Setting, Within
from papers.spec import Budget, Experiment

RATE, SCORED_ROWS = 0.3, 500

AUTO, GAUSSIAN, TREES, MEAN = "AutoImputer", "GaussianImputer", "TreeImputer", "mean and mode"
MIWAE, CIRCUIT, MIXTURE = "MIWAEImputer", "CircuitImputer", "MixtureImputer"
CHAINED, NEIGHBOURS = "IterativeImputer", "KNNImputer"
QUICK = [AUTO, GAUSSIAN, TREES, MEAN, CHAINED, NEIGHBOURS]

SCORES = {"RMSE": "rmse", "CRPS": "crps", "coverage": "coverage", "accuracy": "accuracy"}
MECHANISMS = {"MCAR": MCAR, "MAR": MARLogistic, "self-masking": LogisticSelfMasking}

SOURCES: dict[str, tuple[str, tuple[str, ...]]] = {  # file, columns left out
    "concrete": ("concrete", ()),
    "breast": ("breast_cancer_diagnostic", ("id", "diagnosis")),
    "obesity": ("obesity", ()),
    "abalone": ("abalone", ()),
    "wine": ("winequality_red", ()),
    "bikes": ("bike_sharing", ("instant", "dteday")),
    "airfoil": ("airfoil", ()),
    "maternal": ("maternal_health", ()),
    "energy": ("energy_efficiency", ()),
    "vehicle": ("vehicle", ()),
}
TABLES = tuple(SOURCES)


def make_task(setting: Setting, seed: int) -> AmputedTable:
    """Returns a table, and hidden cells by a mechanism."""
    table = read_source(*SOURCES[setting["table"]], setting["rows"])
    settings = {"random_state": seed} if setting["mechanism"] == "MAR" else {}
    mechanism = MECHANISMS[setting["mechanism"]](rate=RATE, **settings).fit(table.codes)
    hidden = ~mechanism.sample(table.codes, random_state=seed) & ~np.isnan(table.codes)
    return AmputedTable(table, hidden, seed)


def score(imputer: Any, task: AmputedTable) -> dict[str, float]:
    """Fits an imputer to the table with hidden cells, and scores its imputations of these."""
    candidate = enter(imputer, task.table, task.seed)
    began = time.perf_counter()
    candidate.fit(task.shown)
    found = {"fit seconds": time.perf_counter() - began}
    rows = np.flatnonzero(task.hidden.any(axis=1))[:SCORED_ROWS]
    return found | task.scores(candidate, rows, Scale.fit(task.shown), SCORES)


def _models() -> dict[str, Any]:
    return {
        AUTO: AutoImputer,
        GAUSSIAN: GaussianImputer,
        TREES: TreeImputer,
        MIWAE: MIWAEImputer,
        CIRCUIT: CircuitImputer,
        MIXTURE: MixtureImputer,
        MEAN: MeanImputer,
        CHAINED: IterativeImputer,
        NEIGHBOURS: KNNImputer,
    }


EXPERIMENT = Experiment(
    name="auto",
    question="Does the automatic choice of imputers impute real tables best?",
    paper="no paper: the candidates and scikit-learn's imputers are the rivals",
    make_data=make_task,
    data_sets=lambda setting: (SOURCES[setting["table"]][0],),
    models=_models(),
    score=score,
    metrics={
        "RMSE": "lower",
        "CRPS": "lower",
        "coverage": "higher",
        "accuracy": "higher",
        "fit seconds": "lower",
    },
    budgets={
        "smoke": Budget.grid(
            n_seeds=1, models=[GAUSSIAN, MEAN], table=["maternal"], mechanism=["MCAR"], rows=[200]
        ),
        "small": Budget.grid(n_seeds=1, models=QUICK, table=TABLES, mechanism=["MCAR"], rows=[1_000]),
        "paper": Budget.grid(n_seeds=5, table=TABLES, mechanism=list(MECHANISMS), rows=[10_000]),
    },
    claims=[
        *(
            Better(AUTO, rival, on=score)
            for rival in (GAUSSIAN, TREES, MEAN, CHAINED, NEIGHBOURS)
            for score in ("RMSE", "CRPS")
        ),
        Within(AUTO, on="coverage", of=LEVEL, by=0.05),
    ],
)
