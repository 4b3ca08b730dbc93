"""Columns whose missing cells stay empty: which, why, what is said, and how users say otherwise."""

import re
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import halfseen
from halfseen import GaussianImputer, GaussianRegressor, HalfseenWarning, MeanImputer, Schema, SchemaError
from halfseen.data.frames import Table

MAP = pa.map_(pa.string(), pa.int8())
ONE_VALUE = "has one observed value, 'yes'"
quiet = pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")


def patients(n=40, **columns):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(50, 10, n), "weight": rng.normal(70, 8, n)})
    frame.loc[3, "age"] = None
    return frame.assign(**columns)


def half(value, n=40):
    return pd.Series([value if i % 2 else None for i in range(n)], dtype=object)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (half("yes"), ONE_VALUE),
        (half(True), "has one observed value, True"),
        (half(pd.Timestamp("2024-05-01")), "has one observed value, 2024-05-01"),
        (pd.Categorical(half("yes"), ["no", "yes"]), f"{ONE_VALUE}, of the levels 'no', 'yes'"),
        (pd.Series(np.nan, range(40)), "has no observed value"),
        (half(None), "has no observed value"),
        (pd.Series([*(f"C{i}" for i in range(39)), None]), "looks like an identifier"),
        (
            pd.Series([*(f"The {i} parcels came late again." for i in range(39)), None]),
            "looks like free text",
        ),
        (
            pd.Series([*(f"{100 + i}/{60 + i}" for i in range(39)), None]),
            "contains pairs of numbers such as '100/60', which are not read as numbers or dates",
        ),
        (
            pd.Series([*(f"{i % 24}:{i:02d}" for i in range(37)), "k.A.", "k.A.", None]),
            "contains times or durations, which are not read as numbers or dates",
        ),
        (half([1, 2]), "has the type object (list), which is not supported"),
        (half(b"12"), "has the type object (bytes), which is not supported"),
    ],
)  # fmt: skip
def test_a_column_is_left_empty_with_the_reason_and_one_warning(cells, reason):
    frame = patients(c=cells)
    n_missing = int(frame["c"].isna().sum())
    message = f"Column 'c' {re.escape(reason)}; its {n_missing} missing cells? (are|is) left empty"
    with pytest.warns(HalfseenWarning, match=message) as found:
        imputer = GaussianImputer(random_state=0).fit(frame)
    assert len(found) == 1
    assert imputer.columns_left_ == {"c": reason}
    low, high = imputer.interval(frame)
    for answer in (imputer.transform(frame), *imputer.sample(frame, n_draws=2), low, high):
        assert answer["c"].isna().equals(frame["c"].isna())
        assert answer["age"].notna().all()


def test_a_number_with_one_observed_value_fills_its_column_and_is_announced():
    with pytest.warns(
        HalfseenWarning, match="'c' has one observed value, 7; its 20 missing .* imputed with it"
    ):
        imputer = GaussianImputer().fit(patients(c=half(7).astype(float)))
    assert imputer.columns_left_ == {}
    assert (imputer.transform(patients(c=half(7).astype(float)))["c"] == 7).all()


def test_text_that_the_schema_calls_numbers_is_filled_though_it_has_one_value():
    imputer = GaussianImputer(schema={"c": "count"}).fit(patients(c=half("7")))
    assert imputer.columns_left_ == {}
    assert set(imputer.transform(patients(c=half("7")))["c"]) == {"7"}


def test_complete_columns_are_not_announced_but_stay_empty_later():
    imputer = GaussianImputer().fit(patients(c=[f"C{i}" for i in range(40)]))
    assert imputer.columns_left_ == {"c": "looks like an identifier"}
    assert imputer.transform(patients(c=half("C1")))["c"].isna().sum() == 20


def test_many_columns_that_are_left_for_the_same_reason_share_one_sentence():
    empty = pd.DataFrame(np.full((40, 1500), np.nan)).add_prefix("q")
    message = r"^1,500 columns have no observed value; their missing cells are left empty .*: q0, q1, "
    with pytest.warns(HalfseenWarning, match=message) as found:
        MeanImputer().fit(pd.concat([patients(), empty], axis=1))
    assert len(found) == 1


