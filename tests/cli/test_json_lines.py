"""JSON lines through the commands: values come back as they were written, and missing ones are filled."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from corpus.expected_json_lines import JSON_LINES

import halfseen
from halfseen.cli.main import main
from halfseen.files.tables import read_table
from halfseen.files.writing import write_tables

FOLDER = Path(__file__).parent.parent / "corpus" / "json_lines"


class Number(str):
    """A number as it is written; no string is equal to it."""

    def __eq__(self, other):
        return isinstance(other, Number) and str(self) == str(other)

    __hash__ = str.__hash__


def objects(path):
    """The objects of the lines, with numbers as they are written."""
    lines = [line for line in Path(path).read_text(encoding="utf-8").split("\n") if line.strip()]
    kinds = {"parse_int": Number, "parse_float": Number, "parse_constant": Number}
    return [json.loads(line, **kinds) for line in lines]


def literal(value):
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def is_missing(value):
    return value is None or (isinstance(value, Number) and value == Number("NaN"))


@pytest.mark.parametrize("name", JSON_LINES)
def test_every_key_of_json_lines_has_its_expected_outcome(name, tmp_path, capsys):
    expected, source = JSON_LINES[name], FOLDER / f"{name}.jsonl"
    output, model = tmp_path / "out.jsonl", tmp_path / "model"
    command = ["impute", str(source), "-o", str(output), "--save-model", str(model), "-v", *expected.options]
    assert main(command) == 0
    said = [" ".join(line.split(maxsplit=1)) for line in capsys.readouterr().err.splitlines()]
    before, after, imputer = objects(source), objects(output), halfseen.load(model)
    assert {key for one in before for key in one} == set(expected.columns)
    assert len(after) == len(before)
    for key, outcome in expected.columns.items():
        holes = [is_missing(one.get(key)) for one in before]
        assert sum(holes) == outcome.missing, key
        assert sum(is_missing(one.get(key)) for one in after) == outcome.left, key
        for old, new, hole in zip(before, after, holes, strict=True):
            if not hole:
                assert new[key] == old[key], key
            elif not is_missing(new.get(key)):
                assert re.fullmatch(outcome.written, literal(new[key])), (key, new[key])
            else:
                assert (key in new) == (key in old), key
        assert bool(imputer.columns_left_.get(key, "")) == bool(outcome.why), key
        assert re.search(outcome.why, imputer.columns_left_.get(key, "")), key
    for pattern in expected.says:
        assert any(re.search(pattern, line) for line in said), (pattern, said)


def test_every_file_of_json_lines_has_its_outcome_written_down():
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == sorted(JSON_LINES)


VALUES = [
    '{"k": 1}', '[1.0, "a", null]', '"10001"', '"true"', "true", "1", "1.0", "1.50", "-0", "1E5", '"007"',
    "123456789012345678901234567890", '"123456789012345678901234567890"', '""', '"NA"', '"null"', '" 5 "',
    r'"Z\u00fcrich"', '"Z\u00fcrich"', r'"a\"b\\c\n"', "null", '"1,5"', '"<3"', '"2024-02-30"', '"=1+1"',
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_any_two_values_of_a_key_are_written_as_they_were(value, tmp_path):
    pairs = [(value, other, value, other, other) for other in VALUES]
    rows = [", ".join(f'"x{k}": {one}' for k, one in enumerate(row)) for row in zip(*pairs, strict=True)]
    text = "".join(f"{{{row}}}\n" for row in rows)
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    file = read_table(str(tmp_path / "t.jsonl"))
    write_tables([file.table], str(tmp_path / "u.jsonl"), file)
    assert (tmp_path / "u.jsonl").read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("cells", "fill", "written"),
    [
        (['"10"', '"20"', "null", '"30"'], 25, '"25"'),
        (["10", "20.5", "null", "1"], 25.5, "25.5"),
        (["10", "20", "null", '"30"'], 25, "25"),
        (['"true"', '"false"', "null"], True, '"true"'),
        (["true", "false", "null"], True, "true"),
        (["true", '"a b"', '"true"', "true", "null"], "true", "true"),
        (["1", '"a b"', '"1"', '"1"', "null"], "1", '"1"'),
        (['"1.234,50 \u20ac"', '"2.345,60 \u20ac"', "null"], 1500.0, '"1.500,00 \u20ac"'),
    ],
)
def test_a_missing_value_is_filled_in_the_type_of_its_key(cells, fill, written, tmp_path):
    text = "".join(f'{{"x": {one}}}\n' for one in cells)
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    file = read_table(str(tmp_path / "t.jsonl"))
    whole = pa.table({"x": file.table["x"].fill_null(pa.scalar(fill, file.table["x"].type))})
    write_tables([whole], str(tmp_path / "u.jsonl"), file)
    assert (tmp_path / "u.jsonl").read_text(encoding="utf-8") == text.replace("null", written)


def test_only_texts_that_the_user_names_are_missing_besides_null(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"x": "NA"}\n{"x": ""}\n{"x": 3}\n{"x": null}\n{"x": 99}\n{}\n')
    assert read_table(str(tmp_path / "t.jsonl")).n_missing == 2
    assert read_table(str(tmp_path / "t.jsonl"), null=["NA"]).n_missing == 3
    assert read_table(str(tmp_path / "t.jsonl"), null=["x=NA", ""]).n_missing == 4
    assert read_table(str(tmp_path / "t.jsonl"), null=["x=99.0"]).n_missing == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a": 2, "b": 1, "a": 3}\n', "line 2 has the key 'a' twice"),
        (b'{"a": 1,}\n', "line 1 is not JSON"),
        (b'{"a": 1} {"a": 2}\n', "line 1 is not JSON"),
        (b'{"a": 01}\n', "line 1 is not JSON"),
        (b'{"a": "x\n', "line 1 is not JSON"),
        (b'{"a"\n', "line 1 is not JSON"),
        (b"{a: 1}\n", "line 1 is not JSON"),
        (b'{"a": 1}\n{"a": "\xff"}\n', "line 2 is not UTF-8"),
        (b'{"a": 1}\n\n{"a": "x\\ud800"}\n', "line 3, key 'a': the text contains half of a surrogate pair"),
        (b'{"a": 1}\n{"\\ud800": 1}\n', "line 2 has the key .* which contains half of a surrogate pair"),
        (b'{"a": 1}\n{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "line 2 is nested too deeply"),
    ],
)
def test_what_cannot_be_written_as_it_was_is_refused_with_line_and_key(tmp_path, content, message):
    (tmp_path / "t.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=f"t.jsonl: {message}"):
        read_table(str(tmp_path / "t.jsonl"))


def test_draws_amputed_and_predicted_json_lines_keep_their_values(call, tmp_path):
    rows = [f'{{"x": "{i * 7 % 19}", "y": {2 * i % 25}.0, "z": {{"k": {i}}}}}' for i in range(40)]
    (tmp_path / "t.jsonl").write_text("\n".join([*rows, '{"y": 7.0, "z": []}']) + "\n")
    assert call("impute", "t.jsonl", "-o", "d.jsonl", "--draws", 2, "--method", "gaussian")[0] == 0
    drawn = (tmp_path / "d.jsonl").read_text().splitlines()
    assert drawn[:40] == [row.replace("{", '{"draw": 1, ', 1) for row in rows]
    assert re.fullmatch(r'\{"draw": 2, "x": "\d+", "y": 7\.0, "z": \[\]\}', drawn[81])
    assert call("ampute", "t.jsonl", "-o", "a.jsonl", "--rate", 0.3, "--columns", "y")[0] == 0
    amputed = (tmp_path / "a.jsonl").read_text().splitlines()
    assert {re.sub(r'"y": (\d+\.0|null)', "", one) for one in amputed[:40]} == {
        re.sub(r'"y": \d+\.0', "", one) for one in rows
    }
    assert 5 < sum('"y": null' in one for one in amputed) < 20
    fitted = call("fit", "t.jsonl", "--target", "y", "--save-model", "m", "--method", "constant+linear")
    assert fitted[0] == 0, fitted
    assert call("predict", "m", "t.jsonl", "-o", "p.jsonl")[0] == 0
    predicted = (tmp_path / "p.jsonl").read_text().splitlines()
    assert [one.startswith(row[:-1] + ', "prediction": ') for one, row in zip(predicted, rows, strict=False)]


def test_bytes_are_not_written_as_json_lines(call, tmp_path):
    pa.parquet.write_table(pa.table({"x": [1.0, None], "b": [b"\xff", b"1"]}), tmp_path / "t.parquet")
    code, _, err = call("impute", "t.parquet", "-o", "u.jsonl")
    assert code == 2
    assert "column 'b' has the type binary, which a jsonl file cannot store" in err
