"""The law of the same row: an answer about a row depends on the fitted model and on the row alone.

Every predictor, and `transform`, `interval`, `score_samples` and `class_probabilities` of every imputer, are
asked about rows alone, beside copies of themselves, in another order and in parts of a table. Numbers agree
to `ROUNDING`, because products of matrices of different shapes, and of the rows of one
matrix, are summed in different orders; labels, levels and all else are identical. Answers that are made
without such products are identical as well.
"""

import numpy as np
import pandas as pd
import pytest
from conformance.families import DATA
from conformance.fitted import fitted_to_frame, frame
from conformance.registry import OTHERS, PREDICTORS, TRANSFORMERS
from conformance.tables import ARRAY, assert_close, bits, hide, missing, names, take

from halfseen.base.targets import Classes, WithClasses

N_ROWS = 30
ROUNDING = 2.5e-7
"""Of the largest number of a column: two units in the last place of a column in single precision, in which a
difference far below can round otherwise. In double precision the largest that was seen is 7e-9, in the table
whose columns are nearly determined by each other."""
WITHOUT_PRODUCTS = ("boosting-regressor", "boosting-classifier")


def batches(n_rows):
    """Positions of rows that are asked together: alone, with copies, shuffled, and in parts."""
    order = np.random.default_rng(0).permutation(n_rows)
    parts = [part.tolist() for part in np.split(order, [7, 19])]
    return [[3], [3, 3, 3], [5, 3, 3, 8, 5], order.tolist(), *parts]


def assert_equal_but_rounding(actual, expected):
    assert_close(actual, expected, ROUNDING)


def assert_function_of_the_row(ask, table, select=take, check=assert_equal_but_rounding):
    """`ask` returns a list of tables or arrays with one row for each row that it is given."""
    together = ask(table)
    n_rows = len(together[0])
    for rows in batches(n_rows):
        for answer, whole in zip(ask(select(table, rows)), together, strict=True):
            check(_columns(answer), take(_columns(whole), rows))


def assert_identical(actual, expected):
    assert bits(actual) == bits(expected)


def _columns(answer):
    """Arrays of any number of axes as frames, whose cells may be labels; tables as they are."""
    if not isinstance(answer, np.ndarray):
        return answer
    return pd.DataFrame(answer.reshape(len(answer), -1))


def sparser(table, rate=0.25):
    """The first rows, with more missing cells than the table has, and each of them with some missing."""
    rng = np.random.default_rng(5)
    some = take(table, range(N_ROWS))
    return hide(some, rng.random((N_ROWS, len(names(table)))) < rate)


def test_answers_of_an_imputer_depend_on_the_row_alone(imputer, table):
    assert_function_of_the_row(
        lambda rows: [
            imputer.transform(rows),
            *imputer.interval(rows, level=0.8),
            *imputer.class_probabilities(rows).values(),
            *([imputer.score_samples(rows)] if hasattr(imputer, "score_samples") else []),
        ],
        sparser(table),
    )


def answers_of_predictor(predictor):
    asked = [name for name in ("predict", "predict_proba") if hasattr(predictor, name)]

    def ask(rows):
        ends = predictor.predict_interval(rows, level=0.8) if hasattr(predictor, "predict_interval") else []
        return [*(getattr(predictor, name)(rows) for name in asked), *ends]

    return ask


@pytest.mark.parametrize("predictor", PREDICTORS, ids=str)
def test_answers_of_a_predictor_depend_on_the_row_alone(predictor):
    assert_function_of_the_row(answers_of_predictor(fitted_to_frame(predictor)), sparser(frame()))


@pytest.mark.parametrize("predictor", [row for row in PREDICTORS if row.name in WITHOUT_PRODUCTS], ids=str)
def test_answers_without_products_of_matrices_are_identical(predictor):
    ask = answers_of_predictor(fitted_to_frame(predictor))
    assert_function_of_the_row(ask, sparser(frame()), check=assert_identical)


@pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str)
def test_answers_of_a_transformer_depend_on_the_row_alone(transformer):
    table = ARRAY.make()
    fitted = transformer.make().fit(table)
    assert_function_of_the_row(lambda rows: [fitted.transform(rows)], sparser(table))


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_answers_about_other_data_depend_on_the_row_alone(other):
    data = DATA[other.family]()
    fitted = data.fit(other.make(random_state=0))
    some = data.take(np.arange(20))
    assert_function_of_the_row(
        lambda rows: list(rows.ask(fitted).values()),
        some,
        select=lambda data, rows: data.take(np.array(rows)),
    )


class Chances(WithClasses):
    """A classifier whose probabilities are given."""

    _plain_classes = Classes(np.array(["a", "b", "c"])).to_plain()

    def predict_proba(self, X):
        return np.asarray(X)


def test_a_tie_between_classes_does_not_depend_on_rounding():
    rounded = [[0.4, np.nextafter(0.4, 1), 0.2], [np.nextafter(0.4, 1), 0.4, 0.2], [0.2, 0.4, 0.4]]
    assert Chances().predict(rounded).tolist() == ["a", "a", "b"]
    assert Chances().predict([[0.4, 0.4 + 1e-6, 0.2]]).tolist() == ["b"]


def test_the_law_has_rows_with_missing_cells_in_every_column():
    assert missing(sparser(ARRAY.make())).any(axis=0).all()
