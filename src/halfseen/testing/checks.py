"""Runs laws on estimators: all at once, or as tests of pytest.

Here are also laws of imputers at the edges: tables that are tiny, constant or collinear, codes and limits of
columns.
"""

import warnings
from functools import cached_property, partial

import numpy as np
from sklearn.base import clone

from halfseen.errors import HalfseenWarning
from halfseen.testing.imputers import IMPUTER_LAWS
from halfseen.testing.laws import ESTIMATOR_LAWS, Law, registered_in
from halfseen.testing.predictors import PREDICTOR_LAWS, make_target, predictions
from halfseen.testing.tables import ARRAY, TABLES, answers, fit_quietly, scores

EDGE_LAWS: list[Law] = []
law = registered_in(EDGE_LAWS)
CODES = {0: range(1, 6), 1: (1, 2, 3), 2: (1, 2, 3, 5, 8, 25)}
NEVER_NEGATIVE = (3, 5)


def assert_complete(imputer, array):
    """Every answer is finite, and has the observed numbers; so are scores."""
    observed = ~np.isnan(array)
    for answer in answers(imputer, array):
        assert np.isfinite(answer).all(), "an answer is not finite"
        np.testing.assert_array_equal(answer[observed], np.asarray(array)[observed])
    assert np.isfinite(scores(imputer, array)).all(), "a score is not finite"


@law()
def one_row_is_enough_to_fit(make):
    """The values of a single row are imputed; a column without any is imputed by a finite number."""
    for value in (2.0, np.nan):
        array = np.array([[1.5, value, -3.0]])
        imputer = fit_quietly(make(), array)
        assert_complete(imputer, array)
        filled = imputer.transform(np.full((1, 3), np.nan))
        np.testing.assert_allclose(filled[:, [0, 2]], [[1.5, -3.0]])
        np.testing.assert_allclose(filled[:, 1], 2.0 if value == 2.0 else filled[:, 1])


@law()
def two_rows_are_enough_to_fit(make):
    """Two rows, complete or not."""
    for value in (2.5, np.nan):
        array = np.array([[1.5, value], [0.5, -1.5]])
        assert_complete(fit_quietly(make(), array), np.array([*array, [np.nan, 0.3], [np.nan, np.nan]]))


@law()
def there_may_be_more_columns_than_rows(make):
    """15 rows of 53 columns."""
    array = np.random.default_rng(0).normal(size=(15, 53))
    array[np.random.default_rng(1).random(array.shape) < 0.3] = np.nan
    assert_complete(fit_quietly(make(), array), array)


@law()
def there_may_be_one_column(make):
    """A single column, from which nothing can be predicted."""
    array = np.array([[1.5], [np.nan], [2.5], [-0.5]])
    assert_complete(fit_quietly(make(), array), array)


@law()
def constant_columns_are_filled_with_their_value(make):
    """The only value of a column is imputed, exactly."""
    array = np.array([[7.5, -2.0], [7.5, -2.0], [np.nan, -2.0], [7.5, np.nan]])
    imputer = fit_quietly(make(), array)
    assert_complete(imputer, array)
    np.testing.assert_array_equal(imputer.transform(array), [[7.5, -2.0]] * 4)


@law()
def columns_that_repeat_each_other_do_no_harm(make):
    """Columns that are equal, or equal but for a factor."""
    first = np.random.default_rng(0).normal(size=100)
    array = np.column_stack([first, first, -2 * first])
    array[::7, 0] = array[::5, 2] = np.nan
    assert_complete(fit_quietly(make(), array), array)


@law()
def a_column_without_any_value_does_not_disturb_the_others(make):
    """A column of missing cells is imputed by finite numbers, and the others as if it were not there."""
    array = ARRAY.make()
    with_empty = np.column_stack([array, np.full(len(array), np.nan)])
    imputer, without = fit_quietly(make(), with_empty), fit_quietly(make(), array)
    assert_complete(imputer, with_empty)
    np.testing.assert_allclose(imputer.transform(with_empty)[:, :4], without.transform(array), rtol=1e-10)
    np.testing.assert_allclose(scores(imputer, with_empty), scores(without, array), rtol=1e-10)


