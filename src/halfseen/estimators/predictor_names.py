"""The names of predictors in averages and comparisons, also of predictors after an imputation."""

from typing import Any

from halfseen.estimators.catalogue import CATALOGUE, Family, find_method

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
