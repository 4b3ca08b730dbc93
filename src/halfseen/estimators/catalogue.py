"""The catalogue of methods: one entry for each public estimator.

This is the only table of methods: the lazy imports of the package, the command line (``--method`` and the
methods of ``halfseen compare``), the texts of reports and the conformance tests all read it. Importing this
module does not import any model.
"""

from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from halfseen.vocabulary import Missingness


class Family(StrEnum):
    """The kinds of estimators; each kind has its interface and its conformance tests."""

    TABLE_IMPUTER = "table imputer"
    TABLE_PREDICTOR = "table predictor"
    TRANSFORMER = "transformer"
    IMAGES = "images"
    RATINGS = "ratings"
    SEQUENCES = "sequences"
    BINARY = "complete binary rows"
    EXPRESSION = "expression of genes"


@dataclass(frozen=True)
class Method:
    """A public estimator as commands, reports and tests know it.

    Parameters
    ----------
    name : str
        The name on the command line and in tests.
    class_name, module : str
        The class, and the module of `halfseen.estimators` that defines it.
    family : Family
        The kind of data that it takes, and with it its interface.
    label : str
        The name in reports.
    description : str
        What it does, for readers of reports.
    missingness : tuple of Missingness
        The assumptions about missingness that it offers, the default first.
    steps : str or None
        The unit of progress that it reports to its ``callback``; None if it is fitted in one step.
    draws_parameter : str or None
        The parameter that takes the number of draws, so that multiple imputation is proper.
    on_command_line : bool
        Whether commands offer it. Only imputers of tables can be offered.
    quick : bool
        Whether ``halfseen compare`` includes it if no methods are named.
    """

    name: str
    class_name: str
    module: str
    family: Family
    label: str
    description: str
    missingness: tuple[Missingness, ...] = (Missingness.MAR,)
    steps: str | None = "epoch"
    draws_parameter: str | None = None
    on_command_line: bool = True
    quick: bool = False

    @property
    def estimator(self) -> Any:
        """The class, which the package imports when it is first asked for."""
        return getattr(import_module("halfseen"), self.class_name)


_GAUSSIAN_MASKS = (Missingness.MAR, Missingness.PROBIT, Missingness.GAUSSIAN)
_LATENT_MASKS = (
    Missingness.LOGISTIC,
    Missingness.MONOTONE,
    Missingness.SHARED_SLOPE,
    Missingness.FLEXIBLE,
    Missingness.LINEAR,
    Missingness.NONLINEAR,
)
_LATENT = (
    "A deep latent-variable model, trained by maximising a lower bound on the likelihood of the observed "
    "values. Each missing value is imputed from its conditional distribution given the observed values of "
    "its row, by importance sampling."
)
_CALIBRATED = f"{_LATENT} Predictive scales are calibrated on held-out values."

_PRESETS = {
    "mvae": "MVAE",
    "miwae": "MIWAE",
    "missvae": "MissVAE",
    "misssvae": "MissSVAE",
    "missiwae": "MissIWAE",
    "misssiwae": "MissSIWAE",
    "demissvae": "DeMissVAE",
}