@law()
def infinity_is_refused(make):
    """Infinity is no number to learn from, and the error says so."""
    for infinity in (np.inf, -np.inf):
        with np.testing.assert_raises_regex(ValueError, "infinity"):
            fit_quietly(make(), np.array([[1.0, infinity], [2.0, 0.5]]))
        imputer = fit_quietly(make(), np.array([[1.0, 1.5], [2.0, 0.5]]))
        with np.testing.assert_raises_regex(ValueError, "infinity"):
            imputer.transform(np.array([[1.0, infinity]]))


@law()
def single_precision_goes_in_and_comes_out(make):
    """An array of 32-bit floats is completed by such an array, and its numbers are kept."""
    array = ARRAY.make().astype(np.float32)
    observed = ~np.isnan(array)
    for answer in answers(fit_quietly(make(), array), array):
        assert answer.dtype == np.float32, f"the answer is of type {answer.dtype}"
        np.testing.assert_array_equal(answer[observed], array[observed])


@law()
def lists_of_lists_are_arrays(make):
    """A list of rows, with None for missing cells."""
    rows = [[1.5, 2.5], [0.5, None], [2.0, 4.0], [3.0, 3.5]]
    filled = make().fit_transform(rows)
    assert isinstance(filled, np.ndarray)
    np.testing.assert_array_equal(filled, make().fit_transform(np.array(rows, dtype=np.float64)))


def codes_and_measurements():
    """Codes with gaps, and numbers that are never negative; a third of cells is missing."""
    rng = np.random.default_rng(0)
    n_rows = 120
    z = rng.normal(size=n_rows)
    table = np.column_stack(
        [
            np.clip(np.round(3 + z + 0.6 * rng.normal(size=n_rows)), 1, 5),  # ratings
            rng.choice([1.0, 2.0, 3.0], n_rows, p=[0.7, 0.2, 0.1]),  # groups
            np.array(CODES[2], dtype=float)[np.clip((3 + 1.5 * z).astype(int), 0, 5)],  # sizes
            np.where(rng.random(n_rows) < 0.4, 0.0, np.exp(3 + z)),  # amounts spent
            -np.exp(z + rng.normal(size=n_rows)),  # losses
            rng.poisson(np.exp(4 + z)).astype(float),  # counts
            np.round(z, 1),  # rounded measurements
            z + 0.3 * rng.normal(size=n_rows),  # measurements
        ]
    )
    table[rng.random(table.shape) < 0.33] = np.nan
    return table


@law()
def imputed_values_are_observed_codes_or_within_the_limits_that_the_schema_states(make):
    """Whole numbers with few values are completed by these; others stay within the range of their column.

    A column may leave its observed range only if its entry of `schema_` says that it may, and how far; and no
    column that is never negative becomes so.
    """
    table = codes_and_measurements()
    imputer = fit_quietly(make(), table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HalfseenWarning)  # none of these values is far from the others
        found = np.stack(answers(imputer, table, n_draws=5))
    filled = [found[:, np.isnan(column), j] for j, column in enumerate(table.T)]
    for j, codes in CODES.items():
        assert {*filled[j].ravel()} <= {*codes}, f"column {j} was completed by {np.unique(filled[j])}"
    for j in NEVER_NEGATIVE:
        assert filled[j].min() >= 0, f"column {j} was completed by {filled[j].min()}"
    columns = list(getattr(imputer, "schema_", [None] * table.shape[1]))
    for j, column in enumerate(columns):
        low, high = np.nanmin(table[:, j]), np.nanmax(table[:, j])
        if column is not None and column.extrapolated:
            assert "may exceed the observed range" in str(column.one_line())
            low, high = column.least, column.greatest
        assert low <= filled[j].min(), f"column {j} was completed by {filled[j].min()}, below {low}"
        assert filled[j].max() <= high, f"column {j} was completed by {filled[j].max()}, above {high}"


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
        The tables that it meets, as of `check_imputer`, which also says what is returned and raised.

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
