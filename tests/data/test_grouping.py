"""Columns that group rows are found and are not numbers; quantities are left alone."""

import warnings

import numpy as np
import pandas as pd
import pytest

import halfseen
from halfseen import GaussianImputer, HalfseenWarning
from halfseen.data.schema import infer_codes, open_table

CODES = np.array([417, 102, 333, 288, 905, 561, 120, 744, 639, 871, 256, 498])


def kinds(frame, schema=None):
    return {
        column.name: (column.kind, column.n_groups) for column in infer_codes(open_table(frame), schema)[0]
    }


def long_form(name="person", n_people=80, n_waves=4, make=lambda k: 1000 + 7 * k % 331):
    rng = np.random.default_rng(0)
    person = np.repeat(rng.permutation(n_people), n_waves)
    level = rng.normal(size=n_people)[person]
    weight = 70 + 10 * level + rng.normal(size=len(person))
    weight[rng.random(len(person)) < 0.2] = np.nan
    columns = {name: make(person), "wave": np.tile(np.arange(n_waves), n_people), "weight": weight}
    return pd.DataFrame(columns | {"height": 170 + 8 * level + rng.normal(size=len(person))})


def clusters(name, codes=CODES, size=25, effect=1.0):
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(len(codes)), size)
    shift = effect * rng.normal(size=len(codes))[group]
    columns = {other: shift + rng.normal(size=len(group)) for other in ("maths", "reading")}
    return pd.DataFrame({name: codes[group], **columns}).sample(frac=1, random_state=0)


@pytest.mark.parametrize("make", [lambda k: 1000 + 7 * k % 331, lambda k: np.char.add("P", k.astype(str))])
@pytest.mark.parametrize("name", ["person", "patient_id", "SubjectID"])
def test_a_repeated_identifier_is_left_out_of_the_model_with_a_warning(name, make):
    frame = long_form(name, make=make)
    assert kinds(frame)[name] == ("identifier", 80)
    message = (
        f"^Rows may not be independent: there are 80 values of '{name}' in 320 rows, 4 rows each on average; "
        f".* '{name}' is left out of the model"
    )
    with pytest.warns(HalfseenWarning, match=message):
        imputer = GaussianImputer(random_state=0).fit(frame)
    assert imputer.columns_left_ == {name: "is a repeated identifier, of 80 groups of rows"}
    assert imputer.transform(frame)["weight"].notna().all()


def test_the_reservations_of_draws_and_the_description_say_it_too():
    frame = long_form()
    with pytest.warns(HalfseenWarning, match="Rows may not be independent"):
        tables = halfseen.multiple_imputation(frame, n_draws=2, random_state=0)
    assert tables.reservations[0].startswith("Rows may not be independent")
    with pytest.warns(HalfseenWarning, match="Rows may not be independent: there are 80 values of 'person'"):
        halfseen.describe(frame)


@pytest.mark.parametrize("name", ["school", "V1"])
def test_a_code_whose_groups_are_alike_is_a_category(name):
    assert kinds(clusters(name)) == {
        name: ("categorical", 12),
        "maths": ("continuous", None),
        "reading": ("continuous", None),
    }
    with pytest.warns(HalfseenWarning, match=f"'{name}' is used as a category, not as a number"):
        halfseen.BoostingRegressor(max_iter=2).fit(clusters(name), np.arange(300.0))


def test_groups_that_are_not_alike_and_quantities_are_no_groups():
    assert kinds(clusters("school", effect=0.0))["school"] == ("count", None)
    rng = np.random.default_rng(2)
    age = rng.integers(20, 60, 800)
    trends = {
        "linear": 0.2 * age + rng.normal(size=800),
        "bump": -((age - 40) ** 2) / 40 + rng.normal(size=800),
    }
    frame = pd.DataFrame(
        {"age": age, "hour": age % 24, **trends, "wave": 3 * np.sin(age % 24 / 24 * 2 * np.pi)}
    )
    frame["wave"] += rng.normal(size=800)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [n for _, n in kinds(frame).values()] == [None] * 5


def test_the_kind_of_the_user_wins_and_arrays_stay_numbers():
    frame = long_form()
    assert kinds(frame, {"person": "count"})["person"] == ("count", None)
    assert kinds(frame, {"person": {"fill": True}})["person"] == ("identifier", 80)
    assert {kind for kind, _ in kinds(frame.to_numpy()).values()} == {"count", "positive"}


@pytest.mark.parametrize("n_people", [400, 30_000])
def test_large_tables_are_judged_by_some_of_their_groups(n_people, monkeypatch):
    monkeypatch.setattr("halfseen.data.relations.MAX_ROWS", 500)
    assert kinds(long_form("V1", n_people, make=lambda k: k * 7919 % 104_729))["V1"] == (
        "identifier",
        n_people,
    )
    assert kinds(clusters("V1", size=200))["V1"] == ("categorical", 12)


def test_what_groups_rows_is_saved(tmp_path):
    with pytest.warns(HalfseenWarning, match="independent"):
        imputer = GaussianImputer(random_state=0).fit(clusters("school"))
    imputer.save(tmp_path / "model")
    assert halfseen.load(tmp_path / "model").schema_ == imputer.schema_