def test_many_empty_columns_of_an_array_are_filled_with_0_and_announced_in_one_sentence():
    array = np.column_stack([np.arange(5.0), np.full((5, 20), np.nan)])
    with pytest.warns(
        HalfseenWarning, match="^20 columns have no observed value; .* imputed with 0"
    ) as found:
        filled = MeanImputer().fit_transform(array)
    assert len(found) == 1
    assert (filled[:, 1:] == 0).all()


@pytest.mark.parametrize("schema", [{"c": {"fill": True}}, {"*": {"fill": True}}], ids=["column", "every"])
@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (half("yes"), "yes"),
        (half(True), True),
        (pd.Series(np.nan, range(40)), 0.0),
        (pd.Series([*["C0"] * 2, *(f"C{i}" for i in range(37)), None]), "C0"),
    ],
)
@quiet
def test_fill_true_in_the_schema_imputes_a_column_that_would_be_left(cells, value, schema):
    frame = patients(c=cells)
    imputer = GaussianImputer(schema=schema).fit(frame)
    filled = imputer.transform(frame)["c"]
    assert imputer.columns_left_ == {}
    assert set(filled[frame["c"].isna()]) == {value}


def test_fill_false_in_the_schema_leaves_a_column_that_would_be_imputed():
    imputer = GaussianImputer(schema={"age": {"fill": False}}).fit(patients())
    assert imputer.columns_left_ == {"age": "is not imputed, as the schema requires"}
    assert imputer.transform(patients())["age"].isna().sum() == 1
    array = patients().to_numpy()
    assert np.isnan(GaussianImputer(schema={0: {"fill": False}}).fit_transform(array)).sum() == 1


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"age": {"fill": "yes"}}, "Column 'age': fill must be true or false, got 'yes'"),
        ({"*": "count"}, r"entry '\*', .* takes true or false for fill and skip, not kind='count'"),
        ({"*": {"fill": 1}}, r"Column '\*': fill must be true or false, got 1"),
    ],
)  # fmt: skip
def test_settings_of_filling_are_checked(schema, message):
    with pytest.raises(SchemaError, match=message):
        GaussianImputer(schema=schema).fit(patients())


def test_the_settings_of_a_column_take_precedence_over_those_for_all_columns():
    schema = {"*": {"fill": True}, "c": {"fill": False}}
    imputer = GaussianImputer(schema=schema).fit(patients(c=half("yes")))
    assert imputer.columns_left_ == {"c": "is not imputed, as the schema requires"}


def test_settings_of_a_star_belong_to_a_column_of_this_name_if_there_is_one():
    frame = patients().rename(columns={"age": "*"})
    assert GaussianImputer(schema={"*": {"minimum": 0, "fill": False}}).fit(frame).columns_left_.keys() == {
        "*"
    }


# -------------------------------------------------------------------------------------- declared levels


@pytest.mark.parametrize(
    "make", [GaussianImputer, MeanImputer, partial(halfseen.MixtureImputer, max_epochs=50)]
)
@pytest.mark.parametrize("said", [{"levels": ["no", "yes"]}, {}], ids=["schema", "dtype"])
def test_declared_levels_of_which_one_is_observed_are_imputed_on_demand_with_a_probability_for_each(
    make, said
):
    cells = half("yes") if said else pd.Categorical(half("yes"), ["no", "yes"])
    frame = patients(c=cells)
    imputer = make(schema={"c": {**said, "fill": True}}, random_state=0).fit(frame)
    probabilities = imputer.class_probabilities(frame)["c"]
    unseen = probabilities[frame["c"].isna(), 0]
    assert ((unseen > 0) & (unseen < 0.1)).all()
    with pytest.warns(HalfseenWarning, match="one observed value, 'yes', of the levels 'no', 'yes'"):
        imputer = make(schema={"c": said}, random_state=0).fit(frame)
    assert list(imputer.columns_left_) == ["c"]


