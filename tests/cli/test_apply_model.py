"""`halfseen impute --model`: a saved imputer on new files, as they come."""

import csv
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import halfseen
from halfseen.cli.main import main


def write_training(path, n_rows=120):
    """Writes a table with decimal commas, codes that begin with zero, and dates with the day first."""
    rng = np.random.default_rng(0)
    lines = ["amount;twice;code;day;answer"]
    for i in range(n_rows):
        x = rng.normal(1500, 300)
        date = np.datetime64("2020-01-15") + int(rng.integers(300))
        price = "-9" if i % 10 == 3 else f"{x:,.2f}".translate(str.maketrans(",.", ".,"))
        twice = "" if i % 7 == 2 else f"{2 * x:.1f}".replace(".", ",")
        lines.append(f"{price};{twice};0{rng.integers(1, 4)};{date.item():%d/%m/%Y};{rng.choice(['a', 'b'])}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with such a table, a saved imputer of it, and its completed table."""
    folder = tmp_path_factory.mktemp("trained")
    write_training(folder / "train.csv")
    names = [str(folder / name) for name in ("train.csv", "out.csv", "m.half")]
    done = main(["impute", names[0], "-o", names[1], "--null", "amount=-9", "--save-model", names[2], "-q"])
    assert done == 0
    return folder


@pytest.fixture
def model(trained, call, tmp_path):
    """The saved imputer, in the directory where commands run."""
    for name in ("train.csv", "out.csv", "m.half"):
        shutil.copy(trained / name, tmp_path)
    return "m.half"


def read_rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=";"))


def test_a_saved_imputer_gives_what_the_fitted_one_gave(call, model, tmp_path):
    code, out, err = call("impute", "train.csv", "--model", model, "-o", "again.csv")
    assert (code, out) == (0, ""), err
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "out.csv").read_bytes()
    assert "AutoImputer, fitted before and not fitted again" in err
    assert "missing rates do not differ from training" in err


def test_few_new_rows_are_read_as_the_training_file_was(call, model, tmp_path):
    # Alone, 1.234 could be a number near 1, 2 a number, 01/02/2020 the second of January, and -9 a value.
    (tmp_path / "new.csv").write_text("amount;twice;code;day;answer\n1.234;;2;01/02/2020;a\n-9;3000,0;1;;b\n")
    code, _, err = call("impute", "new.csv", "--model", model, "-o", "filled.csv")
    assert code == 0, err
    rows = read_rows(tmp_path / "filled.csv")
    assert rows[1][0] == "1.234"
    assert 2300 < float(rows[1][1].replace(",", ".")) < 2600  # twice 1234
    assert 1400 < float(rows[2][0].replace(".", "").replace(",", ".")) < 1600  # -9 was missing
    assert re.fullmatch(r"\d\d/\d\d/2020", rows[2][3])


def test_a_renamed_column_is_suspected(call, model, tmp_path):
    (tmp_path / "new.csv").write_text("code;amount;day;Answer_2\n02;1.500,00;01/03/2020;yes\n")
    code, _, err = call("impute", "new.csv", "--model", model, "-o", "filled.csv")
    assert code == 0, err
    assert (
        "is column 'Answer_2' the column 'answer' of the model? It is used if it is renamed in the file"
        in err
    )
    assert err.count("is column") == 1


def test_columns_may_be_reordered_dropped_or_new(call, model, tmp_path):
    (tmp_path / "new.csv").write_text("who;code;amount;day\nann;02;1.500,00;01/03/2020\nbob;01;;02/03/2020\n")
    code, _, err = call("impute", "new.csv", "--model", model, "-o", "filled.csv", "--report", "r.html")
    assert code == 0, err
    assert "columns 'twice' and 'answer' are not in new.csv: treated as missing in every row" in err
    assert "column 'who': not known to the model, copied to the output unchanged" in err
    assert "missingness differs from training: answer 100% missing (0% in training)" in err
    rows = read_rows(tmp_path / "filled.csv")
    assert rows[0] == ["who", "code", "amount", "day", "twice", "answer"]
    assert rows[1][:4] == ["ann", "02", "1.500,00", "01/03/2020"]
    assert 2800 < float(rows[1][4]) < 3200
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Missingness compared with the training table" in page
    assert "answer 100% missing" in page


