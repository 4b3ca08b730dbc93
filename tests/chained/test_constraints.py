"""Order constraints: what is parsed, limits of draws, and tables in which no draw breaks a constraint."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tolerances import FAILURE_RATE

import halfseen
from halfseen.chained.imputer import ChainedImputer


@pytest.fixture(scope="module")
def stays():
    """Patients are admitted and discharged a few days later; both dates, and numbers, are partly missing."""
    rng = np.random.default_rng(0)
    n = 250
    day = rng.integers(0, 30, n)
    length = rng.poisson(1.5, n)
    start = pd.Timestamp("2024-01-01")
    table = pd.DataFrame({
        "admission": start + pd.to_timedelta(day, unit="D"),
        "discharge": start + pd.to_timedelta(day + length, unit="D"),
        "lowest": rng.normal(10, 2, n),
        "grade": rng.integers(1, 6, n).astype(float),
    })  # fmt: skip
    table["highest"] = table["lowest"] + rng.gamma(2.0, 1.0, n)
    table["best"] = np.minimum(5, table["grade"] + rng.integers(0, 3, n))
    return table.mask(rng.random(table.shape) < 0.25)


CONSTRAINTS = ["admission <= discharge", "lowest <= highest", "best >= grade", "lowest >= 4"]


@pytest.fixture(scope="module")
def fitted(stays):
    return ChainedImputer(3, constraints=CONSTRAINTS, random_state=0).fit(stays)


def _broken(table):
    return {
        "dates": int((table["admission"] > table["discharge"]).sum()),
        "numbers": int((table["lowest"] > table["highest"]).sum()),
        "codes": int((table["best"] < table["grade"]).sum()),
        "bound": int((table["lowest"] < 4).sum()),
    }


def test_no_completed_table_breaks_a_constraint(stays, fitted):
    for completed in (*fitted.sample(stays, 3), fitted.transform(stays)):
        assert completed.notna().all().all()
        assert not any(_broken(completed).values()), _broken(completed)


def test_without_constraints_they_are_broken(stays):
    imputer = ChainedImputer(2, random_state=0).fit(stays)
    assert all(sum(_broken(one)[name] for one in imputer.sample(stays, 2)) for name in ("dates", "codes"))


def test_models_with_constraints_can_be_saved(stays, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model").sample(stays, 1)[0]
    pd.testing.assert_frame_equal(again, fitted.sample(stays, 1)[0])


def test_strict_constraints_keep_whole_numbers_apart():
    rng = np.random.default_rng(1)
    first = rng.integers(0, 100, 200)
    table = pd.DataFrame({"first": first, "last": first + rng.integers(1, 60, 200)}, dtype=float)
    shown = table.mask(rng.random(table.shape) < 0.3)
    for drawn in ChainedImputer(3, constraints=["first < last"], random_state=0).fit(shown).sample(shown, 3):
        assert (drawn["first"] < drawn["last"]).all()


def test_draws_have_the_truncated_distribution():
    """x is standard normal and independent of z, and must exceed it: x given z is a truncated normal."""
    rng = np.random.default_rng(2)
    # the rows in which x is observed are not truncated, so that its regression has mean 0 and deviation 1
    free = pd.DataFrame({"x": rng.normal(size=4_000), "z": rng.normal(size=4_000)})
    z_missing = np.full(2_000, 1.0)
    shown = pd.concat([free, pd.DataFrame({"x": np.nan, "z": z_missing})], ignore_index=True)
    with pytest.warns(
        halfseen.HalfseenWarning, match="'x >= z' does not hold in .* rows .* the first of which is"
    ):
        imputer = ChainedImputer(1, constraints=["x >= z"], random_state=0).fit(shown)
    drawn = imputer.sample(shown, 1)[0]["x"].to_numpy()[4_000:]
    # the parameters are estimates from 4,000 rows, whose errors are small beside those of 500 draws
    p = stats.kstest(drawn[:500], stats.truncnorm(1.0, np.inf).cdf).pvalue
    assert p > FAILURE_RATE


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ("lowest <= highest", "constraints must be a list of texts, got 'lowest <= highest'"),
        (["lowest"], "The constraint 'lowest' cannot be read. A constraint compares two columns"),
        (["lowest <= highest <= 3"], "cannot be read"),
        (["lowest <= weight"], "refers to 'weight', which is not a modelled column"),
        (["lowest <= lowest"], "compares column 'lowest' with itself"),
        (["1 <= 2"], "names no column"),
        (["lowest <= inf"], "the number inf, which is not finite"),
        (["lowest >= 5", "lowest <= 1"], "'lowest >= 5' and 'lowest <= 1' contradict each other"),
        (["admission <= lowest"], "compares a date or a duration with something else"),
    ],
)
def test_wrong_constraints_are_named(stays, constraints, message):
    with pytest.raises(ValueError, match=message):
        ChainedImputer(2, constraints=constraints).fit(stays)


def test_variables_of_an_analysis_have_no_constraints(stays):
    with pytest.raises(ValueError, match="Column 'lowest' is a variable of the analysis"):
        ChainedImputer(2, constraints=["lowest <= highest"], analysis="highest ~ lowest").fit(stays)
