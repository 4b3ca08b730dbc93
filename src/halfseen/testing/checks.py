"""Runs laws on estimators: all at once, or as tests of pytest."""

from functools import cached_property, partial

from sklearn.base import clone

from halfseen.testing.edges import EDGE_LAWS
from halfseen.testing.imputers import IMPUTER_LAWS
from halfseen.testing.laws import ESTIMATOR_LAWS, Law
from halfseen.testing.predictors import PREDICTOR_LAWS, make_target, predictions
from halfseen.testing.tables import TABLES, answers, fit_quietly, scores

LAWS_OF_IMPUTERS: tuple[Law, ...] = (*ESTIMATOR_LAWS, *IMPUTER_LAWS, *EDGE_LAWS)
LAWS_OF_PREDICTORS: tuple[Law, ...] = (*ESTIMATOR_LAWS, *PREDICTOR_LAWS)


def check_imputer(imputer, tables=tuple(TABLES)):
    """Runs every law of imputers on an imputer of your own.

    Laws about `sample`, `interval`, `class_probabilities`, `score_samples` and `save` run if the imputer has
    these methods.

    Parameters
    ----------
    imputer : estimator
        An imputer with `fit` and `transform`, as scikit-learn has them; it is cloned and stays as it is.
    tables : sequence of {"array", "penguins"}, default=("array", "penguins")
        The tables that it meets: numbers in an array, and a frame with columns of several kinds.

    Returns
    -------
    list of str
        The names of the laws that it obeys.

    Raises
    ------
    AssertionError
        If it breaks a law; the message names each law that is broken, the table and how.

    Examples
    --------
    >>> from halfseen import MeanImputer
    >>> from halfseen.testing import check_imputer
    >>> "observed_cells_are_unchanged" in check_imputer(MeanImputer())
    True
    """
    return _check(LAWS_OF_IMPUTERS, imputer, tables)


def check_predictor(predictor, tables=tuple(TABLES)):
    """Runs every law of predictors on a regressor or classifier of your own that takes missing inputs.

    Parameters
    ----------
    predictor : estimator
        A regressor or classifier with `fit` and `predict`; it is cloned and stays as it is.
    tables : sequence of {"array", "penguins"}, default=("array", "penguins")
        The tables that it meets: numbers in an array, and a frame with columns of several kinds.

    Returns
    -------
    list of str
        The names of the laws that it obeys.

    Raises
    ------
    AssertionError
        If it breaks a law; the message names each law that is broken, the table and how.

    Examples
    --------
    >>> from halfseen import GaussianRegressor
    >>> from halfseen.testing import check_predictor
    >>> "predictions_depend_on_the_row_alone" in check_predictor(GaussianRegressor(), tables=["array"])
    True
    """
    return _check(LAWS_OF_PREDICTORS, predictor, tables)


def parametrize_with_laws(estimators, tables=tuple(TABLES)):
    """Returns a decorator for pytest by which a test runs once for each law, estimator and table.

    Parameters
    ----------
    estimators : sequence of estimators
        Imputers and predictors.
    tables : sequence of {"array", "penguins"}, default=("array", "penguins")
        The tables that they meet.

    Examples
    --------
    In a test module::

        @parametrize_with_laws([MyImputer(), MyImputer(depth=3)])
        def test_my_imputer_obeys(law):
            law()
    """
    import pytest

    runs = {}
    for number, estimator in enumerate(estimators):
        laws = LAWS_OF_PREDICTORS if hasattr(estimator, "predict") else LAWS_OF_IMPUTERS
        for name, run in _runs(laws, estimator, tables):
            runs[f"{type(estimator).__name__}{number or ''}-{name}"] = run
    return pytest.mark.parametrize("law", [pytest.param(run, id=name) for name, run in runs.items()])


class Subject:
    """What laws take: an estimator that is fitted once to a table, and ways to make and to ask others.

    Parameters
    ----------
    make : callable
        Returns an estimator that is not fitted, with the given parameters.
    table : table
        The table to which estimators are fitted.
    target : array or None, default=None
        The target of a predictor.
    fitted : callable, optional
        Returns the estimator that is fitted to them; by default one is made and fitted at first use.
    """

    def __init__(self, make, table, target=None, fitted=None):
        self.make = make
        self.table = table
        self.target = target
        self._fitted = fitted

    def fit(self, estimator):
        """Fits an estimator to the table."""
        return fit_quietly(estimator, self.table, *([] if self.target is None else [self.target]))

    def ask(self, estimator):
        """Returns every answer of a fitted estimator about the table."""
        if hasattr(estimator, "predict"):
            return predictions(estimator, self.table)
        found = [*answers(estimator, self.table), scores(estimator, self.table)]
        if hasattr(estimator, "class_probabilities"):
            found.extend(estimator.class_probabilities(self.table).values())
        return found

    @cached_property
    def fitted(self):
        """The estimator that laws share and leave as it is."""
        return self.fit(self.make()) if self._fitted is None else self._fitted()

    imputer = predictor = property(lambda self: self.fitted)

    def obeys(self, law):
        """Runs a law; an error names it."""
        try:
            law.check(**{name: getattr(self, name) for name in law.arguments})
        except Exception as error:
            error.add_note(f"The law is {law.name!r}.")
            raise


def _make(estimator, **parameters):
    seed = {"random_state": 0} if hasattr(estimator, "random_state") else {}
    return clone(estimator).set_params(**seed | parameters)


def _runs(laws, estimator, tables):
    """Yields the name and a function without arguments for each law, and for each table that it takes."""
    unknown = [name for name in tables if name not in TABLES]
    if unknown or not tables:
        raise ValueError(f"tables must be some of {', '.join(TABLES)}, got {tables!r}.")
    make = partial(_make, estimator)
    for position, name in enumerate(tables):
        table = TABLES[name].make()
        target = make_target(estimator, len(table)) if hasattr(estimator, "predict") else None
        subject = Subject(make, table, target)
        for law in laws:
            applies = all(hasattr(estimator, need) for need in law.needs)
            if applies and (position == 0 or law.arguments != ("make",)):  # others take tables of their own
                suffix = "" if law.arguments == ("make",) else f"-{name}"
                yield f"{law.name}{suffix}", partial(subject.obeys, law)


def _check(laws, estimator, tables):
    broken, obeyed = [], []
    for name, run in _runs(laws, estimator, tables):
        try:
            run()
        except (AssertionError, ValueError) as error:  # a law may also be broken by a refusal
            broken.append(f"{name}: {error}")
        else:
            obeyed.append(name.removesuffix("-penguins").removesuffix("-array"))
    if broken:
        raise AssertionError(
            f"{type(estimator).__name__} breaks {len(broken)} of {len(broken) + len(obeyed)} laws.\n\n"
            + "\n\n".join(broken)
        )
    return list(dict.fromkeys(obeyed))
