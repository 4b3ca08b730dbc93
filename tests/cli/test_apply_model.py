"""`halfseen impute --model`: a saved imputer on new files, as they come."""

import csv
import datetime
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import halfseen
from halfseen.cli.main import main
from halfseen.cli.reading import read_like_training
from halfseen.files.tables import read_table

CORPUS = Path(__file__).parent.parent / "corpus"


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


def test_whole_numbers_have_no_decimal_mark_that_could_differ_from_training(call, tmp_path):
    rows = [f"{i};{'' if i % 7 == 0 else f'{10 * i},50 €'};{i % 5}" for i in range(60)]
    (tmp_path / "train.csv").write_text("\n".join(["id;price;n", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "new.csv").write_text("id;price;n\n900;;3\n901;120,50 €;\n", encoding="utf-8")
    assert call("impute", "train.csv", "-o", "out.csv", "--method", "mean", "--save-model", "m.half")[0] == 0
    code, _, err = call("impute", "new.csv", "--model", "m.half", "-o", "new.out.csv")
    assert code == 0, err
    assert "not written as in the training file" not in err


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
    assert re.fullmatch(r"(29|30)\d\d,\d", rows[1][4])  # with the decimal comma of the training file
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
    broken.reading_ = {"columns": {"amount": {"style": 7}}}
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


# ------------------------------------------------------------------------------------------ formats

DATE, MONEY, COUNT = r"\d\d\.(09|10)\.2019", r"6\d\.\d{3},\d\d €", r"3\.[345]\d\d"
WEIGHT, MOMENT = r"1[456],\d\d kg", r"\d\d\.03\.20 \d\d:\d\d"
NEW_ROWS = {
    # Columns without any value, and columns that the file does not have, are written as in training.
    "orders.empty": ["K900", DATE, MONEY, "12,0 %", COUNT, WEIGHT, "TRUE", MOMENT],
    "orders.absent": ["12,0 %", "K900", DATE, MONEY, COUNT, WEIGHT, "TRUE", MOMENT],
    # Single cells that agree with the training file do not show another format: the row below them.
    "orders.ambiguous": ["K901", DATE, MONEY, "12,0 %", COUNT, WEIGHT, "TRUE", MOMENT],
    # The new file shows its own dates, decimal marks and booleans; the weight, which is empty, follows it.
    "orders.english": [
        "K901", r"2019-(09|10)-\d\d", r"6\d,\d{3}\.\d\d €", "12.5 %", r"3,[345]\d\d", r"1[456]\.\d\d kg",
        "true", MOMENT,
    ],
    "visits.new": [
        "True", "p901", r"[89]/\d{1,2}/2020", r"\$2,\d{3}\.\d\d", "55.0%", r"2021-04-\d\dT\d\d:\d\d:\d\dZ",
        r"0\.\d{3}",
    ],
    "visits.limits": [
        "p900", r"3/\d{1,2}/2020", r"\$1,\d{3}\.\d\d", r"2\d\.\d%", "<0.05", r"2021-01-\d\dT\d\d:\d\d:\d\dZ",
        "False",
    ],
}  # fmt: skip
"""The last rows of the new files in `tests/corpus/new_rows`, completed by models of the training files."""


def read_cells(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter=";" if "orders" in str(path) else ","))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the files of the corpus, and for each training file a saved imputer."""
    folder = tmp_path_factory.mktemp("new_rows")
    shutil.copytree(CORPUS / "new_rows", folder, dirs_exist_ok=True)
    for name in ("orders", "visits"):
        source, output, model = (str(folder / f"{name}.{end}") for end in ("csv", "out.csv", "half"))
        options = ["--method", "gaussian", "--save-model", model, "-q"]
        assert main(["impute", source, "-o", output, *options]) == 0
    return folder


@pytest.mark.parametrize("name", NEW_ROWS)
def test_new_rows_are_written_in_their_own_format_and_else_in_that_of_training(saved, call, name, tmp_path):
    model = saved / f"{name.partition('.')[0]}.half"
    code, _, err = call("impute", saved / f"{name}.csv", "--model", model, "-o", f"{name}.csv")
    assert code == 0, err
    before, after = read_cells(saved / f"{name}.csv"), read_cells(tmp_path / f"{name}.csv")
    for cell, pattern in zip(after[-1], NEW_ROWS[name], strict=True):
        assert cell == pattern or re.fullmatch(pattern, cell), (cell, pattern)
    for old, new in zip(before, after, strict=True):
        assert [cell for cell in old if cell] == [
            cell for cell, was in zip(new, old, strict=False) if was
        ]  # no observed cell is written anew


@pytest.mark.parametrize("name", NEW_ROWS)
def test_what_a_model_wrote_is_read_again_as_the_same_values(saved, call, name, tmp_path):
    model = saved / f"{name.partition('.')[0]}.half"
    for output in (f"{name}.csv", f"{name}.parquet"):
        code, _, err = call("impute", saved / f"{name}.csv", "--model", model, "-o", output)
        assert code == 0, err
    values = pa.parquet.read_table(tmp_path / f"{name}.parquet")
    readings = [read_like_training(str(tmp_path / f"{name}.csv"), halfseen.load(model)).table]
    if "orders" in name:  # without the model, the order of day and month in 9/3/2020 is not known
        readings.append(read_table(str(tmp_path / f"{name}.csv")).table)
    for again in readings:
        for column in values.column_names:
            check_equal_when_rounded(values[column], again[column])
    code, _, err = call("impute", tmp_path / f"{name}.csv", "--model", model, "-o", "again.csv")
    assert code == 0, err
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / f"{name}.csv").read_bytes()


@pytest.mark.parametrize("delimiter", [";", ","])
def test_thousands_are_separated_if_decimals_of_the_file_show_that_they_are(saved, call, tmp_path, delimiter):
    (tmp_path / "new.csv").write_text(f'Rabatt{delimiter}Menge\n"12,0 %"{delimiter}\n')
    code, _, err = call("impute", "new.csv", "--model", saved / "orders.half", "-o", "x.csv")
    assert code == 0, err
    with open(tmp_path / "x.csv", newline="", encoding="utf-8") as file:
        assert re.fullmatch(COUNT, list(csv.reader(file, delimiter=delimiter))[1][1])
    assert 3000 < read_table(str(tmp_path / "x.csv")).table["Menge"][0].as_py() < 4000


def test_thousands_are_not_separated_if_nothing_in_the_file_shows_it(call, tmp_path):
    # Without another column, 3.452 would be read again as a number between 3 and 4.
    numbers = 3000 + np.arange(60) * 20
    rows = [f"{number:,};{2 * number:,};{number % 7}".replace(",", ".") for number in numbers]
    (tmp_path / "train.csv").write_text("a;b;c\n" + "\n".join(rows) + "\n")
    options = ["--number-format", "1.234,56", "--method", "gaussian", "--save-model", "m.half"]
    assert call("impute", "train.csv", "-o", "done.csv", *options)[0] == 0
    (tmp_path / "new.csv").write_text("a;c\n;2\n")
    code, _, err = call("impute", "new.csv", "--model", "m.half", "-o", "x.csv")
    assert code == 0, err
    assert re.fullmatch(r"a;c;b\n3\d{3};2;7\d{3}\n", (tmp_path / "x.csv").read_text())
    assert 3000 < read_table(str(tmp_path / "x.csv")).table["a"][0].as_py() < 5000


def check_equal_when_rounded(values, again):
    """Numbers differ by the rounding to the decimals of their column, times by that to a second or minute."""
    if pa.types.is_floating(again.type) and not pa.types.is_floating(values.type):
        # Numbers with a detection limit are texts in Parquet.
        numbers = [0.025 if cell == "<0.05" else float(cell) for cell in values.to_pylist()]
        assert numbers == again.to_pylist()
    elif pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        np.testing.assert_allclose(values.to_pylist(), again.to_pylist(), rtol=0.01)
    elif pa.types.is_timestamp(values.type):
        for one, other in zip(values.to_pylist(), again.to_pylist(), strict=True):
            assert abs((one - other).total_seconds()) < 60
    else:
        assert values.to_pylist() == again.to_pylist()


def test_ambiguous_new_cells_are_read_by_the_format_of_training(saved):
    orders, visits = (halfseen.load(saved / f"{name}.half") for name in ("orders", "visits"))
    table = read_like_training(str(saved / "orders.ambiguous.csv"), orders).table
    assert table["Umsatz Vorjahr"][0].as_py() == 41234
    assert table["Menge"][0].as_py() == 2345
    assert table["Datum"][0].as_py() == datetime.date(2019, 2, 1)
    assert table["Lieferung"][0].as_py() == datetime.datetime(2020, 1, 2, 10)
    table = read_like_training(str(saved / "visits.new.csv"), visits).table
    assert table["charge"][0].as_py() == 1234
    assert table["Visit "][0].as_py() == datetime.date(2020, 9, 3)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # One number with points proves decimal points; the amount, ambiguous alone, follows it ...
        ({"Umsatz Vorjahr": "61,234 €", "Rabatt": "12.5 %"}, 61234.0),
        # ... and not a column that the model does not know.
        ({"Umsatz Vorjahr": "61,234 €", "Version": "12.5"}, 61.234),
        ({"Umsatz Vorjahr": "61.234 €", "Version": "12.5"}, 61234.0),
        # A column of whole numbers remains one, whatever separates the thousands.
        ({"Menge": "3,452", "Rabatt": "12,5 %"}, 3452.0),
        ({"Menge": "3.452", "Rabatt": "12.5 %"}, 3452.0),
    ],
)
def test_the_new_file_shows_its_own_decimal_mark_or_that_of_training_is_used(
    saved, tmp_path, columns, expected
):
    path = tmp_path / "new.csv"
    path.write_text(f"{';'.join(columns)}\n{';'.join(columns.values())}\n", encoding="utf-8")
    table = read_like_training(str(path), halfseen.load(saved / "orders.half")).table
    assert table.column(0)[0].as_py() == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["4/3/2020"], datetime.date(2020, 4, 3)),  # by the training file, in which the month comes first
        (["4/3/2020", "25/3/2020"], datetime.date(2020, 3, 4)),  # there is no month 25
        (["2020-04-03"], datetime.date(2020, 4, 3)),
        (["4 Mar 2020"], datetime.date(2020, 3, 4)),
    ],
)
def test_the_new_file_shows_its_own_order_of_dates_or_that_of_training_is_used(
    saved, tmp_path, cells, expected
):
    path = tmp_path / "new.csv"
    path.write_text("visit,share\n" + "".join(f"{cell},40.0%\n" for cell in cells))
    table = read_like_training(str(path), halfseen.load(saved / "visits.half")).table
    assert table["visit"][0].as_py() == expected


def test_options_take_precedence_over_the_formats_of_training(saved, call, tmp_path):
    (tmp_path / "new.csv").write_text('visit,charge,share\n4/3/2020,,\n,"1,234",\n')
    options = ["--date-order", "dmy", "--number-format", "charge=1.234,56", "-o", "x.parquet"]
    code, _, err = call("impute", "new.csv", "--model", saved / "visits.half", *options)
    assert code == 0, err
    table = pa.parquet.read_table(tmp_path / "x.parquet")
    assert table["visit"][0].as_py() == datetime.date(2020, 3, 4)
    assert table["charge"][1].as_py() == 1.234


def test_a_format_that_is_not_that_of_training_is_noted_with_an_example(saved, call):
    code, _, err = call(
        "impute", saved / "orders.english.csv", "--model", saved / "orders.half", "-o", "x.csv"
    )
    assert code == 0
    assert (
        "column 'Umsatz Vorjahr' is not written as in the training file, '64,870.50 €' instead of "
        "'64.870,50 €': read and filled as in this file"
    ) in " ".join(err.split())
    code, _, err = call("impute", saved / "orders.empty.csv", "--model", saved / "orders.half", "-o", "y.csv")
    assert "not written as" not in err


def test_another_currency_is_noted_because_values_are_not_converted(saved, call, tmp_path):
    (tmp_path / "new.csv").write_text("Rabatt;Umsatz Vorjahr\n12,0 %;$64.870,50\n11,0 %;\n")
    code, _, err = call("impute", "new.csv", "--model", saved / "orders.half", "-o", "x.csv")
    assert code == 0
    assert "'$64.870,50' instead of '64.870,50 €'" in err
    assert "values are not converted to another unit" in err
    assert re.match(r"\$5\d\.\d{3},\d\d$", read_rows(tmp_path / "x.csv")[2][1])


def test_points_in_the_numbers_of_json_are_decimal_points_whatever_the_training_file(saved, tmp_path):
    (tmp_path / "new.jsonl").write_text(
        '{"Gewicht": 9.125, "Menge": 3.452, "Umsatz Vorjahr": "61.234,50 €"}\n'
    )
    table = read_like_training(str(tmp_path / "new.jsonl"), halfseen.load(saved / "orders.half")).table
    assert table.to_pylist() == [{"Gewicht": 9.125, "Menge": 3.452, "Umsatz Vorjahr": 61234.5}]


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_typed_files_get_values_and_not_texts_in_the_format_of_a_csv(saved, call, name, tmp_path):
    table = pa.table({"Rabatt": [12.0, 11.0], "Menge": pa.nulls(2, pa.null())})
    if name == "jsonl":
        (tmp_path / "new.jsonl").write_text('{"Rabatt": 12.0, "Menge": null}\n{"Rabatt": 11.0}\n')
    else:
        pa.parquet.write_table(table, tmp_path / "new.parquet")
    code, _, err = call("impute", f"new.{name}", "--model", saved / "orders.half", "-o", f"x.{name}")
    assert code == 0, err
    if name == "jsonl":
        rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    else:
        rows = pa.parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert 60_000 < rows[0]["Umsatz Vorjahr"] < 70_000
    assert rows[0]["Menge"] in range(3000, 4000)
    assert str(rows[0]["Datum"]).startswith("2019-")


def test_a_model_without_formats_is_applied(call, tmp_path):
    # Fitted in Python, it knows types only: dates without a time are written as such.
    rng = np.random.default_rng(0)
    days = np.datetime64("2020-01-01") + rng.integers(0, 300, 60)
    frame = pa.table({"x": rng.normal(size=60), "day": days, "n": rng.integers(0, 500, 60)})
    halfseen.GaussianImputer().fit(frame).save(tmp_path / "m.half")
    (tmp_path / "new.csv").write_text("x,day\n0.5,\n")
    code, _, err = call("impute", "new.csv", "--model", "m.half", "-o", "x.csv")
    assert code == 0, err
    assert re.fullmatch(r"x,day,n\n0\.5,2020-\d\d-\d\d,\d+\n", (tmp_path / "x.csv").read_text())


@pytest.mark.parametrize(
    "style",
    [
        7, {}, {"kind": "number"}, {"kind": "float", "decimals": 400}, {"kind": "float", "decimals": True},
        {"kind": "float", "colour": "red"}, {"kind": "timestamp", "pattern": "%Q"},
        {"kind": "float", "number": {"decimal": ",", "group": ","}},
        {"kind": "float", "number": {"group": "\\1"}},
        {"kind": "date", "date": {"order": "dmy", "marks": ["."]}},
        {"kind": "date", "date": {"order": "dmy", "marks": [".", "."], "names": ["Jan"]}},
        {"kind": "float", "limits": [{"side": "left", "value": 1, "text": "<1"}]},
    ],
)  # fmt: skip
def test_a_forged_format_is_refused_by_name(saved, call, tmp_path, style):
    forged = halfseen.load(saved / "orders.half")
    forged.reading_["columns"]["Menge"]["style"] = style
    forged.save(tmp_path / "forged.half")
    code, _, err = call("impute", saved / "orders.empty.csv", "--model", "forged.half", "-o", "x.csv")
    assert code == 2
    assert "the model file has no readable entry on how 'Menge' is read" in err
    assert not (tmp_path / "x.csv").exists()


def test_a_prediction_is_written_like_the_target(saved, call, tmp_path):
    target = ["--target", "Umsatz Vorjahr", "--method", "constant+linear", "--save-model", "p.half"]
    code, _, err = call("fit", saved / "orders.csv", *target)
    assert code == 0, err
    for name in ("orders.empty", "orders.absent", "orders.english"):
        code, _, err = call("predict", "p.half", saved / f"{name}.csv", "-o", f"{name}.csv")
        assert code == 0, err
        pattern = r"6\d,\d{3}\.\d\d €" if name == "orders.english" else MONEY
        assert re.fullmatch(pattern, read_cells(tmp_path / f"{name}.csv")[-1][-3])
    again = read_table(str(tmp_path / "orders.empty.csv")).table
    assert again["prediction_low"][0].as_py() < again["prediction"][0].as_py()


# ------------------------------------------------------------------------------------------ names


@pytest.mark.parametrize("end", ["csv", "jsonl"])
def test_a_header_that_differs_by_blanks_or_case_is_the_column_of_the_model(saved, call, end, tmp_path):
    header = ["Rabatt", "umsatz\u00a0 VORJAHR", "Menge"]
    if end == "csv":
        (tmp_path / "new.csv").write_text(f"{';'.join(header)}\n12,0 %;;2.345\n11,0 %;30.000,00 €;\n")
    else:
        rows = [[12.0, None, 2345], [11.0, 30_000.0, None]]
        lines = [json.dumps(dict(zip(header, row, strict=True))) for row in rows]
        (tmp_path / "new.jsonl").write_text("\n".join(lines) + "\n")
    code, _, err = call("impute", f"new.{end}", "--model", saved / "orders.half", "-o", f"x.{end}")
    assert code == 0, err
    assert "is taken for the column 'Umsatz Vorjahr' of the model" in err
    assert "is column" not in err  # no question whether it is
    written = (tmp_path / f"x.{end}").read_text(encoding="utf-8")
    if end == "csv":
        rows = read_rows(tmp_path / "x.csv")
        assert rows[0] == [*header, "Kunde", "Datum", "Gewicht", "aktiv", "Lieferung"]
        assert re.fullmatch(r"[45]\d\.\d{3},\d\d €", rows[1][1])
    else:
        row = json.loads(written.splitlines()[0])
        assert list(row)[:3] == header
        assert "Umsatz Vorjahr" not in row
        assert 30_000 < row[header[1]] < 70_000


def test_a_matched_header_is_used_by_the_report_and_by_predict(saved, call, tmp_path):
    text = (saved / "orders.csv").read_text(encoding="utf-8")
    (tmp_path / "new.csv").write_text(text.replace("Umsatz Vorjahr", "UMSATZ VORJAHR"), encoding="utf-8")
    options = ["--model", saved / "orders.half", "--report", "r.html"]
    code, _, err = call("impute", "new.csv", "-o", "x.csv", *options)
    assert code == 0, err
    done = (saved / "orders.out.csv").read_text(encoding="utf-8")
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == done.replace(
        "Umsatz Vorjahr", "UMSATZ VORJAHR"
    )
    target = ["--target", "Umsatz Vorjahr", "--method", "constant+linear", "--save-model", "p.half"]
    assert call("fit", saved / "orders.csv", *target)[0] == 0
    code, _, err = call("predict", "p.half", "new.csv", "-o", "y.csv")
    assert code == 0, err
    assert "'UMSATZ VORJAHR' is known in 81 rows: R" in err


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Rabatt;umsatz vorjahr;UMSATZ VORJAHR", "columns 'umsatz vorjahr' and 'UMSATZ VORJAHR' of the file"),
        (
            "rabatt;RABATT;Menge",
            "columns 'rabatt' and 'RABATT' of the file could both be the column 'Rabatt'",
        ),
    ],
)
def test_headers_that_match_a_column_of_the_model_twice_are_refused_by_both_names(
    saved, call, tmp_path, header, message
):
    (tmp_path / "new.csv").write_text(f"{header}\n12,0 %;1;2\n")
    code, _, err = call("impute", "new.csv", "--model", saved / "orders.half", "-o", "x.csv")
    assert code == 2
    assert message in err
    assert not (tmp_path / "x.csv").exists()


def test_a_header_that_matches_two_columns_of_the_model_is_refused_by_both_names(call, tmp_path):
    rng = np.random.default_rng(0)
    frame = pa.table({name: rng.normal(size=40) for name in ("dose", "Dose", "x")})
    halfseen.GaussianImputer().fit(frame).save(tmp_path / "m.half")
    (tmp_path / "new.csv").write_text("DOSE,x\n1.0,2.0\n")
    code, _, err = call("impute", "new.csv", "--model", "m.half", "-o", "x.csv")
    assert code == 2
    assert "column 'DOSE' of the file could be the column 'dose' or 'Dose' of the model" in err
    (tmp_path / "new.csv").write_text("Dose,x\n1.0,2.0\n")  # exactly one of them
    assert call("impute", "new.csv", "--model", "m.half", "-o", "x.csv")[0] == 0
    assert (tmp_path / "x.csv").read_text().startswith("Dose,x,dose\n")
