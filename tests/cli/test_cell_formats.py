"""Formats of cells in commands: all read them alike, and draws respect detection limits."""

import json
import re

import numpy as np
import pytest

from halfseen.cli.main import main


def test_draws_below_a_limit_are_as_frequent_as_observations_below_it(tmp_path):
    generator = np.random.default_rng(0)
    latent = generator.normal(size=300)
    values, other = np.exp(latent), 0.6 * latent + 0.8 * generator.normal(size=300)
    cells = np.where(values < 0.5, "<0.5", [f"{value:.2f}" for value in values])
    cells = np.where(generator.random(300) < 0.4, "", cells)
    rows = "".join(f"{cell},{beside:.2f}\n" for cell, beside in zip(cells, other, strict=True))
    (tmp_path / "in.csv").write_text("x,y\n" + rows)
    assert (
        main(["impute", str(tmp_path / "in.csv"), "-o", str(tmp_path / "out.csv"), "--draws", "1", "-q"]) == 0
    )
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    drawn = [line.split(",")[1] for line, cell in zip(lines, cells, strict=True) if not cell]
    # 24% of 120 cells are below the limit; 0.16 is four standard errors, and what is estimated adds little
    assert np.mean(np.array(drawn) == "<0.5") == pytest.approx(np.mean(values < 0.5), abs=0.16)


def test_every_command_reads_formats_alike(run, tmp_path):
    rows = "".join(f"{row % 7},{row % 5};{row % 3};x{row % 2}\n" for row in range(40))
    (tmp_path / "in.csv").write_text("a;b;c\n;1;x1\n" + rows + "about 1;1;x1\n")
    options = ["--number-format", "a=1234,56", "--null", "b=2"]
    code, _, err = run("impute", "in.csv", "-o", "out.csv", *options)
    assert code == 0
    assert "decimal commas" in err
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[-1] == "about 1;1;x1"
    assert re.fullmatch(r"\d,\d;1;x1", lines[1])
    assert not any(line.split(";")[1] == "2" for line in lines)
    code, out, _ = run("describe", "in.csv", "--json", *options)
    assert code == 0
    assert {column["name"]: column["n_missing"] for column in json.loads(out)["columns"]} == {
        "a": 1,  # "about 1" is not missing
        "b": 13,
        "c": 0,
    }
    code, _, err = run("ampute", "in.csv", "-o", "holes.csv", "--columns", "a", *options)
    assert code == 0
    assert (tmp_path / "holes.csv").read_text().splitlines()[-1] == "about 1;1;x1"
    code, _, err = run("compare", "in.csv", "--methods", "mean", "--repeats", "1", *options)
    assert (code, "decimal commas" in err) == (0, True)


def test_a_schema_file_determines_how_cells_are_read(run, tmp_path):
    (tmp_path / "in.csv").write_text("a;b\n1.577;1\n;2\n2.340;3\n")
    schema = {"columns": {"a": {"number_format": "1.234,56"}, "b": {"null": ["3"]}}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--schema", "schema.json")
    assert code == 0, err


def test_a_format_that_is_not_understood_is_one_line_and_exit_code_two(run, tmp_path):
    (tmp_path / "in.csv").write_text("a,b\n1,2\n,3\n")
    code, _, err = run("impute", "in.csv", "-o", "out.csv", "--number-format", "a=klingon")
    assert code == 2
    assert err.startswith("halfseen: error: --number-format 'klingon' is not understood")
