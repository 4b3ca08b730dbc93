"""Influx and outflux by counting pairs, and the quick choice of predictors."""

import itertools

import numpy as np
import pandas as pd
import pytest

import halfseen
from halfseen.diagnosis import flux, quick_predictors


def test_flux_counts_pairs_of_cells():
    rng = np.random.default_rng(0)
    missing = rng.random((40, 5)) < [0.0, 0.1, 0.3, 0.5, 0.9]
    found = flux(np.where(missing, np.nan, rng.normal(size=missing.shape)))
    for j in range(5):
        others = [k for k in range(5) if k != j]
        into = sum(missing[i, j] and not missing[i, k] for i, k in itertools.product(range(40), others))
        out = sum(not missing[i, j] and missing[i, k] for i, k in itertools.product(range(40), others))
        assert found.influx[j] == pytest.approx(into / (~missing).sum())
        assert found.outflux[j] == pytest.approx(out / missing.sum())
    assert found.outflux[0] == 1.0  # a complete column


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    n = 600
    x, z, noise = rng.normal(size=(3, n))
    group = np.where(x + rng.normal(size=n) > 0, "a", "b")
    frame = pd.DataFrame({"x": x, "z": z, "noise": noise, "group": group, "y": x + rng.normal(size=n)})
    frame.loc[rng.random(n) < 1 / (1 + np.exp(-2 * z)), "y"] = np.nan  # z says when y is missing
    frame.loc[:20, "group"] = None
    return frame


def test_predictors_correlate_with_the_column_or_with_its_missing_values(table):
    found = quick_predictors(table, min_correlation=0.25)
    assert found["y"] == ["x", "z", "group"]
    assert found["group"] == ["x", "y"]
    assert set(found) == {"y", "group"}


def test_correlations_are_those_of_pairwise_complete_rows(table):
    both = table[["x", "y"]].dropna()
    size = abs(np.corrcoef(both["x"], both["y"])[0, 1])
    assert "x" in quick_predictors(table[["x", "y"]], min_correlation=size - 1e-9)["y"]
    assert quick_predictors(table[["x", "y"]], min_correlation=size + 1e-9)["y"] == []


def test_columns_can_be_included_and_excluded(table):
    found = quick_predictors(table, min_correlation=0.25, include=["noise"], exclude=["x"])
    assert found["y"] == ["z", "noise", "group"]


def test_predictors_that_are_missing_with_the_column_are_not_usable(table):
    table["w"] = table["y"] * 2
    assert "w" in quick_predictors(table)["y"]
    assert "w" not in quick_predictors(table, min_usable=0.1)["y"]


def test_the_choice_is_understood_by_the_chained_imputer(table):
    chosen = quick_predictors(table, min_correlation=0.25)
    imputer = halfseen.ChainedImputer(2, n_cycles=1, predictors=chosen, random_state=0).fit(table)
    assert imputer.transform(table).notna().all().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_correlation": 2}, "min_correlation must be between 0 and 1, got 2"),
        ({"include": "x"}, "include must be a list of names, got 'x'"),
        ({"exclude": ["age"]}, "exclude refers to column 'age', which is not a modelled column"),
    ],
)
def test_wrong_arguments_are_named(table, options, message):
    with pytest.raises(ValueError, match=message):
        quick_predictors(table, **options)
