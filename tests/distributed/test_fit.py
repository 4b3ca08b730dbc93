"""Fits to a part of the rows do not depend on the files."""

import copy
import itertools
import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from tolerances import EXACT

import halfseen
from halfseen import distributed
from halfseen.base.catalogue import CATALOGUE
from halfseen.base.table import EncodedRows, TableEstimator
from halfseen.circuits.fitting import fit_by_em
from halfseen.data import incomplete as blocks
from halfseen.distributed.engines import PassesByEngine, find_engine
from halfseen.errors import HalfseenWarning, SchemaError, TableError, warn_user
from halfseen.gaussian import imputer as gaussian_imputer
from halfseen.gaussian.em import EMSettings, fit_from_moments, fit_gaussian
from halfseen.gaussian.moments import PatternMoments

N = 4000


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    common = rng.normal(size=N)
    table = pa.table(
        {
            "a": pa.array(common, mask=rng.random(N) < 0.2),
            "b": pa.array(common + rng.normal(size=N), mask=rng.random(N) < 0.2),
            "y": pa.array(3 * common + rng.normal(size=N), mask=rng.random(N) < 0.1),
        }
    )
    for name, cut in {"one": 1, "two": 2500}.items():
        (tmp_path / name).mkdir()
        pq.write_table(table.slice(0, cut), tmp_path / name / "f0.parquet")
        pq.write_table(table.slice(cut), tmp_path / name / "f1.parquet", row_group_size=99)
    return table, tmp_path / "one", tmp_path / "two"


def test_a_fit_does_not_depend_on_the_files_and_says_how_many_rows_it_had(files, tmp_path):
    _, one, two = files
    for number, source in enumerate((one, two)):
        imputer = distributed.fit(
            halfseen.MixtureImputer(random_state=0, n_components=2), source, n_rows=1000
        )
        imputer.save(tmp_path / f"model{number}")
    assert (tmp_path / "model0").read_bytes() == (tmp_path / "model1").read_bytes()
    used = halfseen.load(tmp_path / "model0").rows_used_
    assert used["table"] == used["kinds"] == N
    assert used["sample"] == used["parameters"]
    assert abs(used["sample"] - 1000) < 4 * np.sqrt(750)


def test_a_gaussian_has_mean_and_covariance_of_all_rows_whatever_the_files(files, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    table, one, two = files
    for number, source in enumerate((one, two)):
        imputer = distributed.fit(halfseen.GaussianImputer(random_state=0), source, n_rows=1000)
        imputer.save(tmp_path / f"model{number}")
    assert (tmp_path / "model0").read_bytes() == (tmp_path / "model1").read_bytes()
    assert imputer.rows_used_["parameters"] == N
    some = halfseen.GaussianImputer(random_state=0).fit(halfseen.scan(one).sample(1000))
    batch = some.model_.features.encode(some._read(table, reset=False).codes)
    settings = EMSettings(some.max_iter, some.tol, some.ridge_)
    expected = fit_from_moments(PatternMoments.of_table(batch), settings).gaussian
    assert torch.equal(imputer.model_.gaussian.covariance, expected.covariance)
    tight = EMSettings(1000, 1e-13, some.ridge_)
    by_rows = fit_gaussian(batch, tight, generator=torch.Generator().manual_seed(0)).gaussian
    by_moments = fit_from_moments(PatternMoments.of_table(batch), tight).gaussian
    torch.testing.assert_close(by_moments.covariance, by_rows.covariance, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(some.model_.gaussian.covariance, by_rows.covariance, rtol=1e-3, atol=1e-3)


class Backwards:
    """An engine that finishes the last unit first."""

    name = "backwards"

    def run(self, function, job, units, n_workers):
        for unit in reversed(units):
            yield unit, pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps((job, unit))))))


ALL_ROWS = {
    "gaussian": lambda: halfseen.GaussianImputer(random_state=0),
    "mean": lambda: halfseen.MeanImputer(random_state=0),
    "circuit": lambda: halfseen.CircuitImputer(
        algorithm="em", n_leaves=3, n_channels=3, max_epochs=3, random_state=0
    ),
}


