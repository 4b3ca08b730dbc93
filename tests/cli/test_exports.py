"""Files as spreadsheets and instruments export them: what is not part of the table is kept and not read."""

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from halfseen.cli.main import main
from halfseen.files.dialect import find_preamble
from halfseen.files.missing_codes import find_date_codes, find_number_codes
from halfseen.files.tables import read_table

N = 40
RNG = np.random.default_rng(0)
AGES = RNG.integers(18, 80, N)
HEIGHTS = (170 + RNG.normal(size=N)).round(1)
ROWS = [f"{age},{height}\n" for age, height in zip(AGES, HEIGHTS, strict=True)]
ROWS[3], ROWS[7] = f",{HEIGHTS[3]}\n", f"{AGES[7]},\n"
BODY = "".join(ROWS)
DATES = [f"{1 + k % 12}/{13 + k % 15}/{50 + k}" for k in range(N)]


def impute(tmp_path, text, capsys, *options, encoding="utf-8", name="in.csv"):
    """Imputes a file by means; returns the lines of the output, and what was said."""
    source, output = tmp_path / name, tmp_path / f"out-{name}"
    source.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    command = ["impute", str(source), "-o", str(output), "--overwrite", "--method", "mean", *options]
    assert main(command) == 0
    said = " ".join(capsys.readouterr().err.split())
    return output.read_bytes().decode(encoding).splitlines(), said


@pytest.mark.parametrize(
    "above",
    [
        "# made by a logger\n# version 2\n",
        "Report: patients\nExported,2023-05-01,by,me\n\n",
        "Patients\n",
        "Patients,\n,\nWard 4,\n",
        "sep=,\n",
    ],
)
def test_lines_above_the_table_are_kept_and_not_read(above, tmp_path, capsys):
    lines, said = impute(tmp_path, above + "age,height\n" + BODY, capsys)
    n_above = above.count("\n")
    assert lines[: n_above + 1] == [*above.splitlines(), "age,height"]
    assert f"the table begins in line {n_above + 1}" in said
    assert lines[n_above + 4].split(",")[0].isdigit()
    assert [line for k, line in enumerate(lines[n_above + 1 :]) if k not in (3, 7)] == [
        row.strip() for k, row in enumerate(ROWS) if k not in (3, 7)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "name\nSmith\nDoe\n",
        "#id,age\n1,2\n3,4\n5,6\n",
        "a,b\n1,2\n3\n4,5\n6,7\n8,9\n",
        "Smith, John\nDoe, Jane\nRoe, Jim\n",
        "age,height\n" + BODY,
        "name,\nSmith,4\nDoe,5\nRoe,6\n",
        "#fff\n#000\n#abc\n",
    ],
)
def test_ordinary_files_have_no_lines_above_the_table(text):
    assert find_preamble(text).text == ""


@pytest.mark.parametrize(
    ("groups", "names"),
    [(",Blood pressure,,Lab", "patient,systolic,diastolic,Hb"), ("Patient,Size,,Lab", ",height,weight,Hb")],
)
def test_names_of_groups_of_columns_are_kept_and_not_read(groups, names, tmp_path, capsys):
    rows = [f"P{k},{age},{'' if k == 5 else 2 * age},{k % 7}\n" for k, age in enumerate(AGES)]
    lines, said = impute(tmp_path, "\n".join([groups, names, *map(str.strip, rows)]), capsys)
    assert lines[:2] == [groups, names]
    assert f"{N} rows, 4 columns" in said
    assert lines[7].split(",")[2].isdigit()


def test_a_first_record_below_a_column_without_a_name_is_a_record(tmp_path, capsys):
    rows = [f"P{k},{age},{k % 7}" for k, age in enumerate(AGES)]
    assert f"{N} rows" in impute(tmp_path, "\n".join(["patient,,x", *rows]), capsys)[1]
    assert f"{N + 1} rows" in impute(tmp_path, "\n".join(["patient,,x", "P,new,n.a.", *rows]), capsys)[1]


