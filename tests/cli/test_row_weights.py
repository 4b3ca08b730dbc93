"""Survey weights on the command line: checked, kept, used as a predictor and in the means of the report."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

import halfseen
from halfseen.data.frames import Table
from halfseen.report.fills import summarize_fill
from halfseen.report.result import ImputationResult, RowWeights


@pytest.fixture
def survey(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 5, size=60)
    income = 10.0 * weight + rng.normal(size=60)
    income[:12] = np.nan
    text = "".join(f"{w},{'' if np.isnan(y) else round(y, 2)}\n" for w, y in zip(weight, income, strict=True))
    (tmp_path / "survey.csv").write_text("weight,income\n" + text)
    return "survey.csv"


def test_weights_are_kept_and_predict_and_weight_the_means_of_the_report(call, survey, tmp_path):
    arguments = ("impute", survey, "-o", "out.csv", "--method", "gaussian", "--weights", "weight")
    code, _, err = call(*arguments, "--report", "r.html", "--save-model", "m.half")
    assert code == 0, err
    before, after = (csv.read_csv(tmp_path / name) for name in (survey, "out.csv"))
    assert after["weight"].equals(before["weight"])
    filled = after["income"].to_numpy()[:12]
    assert np.abs(filled - 10.0 * after["weight"].to_numpy()[:12]).max() < 5
    weight, income = before["weight"].to_numpy().astype(float), before["income"].to_numpy()
    effective = weight.sum() ** 2 / (weight**2).sum()
    said = f"from 1 to 4: means are about as precise as those of {effective:.0f} rows of equal weight"
    assert said in err
    page = (tmp_path / "r.html").read_text()
    assert "Observed mean (sd), weighted by weight" in page
    assert f"{np.average(income[12:], weights=weight[12:]):.4g}" in page
    assert next(one.kind for one in halfseen.load(tmp_path / "m.half").schema_) == "continuous"
    code, _, err = call("impute", survey, "--model", "m.half", "-o", "again.csv", "--weights", "weight")
    assert code == 0, err
    assert said in err


def test_whole_weights_count_as_repeated_rows_in_means():
    rng = np.random.default_rng(1)
    weights = rng.integers(1, 4, size=30)
    x = np.where(rng.random(30) < 0.3, np.nan, rng.normal(size=30))
    filled = np.where(np.isnan(x), rng.normal(size=30), x)

    def means(rows, row_weights):
        before, after = pa.table({"x": pa.array(x[rows], from_pandas=True)}), pa.table({"x": filled[rows]})
        known = next(iter(halfseen.Schema.infer(Table(before))))
        weights = None if row_weights is None else RowWeights("w", row_weights)
        result = ImputationResult(table=before, filled=after, schema=None, weights=weights)
        found = summarize_fill(known, result)
        return [found[f"{what}_{which}"] for what in ("observed", "imputed") for which in ("mean", "sd")]

    copies = np.repeat(np.arange(30), weights)
    np.testing.assert_allclose(means(np.arange(30), weights.astype(float)), means(copies, None), rtol=1e-12)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("nothing", "has no column 'nothing' for --weights; it has 'weight', 'income'"),
        (
            "zero",
            "column 'zero' of --weights has the weight 0 in row 2 of the table; weights must be positive",
        ),
        ("gap", "column 'gap' of --weights has no weight in row 3 of the table"),
        ("text", "column 'text' of --weights contains values such as 'a', which are not numbers"),
    ],
)
def test_weights_that_cannot_be_used_are_refused_before_anything_is_written(call, tmp_path, column, message):
    rows = ["weight,income,zero,gap,text", "1,2.5,1,1,a", "2,3.5,0,1,b", "2,,1,,a", "1,4.5,1,2,b"]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    code, out, err = call("impute", "t.csv", "-o", "out.csv", "--method", "mean", "--weights", column)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "out.csv").exists()