@pytest.mark.parametrize("name", ALL_ROWS)
def test_a_fit_to_all_rows_does_not_depend_on_files_runs_or_the_order_in_which_they_are_finished(
    files, tmp_path, monkeypatch, name
):
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    _, one, two = files
    seen = []
    for number, (source, n_blocks, engine) in enumerate(
        [(one, 16, "local"), (two, 1, Backwards()), (one, 4, Backwards()), (two, 2, "local")]
    ):
        monkeypatch.setattr(blocks, "BLOCKS_IN_RUN", n_blocks)
        imputer = ALL_ROWS[name]()
        distributed.fit(
            imputer, source, n_rows=1000, engine=engine, progress=lambda *done: seen.append(done)
        ).save(tmp_path / f"{number}")
        assert imputer.rows_used_["parameters"] == N
    first = (tmp_path / "0").read_bytes()
    assert all((tmp_path / f"{number}").read_bytes() == first for number in range(1, 4))
    assert seen[0] == (N, N)
    assert (160, N) in seen  # the last run of one block


def test_means_are_those_of_all_rows(files):
    table, one, _ = files
    imputer = distributed.fit(halfseen.MeanImputer(), one, n_rows=1000)
    expected = halfseen.MeanImputer().fit(table)
    for name in ("loc", "scale"):
        found, wanted = (getattr(of.model_.features.scaler, name) for of in (imputer, expected))
        torch.testing.assert_close(found, wanted, rtol=EXACT, atol=EXACT)
    some = halfseen.MeanImputer().fit(halfseen.scan(one).sample(1000))
    assert not torch.allclose(some.model_.features.scaler.loc, expected.model_.features.scaler.loc, atol=1e-3)


def test_em_of_a_circuit_over_a_scan_is_that_of_the_same_circuit_in_memory(files):
    table, one, _ = files
    imputer = ALL_ROWS["circuit"]().fit(halfseen.scan(one).sample(1000))
    twin = copy.deepcopy(imputer)
    assert imputer._refit(halfseen.scan(one), blocks.in_this_process)
    rows = twin.model_.features.encode(twin._read(table, reset=False).codes).to(torch.float32)
    history = fit_by_em(twin.model_.module, rows, 3, None)
    torch.testing.assert_close(
        torch.tensor(imputer.history_.train_loss), torch.tensor(history.train_loss), rtol=EXACT, atol=EXACT
    )
    found, wanted = ([layer.weights for layer in of.model_.module.sum_layers] for of in (imputer, twin))
    torch.testing.assert_close(found, wanted, rtol=EXACT, atol=EXACT)


def test_the_guide_names_the_estimators_that_are_fitted_to_all_rows():
    text = (Path(__file__).parents[2] / "docs" / "guide" / "large_tables.md").read_text(encoding="utf-8")
    table = text[text.index("| estimator | `fit(scan)` takes") :].partition("\n\n")[0]
    named = set(re.findall(r"^\| `(\w+)[`(]", table, re.MULTILINE))
    able = {
        method.estimator.__name__
        for method in CATALOGUE
        if issubclass(method.estimator, TableEstimator)
        and method.estimator._refit is not TableEstimator._refit
    }
    assert named == able == {"GaussianImputer", "MeanImputer", "CircuitImputer"}


def test_warnings_of_workers_are_issued_here(files):
    def warn(_, start, stop):
        warn_user("the same in every run")

    with pytest.warns(HalfseenWarning, match="the same in every run") as caught:
        list(PassesByEngine(find_engine("local"), 1)(warn, None, [(0, 1), (1, 2)]))
    assert len(caught) == 1


def test_too_many_patterns_leave_the_fit_to_the_chosen_rows(files, tmp_path, monkeypatch):
    _, one, _ = files
    monkeypatch.setattr(gaussian_imputer, "MOST_MOMENTS", 20)
    with pytest.warns(
        HalfseenWarning, match=r"is fitted to some of the 4,000 rows, because the table has too many"
    ):
        imputer = distributed.fit(halfseen.GaussianImputer(random_state=0), one, n_rows=1000)
    assert imputer.rows_used_["parameters"] == imputer.rows_used_["sample"] < N
    some = halfseen.GaussianImputer(random_state=0).fit(halfseen.scan(one).sample(1000))
    assert torch.equal(imputer.model_.gaussian.covariance, some.model_.gaussian.covariance)


def test_moments_of_too_many_patterns_are_not_computed(files, monkeypatch):
    """They would take gigabytes for a block of a table of 200 columns, whose rows hardly share patterns."""
    table, one, _ = files
    imputer = halfseen.GaussianImputer(random_state=0).fit(table)
    rows = EncodedRows.of(imputer, halfseen.scan(one), imputer.model_.features)
    monkeypatch.setattr(gaussian_imputer, "MOST_MOMENTS", 20)
    monkeypatch.setattr(PatternMoments, "of", None)
    with pytest.raises(gaussian_imputer.ManyPatternsError):
        gaussian_imputer.moments_of_run(gaussian_imputer._PatternJob(rows), 0, N)


