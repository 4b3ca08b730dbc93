"""The one table of what is tested: a row for each public estimator.

The files beside this one run every law on every row; a row says only what no law can know. An estimator of
the catalogue without a row gets one with its default parameters and three epochs. Densities, below the
estimators, have a table of their own in densities.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from halfseen.base.catalogue import CATALOGUE, Family, find_method
from halfseen.ratings.autorec import AutoRec
from halfseen.ratings.matrix_factorization import MatrixFactorization
from skeletons.imputer import DiagonalImputer
from skeletons.ratings import RatingMeans
from skeletons.sequences import RecurrentClassifier


@dataclass(frozen=True)
class Row:
    """An estimator: how to make it, small enough for tests, and what to search over."""

    name: str
    make: Callable[..., Any]  # called with random_state, and with schema where a test needs one
    grid: Mapping[str, Sequence[Any]]
    slow: bool = False  # shares all its code with others, so its tests are in the slow suite only

    def __str__(self):
        return self.name

    def target(self, numbers):
        """A target as the estimator takes it, made from numbers."""
        return numbers


@dataclass(frozen=True)
class ClassifierRow(Row):
    """A classifier."""

    def target(self, numbers):
        return np.where(numbers > np.median(numbers), "high", "low")


@dataclass(frozen=True)
class ImputerRow(Row):
    """An imputer, and which of its answers are exact.

    levels_sum : `score_samples` with a level missing is exactly the sum over its levels. Not so where levels
        follow a linear probability model by the chain rule, as `TabularGaussian.log_prob` documents.
    draws_have_the_mean : draws are at the fitted parameters, as `transform` and `class_probabilities` are;
        not so where they carry the uncertainty of the parameters, or where candidates have other weights in
        single values than in distributions.
    symmetric : the distribution of a number given the rest is symmetric, so any interval holds its mean.
    exact_score : `score_samples` is the log density itself, so that its marginals are exact; not a bound.
    coherent : the distribution of a number given levels that are drawn is the one given levels that are seen.
        Not so where different columns are drawn from different models.
    has_density : there is `score_samples`. Not so where conditional distributions are not those of one joint
        distribution.
    scores_the_mask : `score_samples` is the joint log density of what was seen *and* of which numbers are
        missing. Then showing nothing has a log probability, and hiding a number is not integrating it out;
        what holds instead is that all masks together make one, which tests/gaussian/test_imputer.py shows.
    """

    levels_sum: bool = True
    has_density: bool = True
    coherent: bool = True
    exact_score: bool = True
    scores_the_mask: bool = False
    draws_have_the_mean: bool = True
    symmetric: bool = True


def made(name, **settings):
    """Returns a maker of the estimator that has this name in the catalogue, with settings for tests."""
    return partial(find_method(name).estimator, **settings)


_SMALL = {"n_latent": 2, "width": 8, "n_blocks": 1, "max_epochs": 3, "n_imputation_draws": 64}
_BOUND = {"levels_sum": False, "symmetric": False, "exact_score": False}
_SMALL_TREES = {"max_trees": 4, "max_leaf_nodes": 6}
_NO_DENSITY = {"levels_sum": False, "symmetric": False, "exact_score": False, "has_density": False}
_RATES = {"learning_rate": [1e-3, 1e-2]}


_REGISTERED_IMPUTERS = (
    ImputerRow("gaussian", made("gaussian"), {"ridge": [0.1, 10.0]}, levels_sum=False),
    ImputerRow(
        "gaussian-posterior",
        made("gaussian", n_posterior_draws=4),
        {"n_posterior_draws": [2, 4]},
        levels_sum=False,
        draws_have_the_mean=False,
        symmetric=False,
    ),
    *(
        ImputerRow(
            f"gaussian-{missingness}",
            made("gaussian", missingness=missingness),
            {"ridge": [0.1, 10.0]},
            levels_sum=False,
            scores_the_mask=True,
        )
        for missingness in ("self-masking-probit", "self-masking-gaussian")
    ),
    ImputerRow(
        "auto",
        made("auto", candidates=["mean", "gaussian"]),
        {"max_seconds": [60, 120]},
        coherent=False,
        draws_have_the_mean=False,
        **_NO_DENSITY,
    ),
    ImputerRow(
        "chained",
        made("chained", n_chains=4, n_cycles=2),
        {"n_cycles": [1, 2]},
        coherent=False,
        draws_have_the_mean=False,
        **_NO_DENSITY,
    ),
    ImputerRow("trees", made("trees", **_SMALL_TREES), {"max_trees": [2, 4]}, **_NO_DENSITY),
    ImputerRow("mean", made("mean"), {"random_state": [0, 1]}),
    ImputerRow(
        "bootstrap",
        made("bootstrap", n_resamples=5),
        {"n_resamples": [1, 2]},
        levels_sum=False,
        draws_have_the_mean=False,
        symmetric=False,
    ),
    ImputerRow(
        "mixture",
        made("mixture", n_components=3, max_epochs=30),
        {"n_components": [1, 3]},
        symmetric=False,
    ),
    ImputerRow(
        "circuit",
        made("circuit", n_leaves=4, n_channels=4, max_epochs=10),
        {"n_leaves": [2, 4]},
        symmetric=False,
    ),
    ImputerRow(
        "latent",
        made("latent", posterior="mixture", n_components=2, sampling="stratified", **_SMALL),
        _RATES,
        **_BOUND,
    ),
    ImputerRow("skeleton", partial(DiagonalImputer, max_epochs=40), {"max_epochs": [5, 20]}),
    *(
        ImputerRow(name, made(name, **_SMALL), _RATES, slow=True, **_BOUND)
        for name in (
            "mvae", "miwae", "not-miwae", "missvae", "misssvae", "missiwae", "misssiwae", "demissvae",
        )
    ),
)  # fmt: skip


def rows_by_default(kind, family, registered, suffix=""):
    """Rows of the methods of the catalogue that have none: with few epochs, and nothing to search over."""
    known = {row.make.func for row in registered if isinstance(row.make, partial)}
    for method in CATALOGUE:
        if method.family == family and method.name.endswith(suffix) and method.estimator not in known:
            small = {"max_epochs": 3} if "max_epochs" in signature(method.estimator).parameters else {}
            yield kind(method.name, made(method.name, **small), {})


IMPUTERS = (
    *_REGISTERED_IMPUTERS,
    *rows_by_default(ImputerRow, Family.TABLE_IMPUTER, _REGISTERED_IMPUTERS),
)

_SMALL_CIRCUIT = {"n_leaves": 6, "n_channels": 6, "max_epochs": 12, "learning_rate": 0.1}
SMALL_NETWORKS = {"n_networks": 2, "width": 16, "max_epochs": 5}
SMALL_TREES = {"max_iter": 10, "min_samples_leaf": 2, "max_leaf_nodes": 8}
SMALL_MLP = {"width": 16, "max_epochs": 25, "dropout": 0.1}
SMALL_NETWORK = {"depth": 3, "width": 16, "max_epochs": 10}
_REGISTERED_REGRESSORS = (
    Row("gaussian-regressor", made("gaussian-regressor"), {"ridge": [0.1, 10.0]}),
    Row("circuit-regressor", made("circuit-regressor", **_SMALL_CIRCUIT), {"n_leaves": [2, 4]}),
    Row("neumiss-regressor", made("neumiss-regressor", **SMALL_NETWORKS), {"head": ["linear", "auto"]}),
    Row("neumiss-network-regressor", made("neumiss-network-regressor", **SMALL_NETWORK), {"depth": [0, 2]}),
    Row("boosting-regressor", made("boosting-regressor", **SMALL_TREES), {"max_leaf_nodes": [4, 8]}),
    Row(
        "average-regressor",
        made("average-regressor", predictors={"gaussian": {}, "boosting": SMALL_TREES}, n_splits=2),
        {"n_splits": [2, 3]},
    ),
    Row(
        "impute-then-regressor",
        made("impute-then-regressor", **SMALL_TREES),
        {"predictor": ["boosting", "linear"]},
    ),
    Row(
        "multiple-linear-regressor",
        made("impute-then-regressor", predictor="linear", n_draws=2),
        {"n_draws": [1, 2]},
        slow=True,
    ),
    Row("sparsity-norm-regressor", made("sparsity-norm-regressor", **SMALL_MLP), {"alpha": [0.5, 1.0]}),
)
_REGISTERED_CLASSIFIERS = (
    ClassifierRow("circuit-classifier", made("circuit-classifier", **_SMALL_CIRCUIT), {"n_leaves": [2, 4]}),
    ClassifierRow(
        "neumiss-classifier", made("neumiss-classifier", **SMALL_NETWORKS), {"head": ["linear", "auto"]}
    ),
    ClassifierRow(
        "neumiss-network-classifier", made("neumiss-network-classifier", **SMALL_NETWORK), {"depth": [0, 2]}
    ),
    ClassifierRow(
        "boosting-classifier", made("boosting-classifier", **SMALL_TREES), {"max_leaf_nodes": [4, 8]}
    ),
    ClassifierRow(
        "average-classifier",
        made(
            "average-classifier",
            predictors={"boosting": SMALL_TREES, "sparsity-norm": {"width": 8, "max_epochs": 2}},
            n_splits=2,
        ),
        {"n_splits": [2, 3]},
    ),
    ClassifierRow(
        "impute-then-classifier",
        made("impute-then-classifier", predictor="linear", n_draws=2),
        {"add_indicator": [True, False]},
    ),
    ClassifierRow(
        "impute-then-boosting-classifier",
        made("impute-then-classifier", **SMALL_TREES),
        {"max_leaf_nodes": [4, 8]},
        slow=True,
    ),
    ClassifierRow(
        "sparsity-norm-classifier", made("sparsity-norm-classifier", **SMALL_MLP), {"alpha": [0.5, 1.0]}
    ),
)
REGRESSORS = (
    *_REGISTERED_REGRESSORS,
    *rows_by_default(Row, Family.TABLE_PREDICTOR, _REGISTERED_REGRESSORS, "-regressor"),
)
CLASSIFIERS = (
    *_REGISTERED_CLASSIFIERS,
    *rows_by_default(ClassifierRow, Family.TABLE_PREDICTOR, _REGISTERED_CLASSIFIERS, "-classifier"),
)
PREDICTORS = (*REGRESSORS, *CLASSIFIERS)
UNEQUAL = (
    "weights are relative, but a ridge, a penalty and the rows of a leaf count rows, and rows are split at "
    "random: weights are not the same as repeated rows"
)
FAILED_CHECKS = {
    type(row.make()).__name__: {"check_sample_weight_equivalence_on_dense_data": UNEQUAL}
    for row in PREDICTORS
}
"""Checks of scikit-learn that an estimator is known to fail, and why."""

ESTIMATORS = (*IMPUTERS, *PREDICTORS)
TRANSFORMERS = (Row("sparsity-normalizer", made("sparsity-normalizer"), {"alpha": [0.5, 1.0]}),)
"""Transformers of numbers: they have no schema and no random numbers, and laws of their own."""
EVERY_ROW = (*ESTIMATORS, *TRANSFORMERS)


@dataclass(frozen=True)
class FamilyRow:
    """An estimator of data other than tables; `conformance.families` has small data for each family."""

    name: str
    family: Family
    make: Callable[..., Any]  # called with random_state
    slow: bool = False  # shares all its code with others, so its tests are in the slow suite only

    def __str__(self):
        return self.name


OTHERS = (
    FamilyRow(
        "images-miwae",
        Family.IMAGES,
        made("miwae", image_shape=[8, 8], **_SMALL | {"max_epochs": 1, "n_imputation_draws": 8}),
    ),
    FamilyRow("convac", Family.IMAGES, made("convac", n_leaves=3, n_channels=[3, 4], max_epochs=2)),
    FamilyRow(
        "convac-classifier",
        Family.IMAGES,
        made("convac-classifier", n_leaves=3, n_channels=[3, 4], max_epochs=2),
    ),
    FamilyRow("autoimpute", Family.EXPRESSION, made("autoimpute", n_hidden=4, max_epochs=2)),
    FamilyRow("made", Family.BINARY, made("made", width=6, n_orderings=2, max_epochs=2)),
    FamilyRow("sequence-classifier", Family.SEQUENCES, made("sequence-classifier", width=4, max_epochs=2)),
    FamilyRow("skeleton-sequences", Family.SEQUENCES, partial(RecurrentClassifier, width=4, max_epochs=4)),
    # The ratings of the laws are few: shrunk towards offsets, networks would have no influence on answers.
    FamilyRow("autorec", Family.RATINGS, made("autorec", shrink=False, n_hidden=8, max_epochs=4)),
    FamilyRow(
        "autorec-users", Family.RATINGS, made("autorec", rows="user", shrink=False, n_hidden=8, max_epochs=4)
    ),
    FamilyRow("cfnade", Family.RATINGS, made("cfnade", shrink=False, n_hidden=8, max_epochs=4)),
    FamilyRow(
        "cfnade-items", Family.RATINGS, made("cfnade", rows="item", shrink=False, n_hidden=8, max_epochs=4)
    ),
    FamilyRow(
        "matrix-factorization",
        Family.RATINGS,
        made("matrix-factorization", n_factors=2, n_warmup=2, n_draws=3),
    ),
    FamilyRow(
        "rating-ensemble",
        Family.RATINGS,
        made(
            "rating-ensemble",
            models=[
                AutoRec("user", n_hidden=4, max_epochs=2),
                MatrixFactorization(n_factors=2, n_warmup=1, n_draws=2),
            ],
        ),
    ),
    FamilyRow("skeleton-ratings", Family.RATINGS, RatingMeans),
)
"""The estimators of images, ratings, sequences and binary rows, with the laws of test_families.py."""

SKELETONS = (DiagonalImputer, RecurrentClassifier, RatingMeans)