def test_line_numbers_of_messages_count_the_lines_above_the_table(tmp_path, capsys):
    rows = ["# one\n", "# two\n", "age,height\n", "yr,cm\n", *ROWS, "abt 30,170.0\n"]
    _, said = impute(tmp_path, "".join(rows), capsys)
    assert "line 4 holds units" in said
    assert f"column 'age' contains numbers except for 'abt 30' in line {len(rows)}" in said
    source = tmp_path / "ragged.csv"
    source.write_text("# one\nage,height\n" + BODY + "1,2,3\n")
    assert main(["impute", str(source), "-o", str(tmp_path / "out.csv")]) == 2
    assert f"line {N + 3} has 3 cells" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "row", "note"),
    [
        (20, "group,age,height", "line 22 repeats the column names"),
        (0, ",(years),[cm]", "line 2 holds units"),
        (N, f"Total,{AGES.sum()},{HEIGHTS.sum():.1f}", f"line {N + 2} holds a total"),
        (20, "Subtotal,900,3400.0", "line 22 holds a total"),
        (20, "Subtotal Ward 4,900,", "line 22 holds a total"),
        (20, f"Total,{AGES[:20].sum() - AGES[3]},3", "line 22 holds a total"),
        (20, f"TOTAL North:,3,{HEIGHTS[:20].mean():.1f}", "line 22 holds a total"),
        (20, "b Total,,1", "line 22 holds a total"),
        (0, "Opening balance,,812.50", "line 2 holds a total"),
        (N, ",,", f"line {N + 2} has no values"),
    ],
)
def test_rows_that_are_no_records_are_kept_and_not_read(place, row, note, tmp_path, capsys):
    rows = [f"{'ab'[k % 2]},{cells}" for k, cells in enumerate(ROWS)]
    rows.insert(place, f"{row}\n")
    lines, said = impute(tmp_path, "group,age,height\n" + "".join(rows), capsys)
    assert lines[place + 1] == row
    assert note in said
    assert f"{N:,} rows, 3 columns" in said
    filled = [line for k, line in enumerate(lines[1:]) if k != place]
    assert int(filled[3].split(",")[1]) == pytest.approx(AGES.mean(), abs=3)  # untouched by the total


def test_totals_of_groups_with_missing_values_are_known_by_one_that_adds_up(tmp_path, capsys):
    rows = [f"{ward},{age},{height}\n" for ward, age, height in zip("ab" * 20, AGES, HEIGHTS, strict=True)]
    rows[3] = f"b,,{HEIGHTS[3]}\n"  # the total of the first twenty includes the age that is missing here
    rows.insert(20, f"Total,{AGES[:20].sum()},\n")
    rows.append(f"Total,{AGES[20:].sum()},\n")
    rows += [f"c,{age},170.0\n" for age in range(20, 30)]
    lines, said = impute(tmp_path, "ward,age,height\n" + "".join(rows), capsys)
    assert "lines 22, 43 hold totals" in said
    assert lines[21] == rows[20].strip()


def test_rows_that_only_begin_with_a_word_for_totals_are_records(tmp_path, capsys):
    rows = [f"{name},{k}\n" for k, name in enumerate(["Shell", "Total", "Aral", "Total Access", "Esso"] * 4)]
    assert "holds a total" not in impute(tmp_path, "brand,x\n" + "".join(rows), capsys)[1]
    rows = ["Shell,100\n", "Media Markt,2000\n", "Esso,30\n", "Total,1\n", "Aral,40\n", "Jet,7\n"]
    _, said = impute(tmp_path, "brand,x\n" + "".join(rows), capsys)
    assert "holds a total" not in said
    assert "warning line 5 begins with a word for totals, without a sum of the rows above" in said


def test_a_level_that_is_called_like_its_only_column_is_a_level(tmp_path, capsys):
    assert "not read" not in impute(tmp_path, "b\n" + "a\nb\n" * 9, capsys)[1]


def test_draws_hold_the_rows_that_are_no_records_too(tmp_path, capsys):
    lines, _ = impute(tmp_path, "age,height\n" + BODY + "age,height\n", capsys, "--draws", "2")
    assert lines[N + 1] == "1,age,height"
    assert lines[2 * N + 2] == "2,age,height"
    assert len(lines) == 2 * N + 3


