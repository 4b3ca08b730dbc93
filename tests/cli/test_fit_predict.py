"""`halfseen fit`, `halfseen predict` and `halfseen compare --target`, with the real predictors."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import halfseen
from halfseen.training.progress import decide_by_clock


@pytest.fixture
def training(tmp_path):
    """A file with decimal commas, a null code, missing inputs and missing targets."""
    rng = np.random.default_rng(0)
    lines = ["size;colour;code;price;kind"]
    for i in range(160):
        size, colour = rng.normal(1500, 300), rng.choice(["red", "blue"])
        shown = "-9" if i % 9 == 1 else f"{size:,.1f}".translate(str.maketrans(",.", ".,"))
        price = "" if i % 20 == 5 else f"{2 * size + 500 * (colour == 'red'):.0f}"
        kind = "large" if size > 1500 else "small"
        lines.append(f"{shown};{'' if i % 7 == 2 else colour};0{rng.integers(1, 4)};{price};{kind}")
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    return "train.csv"


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter=";"))


def test_a_regressor_is_fitted_saved_and_applied(call, training, tmp_path):
    code, out, err = call(
        "fit", training, "--target", "price", "--save-model", "m.half", "--method", "boosting",
        "--null", "size=-9",
    )  # fmt: skip
    assert (code, out) == (0, ""), err
    assert "price: regression (numbers); --task classification predicts classes instead" in err
    assert "8 rows without a value of 'price': left out" in err
    (tmp_path / "new.csv").write_text(
        "who;code;size;colour\nann;2;1.100,0;blue\nbob;1;2.000;blue\ncy;3;-9;\n"
    )
    code, out, err = call(
        "predict", "m.half", "new.csv", "-o", "out.csv", "--level", 0.8, "--report", "r.html"
    )
    assert (code, out) == (0, ""), err
    page = (tmp_path / "r.html").read_text()
    assert "The file lacks kind, which is treated as missing in every row." in page
    assert page.index("Missingness differs from training: kind 100% missing") < page.index(
        "3 rows were predicted"
    )
    assert "Median width of the 80% interval" in page
    assert "column 'kind' is not in new.csv: treated as missing in every row" in err
    assert "column 'who': not known to the model, copied to the output unchanged" in err
    rows = read_rows(tmp_path / "out.csv")
    assert list(rows[0]) == [
        "who",
        "code",
        "size",
        "colour",
        "prediction",
        "prediction_low",
        "prediction_high",
    ]
    assert [row["size"] for row in rows] == ["1.100,0", "2.000", "-9"]
    predicted, low = (
        [float(row[name].replace(",", ".")) for row in rows] for name in ("prediction", "prediction_low")
    )
    assert predicted[1] > predicted[0] + 200  # 2.000 was read as 2000, as in training
    assert np.all(np.array(low) < predicted)


def test_a_classifier_gives_probabilities_and_is_scored_where_the_target_is_known(call, training, tmp_path):
    code, _, err = call("fit", training, "--target", "kind", "--save-model", "m.half", "--method", "boosting")
    assert code == 0
    assert "kind: classification (two distinct values: large, small)" in err
    code, _, err = call("predict", "m.half", training, "-o", "out.parquet")
    assert code == 0
    table = pa.parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names[-3:] == ["prediction", "probability_large", "probability_small"]
    sums = np.add(table["probability_large"].to_numpy(), table["probability_small"].to_numpy())
    np.testing.assert_allclose(sums, 1)
    share = np.mean([a == b for a, b in zip(table["prediction"], table["kind"], strict=True)])
    assert f"'kind' is known in 160 rows: accuracy {share:.1%}" in err
    assert "missing rates do not differ from training" in err


def test_names_that_are_taken_get_a_number_and_classes_may_be_numbers(call, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=80)
    rows = "".join(f"{a:.3f},{int(a > 0)},k\n" for a in x)
    (tmp_path / "t.csv").write_text(f"x,y,prediction\n{rows}")
    call("fit", "t.csv", "--target", "y", "--save-model", "m.half", "--method", "boosting", "-q")
    code, out, err = call("predict", "m.half", "t.csv", "-o", "-", "-q")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "x,y,prediction,prediction_2,probability_0,probability_1"
    assert {line.split(",")[3] for line in out.splitlines()[1:]} == {"0", "1"}


def test_the_next_measurement_is_that_of_the_information_gain(call, training, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).round(3)
    table = pa.table({name: x[:, i] for i, name in enumerate("abc")} | {"same": ["k"] * 200})
    model = halfseen.circuits.CircuitClassifier(4, 4, max_epochs=8, random_state=0)
    model.fit(table, np.where(x[:, 0] + 0.3 * x[:, 1] > 0, "yes", "no")).save(tmp_path / "m.half")
    (tmp_path / "new.csv").write_text("a,b,c,same\n,,,k\n1.0,,,\n1.0,0.5,0.1,\n")
    code, out, err = call("predict", "m.half", "new.csv", "-o", "out.parquet", "--next-measurement")
    assert (code, out) == (0, ""), err
    found = pa.parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names[-2:] == ["next_measurement", "next_measurement_gain"]
    gain = model.information_gain(found.select(["a", "b", "c", "same"]))
    expected = ["abc"[best] for best in gain[:2, :3].argmax(axis=1)]
    assert expected[0] == "a"
    assert found["next_measurement"].to_pylist() == [*expected, None]  # the constant column is no input
    np.testing.assert_array_equal(found["next_measurement_gain"].to_pylist()[:2], gain.max(axis=1)[:2])
    assert found["next_measurement_gain"].null_count == 1
    call("fit", training, "--target", "kind", "--save-model", "b.half", "--method", "boosting", "-q")
    code, out, err = call("predict", "b.half", training, "-o", "no.csv", "--next-measurement")
    assert (code, out) == (2, "")
    assert "--next-measurement needs a circuit classifier" in err
    assert "b.half contains BoostingClassifier" in err


def test_rows_without_a_target_teach_a_circuit_what_the_inputs_are_like(call, training, monkeypatch):
    seen = {}

    class Recorder(halfseen.BoostingRegressor):
        def __init__(self, schema=None, random_state=None, callback=None):
            super().__init__(schema=schema, random_state=random_state)
            self.callback = callback

        def fit(self, X, y):
            seen.update(rows=X.num_rows, unknown=int(np.isnan(y).sum()))
            return super().fit(X, np.where(np.isnan(y), 0, y))

    monkeypatch.setattr("halfseen.circuits.predictors.CircuitRegressor", Recorder)
    code, _, err = call("fit", training, "--target", "price", "--save-model", "m", "--method", "circuit")
    assert code == 0, err
    assert seen == {"rows": 160, "unknown": 8}
    assert "the circuit also learns from the inputs of 8 rows without a target" in err


def test_auto_states_its_reason_and_makes_a_report(call, training, tmp_path, monkeypatch):
    from halfseen.cli import fit

    monkeypatch.setattr(fit, "SAVED", ("boosting", "baseline"))
    code, _, err = call("fit", training, "--target", "kind", "--save-model", "m.half", "--report", "r.html")
    assert code == 0, err
    assert "compared  boosting predicts best: log-loss" in err
    assert "chosen  boosting\n" in err
    assert "expect  On new rows, expect log-loss" in err
    assert isinstance(halfseen.load(tmp_path / "m.half"), halfseen.BoostingClassifier)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.search(r"<p>The method boosting was fitted to \d+ rows with a known target, and saved", page)
    assert "boosting predicts best" in page
    assert "missing at prediction time" not in page  # which the command does not measure


@pytest.mark.parametrize("met", [True, False], ids=["met", "not met"])
def test_a_time_limit_that_decided_about_the_choice_is_announced(call, training, monkeypatch, met):
    from halfseen.cli import fit

    usual = fit.compare_on

    def compare_on(*arguments, **settings):
        assert settings["budget"] == np.inf  # by default, the clock decides nothing
        if met:
            decide_by_clock()
        return usual(*arguments, **settings)

    monkeypatch.setattr(fit, "SAVED", ("boosting", "baseline"))
    monkeypatch.setattr(fit, "compare_on", compare_on)
    code, _, err = call("fit", training, "--target", "kind", "--save-model", "m.half")
    assert code == 0, err
    assert ("the time limit was reached while predictors were compared" in " ".join(err.split())) == met


def test_auto_fits_the_average_if_that_predicts_best(call, tmp_path, monkeypatch):
    from halfseen.cli import fit

    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 240))
    y = a + 1.5 * (b > 0) + 0.3 * rng.normal(size=240)  # a part for lines and a part for trees
    rows = [f"{u:.3f},{v:.3f},{w:.3f}" for u, v, w in zip(a, b, y, strict=True)]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr(fit, "SAVED", ("boosting", "gaussian"))
    monkeypatch.setattr(fit, "MAX_REPEATS", 1)
    code, _, err = call("fit", "t.csv", "--target", "y", "--save-model", "m.half")
    assert code == 0, err
    assert "compared  average predicts best: R" in err
    assert "chosen  average\n" in err
    assert "The average consists of " in err
    assert "Scores are means over 1 repetition of 5-fold cross-validation." in err
    model = halfseen.load(tmp_path / "m.half")
    assert isinstance(model, halfseen.AveragingRegressor)
    assert model.weights_.keys() == {"boosting", "gaussian"}
    code, out, _ = call("predict", "m.half", "t.csv", "-o", "-", "-q")
    assert code == 0
    assert out.splitlines()[0] == "a,b,y,prediction,prediction_low,prediction_high"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "gone"], "The table has no column 'gone' to predict"),
        (["--target", "colour", "--task", "regression"], "Column 'colour' contains text"),
        (["--target", "price", "--method", "forest"], "'forest' is not one of"),
        (["--target", "price", "--save-model", "train.csv"], "--save-model would overwrite the input"),
        (["--target", "price", "--budget", "1e-9"], "no predictor finished within 1e-09 s"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, training, tmp_path, arguments, message):
    code, out, err = call("fit", training, "--save-model", "m.half", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "m.half").exists()


def test_a_report_describes_the_predictions_of_one_table(call, training, tmp_path):
    assert call("fit", training, "--target", "kind", "--save-model", "m.half", "--method", "boosting")[0] == 0
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("size;colour;code\n1.100,0;blue;01\n1.700,0;;02\n")
    (tmp_path / "out").mkdir()
    code, _, err = call("predict", "m.half", "*.csv", "-o", "out", "--report", "r.html")
    assert code == 2
    assert "--report describes one table, and *.csv names 3 files" in err
    code, _, err = call("predict", "m.half", "a.csv", "-o", "a.csv.out.csv", "--report", "a.csv")
    assert code == 2
    assert not (tmp_path / "r.html").exists()


def test_the_report_of_an_average_names_the_parts_that_impute(call, tmp_path):
    rows = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    predictors = {"gaussian+linear": {}, "boosting": {"max_iter": 5}}
    weights = {"gaussian+linear": 0.25, "boosting": 0.75}
    average = halfseen.AveragingRegressor(predictors, weights=weights, n_splits=2, random_state=0)
    average.fit(rows, rows["a"]).save(tmp_path / "m.half")
    rows.head(3).to_csv(tmp_path / "new.csv", index=False)
    code, _, err = call("predict", "m.half", "new.csv", "-o", "out.csv", "--report", "r.html")
    assert code == 0, err
    page = " ".join((tmp_path / "r.html").read_text(encoding="utf-8").split())
    assert "is an average, of which gaussian+linear (25%) imputes the missing inputs of a row" in page
    assert "not imputed" not in page


def test_predictions_have_the_decimal_mark_of_the_file(call, tmp_path):
    rows = [f"C{k:04d};{170 + k % 30},5;{60 + k % 30},25\n" for k in range(60)]
    train, new, out = (tmp_path / name for name in ("train.csv", "new.csv", "out.csv"))
    train.write_text("code;height;weight\n" + "".join(rows))
    new.write_text("code;height\n" + "".join(f"D{k:04d};{170 + k % 30},5\n" for k in range(20)))
    fitting = ("--target", "weight", "--save-model", tmp_path / "m.half", "--method", "boosting")
    assert call("fit", train, *fitting)[0] == 0
    code, _, err = call("predict", tmp_path / "m.half", new, "-o", out)
    assert code == 0
    assert "did not occur in training" not in err  # identifiers are no levels
    header, first = out.read_text().splitlines()[:2]
    assert header == "code;height;prediction;prediction_low;prediction_high"
    assert all(re.fullmatch(r"-?\d+,\d+", cell) for cell in first.split(";")[2:])
    assert call("predict", tmp_path / "m.half", new, "-o", tmp_path / "out.jsonl")[0] == 0
    assert isinstance(json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["prediction"], float)


def test_what_cannot_be_predicted_is_refused(call, training, tmp_path):
    halfseen.MeanImputer().fit(pa.table({"size": [1.0, 2.0]})).save(tmp_path / "imputer.half")
    call("fit", training, "--target", "price", "--save-model", "m.half", "--method", "boosting", "-q")
    (tmp_path / "new.csv").write_text("size;colour\nmuch;red\n")
    cases = {
        "imputer.half": "contains MeanImputer, not a predictor; `halfseen impute --model` applies imputers",
        "train.csv": "train.csv is a table: the model comes first, as in halfseen predict MODEL IN",
        "m.half": "new.csv: Column 'size' contained numbers when the model was fitted, but now it contains",
    }
    for model, message in cases.items():
        code, out, err = call("predict", model, "new.csv", "-o", "out.csv")
        assert (code, out) == (2, "")
        assert message in err
    assert not (tmp_path / "out.csv").exists()


# -------------------------------------------------------------------------------- compare --target


def test_predictors_are_compared_and_the_answer_is_in_words(call, training, tmp_path):
    code, out, err = call(
        "compare", training, "--target", "kind",
        "--methods", "baseline,boosting,constant+linear,average", "--folds", 3, "--repeats", 2,
        "--rates", "0.5", "--null", "size=-9", "-o", "c.json", "--report", "c.html",
    )  # fmt: skip
    assert code == 0, err
    assert "Predicting kind (classification): mean and 95% CI over 2 repetitions of 3 folds" in out
    assert "predicts best: log-loss" in out
    assert "The average gives all weight to boosting" in out
    assert "Scores are means over 2 repetitions of 3-fold cross-validation." in out
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["n_repeats"] == 2
    assert {m["name"]: m["n_done"] for m in content["methods"]} == {
        "baseline": 3, "boosting": 6, "constant+linear": 6, "average": 6,
    }  # fmt: skip
    assert sum(content["weights"].values()) == pytest.approx(1)
    assert content["rates"] == [0.0, 0.5]
    page = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert content["sentences"][0].replace("²", "") in page.replace("²", "")
    assert "50% removed" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "mice"], "unknown method 'mice'; with --target choose from baseline, constant+linear"),
        (["--methods", ","], "--methods is empty; with --target choose from"),
        (["--methods", "baseline,boosting,average"], "--methods has average, which needs at least two"),
        (["--rates", "a"], "--rates must be numbers with commas between them, got 'a'"),
        (["--rates", "1.5"], "--rates must be at least 0 and below 1, got 1.5"),
        (["--budget", "0"], "--budget must be positive, got 0"),
        (["--report", "train.csv"], "--report would overwrite the input"),
    ],
)
def test_wrong_options_of_a_comparison_of_predictors_are_refused(call, training, arguments, message):
    code, out, err = call("compare", training, "--target", "kind", *arguments)
    assert (code, out) == (2, "")
    assert message in err
