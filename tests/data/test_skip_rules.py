"""Structural missingness: rules are found where they are exact, and nowhere else; no pregnant men."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import halfseen
from halfseen import GaussianImputer, HalfseenWarning, MeanImputer, Schema, SchemaError
from halfseen.data.columns import SkipRule
from halfseen.data.frames import Table
from halfseen.data.skip_rules import COINCIDENCE, FAILURES, MIN_ROWS, never_filled, why_empty

quiet = pytest.mark.filterwarnings("ignore::halfseen.HalfseenWarning")
RULE = {"column": "sex", "values": ["m"]}


def clinic(n_men=60, n_women=60, seed=0):
    rng = np.random.default_rng(seed)
    man = rng.permutation(np.arange(n_men + n_women) < n_men)
    return pd.DataFrame(
        {
            "sex": np.where(man, "m", "f"),
            "hb": rng.normal(13 + 2 * man, 1),
            "pregnant": pd.Series(np.where(man, None, rng.choice(["no", "yes"], len(man))), dtype=object),
        }
    )


def found(frame, schema=None):
    return MeanImputer(schema=schema).fit(frame).skip_rules_


def everything(imputer, frame):
    return [imputer.transform(frame), *imputer.sample(frame, n_draws=3), *imputer.interval(frame)]


# ------------------------------------------------------------------------------------------ recognition


def test_a_column_that_does_not_apply_is_recognised_and_announced():
    message = (
        r"^Column 'pregnant' is missing wherever 'sex' is 'm' \(60 rows\) and observed in 100% of the other "
        r"rows: it is treated as not applicable and left empty there \(--no-skip-rules, or \"skip\""
    )
    with pytest.warns(HalfseenWarning, match=message) as warnings:
        assert found(clinic()) == {"pregnant": SkipRule("sex", ("m",))}
    assert len(warnings) == 1


@quiet
def test_a_column_that_is_missing_only_where_it_does_not_apply_is_never_filled():
    frame = clinic()
    columns = MeanImputer().fit(frame).schema_.columns
    assert never_filled(columns, Table(frame)) == {"pregnant"}
    frame.loc[frame.index[frame["sex"] == "f"][0], "pregnant"] = None
    assert never_filled(columns, Table(frame)) == set()


def laboratory(n_rows=160, **columns):
    """A table in which `marked` columns are missing where a coin falls; `columns` are made of that coin."""
    rng = np.random.default_rng(0)
    off = np.arange(n_rows) % 3 == 0
    frame = pd.DataFrame({name: make(off, rng) for name, make in columns.items()})
    return frame.assign(age=rng.normal(50, 9, n_rows))


def missing_where(off, rng):
    return np.where(off, np.nan, rng.normal(size=len(off)))


@pytest.mark.parametrize(
    "name", ["TSH measured", "tsh_measured", "missingindicator_TSH", "TSH.flag", "isTSH TSH"]
)
def test_a_column_named_after_another_marks_where_it_is_missing_and_both_are_used(name):
    frame = laboratory(**{name: lambda off, rng: np.where(off, "f", "t"), "TSH": missing_where})
    frame.loc[1, "TSH"] = np.nan  # measured, and lost
    with pytest.warns(
        HalfseenWarning, match=f"^Column '{name}' marks where 'TSH' is missing, not where .* imputed"
    ):
        imputer = GaussianImputer(random_state=0).fit(frame)
    assert imputer.skip_rules_ == {}
    assert imputer.transform(frame)["TSH"].between(frame["TSH"].min(), frame["TSH"].max()).all()


def test_a_column_about_measuring_that_marks_several_columns_exactly_is_an_indicator():
    made = {
        "blood_drawn": lambda off, rng: np.where(off, "no", "yes"),
        "hb": missing_where,
        "crp": missing_where,
    }
    with pytest.warns(HalfseenWarning, match="^Column 'blood_drawn' marks where 'hb' and 'crp' are missing"):
        assert found(laboratory(**made)) == {}
    frame = laboratory(**made)
    frame.loc[1, "hb"] = np.nan  # no longer exact, as where some of those asked do not answer
    with pytest.warns(HalfseenWarning, match="not applicable"):
        assert set(found(frame)) == {"hb", "crp"}


@quiet
@pytest.mark.parametrize("name", ["sex", "employed", "has_pool"])
def test_other_columns_with_two_levels_may_mark_several_columns_that_do_not_apply(name):
    made = {name: lambda off, rng: np.where(off, "no", "yes"), "a": missing_where, "b": missing_where}
    assert set(found(laboratory(**made))) == {"a", "b"}


def test_the_zero_of_a_quantity_is_not_an_indicator():
    area = {"garage area": lambda off, rng: np.where(off, 0.0, rng.uniform(10, 50, len(off)))}
    with pytest.warns(HalfseenWarning, match="'garage' is missing wherever 'garage area' is 0"):
        assert set(found(laboratory(**area, garage=missing_where))) == {"garage"}


def test_an_indicator_is_not_the_condition_of_another_rule():
    made = {"TT4 measured": lambda off, rng: np.where(off, "f", "t"), "TT4": missing_where}
    frame = laboratory(
        **made, T3=lambda off, rng: np.where(off | (rng.random(len(off)) < 0.2), np.nan, 1.5 * off + 1)
    )
    frame["T3"] += np.random.default_rng(1).normal(size=len(frame))
    with pytest.warns(HalfseenWarning, match="marks where 'TT4' is missing"):
        assert found(frame) == {}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("SurveyYr", "2009_10", "2011_12"),
        ("wave", "a", "b"),
        ("collected", "2019", "2020"),
        ("Welle", "I", "II"),
    ],
)
def test_columns_that_are_missing_in_a_period_are_left_empty_with_a_question(name, first, second):
    made = {name: lambda off, rng: np.where(off, first, second), "tv": missing_where, "pc": missing_where}
    with pytest.warns(
        HalfseenWarning, match=r"\. Was it not asked or measured there\? .* left empty; if the"
    ) as said:
        assert found(laboratory(**made)) == dict.fromkeys(("tv", "pc"), SkipRule(name, (first,)))
    assert len(said) == 2
    assert found(laboratory(**made), schema={"*": {"skip": False}}) == {}


@quiet
@pytest.mark.parametrize(
    ("condition", "values"),
    [
        (lambda man: np.where(man, "m", "f"), ("m",)),
        (lambda man: man, (True,)),
        (lambda man: np.where(man, 1, 2), (1,)),
        (lambda man: np.where(man, 0.0, np.linspace(0.5, 7, len(man))), (0,)),
        (lambda man: pd.Categorical(np.where(man, "m", "f"), ["d", "f", "m"]), ("m",)),
        (lambda man: np.where(man, np.where(np.arange(len(man)) % 2, "a", "b"), "c"), ("a", "b")),
    ],
    ids=["text", "boolean", "two numbers", "zero", "declared levels", "two levels"],
)
def test_conditions_are_levels_and_zeros(condition, values):
    frame = clinic(n_men=120)
    frame["sex"] = condition((frame["sex"] == "m").to_numpy())
    assert found(frame) == {"pregnant": SkipRule("sex", values)}


@quiet
@pytest.mark.parametrize("library", [pl.from_pandas, lambda frame: pl.from_pandas(frame).to_arrow()])
def test_rules_are_found_in_every_library(library):
    frame = library(clinic())
    assert found(frame) == {"pregnant": SkipRule("sex", ("m",))}
    filled = MeanImputer().fit(frame).transform(frame)
    assert pl.DataFrame(filled)["pregnant"].null_count() == 60


def test_too_few_rows_are_no_rule():
    assert found(clinic(n_men=MIN_ROWS - 1)) == {}
    assert found(clinic(n_women=MIN_ROWS - 1)) == {}


def test_one_observed_cell_among_the_others_is_no_rule():
    frame = clinic()
    frame.loc[frame.index[frame["sex"] == "m"][0], "pregnant"] = "no"
    assert found(frame) == {}


def test_a_column_that_is_mostly_missing_elsewhere_too_is_no_rule():
    frame = clinic()
    women = frame.index[frame["sex"] == "f"]
    frame.loc[women[:30], "pregnant"] = None
    assert found(frame) == {}


def test_rare_levels_that_are_missing_by_chance_are_no_rule():
    """Forty levels of which each has a few rows: many are missing as a whole, none often enough."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"town": rng.integers(0, 400, 1000).astype(str), "x": rng.normal(size=1000)})
    frame.loc[rng.random(1000) < 0.4, "x"] = None
    by_town = frame["x"].isna().groupby(frame["town"]).all()
    assert by_town.sum() > 20
    assert found(frame, {"town": "categorical"}) == {}