def test_levels_that_training_did_not_have_are_kept_and_announced(call, model, tmp_path):
    (tmp_path / "new.csv").write_text(
        "amount;twice;code;day;answer\n1.500,00;;02;01/03/2020;zz\n;3000,0;01;;a\n"
    )
    code, _, err = call("impute", "new.csv", "--model", model, "-o", "filled.csv")
    assert code == 0
    assert "column 'answer': 'zz' did not occur in training (1 cell), ignored by the model" in err
    assert read_rows(tmp_path / "filled.csv")[1][4] == "zz"


def test_draws_of_a_saved_imputer_are_numbered_and_their_limits_noted(call, model, tmp_path):
    code, _, err = call("impute", "train.csv", "--model", model, "-o", "d.parquet", "--draws", 2)
    assert code == 0
    assert "saved with 0 draws of its parameters, so 2 draws do not include their uncertainty" in err
    table = pa.parquet.read_table(tmp_path / "d.parquet")
    assert table["draw"].to_pylist() == [1] * 120 + [2] * 120
    call("impute", "train.csv", "--model", model, "-o", "e.parquet", "--draws", 2, "--seed", 5, "-q")
    assert not pa.parquet.read_table(tmp_path / "e.parquet").equals(table)


def test_a_column_of_another_kind_is_refused_by_name(call, model, tmp_path):
    (tmp_path / "new.csv").write_text("amount;twice;code;day;answer\nmuch;1,0;02;01/03/2020;a\n")
    code, out, err = call("impute", "new.csv", "--model", model, "-o", "filled.csv")
    assert (code, out) == (2, "")
    assert (
        "new.csv: Column 'amount' contained numbers when the model was fitted, but now it contains 'much'"
        in (err)
    )
    assert not (tmp_path / "filled.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "train.csv"], "'train.csv' is not a halfseen model file"),
        (["--model", "gone.half"], "There is no model file 'gone.half'"),
        (["--model", "predictor.half"], "contains GaussianRegressor, not an imputer; `halfseen predict`"),
        (["--model", "arrays.half"], "fitted to an array without column names"),
        (["--model", "m.half", "--method", "mean"], "--method: --model applies an imputer that is fitted"),
        (["--model", "m.half", "--save-model", "n.half"], "--save-model: --model applies an imputer"),
        (["--model", "m.half", "--report", "m.half"], "--report would overwrite the file of --model"),
        (["--model", "broken.half"], "has no readable entry on how 'amount' is read"),
    ],
)
def test_what_cannot_be_applied_is_refused(call, model, tmp_path, arguments, message):
    X = np.random.default_rng(0).normal(size=(30, 2))
    halfseen.MeanImputer().fit(X).save(tmp_path / "arrays.half")
    frame = pa.table({"a": X[:, 0]})
    halfseen.GaussianRegressor().fit(frame, X[:, 1]).save(tmp_path / "predictor.half")
    broken = halfseen.load(model)
    broken.reading_ = {"columns": {"amount": {"number_format": 7}}}
    broken.save(tmp_path / "broken.half")
    code, out, err = call("impute", "train.csv", "-o", "x.csv", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "x.csv").exists()


def test_a_file_without_any_column_of_the_model_is_refused(call, model, tmp_path):
    (tmp_path / "new.csv").write_text("u;v\n1;2\n")
    code, _, err = call("impute", "new.csv", "--model", model, "-o", "x.csv")
    assert code == 2
    assert (
        "new.csv has none of the columns of the model, which are amount, twice, code, day and answer" in err
    )