def test_a_fit_to_all_rows_is_that_in_memory(files, tmp_path):
    table, one, _ = files
    distributed.fit(halfseen.GaussianImputer(random_state=0), one).save(tmp_path / "1")
    assert set(halfseen.load(tmp_path / "1").rows_used_.values()) == {N}
    expected = halfseen.GaussianImputer(random_state=0).fit(table)
    assert halfseen.load(tmp_path / "1").transform(table).equals(expected.transform(table))


def test_a_predictor_is_fitted_to_rows_with_a_target(files):
    table, one, _ = files
    model = distributed.fit(halfseen.GaussianRegressor(), one, target="y")
    known = table.filter(table["y"].is_valid())
    n = known.num_rows
    assert model.rows_used_ == {"kinds": n, "sample": n, "parameters": n, "table": N}
    expected = halfseen.GaussianRegressor().fit(known.select(["a", "b"]), known["y"].to_numpy())
    assert (model.predict(table.select(["a", "b"])) == expected.predict(table.select(["a", "b"]))).all()
    with pytest.raises(TableError, match="there is no column 'z' to predict"):
        distributed.fit(halfseen.GaussianRegressor(), one, target="z")


def test_methods_that_need_all_rows_say_how_a_scan_is_used(files):
    _, one, _ = files
    table = halfseen.scan(one)
    imputer = halfseen.GaussianImputer(random_state=0).fit(table)
    with pytest.raises(SchemaError, match=r"Scan\(2 files, 4,000 rows, 3 columns\) is not a table in memory"):
        imputer.class_probabilities(table)
    with pytest.raises(SchemaError, match=r"row_ids must be None for a scan"):
        imputer.sample(table, row_ids=np.arange(N))
    with pytest.raises(SchemaError, match=r"sample_weight must be None if X is a scan"):
        imputer.fit(table, sample_weight=np.ones(N))
    with pytest.raises(SchemaError, match=r"y must be the name of the column to predict .* got ndarray"):
        halfseen.GaussianRegressor().fit(table, np.ones(N))
    with pytest.raises(TableError, match=r"f0.parquet: there is no column 'y', which the model needs"):
        imputer.transform(table.select(["a", "b"]))
    with pytest.raises(TableError, match=r"was fitted to an array without column names"):
        halfseen.MeanImputer().fit([[1.0], [2.0]]).transform(table)


def test_a_fit_of_a_scan_is_that_of_the_function(files, tmp_path):
    _, one, two = files
    halfseen.GaussianImputer(random_state=0).fit(halfseen.scan(one)).save(tmp_path / "1")
    distributed.fit(halfseen.GaussianImputer(random_state=0), two).save(tmp_path / "2")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    model = halfseen.GaussianRegressor(random_state=0).fit(halfseen.scan(one), "y")
    model.save(tmp_path / "3")
    distributed.fit(halfseen.GaussianRegressor(random_state=0), two, target="y").save(tmp_path / "4")
    assert (tmp_path / "3").read_bytes() == (tmp_path / "4").read_bytes()


