"""The catalogue of methods: one entry for each public estimator.

This is the only table of methods: the lazy imports of the package, the command line (``--method`` and the
methods of ``halfseen compare``), the texts of reports and the conformance tests all read it. Importing this
module does not import any model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from halfseen._lazy import import_name
from halfseen.words import Missingness


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
        The class, and the module of the package that defines it.
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
        """The class, which is imported when it is first asked for."""
        return import_name(self.module, self.class_name)

    def assumption(self, estimator: Any) -> Any:
        """Returns what an estimator of this method assumes about missingness."""
        return estimator.get_params(deep=False).get("missingness", self.missingness[0])


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


def _predictors(
    name: str, class_name: str, module: str, label: str, description: str, **others: Any
) -> Iterator[Method]:
    """Yields the entries of a regressor and a classifier of tables, which differ in their last word."""
    for kind in ("regressor", "classifier"):
        yield Method(
            f"{name}-{kind}",
            f"{class_name}{kind.title()}",
            module,
            Family.TABLE_PREDICTOR,
            f"{label} {kind}",
            description,
            on_command_line=False,
            **others,
        )


CATALOGUE = (
    Method(
        "auto",
        "AutoImputer",
        "auto.imputer",
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
        "gaussian.imputer",
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
        "chained",
        "ChainedImputer",
        "chained.imputer",
        Family.TABLE_IMPUTER,
        "Chained equations",
        "Chained equations: a Bayesian regression of each column on all others, linear for numbers, logistic "
        "for levels, proportional odds for ordered levels. Parameters and missing values are drawn in turns, "
        "so that draws include the uncertainty of the regressions.",
        steps=None,
        draws_parameter="n_chains",
    ),
    Method(
        "mixture",
        "MixtureImputer",
        "mixtures.imputer",
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
        "circuits.imputer",
        Family.TABLE_IMPUTER,
        "Circuit",
        "A probabilistic circuit: mixtures of each column, joined along a tree of dependent columns, fitted "
        "to the observed values by gradient ascent on their exact likelihood. Each missing value is imputed "
        "from its exact conditional distribution given the observed values of its row.",
    ),
    Method(
        "bootstrap",
        "BootstrapImputer",
        "gaussian.bootstrap",
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
        "trees.imputer",
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
        "gaussian.imputer",
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
        "latent.presets",
        Family.TABLE_IMPUTER,
        "Latent variables",
        _CALIBRATED,
        missingness=(Missingness.MAR, *_LATENT_MASKS),
        on_command_line=False,  # its presets are
    ),
    *(
        Method(name, f"{label}Imputer", "latent.presets", Family.TABLE_IMPUTER, label, _CALIBRATED)
        for name, label in _PRESETS.items()
    ),
    Method(
        "not-miwae",
        "NotMIWAEImputer",
        "latent.presets",
        Family.TABLE_IMPUTER,
        "not-MIWAE",
        _LATENT,
        missingness=_LATENT_MASKS,
    ),
    Method(
        "gaussian-regressor",
        "GaussianRegressor",
        "gaussian.regressor",
        Family.TABLE_PREDICTOR,
        "Gaussian regression",
        "The conditional expectation of the targets given the observed values of a row, under one "
        "multivariate normal distribution of columns and targets.",
        steps=None,
        on_command_line=False,
    ),
    *_predictors(
        "neumiss",
        "NeuMiss",
        "neumiss.likelihood",
        "NeuMiss",
        "The conditional expectation under a joint Gaussian distribution with a model of missingness, "
        "corrected by networks.",
        missingness=_GAUSSIAN_MASKS,
    ),
    *_predictors(
        "neumiss-network",
        "NeuMissNetwork",
        "neumiss.network",
        "NeuMiss network,",
        "The published NeuMiss architecture, trained end to end on the targets.",
    ),
    *_predictors(
        "circuit",
        "Circuit",
        "circuits.predictors",
        "Circuit",
        "The exact conditional distribution of the target given the observed values of a row, under a "
        "probabilistic circuit over columns and target.",
    ),
    *_predictors(
        "sparsity-norm",
        "SparsityNorm",
        "sparsity.normalizer",
        "Sparsity Normalization,",
        "A network that reads missing values as zeros, with rows normalised by their number of observed "
        "values.",
    ),
    *_predictors(
        "boosting",
        "Boosting",
        "trees.boosting",
        "Boosted trees,",
        "Boosted trees that send missing values to the side of each split where they reduce the loss; "
        "nothing is imputed.",
        steps=None,
    ),
    *_predictors(
        "impute-then",
        "ImputeThen",
        "auto.impute_then",
        "Imputation and prediction,",
        "Missing values are imputed, once or several times, and boosted trees or a linear model predict "
        "from the completed rows and from which values were missing.",
        steps=None,
    ),
    *_predictors(
        "average",
        "Averaging",
        "auto.averaging",
        "Average of predictors,",
        "A weighted average of the predictions of several predictors, with weights by rows that they "
        "were not fitted to.",
        steps=None,
    ),
    Method(
        "autorec",
        "AutoRec",
        "ratings.autorec",
        Family.RATINGS,
        "AutoRec",
        "An autoencoder of the observed ratings of each item or user, with rows normalised by their number "
        "of ratings.",
        on_command_line=False,
    ),
    Method(
        "sequence-classifier",
        "SequenceClassifier",
        "sequences.classifier",
        Family.SEQUENCES,
        "Recurrent network of sequences",
        "A recurrent network that reads missing values as zeros, with sequences normalised by their number "
        "of observed values.",
        on_command_line=False,
    ),
    Method(
        "matrix-factorization",
        "MatrixFactorization",
        "ratings.matrix_factorization",
        Family.RATINGS,
        "Bayesian matrix factorisation",
        "Offsets and factors of users and items, averaged over draws from their posterior.",
        steps=None,
        on_command_line=False,
    ),
    Method(
        "rating-ensemble",
        "RatingEnsemble",
        "ratings.matrix_factorization",
        Family.RATINGS,
        "Ensemble of recommenders",
        "Recommenders with weights by held-out ratings.",
        steps=None,
        on_command_line=False,
    ),
    Method(
        "cfnade",
        "CFNADE",
        "ratings.cfnade",
        Family.RATINGS,
        "CF-NADE",
        "An autoregressive network of the ratings of each user or item, with an ordinal cost.",
        on_command_line=False,
    ),
    Method(
        "autoimpute",
        "AutoImpute",
        "ratings.autoimpute",
        Family.EXPRESSION,
        "AutoImpute",
        "An autoencoder of the detected values of each cell, normalised by their number; zeros are imputed.",
        on_command_line=False,
    ),
    Method(
        "made",
        "MADE",
        "sparsity.made",
        Family.BINARY,
        "MADE",
        "A density of complete binary rows: a masked network returns the probability of each feature given "
        "those before it, in one or more orderings.",
        on_command_line=False,
    ),
    Method(
        "convac-classifier",
        "ConvACClassifier",
        "circuits.convac",
        Family.IMAGES,
        "Convolutional arithmetic circuit, classifier",
        "The exact probability of each class given the observed pixels of an image, under a circuit of sums "
        "and of products over neighbouring patches.",
        on_command_line=False,
    ),
    Method(
        "convac",
        "ConvAC",
        "circuits.convac",
        Family.IMAGES,
        "Convolutional arithmetic circuit",
        "The exact density of the observed pixels of an image, under a circuit of sums and of products over "
        "neighbouring patches. Each missing pixel is imputed from its exact conditional distribution.",
        on_command_line=False,
    ),
    Method(
        "sparsity-normalizer",
        "SparsityNormalizer",
        "sparsity.normalizer",
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
    ValueError: There is no method 'median'; the catalogue has auto, gaussian, chained, ...
    """
    if name not in _BY_NAME:
        raise ValueError(f"There is no method {name!r}; the catalogue has {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]


def find_method_of(estimator: Any) -> Method | None:
    """Returns the entry of an estimator; None if its class is not one of the catalogue."""
    return next((method for method in CATALOGUE if method.class_name == type(estimator).__name__), None)


N_DRAWS = 5
"""The draws of multiple imputation before a prediction."""

IMPUTED = (
    "constant+linear", "constant+boosting", "gaussian+linear", "gaussian+boosting", "multiple+linear",
    "multiple+boosting",
)  # fmt: skip
"""An imputation, with missingness indicators, and the predictor that is fitted to the completed rows."""

_IMPUTE_THEN, _AVERAGE = "impute-then", "average"


def predictor_names(kind: str) -> list[str]:
    """Returns the names of single predictors whose catalogue names end in "regressor" or "classifier"."""
    names = [method.name for method in CATALOGUE if method.family == Family.TABLE_PREDICTOR]
    found = [name.removesuffix(f"-{kind}") for name in names if name.endswith(f"-{kind}")]
    return [name for name in found if name not in (_IMPUTE_THEN, _AVERAGE)] + list(IMPUTED)


def catalogue_name(name: str, kind: str) -> str:
    """Returns the name in the catalogue of a predictor.

    Examples
    --------
    >>> catalogue_name("neumiss", "regressor"), catalogue_name("gaussian+linear", "regressor")
    ('neumiss-regressor', 'impute-then-regressor')
    """
    return f"{_IMPUTE_THEN if name in IMPUTED else name}-{kind}"


def build_named(name: str, kind: str, **settings: Any) -> Any:
    """Returns a predictor by its name, with parameters that differ from its defaults.

    Examples
    --------
    >>> build_named("constant+linear", "classifier")
    ImputeThenClassifier(imputer=MeanImputer(), predictor='linear')
    """
    return find_method(catalogue_name(name, kind)).estimator(**{**_named_settings(name), **settings})


def _named_settings(name: str) -> dict[str, Any]:
    if name not in IMPUTED:
        return {}
    imputation, _, predictor = name.partition("+")
    settings: dict[str, Any] = {"predictor": predictor}
    if imputation == "constant":
        settings["imputer"] = find_method("mean").estimator()
    if imputation == "multiple":
        settings["n_draws"] = N_DRAWS
    return settings
