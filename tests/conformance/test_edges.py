"""Imputers at other edges than those of `halfseen.testing`: empty, enormous, or not tables at all."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conformance.fitted import fitted
from conformance.tables import ARRAY, NASTY, PENGUINS
from scipy import sparse

from halfseen import HalfseenWarning
from halfseen.testing.checks import assert_complete
from halfseen.testing.tables import bits, cells, fit_quietly, hide, names, scores, take


def test_a_table_of_numbers_without_any_is_filled_with_zeros_and_a_warning(row):
    array = np.full((4, 2), np.nan)
    with pytest.warns(
        HalfseenWarning, match="Column 'x[01]' has no observed value; its 4 missing cells are imputed with 0"
    ):
        imputer = row.make(random_state=0).fit(array)
    np.testing.assert_array_equal(imputer.transform(array), np.zeros((4, 2)))
    np.testing.assert_array_equal(scores(imputer, array), np.zeros(4))


def test_a_frame_without_any_value_stays_as_it_is_with_a_warning(row):
    frame = pl.DataFrame({"a": [None, None], "b": [None, None]}, schema={"a": pl.String, "b": pl.Boolean})
    with pytest.warns(
        HalfseenWarning, match=r"Column '[ab]' has no observed value; its 2 missing cells are left"
    ):
        imputer = row.make(random_state=0).fit(frame)
    assert imputer.transform(frame).equals(frame)


def test_values_in_a_column_that_was_empty_in_training_are_kept(row):
    training = pd.DataFrame({"a": [1.5, 2.5, 0.5], "b": [np.nan] * 3})
    imputer = fit_quietly(row.make(random_state=0), training)
    test = pd.DataFrame({"a": [np.nan, 1.0], "b": [9.5, np.nan]})
    assert bits(imputer.transform(test)[["b"]]) == bits(test[["b"]])


def test_an_identifier_with_missing_values_warns(row):
    with pytest.warns(HalfseenWarning, match="Column 'code' looks like an identifier; its .* are left empty"):
        row.make(random_state=0).fit(NASTY.make()[["größe", "code"]])


def test_a_table_without_rows_or_columns_cannot_be_fitted(row):
    for nothing in (pd.DataFrame({"a": []}), pl.DataFrame({"a": []}), np.empty((0, 2))):
        with pytest.raises(ValueError, match=r"0 sample\(s\)"):
            row.make(random_state=0).fit(nothing)
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        row.make(random_state=0).fit(np.empty((3, 0)))


@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
def test_infinity_is_refused_by_the_name_of_its_column(row, infinity):
    frame = pd.DataFrame({"länge": [1.5, 2.5, infinity], "b": [1.0, 2.5, 3.0]})
    with pytest.raises(ValueError, match=r"Column 'länge' contains infinity \(-?inf in row 2, 1 in all\)"):
        row.make(random_state=0).fit(frame)
    imputer = row.make(random_state=0).fit(frame.iloc[:2])
    with pytest.raises(ValueError, match="Column 'länge' contains infinity"):
        imputer.transform(frame)
    with pytest.raises(ValueError, match="Column 'x1' contains infinity"):
        row.make(random_state=0).fit([[1.0, infinity], [2.0, 0.5]])


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_numbers_near_the_ends_of_floating_point_are_filled_with_their_like(row, scale):
    array = ARRAY.make() / 1000 * scale
    imputer = row.make(random_state=0).fit(array)
    assert_complete(imputer, array)
    ordinary = row.make(random_state=0).fit(ARRAY.make() / 1000)
    np.testing.assert_allclose(
        imputer.transform(array) / scale, ordinary.transform(ARRAY.make() / 1000), rtol=1e-6, atol=1e-9
    )


def test_a_level_never_seen_is_kept_and_is_no_evidence(row):
    penguins, imputer = PENGUINS.make(), fitted(row, PENGUINS)
    position = np.array(names(penguins)) == "island"
    both = take(penguins, [3]).copy()
    hole = hide(both, position)
    strange = both.assign(island="Elba")
    assert imputer.transform(strange)["island"].tolist() == ["Elba"]
    assert bits(imputer.transform(strange).drop(columns="island")) == bits(
        imputer.transform(hole).drop(columns="island")
    )
    assert imputer.sample(strange)[0]["island"].tolist() == ["Elba"]
    assert bits(imputer.sample(strange)[0].drop(columns="island")) == bits(
        imputer.sample(hole)[0].drop(columns="island")
    )


def test_a_frame_may_declare_fewer_levels_than_the_training_frame(row):
    rng = np.random.default_rng(0)
    colour = rng.choice(["red", "red", "red", "blue"], size=80)
    training = pd.DataFrame({"colour": pd.Categorical(colour), "size": rng.normal(size=80)})
    imputer = row.make(random_state=0).fit(training)
    test = pd.DataFrame({"colour": pd.Categorical(["blue", None], categories=["blue"]), "size": [0.1, 0.2]})
    filled = imputer.transform(test)
    assert filled["colour"].tolist() == ["blue", "red"]
    assert imputer.sample(test, n_draws=3)[2]["colour"].notna().all()


def test_a_column_of_numbers_that_now_holds_text_is_refused(row):
    imputer = row.make(random_state=0).fit(pd.DataFrame({"a": [1.5, 2.5, 4.5]}))
    with pytest.raises(
        ValueError, match=r"Column 'a' contained numbers when .* fitted, but now it contains 'x'"
    ):
        imputer.transform(pd.DataFrame({"a": ["x", None]}))


def test_a_column_of_text_that_is_now_empty_is_filled(row):
    penguins, imputer = PENGUINS.make(), fitted(row, PENGUINS)
    empty = penguins.head(5).assign(species=pd.Series([None] * 5, dtype=object))
    assert set(imputer.transform(empty)["species"]) <= set(penguins["species"])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_a_sparse_matrix_is_refused(row, kind):
    with pytest.raises(TypeError, match=r"[Ss]parse data was passed"):
        row.make(random_state=0).fit(kind(np.eye(4)))


@pytest.mark.parametrize("table", [[1.0, 2.0], "text", 3.0, None], ids=repr)
def test_what_is_no_table_is_refused(row, table):
    with pytest.raises(ValueError, match=r"Expected 2D array|could not convert|Reshape your data"):
        row.make(random_state=0).fit(table)


@pytest.mark.parametrize(
    "columns",
    [{"a": [1.0, 2.0]}, np.array([(1.0, 2.0)], dtype=[("a", "f8"), ("b", "f8")])],
    ids=["dict", "structured"],
)
def test_columns_that_are_no_frame_are_refused(row, columns):
    with pytest.raises(TypeError, match="A dict or a structured array is not a table: pass a data frame"):
        row.make(random_state=0).fit(columns)


def test_a_lazy_frame_is_refused(row):
    with pytest.raises(ValueError, match=r"A lazy frame cannot be used; call .collect\(\) first"):
        row.make(random_state=0).fit(pl.LazyFrame({"a": [1.0]}))


def test_repeated_names_are_refused(row):
    repeated = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(ValueError, match=r"Column names must differ, but these repeat: 'a' \(2 times\)"):
        row.make(random_state=0).fit(repeated)


def test_a_schema_for_a_column_that_is_not_there_is_refused(row):
    with pytest.raises(ValueError, match="The schema refers to column 'age', which is not in the table"):
        row.make(schema={"age": "count"}).fit(pd.DataFrame({"a": [1.0, 2.0]}))


def test_a_table_of_dates_alone_is_filled_with_dates(row):
    days = pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-05", "2024-03-01"]))
    filled = row.make(random_state=0).fit_transform(pd.DataFrame({"day": days}))
    assert all(moment == moment.normalize() for moment in filled["day"])
    assert cells(filled)[0][1] >= days.min()
