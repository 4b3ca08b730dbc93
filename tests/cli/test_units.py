"""Tables that are read in blocks by ``halfseen impute`` and ``predict``."""

import json
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen.cli import progress
from halfseen.data import incomplete as blocks
from halfseen.diagnosis import scanned
from halfseen.distributed import units

N = 2000


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    monkeypatch.setattr(units, "ROWS_IN_UNIT", 512)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    common = rng.normal(size=N)
    return pa.table(
        {
            "id": pa.array(np.arange(N) + 10**6),
            "a": pa.array(common.round(3), mask=rng.random(N) < 0.2),
            "b": pa.array((2 * common).round(3), mask=rng.random(N) < 0.2),
        }
    )


@pytest.fixture
def rows(table, tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(table.slice(0, 700), tmp_path / "in" / "x.parquet")
    pq.write_table(table.slice(700), tmp_path / "in" / "y.parquet")
    return tmp_path / "in"


@pytest.fixture
def model(table, tmp_path):
    halfseen.GaussianImputer(random_state=5).fit(table.select(["a", "b"])).save(tmp_path / "m.half")
    return halfseen.load(tmp_path / "m.half")


def read(folder):
    return pa.concat_tables([pq.ParquetFile(path).read() for path in sorted(Path(folder).glob("*.parquet"))])


def test_files_are_imputed_by_processes_into_a_folder(call, table, rows, model, tmp_path):
    options = ("--model", "m.half", "--engine", "local", "--workers", "1")
    code, out, err = call("impute", "in/*.parquet", "-o", "out", *options)
    assert (code, out) == (0, ""), err
    assert "scan  in/*.parquet: 2 files, 2,000 rows, 3 columns" in err
    assert "wrote  out (4 files of 2,000 rows)" in err
    assert read("out").select(["a", "b"]).equals(model.transform(table.select(["a", "b"])))
    assert read("out")["id"].equals(table["id"])
    code, _, err = call("impute", "in/*.parquet", "-o", "out", *options)
    assert code == 2
    assert "out/_manifest.json: the folder has the output of a run already; resume it by --resume" in err
    (tmp_path / "out" / "part-00002.parquet").unlink()
    code, _, err = call("impute", "in/*.parquet", "-o", "out", *options, "--resume")
    assert "wrote  out (4 files of 2,000 rows; 3 units of an earlier run)" in err
    code, _, err = call("impute", "in/*.parquet", "-o", "out", *options, "--resume", "--seed", "9")
    assert code == 2
    assert "the run cannot be resumed, because it was begun with another seed" in err


def test_draws_of_keyed_rows_in_the_files_of_the_input(call, table, rows, model):
    code, _, err = call(
        "impute", "in", "-o", "out", "--model", "m.half", "--engine", "local", "--workers", "1", "--draws", 2,
        "--row-id", "id", "--layout", "files", "--seed", 7,
    )  # fmt: skip
    assert code == 0, err
    model.seed_ = 7
    drawn = model.sample(table.select(["a", "b"]), 2, row_ids=table["id"].to_numpy())
    for draw in (1, 2):
        assert sorted(path.name for path in Path(f"out/draw={draw}").iterdir()) == ["x.parquet", "y.parquet"]
        assert read(f"out/draw={draw}").select(["a", "b"]).equals(drawn[draw - 1])


@pytest.mark.parametrize("limit", [(), ("--max-seconds", "60")], ids=["no limit", "a limit"])
def test_the_default_method_is_fitted_to_a_sample_too(call, rows, monkeypatch, limit):
    monkeypatch.setattr("halfseen.cli.units.fit", partial(halfseen.distributed.fit, n_rows=200))
    code, _, err = call("impute", "in", "-o", "out", "--engine", "local", "--workers", "1", *limit)
    assert code == 0, err
    assert isinstance(halfseen.load("out/_model.halfseen"), halfseen.AutoImputer)
    assert read("out").column("a").null_count == 0


def test_a_model_is_fitted_to_a_sample_and_kept_for_resuming(call, rows, monkeypatch):
    monkeypatch.setattr("halfseen.cli.units.fit", partial(halfseen.distributed.fit, n_rows=900))
    options = ("-o", "out", "--method", "gaussian", "--engine", "local", "--workers", "1")
    code, _, err = call("impute", "in", *options)
    assert code == 0, err
    fitted = halfseen.load("out/_model.halfseen")
    used = fitted.rows_used_
    assert used["table"] == used["parameters"] == used["kinds"] == N
    assert 800 < used["sample"] < 1000
    some = f"{used['sample']:,} of 2,000 rows, chosen at random by their numbers"
    assert f"fitted  margins to {some}, the rest to all" in err
    before = Path("out/_model.halfseen").read_bytes()
    code, _, err = call("impute", "in", *options, "--resume")
    assert code == 0, err
    assert "4 units of an earlier run" in err
    code, _, err = call("impute", "in", *options, "--seed", "4")
    assert code == 2
    assert Path("out/_model.halfseen").read_bytes() == before


def test_predictions_of_files_are_written_into_a_folder(call, table, rows, tmp_path):
    halfseen.GaussianRegressor().fit(table.select(["a"]), np.arange(N)).save(tmp_path / "p.half")
    code, _, err = call("predict", "p.half", "in", "-o", "out", "--engine", "local", "--workers", "1")
    assert code == 0, err
    expected = halfseen.load("p.half").predict(table.select(["a"]))
    assert (read("out")["prediction"].to_numpy() == expected).all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_large_file_is_streamed_without_being_asked(call, table, model, monkeypatch, suffix):
    if suffix == "csv":
        pa.csv.write_csv(table, "big.csv")
    else:
        pq.write_table(table, "big.parquet")
    code, _, err = call("impute", f"big.{suffix}", "-o", "small.parquet", "--model", "m.half")
    assert code == 0, err
    assert "stream" not in err
    monkeypatch.setattr("halfseen.cli.sources.count_memory", lambda: 8_000)
    code, _, err = call("impute", f"big.{suffix}", "-o", "out.parquet", "--model", "m.half")
    assert code == 0, err
    assert f"stream  big.{suffix}: " in err
    assert "more than 1.0 KB: read and written in blocks" in err
    completed = pq.read_table("out.parquet")
    assert completed.select(["a", "b"]).equals(model.transform(table.select(["a", "b"])))
    assert ("csv files are read in blocks by plain rules" in err) == (suffix == "csv")
    code, _, err = call("impute", f"big.{suffix}", "-o", "out.csv", "--model", "m.half")
    assert code == 0, err
    assert "stream" not in err  # a csv keeps the text of its cells, which is read as a whole


def test_files_are_described_in_blocks(call, table, rows, tmp_path, monkeypatch):
    code, out, err = call("describe", "in/*.parquet", "--json", "--engine", "local", "--workers", "1")
    assert code == 0, err
    pq.write_table(table, "all.parquet")
    found = json.loads(out)
    assert found == halfseen.describe(table).to_dict()
    monkeypatch.setattr(scanned, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(scanned, "FEWEST_ROWS", 1)
    monkeypatch.setattr("halfseen.cli.sources.count_memory", lambda: 8_000)
    code, out, err = call("describe", "all.parquet", "--report", "r.html")
    assert code == 0, err
    assert "stream  all.parquet: " in err
    expected = distributed.describe("in", n_workers=1)
    assert expected.sampled is not None
    assert out.strip() == str(expected).strip()
    assert expected.readings[0] in Path("r.html").read_text().replace("&#39;", "'")
    code, _, err = call("describe", "all.parquet", "--null", "999")  # needs the reader of whole files
    assert code == 0, err
    assert "stream" not in err


def test_what_cannot_be_described_in_blocks_is_refused(call, rows):
    base = ("describe", "in", "--engine", "local")
    for words, arguments in {
        "--against needs the whole table in memory": (*base, "--against", "in/x.parquet"),
        "--null needs the whole table in memory": (*base, "--null", "999"),
        "--address and --workers need --engine": ("describe", "in/x.parquet", "--workers", "2"),
        "--engine reads files, not standard input": ("describe", "-", *base[2:]),
    }.items():
        code, _, err = call(*arguments)
        assert code == 2
        assert words in err


def test_what_needs_the_whole_table_is_refused(call, rows, model, tmp_path):
    base = ("impute", "in", "-o", "out", "--model", "m.half", "--engine", "local")
    for words, arguments in {
        "--report needs the whole table in memory": (*base, "--report", "r.html"),
        "--null needs the whole table in memory": (*base, "--null", "999"),
        "--address, --workers, --row-id and --layout need --engine": (*base[:-2], "--workers", "2"),
        "there is no column 'key' for row_id": (*base, "--row-id", "key"),
        "m.half: --engine writes a folder, and this is a file": (*base[:3], "m.half", *base[4:]),
        "--engine reads files, not standard input": ("impute", "-", *base[2:]),
        "--engine writes a folder, not standard output": (*base[:2], "-o", "-", *base[4:]),
    }.items():
        code, _, err = call(*arguments)
        assert code == 2
        assert words in err
        assert len(err.strip().splitlines()[-1:]) == 1
    assert not (tmp_path / "out").exists()


def test_a_model_with_codes_for_missing_values_is_refused(call, table, rows):
    text = "a,b\n" + "".join(f"{n % 17},{-999 if n % 9 == 0 else n % 5}\n" for n in range(300))
    Path("codes.csv").write_text(text)
    code, _, err = call(
        "impute", "codes.csv", "-o", "c.csv", "--method", "mean", "--null", "b=-999", "--save-model", "c.half"
    )
    assert code == 0, err
    code, _, err = call("impute", "in", "-o", "out", "--model", "c.half", "--engine", "local")
    assert code == 2
    assert "fitted to a file with codes for missing values in column 'b', which are not recognised" in err


def test_lines_away_from_a_terminal_have_a_rate_and_the_time_left():
    record = progress.RowStep(2_000_000, 10_000_000, 10.0)
    assert progress._count(record, "row") == "2,000,000 of 10,000,000 rows, 200,000 rows/s, 40 s left, "


def test_the_manifest_says_what_was_asked_for(call, rows, model):
    call("impute", "in", "-o", "out", "--model", "m.half", "--engine", "local", "--workers", "1")
    found = json.loads(Path("out/_manifest.json").read_text())
    assert found["complete"]
    assert [one["name"] for one in found["request"]["inputs"]] == ["x.parquet", "y.parquet"]
    assert sum(one["rows"] for one in found["request"]["inputs"]) == N


def test_a_predictor_is_fitted_to_random_rows_by_an_engine(call, table, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("halfseen.cli.units.SAMPLE_ROWS", 600)
    base = ("--target", "b", "--method", "boosting", "--engine", "local", "--workers", "1")
    code, out, err = call("fit", "in/*.parquet", "--save-model", "p.half", *base)
    assert (code, out) == (0, ""), err
    model = halfseen.load("p.half")
    chosen = halfseen.scan(rows).sample(600)
    n_known, n = (of.num_rows - of["b"].null_count for of in (table, chosen))
    assert model.rows_used_ == {"kinds": n_known, "sample": n, "parameters": n, "table": N}
    assert f"sample  the predictor is fitted to {chosen.num_rows} of 2,000 rows, chosen at random" in err
    pq.write_table(table, "whole.parquet")
    call("fit", "whole.parquet", "--save-model", "q.half", *base)
    assert Path("p.half").read_bytes() == Path("q.half").read_bytes()
    expected = distributed.fit(
        halfseen.BoostingRegressor(random_state=0), "whole.parquet", target="b", n_rows=600
    )
    inputs = table.drop_columns(["b"])
    assert (model.predict(inputs) == expected.predict(inputs)).all()
    assert model.rows_used_ == expected.rows_used_
    known = table.filter(table["b"].is_valid())
    in_memory = halfseen.MeanImputer().fit(known.drop_columns(["b"]))
    assert model.schema_ == in_memory.schema_


@pytest.mark.slow
@pytest.mark.parametrize("method", ["circuit", "boosting"])
def test_a_predictor_by_an_engine_has_the_schema_of_the_command_in_memory(
    call, tmp_path, monkeypatch, method
):
    """One row has the only fraction, another one, without a target, the third level; neither is chosen."""
    rng = np.random.default_rng(3)
    n = 900
    level, whole, y = (
        rng.choice(["a", "b"], n).astype(object),
        rng.integers(0, 30, n) / 1.0,
        rng.normal(size=n),
    )
    level[5], whole[6] = "c", 0.5
    table = pa.table({"level": level, "whole": whole, "y": np.r_[y[:5], np.nan, y[6:]]})
    for number, cut in enumerate((0, 3, 600)):
        pq.write_table(table.slice(cut, [3, 597, 300][number]), tmp_path / f"f{number}.parquet")
    pq.write_table(table, "whole.parquet")
    base = ("--target", "y", "--method", method)
    assert call("fit", "whole.parquet", "--save-model", "q.half", *base)[0] == 0
    monkeypatch.setattr("halfseen.cli.units.SAMPLE_ROWS", 200)
    engine = ("--engine", "local", "--workers", "1")
    code, _, err = call("fit", "f*.parquet", "--save-model", "p.half", *base, *engine)
    assert code == 0, err
    found, expected = halfseen.load("p.half"), halfseen.load("q.half")
    assert found.rows_used_["sample"] < 250
    assert found.schema_ == expected.schema_
    assert found.schema_.columns[0].levels == (("a", "b", "c") if method == "circuit" else ("a", "b"))
    assert not found.schema_.columns[1].integer


@pytest.mark.slow
def test_the_commands_of_the_guide_run_in_their_order(call, table, rows, model, tmp_path):
    """As they are written; predictors are not compared, and clusters have tests of their own."""
    guide = Path(__file__).parents[2] / "docs" / "guide" / "large_tables.md"
    lines = [
        line[4:]
        for line in guide.read_text(encoding="utf-8").splitlines()
        if line.startswith("    halfseen ")
    ]
    commands = [shlex.split(line) for line in lines if "..." not in line and "s3://" not in line]
    assert [command[1] for command in commands] == ["impute", "impute", "impute", "fit", "describe"]
    table.select(["a", "b"]).to_pandas().to_csv("big.csv", index=False)
    model.save("m.halfseen")
    for name in ("x", "y"):
        one = pq.ParquetFile(rows / f"{name}.parquet").read()
        pq.write_table(one.append_column("y", one["b"]), rows / f"{name}.parquet")
    for _, *arguments in commands:
        code, _, err = call(*arguments, *(["--method", "boosting"] if arguments[0] == "fit" else []))
        assert code == 0, err
    names = {path.name for path in tmp_path.iterdir()}
    assert {"big.parquet", "out", "drawn", "p.halfseen"} <= names


def test_fits_that_blocks_do_not_allow_are_refused(call, rows):
    base = ("fit", "in", "--save-model", "p.half", "--target", "b")
    for message, arguments in {
        "--address and --workers need --engine": (*base, "--workers", "2"),
        "--engine reads files, not standard input": ("fit", "-", *base[2:], "--engine", "local"),
        "--null needs the whole table in memory": (*base, "--engine", "local", "--null", "x"),
        "a recommender needs the whole table in memory": (
            *base[:4], "--recommender", "autorec", "--engine", "local",
        ),
    }.items():  # fmt: skip
        code, _, err = call(*arguments)
        assert code == 2
        assert message in err
    assert not Path("p.half").exists()