def test_arrays_have_no_rules():
    array = np.column_stack([np.repeat([0.0, 1.0], 60), np.repeat([np.nan, 3.5], 60) + np.arange(120) % 7])
    assert found(array) == {}
    assert not np.isnan(MeanImputer().fit_transform(array)).any()


@pytest.mark.parametrize("rate", [0.3, COINCIDENCE], ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_cells_missing_at_random_rarely_lead_to_rules(seed, rate):
    """25 wide tables per case in which a column is missing at `rate` where another has one of its levels."""
    rng = np.random.default_rng([seed, int(10 * rate)])
    n_found = 0
    for _ in range(25):
        levels = rng.integers(0, 4, (150, 4))
        numbers = rng.normal(size=(150, 4))
        numbers[(levels == 0) & (rng.random((150, 4)) < rate)] = np.nan
        frame = pd.DataFrame(np.char.add("l", levels.astype(str)), columns=list("abcd"))
        n_found += bool(found(frame.join(pd.DataFrame(numbers, columns=list("wxyz")))))
    assert n_found <= max(1, 3 * FAILURES * 25)


def test_the_nearest_link_of_a_chain_is_chosen():
    frame = clinic(n_men=80, n_women=160)
    pregnant = frame["pregnant"] == "yes"
    frame["weeks"] = np.where(pregnant, np.random.default_rng(1).integers(4, 40, len(frame)), np.nan)
    with pytest.warns(HalfseenWarning, match="not applicable"):
        imputer = GaussianImputer(random_state=0).fit(frame)
    assert imputer.skip_rules_ == {
        "pregnant": SkipRule("sex", ("m",)),
        "weeks": SkipRule("pregnant", ("no",)),
    }
    for answer in everything(imputer, frame):
        assert answer["weeks"].isna().equals(~pregnant)


def test_many_columns_with_one_rule_are_announced_in_one_sentence():
    frame = clinic()
    several = pd.DataFrame({f"q{i}": frame["hb"].where(frame["sex"] == "f") + i for i in range(9)})
    with pytest.warns(
        HalfseenWarning, match="^9 columns .q0, q1, q2 and 6 more. are missing wherever 'sex' is 'm'"
    ) as warnings:
        MeanImputer().fit(frame[["sex", "hb"]].join(several))
    assert len(warnings) == 1


# ---------------------------------------------------------------------------------------------- answers


@quiet
def test_there_are_no_pregnant_men_also_where_the_sex_is_filled():
    frame = clinic(n_men=100, n_women=100)
    hidden = np.random.default_rng(1).random(200) < 0.2
    frame["sex"] = frame["sex"].mask(hidden)
    frame.loc[hidden, "pregnant"] = None
    imputer = GaussianImputer(random_state=0).fit(frame)
    assert list(imputer.skip_rules_) == ["pregnant"]
    draws = imputer.sample(frame, n_draws=5)
    for answer in (imputer.transform(frame), *draws):
        assert answer["sex"].notna().all()
        assert answer["pregnant"].isna().equals(answer["sex"] == "m")
    assert len({tuple(draw["sex"]) for draw in draws}) > 1, "each draw has men of its own"
    empty = imputer.transform(frame)["pregnant"].isna()
    for end in imputer.interval(frame):
        assert end["pregnant"].isna().equals(empty)


@quiet
def test_rules_apply_to_new_rows_also_from_a_model_file(tmp_path):
    GaussianImputer(random_state=0).fit(clinic()).save(tmp_path / "model")
    imputer = halfseen.load(tmp_path / "model")
    assert imputer.skip_rules_ == {"pregnant": SkipRule("sex", ("m",))}
    rows = pd.DataFrame({"sex": ["m", "f", "m"], "hb": [15.0, 12.0, 13.0], "pregnant": [None, None, "yes"]})
    for answer in everything(imputer, rows):
        assert answer["pregnant"].isna().tolist() == [True, False, False], "what was observed is kept"


@quiet
def test_models_do_not_see_cells_that_do_not_apply():
    """The rule changes what is written, not what is learned."""
    with_rule = GaussianImputer(random_state=0).fit(clinic())
    without = GaussianImputer(schema={"*": {"skip": False}}, random_state=0).fit(clinic())
    np.testing.assert_array_equal(with_rule.score_samples(clinic()), without.score_samples(clinic()))


# ------------------------------------------------------------------------------------- what users say


@pytest.mark.parametrize("schema", [{"pregnant": {"skip": False}}, {"*": {"skip": False}}])
def test_rules_can_be_switched_off(schema):
    imputer = GaussianImputer(schema=schema, random_state=0).fit(clinic())
    assert imputer.skip_rules_ == {}
    assert imputer.transform(clinic())["pregnant"].notna().all()


def test_a_rule_of_the_schema_holds_however_few_rows_show_it():
    frame = clinic(n_men=3, n_women=20)
    with pytest.warns(
        HalfseenWarning, match="'pregnant' is left empty where 'sex' is 'm', as the schema requires"
    ):
        imputer = GaussianImputer(schema={"pregnant": {"skip": RULE}}, random_state=0).fit(frame)
    assert imputer.transform(frame)["pregnant"].isna().equals(frame["sex"] == "m")


@quiet
@pytest.mark.parametrize(
    ("condition", "values"),
    [
        (lambda man: man, ["true"]),
        (lambda man: man, [True]),
        (lambda man: np.where(man, 1.0, 2.5), [1]),
        (lambda man: np.where(man, 0, 3), ["0"]),
        (lambda man: np.where(man, "never seen", "x"), ["never seen", "nor this"]),
    ],
)
def test_values_of_a_rule_are_spelt_as_in_a_file(condition, values):
    frame = clinic(n_men=5, n_women=20)
    man = frame["sex"] == "m"
    frame["sex"] = condition(man.to_numpy())
    schema = {"pregnant": {"skip": {"column": "sex", "values": values}}}
    imputer = GaussianImputer(schema=schema, random_state=0).fit(frame)
    for answer in everything(imputer, frame):
        assert answer["pregnant"].isna().equals(man)


@quiet
def test_a_value_of_a_rule_may_first_occur_in_new_rows():
    schema = {"pregnant": {"skip": RULE}}
    imputer = GaussianImputer(schema=schema, random_state=0).fit(clinic(n_men=0))
    rows = pd.DataFrame({"sex": ["m", "f"], "hb": [15.0, 12.0], "pregnant": [None, None]})
    assert imputer.transform(rows)["pregnant"].isna().tolist() == [True, False]


@quiet
def test_where_a_condition_stays_empty_so_does_the_column():
    frame = clinic()
    frame.loc[frame.index[:10], ["sex", "pregnant"]] = None
    schema = {"pregnant": {"skip": RULE}, "sex": {"fill": False}}
    filled = GaussianImputer(schema=schema, random_state=0).fit_transform(frame)
    assert filled["pregnant"].isna().equals((frame["sex"] == "m") | frame["sex"].isna())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"pregnant": {"skip": "sex"}}, "Column 'pregnant': skip must be .* or false, got 'sex'"),
        ({"pregnant": {"skip": {"column": "sex", "values": []}}}, "Column 'pregnant': skip must be"),
        ({"pregnant": {"skip": {"column": "age", "values": [1]}}}, "skip refers to 'age', which is not"),
        ({"sex": {"skip": RULE}}, "Column 'sex': skip refers to 'sex', which is not another column"),
        ({"sex": {"skip": {"column": "hb", "values": ["m"]}}}, r"the values \['m'\] of column 'hb'"),
        ({"hb": {"skip": {"column": "day", "values": ["m"]}}}, "'day' of dtype datetime64.*; it must"),
        (
            {"pregnant": {"skip": RULE}, "sex": {"skip": {"column": "pregnant", "values": ["no"]}}},
            "skip rules of the schema are circular: .*sex -> ",
        ),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(schema, message):
    frame = clinic().assign(day=pd.Timestamp("2024-01-01"))
    with pytest.raises(SchemaError, match=message):
        Schema.infer(Table(frame), schema)


@quiet
def test_the_reason_why_cells_stay_empty_is_a_sentence():
    frame = clinic(n_men=80, n_women=160)
    frame["weeks"] = np.where(
        frame["pregnant"] == "yes", np.random.default_rng(1).integers(4, 40, 240), np.nan
    )
    frame["died"] = pd.Series(["yes" if i % 3 else None for i in range(240)], dtype=object)
    assert why_empty(MeanImputer().fit(frame).schema_.columns) == {
        "pregnant": "does not apply where 'sex' is 'm'",
        "weeks": "does not apply where 'pregnant' is 'no' or itself does not apply",
        "died": "has one observed value, 'yes'",
    }