def test_a_declared_level_beside_two_observed_ones_stays_possible():
    cells = pd.Series(["a", "b", "b", None] * 10, dtype=object)
    imputer = GaussianImputer(schema={"c": {"levels": ["a", "b", "never"]}}).fit(patients(c=cells))
    probabilities = imputer.class_probabilities(patients(c=cells))["c"]
    assert imputer.columns_left_ == {}
    assert ((probabilities[3::4, 2] > 0) & (probabilities[3::4, 2] < 0.1)).all()


# --------------------------------------------------------------------------------- what no model can see


@quiet
@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"x": [1.0, None, 2.5], "c": [[1], None, [2, 3]]}),
        pl.DataFrame({"x": [1.0, None, 2.5], "c": [{"a": 1}, None, {"a": None}]}),
        pl.DataFrame({"x": [1.0, None, 2.5], "c": [b"a", None, b""]}),
        pa.table({"x": [1.0, None, 2.5], "c": pa.array([[("k", 1)], None, []], MAP)}),
        pa.table({"x": [1.0, None, 2.5], "c": pa.array([b"a", None, b"b"], pa.large_binary())}),
        pa.table({"x": [1.0, None, 2.5], "c": [[[1]], None, []]}),
    ],
)  # fmt: skip
def test_columns_of_unsupported_types_are_returned_unchanged(frame):
    imputer = GaussianImputer(random_state=0).fit(frame)
    answers = [imputer.transform(frame), *imputer.sample(frame, n_draws=2), *imputer.interval(frame)]
    for answer in answers:
        assert answer["c"].equals(frame["c"])
        assert np.isfinite(answer["x"].to_numpy()).all()
    assert list(imputer.columns_left_) == ["c"]


def test_predictors_ignore_columns_of_unsupported_types():
    frame, target = patients(c=half([1])), np.arange(40.0)
    without = GaussianRegressor().fit(patients(), target).predict(patients())
    np.testing.assert_array_equal(GaussianRegressor().fit(frame, target).predict(frame), without)


def test_a_kind_for_a_column_of_an_unsupported_type_is_refused():
    with pytest.raises(SchemaError, match=r"Column 'c' of dtype object \(list\) cannot be categorical"):
        Schema.infer(Table(patients(c=half([1]))), {"c": "categorical"})


@pytest.mark.parametrize("indices", [pa.uint8(), pa.uint32(), pa.int16()], ids=str)
def test_dictionaries_with_nulls_are_read_whatever_their_indices(indices):
    codes = pa.array([0, None, 1, 0, 1, None] * 5, indices)
    table = pa.table({"c": pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"])), "x": np.arange(30.0)})
    filled = GaussianImputer(random_state=0).fit_transform(table)
    assert filled["c"].null_count == 0
    assert filled.schema == table.schema


def test_a_polars_category_with_nulls_goes_through_arrow():
    frame = pl.DataFrame({"c": pl.Series(["a", None, "b"] * 9, dtype=pl.Categorical), "x": np.arange(27.0)})
    filled = pl.from_arrow(GaussianImputer(random_state=0).fit_transform(frame.to_arrow()))
    assert filled["c"].null_count() == 0
    assert filled["c"].dtype == pl.Categorical


@quiet
def test_a_saved_model_keeps_the_columns_left_and_their_reasons(tmp_path):
    frame = patients(c=half("yes"), d=half([1]))
    imputer = GaussianImputer(random_state=0).fit(frame)
    imputer.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model")
    assert again.columns_left_ == imputer.columns_left_
    pd.testing.assert_frame_equal(again.transform(frame), imputer.transform(frame))


def test_a_number_that_was_observed_once_imputes_no_other_cell():
    once = [7.0] + [None] * 39
    with pytest.warns(HalfseenWarning, match="'c' has one observed value, 7; its 39 missing .* left empty"):
        imputer = MeanImputer().fit(patients(c=once))
    assert imputer.transform(patients(c=once))["c"].isna().sum() == 39
    with pytest.warns(HalfseenWarning, match="imputed with it"):
        filled = MeanImputer(schema={"c": {"fill": True}}).fit_transform(patients(c=once))
    assert (filled["c"] == 7.0).all()
