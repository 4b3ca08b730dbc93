"""Derived columns: formulas that are parsed and never executed, and cells that stay consistent."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import halfseen
from halfseen import BootstrapImputer, GaussianImputer, MeanImputer, SchemaError
from halfseen.data.relations import Formula

BMI = {"bmi": {"derived": "weight / height ** 2"}}


def patients(n_rows=80):
    rng = np.random.default_rng(0)
    height = rng.normal(1.7, 0.1, size=n_rows)
    weight = 25 * height**2 + rng.normal(0, 8, size=n_rows)
    table = pd.DataFrame({"height": height, "weight": weight, "bmi": weight / height**2})
    table.loc[:30, ["weight", "bmi"]] = np.nan
    table.loc[25:40, "height"] = np.nan
    return table


@pytest.mark.parametrize("imputer", [GaussianImputer, MeanImputer, BootstrapImputer])
@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_missing_cells_follow_from_the_completed_columns_in_every_answer(imputer, library, tmp_path):
    table = patients()
    given = library(table.to_dict("list")) if library is pl.DataFrame else table
    given = given.fill_nan(None) if library is pl.DataFrame else given
    settings = {"n_resamples": 2} if imputer is BootstrapImputer else {}
    fitted = imputer(schema=BMI, random_state=0, **settings).fit(given)
    empty = table["bmi"].isna().to_numpy()
    for answer in (fitted.transform(given), *fitted.sample(given, n_draws=2)):
        height, weight, bmi = (np.asarray(answer[name]) for name in ("height", "weight", "bmi"))
        np.testing.assert_allclose(bmi[empty], (weight / height**2)[empty], rtol=1e-12)
        np.testing.assert_array_equal(bmi[~empty], table["bmi"][~empty])  # though their height is imputed
    low, high = (np.asarray(end["bmi"]) for end in fitted.interval(given))
    point = np.asarray(fitted.transform(given)["bmi"])
    assert (low <= point).all()
    assert (point <= high).all()
    assert (low < high)[empty].all()
    fitted.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model").transform(given)
    np.testing.assert_array_equal(np.asarray(again["bmi"]), point)


def test_equal_rows_have_equal_intervals_of_derived_cells_in_any_batch():
    table = patients()
    fitted = GaussianImputer(schema=BMI, random_state=0).fit(table)
    low, high = (end["bmi"].to_numpy() for end in fitted.interval(table.iloc[[28, 28, 3, 28]]))
    for ends in (low, high):
        np.testing.assert_array_equal(ends[[1, 3]], ends[[0, 0]])
    alone = fitted.interval(table.iloc[[28]])
    np.testing.assert_allclose([end["bmi"].iloc[0] for end in alone], [low[0], high[0]], rtol=1e-12)


def test_models_see_a_derived_column_only_if_asked():
    table = patients()
    plain = GaussianImputer(schema=BMI).fit(table)
    assert [column.name for column in plain.schema_ if column.modelled] == ["height", "weight"]
    asked = GaussianImputer(schema={"bmi": BMI["bmi"] | {"predictor": True}}, random_state=0).fit(table)
    assert [column.name for column in asked.schema_ if column.modelled] == ["height", "weight", "bmi"]
    filled = asked.transform(table)
    empty = table["bmi"].isna()
    np.testing.assert_allclose(filled["bmi"][empty], (filled["weight"] / filled["height"] ** 2)[empty])


def test_an_empty_column_can_be_derived_and_whole_numbers_stay_whole():
    table = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0] * 5, "b": np.arange(20.0) + 0.5, "sum": np.nan})
    filled = MeanImputer(schema={"sum": {"derived": "a + b"}}).fit_transform(table)
    np.testing.assert_allclose(filled["sum"], filled["a"] + filled["b"])
    array = table.to_numpy()
    filled = MeanImputer(schema={2: {"derived": "x0 + x1"}}).fit_transform(array)
    np.testing.assert_allclose(filled[:, 2], filled[:, 0] + filled[:, 1])
    table["half"] = pd.array([None] + [1] * 19, dtype="Int64")
    whole = MeanImputer(schema={"half": {"derived": "b / 2 + a"}, "sum": {"derived": "a"}}).fit_transform(
        table
    )
    assert whole["half"].dtype == "Int64"
    assert whole["half"][0] == 1


def test_results_that_are_not_numbers_stay_empty():
    table = pd.DataFrame({"a": np.arange(10.0) - 0.5, "r": [np.nan] * 5 + [1.5] * 5})
    filled = MeanImputer(schema={"r": {"derived": "sqrt(a)"}}).fit_transform(table)
    assert list(filled["r"].isna()) == [True] + [False] * 9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-a ** 2 + 3 * (b - 1) / 2", -4.0 + 3.0),
        ("minimum(a, b) + maximum(a, b)", 5.0),
        ("exp(log(a)) + log10(100) + abs(-b)", 7.0),
        ("`a` + `b`", 5.0),
    ],
)
def test_formulas_are_arithmetic(text, expected):
    columns = {"a": np.array([2.0]), "b": np.array([3.0])}
    np.testing.assert_allclose(Formula.parse(text).evaluate(columns), [expected])


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "a.b", "a[0]", "lambda: 1", "a if b else 1", "(x := 1)", "'a'",
        "a < b", "True", "exp(a, b)",
        "open(a)", "exp(a, out=b)", "a +", "", "[a]", "a @ b", "f'{a}'", "(" * 3000, 7,
    ],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(SchemaError, match=r"[Ff]ormula"):
        Formula.parse(text)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"bmi": {"derived": "weight / size"}},
            "'bmi': its formula .* uses 'size', which is not in",
        ),
        ({"bmi": {"derived": "sex + 1"}}, "uses 'sex', which is binary"),
        (BMI | {"height": {"derived": "weight"}}, "uses 'height', which is derived itself"),
        ({"sex": {"derived": "weight"}}, "'sex' cannot be numbers: it contains 'f'"),
        ({"bmi": {"predictor": 1, "derived": "weight"}}, "predictor must be true or false"),
    ],
)
def test_formulas_that_do_not_fit_the_table_are_refused(schema, message):
    table = patients().assign(sex=["f", "m"] * 40)
    with pytest.raises(SchemaError, match=message):
        MeanImputer(schema=schema).fit(table)
