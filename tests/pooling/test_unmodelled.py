"""Formulas with interactions and powers of imputed columns are named in a warning."""

import warnings

import pandas as pd
import pytest
import statsmodels.formula.api as smf
from pooling.test_analyses import completed_tables
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import halfseen
from halfseen.base.completion import DrawnTables
from halfseen.pooling import pool
from halfseen.pooling.unmodelled import bent_terms, imputed_columns


@pytest.mark.parametrize(
    ("formula", "term"),
    [
        ("y ~ x * z", r"x \* z"),
        ("y ~ z + x:C(g)", r"x:C\(g\)"),
        ("y ~ z + I(x ** 2)", r"I\(x \*\* 2\)"),
        ("y ~ I(x * z)", r"I\(x \* z\)"),
    ],
)
def test_interactions_and_powers_of_imputed_columns_are_named(formula, term):
    with pytest.warns(halfseen.HalfseenWarning, match=f"The analysis has {term}, which contain imputed"):
        pool(formula, completed_tables())


@pytest.mark.parametrize(
    "formula", ["y ~ x + z", "y ~ x + C(g)", "y ~ z + I(x / 2)", "x ~ I(y ** 2) + y:C(g)"]
)
def test_main_effects_and_terms_of_observed_columns_are_not(formula):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool(formula, completed_tables())


def test_an_imputation_that_knows_the_term_is_trusted():
    tables = DrawnTables(completed_tables())
    tables.analysis = "y ~ x * z"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool("y ~ x * z", tables)
        pool("y ~ x * z", tables[:2])
    with pytest.warns(halfseen.HalfseenWarning, match=r"The analysis has I\(x \*\* 2\), which"):
        pool("y ~ x * z + I(x ** 2)", tables)


@pytest.mark.parametrize(
    "formula",
    ["y ~ z*x", "y ~ x:z", "y ~ x + z + C(g) + z : x", "y~x*z+g", "y ~ I( x**2 ) + x", "y ~ I(x ** 2)"],
)
def test_terms_are_known_however_they_are_written(formula):
    tables = DrawnTables(completed_tables())
    tables.analysis = "y ~ x * z + I(x ** 2)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool(formula, tables)


@pytest.mark.parametrize(
    ("known", "formula", "term"),
    [
        ("y ~ x * z", "b ~ x * z", r"x \* z"),  # another outcome
        ("y ~ x:z", "y ~ x * z * C(g)", r"x \* z \* C\(g\)"),
        ("Surv(y, b) ~ x * z", "y ~ x * z", r"x \* z"),
        ("y ~ I(x ** 2)", "y ~ I(x ** 3)", r"I\(x \*\* 3\)"),
    ],
)
def test_terms_of_another_analysis_are_not_known(known, formula, term):
    tables = DrawnTables(completed_tables())
    tables.analysis = known
    with pytest.warns(halfseen.HalfseenWarning, match=f"The analysis has {term}, which contain imputed"):
        pool(formula, tables)


def test_formulas_of_functions_and_polynomials_of_pipelines_are_read_too():
    tables = completed_tables()
    with pytest.warns(halfseen.HalfseenWarning, match=r"The analysis has x \* z, which contain imputed"):
        pool(lambda table: smf.ols("y ~ x * z", table).fit(), tables)
    numbers = [table[["x", "z", "y"]] for table in tables]
    squares = make_pipeline(PolynomialFeatures(2, include_bias=False), LinearRegression())
    with pytest.warns(halfseen.HalfseenWarning, match=r"The analysis has PolynomialFeatures\(\), which"):
        pool(squares, numbers, "y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pool(make_pipeline(PolynomialFeatures(1, include_bias=False), LinearRegression()), numbers, "y")


@pytest.mark.parametrize("empty", [float("nan"), None, pd.NA])
def test_columns_that_stay_empty_in_some_rows_are_not_imputed_ones(empty):
    tables = completed_tables()
    left = [table.assign(w=[empty, *([1, 2] * len(table))[: len(table) - 1]]) for table in tables]
    assert "w" not in imputed_columns(left)
    assert "x" in imputed_columns(left)
    left[1].loc[left[1].index[0], "w"] = 1
    assert "w" in imputed_columns(left)


def test_columns_with_quoted_names_are_found():
    assert bent_terms('y ~ Q("my x") * z + `a b`:z + `c d`', {"my x", "a b", "c d"}) == [
        'Q("my x") * z',
        "`a b`:z",
    ]
