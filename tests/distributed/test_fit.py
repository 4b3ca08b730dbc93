"""Fits to a part of the rows do not depend on the files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import halfseen
from halfseen import distributed
from halfseen.data import blocks
from halfseen.distributed import fitting
from halfseen.errors import HalfseenWarning, SchemaError, TableError
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
    monkeypatch.setattr(fitting, "MOST_MOMENTS", 20)
    with pytest.warns(
        HalfseenWarning, match=r"is fitted to \S+ of 4,000 rows, because the table has too many"
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


def test_an_estimator_says_how_a_scan_is_used(files):
    _, one, _ = files
    match = r"Scan\(2 files, 4,000 rows, 3 columns\) is not a table in memory: use halfseen.distributed.fit"
    with pytest.raises(SchemaError, match=match):
        halfseen.GaussianImputer().fit(halfseen.scan(one))