def test_empty_rows_at_the_end_are_imputed_where_empty_cells_are_frequent_or_on_request(tmp_path, capsys):
    often = "".join(f"{k % 7 if k % 2 else ''},{k % 5 if k % 3 else ''}\n" for k in range(60)) + ",\n"
    lines, said = impute(tmp_path, "a,b\n" + often, capsys)
    assert "not read" not in said
    assert "" not in lines[-1].split(",")
    lines, _ = impute(tmp_path, "age,height\n" + BODY + ",\n", capsys, "--fill-all")
    assert "" not in lines[-1].split(",")


def test_blank_rows_between_records_stay_blank_in_every_output_unless_asked_for(tmp_path, capsys):
    rows = [f"{'ab'[k % 2]},{cells}" for k, cells in enumerate(ROWS)]
    rows.insert(20, " ,,\n")
    text = "group,age,height\n" + "".join(rows)
    lines, said = impute(tmp_path, text, capsys)
    assert lines[21] == " ,,"
    assert "line 22 is blank: kept and not imputed; --fill-all imputes it" in said
    assert f"{N + 1:,} rows, 3 columns" in said
    assert "" not in [cell for k, line in enumerate(lines) if k != 21 for cell in line.split(",")]
    assert main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.parquet")]) == 0
    table = read_table(str(tmp_path / "out.parquet")).table
    assert [column[20].as_py() for column in table.columns] == [None, None, None]
    assert sum(column.null_count for column in table.columns) == 3
    capsys.readouterr()
    lines, said = impute(tmp_path, text, capsys, "--fill-all")
    assert "" not in [cell.strip() for cell in lines[21].split(",")]
    assert "is blank" not in said


def test_blank_rows_that_are_likely_by_chance_are_imputed(tmp_path, capsys):
    often = [f"{k % 7 if k % 2 else ''},{k % 5 if k % 3 else ''}\n" for k in range(60)]
    assert often[6] == ",\n"
    lines, said = impute(tmp_path, "a,b\n" + "".join(often), capsys)
    assert "are blank" not in said
    assert "" not in lines[7].split(",")


def test_columns_without_names_are_read_and_written_as_they_are(tmp_path, capsys):
    lines, said = impute(
        tmp_path, "age,height,,\n" + BODY.replace("\n", ",,\n"), capsys, encoding="utf-8-sig"
    )
    assert lines[0] == "age,height,,"
    assert "Column 'unnamed 3' has no observed value" in said
    assert all(line.endswith(",,") for line in lines)


def test_a_first_line_of_numbers_is_named(tmp_path, capsys):
    _, said = impute(tmp_path, BODY, capsys)
    assert "looks like a record" in said
    for header in ("2019,2020\n", "age,height\n"):
        assert "looks like a record" not in impute(tmp_path, header + BODY, capsys)[1]


def test_years_of_two_digits_that_are_near_each_other_stay_so(tmp_path, capsys):
    rows = [f"{when},{k % 9}\n" for k, when in enumerate(DATES)] + [",4\n"]
    lines, said = impute(tmp_path, "born,x\n" + "".join(rows), capsys)
    assert "with years from 1950 to 1989" in said
    assert 60 < int(lines[-1].split(",")[0].split("/")[2]) < 80


def test_dates_that_stand_for_something_else_do_not_move_the_others(tmp_path, capsys):
    rows = [f"{2010 + k % 10}-05-01,{k}\n" if k % 4 else f"9999-12-31,{k}\n" for k in range(N)] + [",4\n"]
    text = "until,x\n" + "".join(rows)
    lines, said = impute(tmp_path, text, capsys)
    assert "10 cells contain '9999-12-31', far from the other dates: kept and not used by the model" in said
    assert lines[1] == "9999-12-31,0"
    assert lines[-1].startswith("201")
    assert main(["describe", str(tmp_path / "in.csv")]) == 0
    assert f"{N + 1} rows, 2 columns, 1 missing cell" in " ".join(capsys.readouterr().out.split())
    assert main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.parquet")]) == 0
    dates = read_table(str(tmp_path / "out.parquet")).as_written().table["until"]
    assert dates.type == "date32"
    assert dates[0].as_py() == date(9999, 12, 31)
    assert dates[-1].as_py().year < 2030
    capsys.readouterr()
    lines, _ = impute(tmp_path, text, capsys, "--null", "until=9999-12-31")
    assert lines[1].startswith("201")
    low, said = impute(tmp_path, text.replace("9999-12-31", "1900-01-01"), capsys)
    assert "10 cells contain 1900-01-01" in said
    assert low[1] == "1900-01-01,0"