def test_a_failed_fit_of_a_scan_leaves_the_estimator_as_it_was(files, monkeypatch):
    _, one, _ = files
    imputer = halfseen.GaussianImputer(random_state=0)

    def fail(self, table, passes):
        raise KeyboardInterrupt

    monkeypatch.setattr(halfseen.GaussianImputer, "_refit", fail)
    monkeypatch.setattr("halfseen.base.table.SAMPLE_ROWS", 1000)
    with pytest.raises(KeyboardInterrupt):
        imputer.fit(halfseen.scan(one))
    assert not hasattr(imputer, "model_")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """A table whose rarest level, only fraction, least value and only moment with seconds are in one row."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=N)
    seconds = rng.integers(0, 900, N) * 60_000_000
    seconds[17] += 1_000_000
    table = pa.table(
        {
            "number": pa.array(np.r_[common[:-1], -9.0], mask=rng.random(N) < 0.2),
            "other": common + rng.normal(size=N),
            "whole": pa.array(np.r_[rng.integers(0, 90, N - 1), 0.5], mask=rng.random(N) < 0.1),
            "level": pa.array([*rng.choice(["a", "b", "c"], N - 2), "d", None]),
            "text": [f"{k} times a sentence of words" for k in range(N)],
            "moment": pa.array(seconds, pa.timestamp("us"), mask=rng.random(N) < 0.1),
            "y": pa.array(common, mask=rng.random(N) < 0.1),
        }
    )
    folder = tmp_path_factory.mktemp("uneven")
    for name, cuts in {"one": (0, N), "two": (0, 3, 2000, N)}.items():
        (folder / name).mkdir()
        for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
            file = folder / name / f"f{number}.parquet"
            pq.write_table(table.slice(start, stop - start), file, row_group_size=700)
    return table, folder / "one", folder / "two"


FITTED = (
    halfseen.GaussianImputer(random_state=0),
    halfseen.MeanImputer(),
    pytest.param(halfseen.TreeImputer(random_state=0, max_trees=3), marks=pytest.mark.slow),
    pytest.param(halfseen.ChainedImputer(random_state=0), marks=pytest.mark.slow),
    pytest.param(halfseen.MIWAEImputer(random_state=0, max_epochs=1), marks=pytest.mark.slow),
    halfseen.MixtureImputer(random_state=0, n_components=2),
    halfseen.CircuitImputer(random_state=0, max_epochs=1),
    halfseen.BootstrapImputer(halfseen.GaussianImputer(), n_resamples=2, random_state=0),
)


@pytest.mark.parametrize("estimator", FITTED)
def test_the_schema_of_a_fit_to_some_rows_is_that_of_the_table_in_memory(uneven, estimator):
    """By 3 files and small row groups; some 200 of 4,000 rows have parameters fitted to them."""
    table, one, two = uneven
    expected = halfseen.MeanImputer().fit(table).schema_
    for source in (one, two):
        imputer = distributed.fit(clone(estimator), source, n_rows=200)
        assert imputer.rows_used_["sample"] < 300
        assert imputer.schema_ == expected
    kinds = {column.name: column for column in imputer.schema_}
    assert kinds["level"].levels == ("a", "b", "c", "d")
    assert kinds["number"].observed_low == -9.0
    assert not kinds["whole"].integer
    assert kinds["moment"].step == 1e6
    assert imputer.transform(table.slice(N - 9)).num_rows == 9


def test_a_predictor_has_the_schema_of_all_rows_with_a_target(uneven):
    table, _, two = uneven
    model = distributed.fit(halfseen.GaussianRegressor(), two, target="y", n_rows=200)
    known = table.filter(table["y"].is_valid())
    inputs = known.drop_columns(["y"])
    assert model.schema_ == halfseen.GaussianRegressor().fit(inputs, known["y"].to_numpy()).schema_
    assert model.rows_used_["kinds"] == known.num_rows


@pytest.mark.filterwarnings("ignore:Column 'late' has no observed value")
def test_a_column_of_which_the_chosen_rows_have_one_value_is_described_by_them(tmp_path):
    rng = np.random.default_rng(0)
    cells = [None] * (N - 2) + [1.5, 2.5]
    pq.write_table(pa.table({"a": rng.normal(size=N), "late": cells}), tmp_path / "f.parquet")
    imputer = distributed.fit(halfseen.GaussianImputer(random_state=0), tmp_path / "f.parquet", n_rows=50)
    late = imputer.schema_.columns[1]
    assert (late.kind, late.left) == ("all-missing", "empty")
    assert late.reason == "No value was seen in the rows that were chosen at random."


def test_an_identifier_whose_rows_are_not_chosen_together_is_warned_of(tmp_path):
    """Three rows for each person: some 200 of 4,000 rows have hardly two of one person."""
    rng = np.random.default_rng(0)
    person = np.arange(N) // 3
    x = rng.normal(size=N)[person] + 0.1 * rng.normal(size=N)
    table = pa.table({"person": 7 * person + 1000, "x": x, "y": rng.normal(size=N)})
    pq.write_table(table, tmp_path / "f.parquet")
    with pytest.warns(HalfseenWarning, match="person"):
        assert halfseen.MeanImputer().fit(table).schema_.columns[0].kind == "identifier"
    with pytest.warns(HalfseenWarning, match="Each value of column 'person' is in 3 rows on average, but in"):
        distributed.fit(halfseen.MeanImputer(), tmp_path / "f.parquet", n_rows=200)
    distributed.fit(halfseen.MeanImputer(schema={"person": "identifier"}), tmp_path / "f.parquet", n_rows=200)


def test_text_that_is_numbers_by_the_schema_is_summarised_as_numbers(tmp_path):
    cells = [f"{k % 70}.5" for k in range(N - 1)] + ["-7"]
    pq.write_table(pa.table({"a": cells, "b": range(N)}), tmp_path / "f.parquet")
    model = halfseen.GaussianImputer(random_state=0, schema={"a": "continuous"})
    fitted = distributed.fit(model, tmp_path / "f.parquet", n_rows=200)
    assert fitted.schema_.columns[0].observed_low == -7.0