CATALOGUE = (
    Method(
        "auto",
        "AutoImputer",
        "auto_imputer",
        Family.TABLE_IMPUTER,
        "Auto",
        "Several methods are compared on known cells of the table that are hidden from them, and each column "
        "is imputed by the best of them or by a mixture.",
        steps=None,
        draws_parameter="n_posterior_draws",
    ),
    Method(
        "gaussian",
        "GaussianImputer",
        "imputers",
        Family.TABLE_IMPUTER,
        "Gaussian",
        "One multivariate normal distribution over all columns, levels as indicators, fitted to the observed "
        "values by maximum likelihood. Each missing value is imputed from its exact conditional distribution "
        "given the observed values of its row.",
        missingness=_GAUSSIAN_MASKS,
        steps="iteration",
        draws_parameter="n_posterior_draws",
        quick=True,
    ),
    Method(
        "mixture",
        "MixtureImputer",
        "mixture_imputer",
        Family.TABLE_IMPUTER,
        "Mixture",
        "A mixture of distributions with independent columns, fitted to the observed values by gradient "
        "ascent on their exact likelihood. Each missing value is imputed from its conditional distribution "
        "given the observed values of its row.",
        quick=True,
    ),
    Method(
        "circuit",
        "CircuitImputer",
        "circuit_imputer",
        Family.TABLE_IMPUTER,
        "Circuit",
        "A probabilistic circuit: mixtures of each column, joined along a tree of dependent columns, fitted "
        "to the observed values by gradient ascent on their exact likelihood. Each missing value is imputed "
        "from its exact conditional distribution given the observed values of its row.",
    ),
    Method(
        "bootstrap",
        "BootstrapImputer",
        "bootstrap",
        Family.TABLE_IMPUTER,
        "Bootstrap",
        "Another imputer, fitted to all rows and to resampled rows, so that draws and intervals include the "
        "uncertainty of its parameters.",
        steps=None,
        draws_parameter="n_resamples",
        on_command_line=False,  # it needs another imputer
    ),
    Method(
        "trees",
        "TreeImputer",
        "tree_imputer",
        Family.TABLE_IMPUTER,
        "Trees",
        "Chained boosted trees: a multivariate normal distribution completes each row, and the missing "
        "values of each column are then predicted from the completed rest of the row. Each missing value is "
        "imputed from its prediction and the residuals of held-out values.",
        steps=None,
    ),
    Method(
        "mean",
        "MeanImputer",
        "imputers",
        Family.TABLE_IMPUTER,
        "Mean",
        "Each missing value is imputed by the mean or the most frequent level of its column, regardless of "
        "the rest of the row. A baseline: relations between columns are lost.",
        steps=None,
        quick=True,
    ),
    Method(
        "latent",
        "LatentImputer",
        "latent",
        Family.TABLE_IMPUTER,
        "Latent variables",
        _CALIBRATED,
        missingness=(Missingness.MAR, *_LATENT_MASKS),
        on_command_line=False,  # its presets are
    ),
    *(
        Method(name, f"{label}Imputer", "latent", Family.TABLE_IMPUTER, label, _CALIBRATED)
        for name, label in _PRESETS.items()
    ),
    Method(
        "not-miwae",
        "NotMIWAEImputer",
        "latent",
        Family.TABLE_IMPUTER,
        "not-MIWAE",
        _LATENT,
        missingness=_LATENT_MASKS,
    ),
    Method(
        "gaussian-regressor",
        "GaussianRegressor",
        "predictors",
        Family.TABLE_PREDICTOR,
        "Gaussian regression",
        "The conditional expectation of the targets given the observed values of a row, under one "
        "multivariate normal distribution of columns and targets.",
        steps=None,
        on_command_line=False,
    ),
    *(
        Method(
            f"neumiss-{kind}",
            f"NeuMiss{kind.title()}",
            "neumiss",
            Family.TABLE_PREDICTOR,
            f"NeuMiss {kind}",
            "The conditional expectation under a joint Gaussian distribution with a model of missingness, "
            "corrected by networks.",
            missingness=_GAUSSIAN_MASKS,
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"neumiss-network-{kind}",
            f"NeuMissNetwork{kind.title()}",
            "neumiss_networks",
            Family.TABLE_PREDICTOR,
            f"NeuMiss network, {kind}",
            "The published NeuMiss architecture, trained end to end on the targets.",
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"circuit-{kind}",
            f"Circuit{kind.title()}",
            "circuit_predictors",
            Family.TABLE_PREDICTOR,
            f"Circuit {kind}",
            "The exact conditional distribution of the target given the observed values of a row, under a "
            "probabilistic circuit over columns and target.",
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"sparsity-norm-{kind}",
            f"SparsityNorm{kind.title()}",
            "sparsity_networks",
            Family.TABLE_PREDICTOR,
            f"Sparsity Normalization, {kind}",
            "A network that reads missing values as zeros, with rows normalised by their number of observed "
            "values.",
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"boosting-{kind}",
            f"Boosting{kind.title()}",
            "boosting",
            Family.TABLE_PREDICTOR,
            f"Boosted trees, {kind}",
            "Boosted trees that send missing values to the side of each split where they reduce the loss; "
            "nothing is imputed.",
            steps=None,
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"impute-then-{kind}",
            f"ImputeThen{kind.title()}",
            "impute_then",
            Family.TABLE_PREDICTOR,
            f"Imputation and prediction, {kind}",
            "Missing values are imputed, once or several times, and boosted trees or a linear model predict "
            "from the completed rows and from which values were missing.",
            steps=None,
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    *(
        Method(
            f"average-{kind}",
            f"Averaging{kind.title()}",
            "averaging",
            Family.TABLE_PREDICTOR,
            f"Average of predictors, {kind}",
            "A weighted average of the predictions of several predictors, with weights by rows that they "
            "were not fitted to.",
            steps=None,
            on_command_line=False,
        )
        for kind in ("regressor", "classifier")
    ),
    Method(
        "autorec",
        "AutoRec",
        "recommenders",
        Family.RATINGS,
        "AutoRec",
        "An autoencoder of the observed ratings of each item or user, with rows normalised by their number "
        "of ratings.",
        on_command_line=False,
    ),
    Method(
        "sequence-classifier",
        "SequenceClassifier",
        "sequence_classifier",
        Family.SEQUENCES,
        "Recurrent network of sequences",
        "A recurrent network that reads missing values as zeros, with sequences normalised by their number "
        "of observed values.",
        on_command_line=False,
    ),
    Method(
        "matrix-factorization",
        "MatrixFactorization",
        "matrix_factorization",
        Family.RATINGS,
        "Bayesian matrix factorisation",
        "Offsets and factors of users and items, averaged over draws from their posterior.",
        steps=None,
        on_command_line=False,
    ),
    Method(
        "rating-ensemble",
        "RatingEnsemble",
        "rating_ensemble",
        Family.RATINGS,
        "Ensemble of recommenders",
        "Recommenders with weights by held-out ratings.",
        steps=None,
        on_command_line=False,
    ),
    Method(
        "cfnade",
        "CFNADE",
        "cfnade",
        Family.RATINGS,
        "CF-NADE",
        "An autoregressive network of the ratings of each user or item, with an ordinal cost.",
        on_command_line=False,
    ),
    Method(
        "autoimpute",
        "AutoImpute",
        "autoimpute",
        Family.EXPRESSION,
        "AutoImpute",
        "An autoencoder of the detected values of each cell, normalised by their number; zeros are imputed.",
        on_command_line=False,
    ),
    Method(
        "made",
        "MADE",
        "made",
        Family.BINARY,
        "MADE",
        "A density of complete binary rows: a masked network returns the probability of each feature given "
        "those before it, in one or more orderings.",
        on_command_line=False,
    ),
    Method(
        "convac-classifier",
        "ConvACClassifier",
        "convac",
        Family.IMAGES,
        "Convolutional arithmetic circuit, classifier",
        "The exact probability of each class given the observed pixels of an image, under a circuit of sums "
        "and of products over neighbouring patches.",
        on_command_line=False,
    ),
    Method(
        "convac",
        "ConvAC",
        "convac",
        Family.IMAGES,
        "Convolutional arithmetic circuit",
        "The exact density of the observed pixels of an image, under a circuit of sums and of products over "
        "neighbouring patches. Each missing pixel is imputed from its exact conditional distribution.",
        on_command_line=False,
    ),
    Method(
        "sparsity-normalizer",
        "SparsityNormalizer",
        "normalizer",
        Family.TRANSFORMER,
        "Sparsity normalizer",
        "Missing values are filled with zeros and each row is rescaled by its number of observed values, so "
        "that the output of a network does not drift with this number.",
        steps=None,
        on_command_line=False,
    ),
)

_BY_NAME = {method.name: method for method in CATALOGUE}


def find_method(name: str) -> Method:
    """Returns the entry of a name.

    Examples
    --------
    >>> find_method("mean").estimator()
    MeanImputer()
    >>> find_method("median")
    Traceback (most recent call last):
    ...
    ValueError: There is no method 'median'; the catalogue has auto, gaussian, mixture, ...
    """
    if name not in _BY_NAME:
        raise ValueError(f"There is no method {name!r}; the catalogue has {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]