def test_dates_of_other_centuries_are_no_placeholders(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("when\n" + "".join(f"{year}-01-01\n" for year in range(2300, 3300, 100)))
    assert not any(find_date_codes(read_table(str(source)).table["when"]).to_pylist())


def test_codes_of_surveys_are_named(tmp_path, capsys):
    cells = [1, 2, 3, 4, 5, 88, 99] * 6
    said = impute(tmp_path, "q,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), capsys)[1]
    assert "kept and not used by the model; --null q=88 --null q=99 makes them missing" in said
    cells = [1, 2, 3, 4, 5, 88] * 6
    said = impute(tmp_path, "q,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), capsys)[1]
    assert "6 cells contain 88" in said
    said = impute(tmp_path, "q,x\n" + "".join(f"{k},{k}\n" for k in [*range(20, 85), 88, 88]), capsys)[1]
    assert "contain 88" not in said
    said = impute(tmp_path, "q,x\n" + "".join(f"{k},a\n" for k in [*range(20, 85), -1, -1]), capsys)[1]
    assert "--null q=-1 makes them missing" in said
    said = impute(tmp_path, "q,x\n" + "".join(f"{k},a\n" for k in [-1, 0, 1] * 9), capsys)[1]
    assert "--null" not in said


def test_errors_of_spreadsheets_are_missing_however_frequent(tmp_path, capsys):
    rows = [f"{k / 4},b\n" if k % 3 == 0 else "#DIV/0!,#REF!\n" for k in range(N)]
    lines, said = impute(tmp_path, "ratio,word\n" + "".join(rows), capsys)
    assert "column 'ratio': 26 cells contain '#DIV/0!', read as missing" in said
    assert "column 'word': 26 cells contain '#REF!', read as missing" in said
    assert not any("#DIV" in line for line in lines)


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (["Yes", "yes ", "no"], "'Yes' and 'yes ' differ in case or blanks only"),
        (["yes", "no", "1", "0"], "write yes and no in one way"),
        (["Yes", "yes", "N", "TRUE"], "'Yes', 'yes', 'N', 'TRUE' are different levels; write yes and no in"),
        (["a", "b", "c"], None),
    ],
)
def test_levels_spelt_in_two_ways_are_named(cells, note, tmp_path, capsys):
    rows = [f"{cells[k % len(cells)]},{k}\n" for k in range(N)]
    said = impute(tmp_path, "answer,x\n" + "".join(rows), capsys)[1]
    assert (note or "column 'answer'") in said if note else "column 'answer'" not in said


def test_files_of_two_encodings_are_named(tmp_path, capsys):
    text = b"city,x\n" + "Köln,1\n".encode() * 9 + "Köln,2\n".encode("latin-1")
    assert "the file mixes encodings" in impute(tmp_path, text, capsys, encoding="cp1252")[1]


def test_numbers_with_exponents_are_written_with_exponents(tmp_path, capsys):
    rows = [f"{1000 * (k + 1):.2E},{k}\n" for k in range(N)] + [",4\n"]
    assert impute(tmp_path, "v,x\n" + "".join(rows), capsys)[0][-1] == "2.05E+04,4"


def test_a_saved_model_keeps_the_century_of_two_digit_years(tmp_path, capsys):
    rows = [f"{when},{k % 9}\n" for k, when in enumerate(DATES)]
    model = str(tmp_path / "model")
    impute(tmp_path, "born,x\n" + "".join(rows), capsys, "--save-model", model)
    source = tmp_path / "new.csv"
    source.write_text("# new\nborn,z\n1/20/61,1\n1/21/61,2\n1/22/61,3\nborn,z\n")
    assert main(["impute", str(source), "-o", str(tmp_path / "out.csv"), "--model", model]) == 0
    assert "with years from 1961 to 1961" in " ".join(capsys.readouterr().err.split())
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[:3] == ["# new", "born,z,x", "1/20/61,1," + lines[2].split(",")[2]]
    assert lines[-1] == "born,z,"


def test_the_schema_sets_the_century(tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text('{"columns": {"born": {"first_year": 2050}}}')
    rows = [f"{when},{k % 9}\n" for k, when in enumerate(DATES)]
    _, said = impute(tmp_path, "born,x\n" + "".join(rows), capsys, "--schema", str(schema))
    assert "with years from 2050 to 2089" in said
    schema.write_text('{"columns": {"born": {"first_year": "x"}}}')
    assert main(["impute", str(tmp_path / "in.csv"), "-o", "-", "--schema", str(schema)]) == 2
    assert "column 'born': first_year must be a year such as 1950, got 'x'" in capsys.readouterr().err


# ---------------------------------------------------------------- banks, laboratories, surveys, instruments


def test_entries_above_a_bank_statement_are_no_column_names(tmp_path, capsys):
    above = "Account;DE89 3704 0044;;\nPeriod;01.01.2024 - 31.03.2024;;\n\n"
    cells = [
        f"{1 + k % 28:02d}.01.2024;rent;{k * 31 % 97},50{'-' * (k % 2)};{'' if k == 5 else 100 + k},00\n"
        for k in range(N)
    ]
    cells[5] = cells[5].replace(";,00", ";")
    lines, said = impute(tmp_path, above + "day;purpose;amount;balance\n" + "".join(cells), capsys)
    assert "the table begins in line 4" in said
    assert "column 'amount' contains numbers with decimal commas and minus signs at the end" in said
    assert lines[:4] == [*above.splitlines(), "day;purpose;amount;balance"]
    assert 100 < float(lines[9].split(";")[3].replace(",", ".")) < 140


def test_names_of_only_some_columns_are_names(tmp_path, capsys):
    rows = "".join(f"a,{k},{k % 7},{k % 5}\n" for k in range(N))
    assert "not read" not in impute(tmp_path, "word,number,,\n" + rows, capsys)[1]


def test_numbers_with_flags_are_left_alone_and_named(tmp_path, capsys):
    """A quarter of the results have a flag of the laboratory, so the column is not one of levels."""
    cells = [f"{3 + k * 7 % 40 / 10:.1f}{' H' if k % 4 == 0 else ''}" for k in range(N)]
    cells[6], cells[9] = "haemolysed", ""
    lines, said = impute(
        tmp_path, "potassium,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), capsys
    )
    assert "column 'potassium' contains numbers except for '3.0 H' in line 2" in said
    assert "left as text and not imputed; --number-format potassium=1234.56 reads the other values" in said
    assert [line.split(",")[0] for line in lines[1:]] == cells


def test_levels_that_begin_with_numbers_are_levels(tmp_path, capsys):
    cells = ["12a", "12b", "15c", "16d"] * 10
    said = impute(tmp_path, "room,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), capsys)[1]
    assert "column 'room'" not in said


QUESTIONS = (
    'What is your age?,"How satisfied are you: price","How satisfied are you: service"',
    '"{""ImportId"":""Q1""}","{""ImportId"":""Q2""}","{""ImportId"":""Q3""}"',
)


@pytest.mark.parametrize("n_lines", [1, 2])
def test_questions_below_the_names_are_kept_and_not_read(n_lines, tmp_path, capsys):
    labels = [*QUESTIONS[:n_lines]]
    rows = [f"{AGES[k]},{1 + k % 5},{'' if k == 4 else 1 + k % 3}" for k in range(N)]
    lines, said = impute(tmp_path, "\n".join(["q1,q2,q3", *labels, *rows, ""]), capsys)
    assert ("line 2 holds labels" if n_lines == 1 else "lines 2, 3 hold labels") in said
    assert lines[1] == labels[0].replace('"', "")
    assert lines[1 + n_lines + 4].split(",")[2] in ("1", "2", "3")


def test_labels_below_some_of_the_names_are_kept_and_not_read(tmp_path, capsys):
    rows = [f"{AGES[k]},{1 + k % 5},{'' if k == 4 else 1 + k % 3},{'ab'[k % 2]}" for k in range(N)]
    text = "\n".join(["q1,q2,q3,q4", "Response,,Open-Ended Response,Response", *rows, ""])
    assert "line 2 holds labels" in impute(tmp_path, text, capsys)[1]


@pytest.mark.parametrize("first", ["not measured,unknown,a b", "no signal,5,a b", "no signal,no signal,a b"])
def test_a_first_record_with_words_is_a_record(first, tmp_path, capsys):
    rows = [f"{AGES[k]},{1 + k % 5},c d" for k in range(N)]
    rows[7] = f"no signal,{1 + 7 % 5},c d"
    assert "holds labels" not in impute(tmp_path, "\n".join(["x,y,z", first, *rows, ""]), capsys)[1]


@pytest.mark.parametrize("code", ["-999.99", "-99.9", "9999.9", "-999.25", "4294967295", "-32768"])
def test_codes_of_instruments_do_not_move_the_other_values(code, tmp_path, capsys):
    cells = [code if k % 9 == 0 else "" if k == 4 else f"{20 + k * 7 % 50 / 10:.2f}" for k in range(N)]
    lines, said = impute(tmp_path, "t,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), capsys)
    assert f"5 cells contain {code}, far from the other values" in said
    assert f"--null t={code} makes them missing" in said
    assert 20 < float(lines[5].split(",")[0]) < 25
    assert lines[1].split(",")[0] == code


@pytest.mark.parametrize("nothing", ["0000-00-00", "00/00/0000"])
def test_dates_of_zeros_are_missing(nothing, tmp_path, capsys):
    """Databases write them for a date that is not there."""
    cells = [nothing if k % 3 == 0 else f"2021-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(N)]
    text = "when,x\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells))
    lines, said = impute(tmp_path, text, capsys)
    assert f"column 'when': 14 cells contain '{nothing}', read as missing" in said
    assert all(line.startswith("2021-") for line in lines[1:])


def test_codes_of_instruments_are_found_among_numbers_of_32_bits():
    values = pa.array([20 + k * 7 % 50 / 10 for k in range(30)] + [-999.99] * 3, pa.float32())
    codes = find_number_codes(values)
    assert codes is not None
    assert codes.certain
    assert list(codes.counts.values()) == [3]


@pytest.mark.parametrize(
    "footer",
    [
        "\nThese are provisional figures\nof 2024, see below\n",
        "Source: National Statistics, 2024\n",
        "\nQuelle: Bundesamt für Statistik",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_lines_below_the_table_are_kept_and_not_read(footer, encoding, tmp_path, capsys):
    rows = [f"{'ab'[k % 2]},{'ü'},{cells}" for k, cells in enumerate(ROWS)]
    text = "group,w,age,height\n" + "".join(rows) + footer
    lines, said = impute(tmp_path, text, capsys, encoding=encoding)
    assert f"{N:,} rows, 4 columns" in said
    assert "copied to a csv output, but not read" in said
    assert lines[-footer.count("\n") - (not footer.endswith("\n")) :] == footer.splitlines()
    assert all(lines[4].split(","))


def test_a_record_that_is_cut_off_is_an_error(tmp_path, capsys):
    source = tmp_path / "in.csv"
    for end in ("b,4", "bro", "b,broken off\n"):
        source.write_text("group,age,height\n" + "".join(f"a,{cells}" for cells in ROWS) + end)
        assert main(["impute", str(source), "-o", str(tmp_path / "out.csv")]) == 2
        assert f"line {N + 2} has" in capsys.readouterr().err


def test_remarks_in_the_first_cells_of_the_last_rows_are_kept_and_not_read(tmp_path, capsys):
    rows = [f"{'ab'[k % 2]},{cells}" for k, cells in enumerate(ROWS)]
    end = [",,", '"Source: own survey, 2024",,', "Figures are provisional,,"]
    lines, said = impute(tmp_path, "group,age,height\n" + "".join(rows) + "\n".join([*end, ""]), capsys)
    assert f"lines {N + 3}, {N + 4} hold remarks" in said
    assert f"{N:,} rows, 3 columns" in said
    assert lines[-3:] == end


@pytest.mark.parametrize("last", ["c,,", "New York,,"])
def test_a_last_record_of_which_only_a_name_is_known_is_imputed(last, tmp_path, capsys):
    rows = [f"{['New York', 'c'][k % 2]},{cells}" for k, cells in enumerate(ROWS)]
    rows[20] = "New York,,\n"
    lines, said = impute(tmp_path, "group,age,height\n" + "".join(rows) + last + "\n", capsys)
    assert "not read" not in said
    assert all(lines[-1].split(","))
