"""The law of the same row: an answer about a row depends on the fitted model and on the row alone.

That it holds for imputers and predictors of tables, tests/conformance/test_laws.py shows; here it is shown
for other data, and that answers without products of matrices are identical.
"""

import numpy as np
import pytest
from conformance.families import DATA
from conformance.fitted import fitted_to_frame, frame
from conformance.registry import OTHERS, PREDICTORS, TRANSFORMERS
from conformance.tables import ARRAY

from halfseen.base.targets import Classes, WithClasses
from halfseen.testing.laws import assert_function_of_the_row, sparser
from halfseen.testing.predictors import predictions
from halfseen.testing.tables import assert_identical, missing

WITHOUT_PRODUCTS = ("boosting-regressor", "boosting-classifier")


@pytest.mark.parametrize("predictor", [row for row in PREDICTORS if row.name in WITHOUT_PRODUCTS], ids=str)
def test_answers_without_products_of_matrices_are_identical(predictor):
    fitted = fitted_to_frame(predictor)
    assert_function_of_the_row(
        lambda rows: predictions(fitted, rows),
        sparser(frame()),
        check=lambda actual, expected: assert_identical([actual], [expected]),
    )


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
