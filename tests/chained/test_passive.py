"""Derived columns are computed within the chain, and the order of a cycle can be set."""

import numpy as np
import pandas as pd
import pytest

import halfseen
from halfseen.chained.imputer import ChainedImputer

SCHEMA = {"bmi": {"derived": "weight / height ** 2", "predictor": True}}


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    n = 300
    height = rng.normal(1.7, 0.1, n)
    weight = height**2 * np.exp(rng.normal(3.2, 0.15, n))
    bmi = weight / height**2
    table = pd.DataFrame(
        {"height": height, "weight": weight, "bmi": bmi, "pressure": 80 + 2 * bmi + rng.normal(size=n)}
    )
    shown = table.mask(rng.random(table.shape) < 0.2)
    shown["bmi"] = shown["weight"] / shown["height"] ** 2
    return shown


@pytest.fixture(scope="module")
def fitted(people):
    return ChainedImputer(3, schema=SCHEMA, random_state=0).fit(people)


def test_derived_columns_agree_with_their_inputs_within_the_chain(people, fitted):
    codes = fitted._read(people, reset=False).codes
    completed = fitted.model_.draws(codes, np.arange(len(people), dtype=np.uint64), 3)
    height, weight, bmi = (completed[..., c] for c in range(3))
    missing = ~codes.observed[:, 2]
    np.testing.assert_allclose((weight / height**2)[:, missing], bmi[:, missing])


def test_derived_columns_predict_others_but_not_their_inputs(fitted):
    inputs = fitted.model_.inputs.columns
    own = set(range(inputs[2].start, inputs[2].stop))
    used = [bool(own & set(equation.inputs.tolist())) for equation in fitted.model_.equations]
    assert used == [False, False, False, True]


def test_the_effect_of_a_derived_column_is_recovered(people, fitted):
    pooled = halfseen.pool("pressure ~ bmi", fitted.sample(people, 3))
    assert abs(pooled.estimate[1] - 2.0) < 0.1


def test_models_with_derived_columns_can_be_saved(people, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model").sample(people, 1)[0]
    pd.testing.assert_frame_equal(again, fitted.sample(people, 1)[0])


def test_a_cycle_visits_the_columns_in_the_order_that_was_asked_for(people):
    usual = ChainedImputer(2, n_cycles=1, random_state=0).fit(people)
    names = [people.columns[c] for c in usual.model_.order]
    imputer = ChainedImputer(2, n_cycles=1, visit_order=names[:0:-1], random_state=0).fit(people)
    assert imputer.model_.order == [*usual.model_.order[:0:-1], usual.model_.order[0]]
    assert not imputer.sample(people, 1)[0].equals(usual.sample(people, 1)[0])


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("height", "visit_order must be a list of column names, got 'height'"),
        (["age"], "visit_order refers to column 'age', which is not a modelled column"),
        (["height", "height"], "visit_order names column 'height' twice"),
    ],
)
def test_wrong_orders_are_named(people, order, message):
    with pytest.raises(ValueError, match=message):
        ChainedImputer(2, visit_order=order).fit(people)
