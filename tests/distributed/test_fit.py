"""Fits to a part of the rows do not depend on the files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import halfseen
from halfseen import distributed
from halfseen.data import blocks
from halfseen.data.scan import Scan
from halfseen.errors import HalfseenWarning, SchemaError, TableError
from halfseen.gaussian import scanned
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
    assert used["table"] == N
    assert used["kinds"] == used["parameters"]
    assert abs(used["kinds"] - 1000) < 4 * np.sqrt(750)


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


def test_too_many_patterns_leave_the_fit_to_the_chosen_rows(files, tmp_path, monkeypatch):
    _, one, _ = files
    monkeypatch.setattr(scanned, "MOST_MOMENTS", 20)
    with pytest.warns(
        HalfseenWarning, match=r"is fitted to some of the 4,000 rows, because the table has too many"
    ):
        imputer = distributed.fit(halfseen.GaussianImputer(random_state=0), one, n_rows=1000)
    assert imputer.rows_used_["parameters"] == imputer.rows_used_["kinds"]
    some = halfseen.GaussianImputer(random_state=0).fit(halfseen.scan(one).sample(1000))
    assert torch.equal(imputer.model_.gaussian.covariance, some.model_.gaussian.covariance)


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
    assert model.rows_used_ == {"kinds": known.num_rows, "parameters": known.num_rows, "table": N}
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

    def fail(self, table):
        raise KeyboardInterrupt

    monkeypatch.setattr(halfseen.GaussianImputer, "_refit", fail)
    monkeypatch.setattr(Scan, "sample", lambda self, **options: self.read(0, 1000))
    with pytest.raises(KeyboardInterrupt):
        imputer.fit(halfseen.scan(one))
    assert not hasattr(imputer, "model_")
