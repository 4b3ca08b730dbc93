"""Every estimator of tables answers files as it answers the whole table in memory, bit by bit."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halfseen
from halfseen import distributed
from halfseen.data import incomplete as blocks

pytestmark = pytest.mark.slow

N, D = 700, 12

IMPUTERS = {
    "mean": lambda: halfseen.MeanImputer(random_state=0),
    "gaussian": lambda: halfseen.GaussianImputer(random_state=0),
    "posterior": lambda: halfseen.GaussianImputer(random_state=0, n_posterior_draws=2),
    "probit": lambda: halfseen.GaussianImputer(random_state=0, missingness="self-masking-probit"),
    "mixture": lambda: halfseen.MixtureImputer(random_state=0, n_components=2),
    "chained": lambda: halfseen.ChainedImputer(random_state=0),
    "trees": lambda: halfseen.TreeImputer(random_state=0),
    "circuit": lambda: halfseen.CircuitImputer(random_state=0),
    "miwae": lambda: halfseen.MIWAEImputer(random_state=0, max_epochs=2),
    "bootstrap": lambda: halfseen.BootstrapImputer(halfseen.MeanImputer(), random_state=0),
}
PREDICTORS = {
    "gaussian": lambda: halfseen.GaussianRegressor(),
    "neumiss": lambda: halfseen.NeuMissRegressor(random_state=0, max_epochs=2),
    "boosting": lambda: halfseen.BoostingRegressor(random_state=0),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A table of several blocks, in files that end within blocks."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 256)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N, 3)) @ rng.normal(size=(3, D)) + rng.normal(size=(N, D))
    table = pa.table({f"x{j}": pa.array(values[:, j], mask=rng.random(N) < 0.3) for j in range(D)})
    (tmp_path / "in").mkdir()
    for number, (low, high) in enumerate([(0, 100), (100, 101), (101, 600), (600, N)]):
        pq.write_table(
            table.slice(low, high - low), tmp_path / "in" / f"f{number}.parquet", row_group_size=70
        )
    return table, tmp_path / "in"


def read(written):
    return pa.concat_tables([pq.ParquetFile(path).read() for path in written.files])


@pytest.mark.parametrize("layout", ["parts", "files"])
@pytest.mark.parametrize("name", IMPUTERS)
def test_an_imputer_answers_files_as_the_whole_table(name, layout, files, tmp_path):
    table, source = files
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = IMPUTERS[name]().fit(table)
        written = distributed.impute(source, imputer, tmp_path / "1", n_workers=1, layout=layout)
        assert read(written).equals(imputer.transform(table))
        drawn = distributed.impute(source, imputer, tmp_path / "2", n_workers=1, layout=layout, draws=2)
        expected = imputer.sample(table, 2, row_ids=np.arange(N))
    assert read(drawn).equals(pa.concat_tables(list(expected)))


@pytest.mark.parametrize("layout", ["parts", "files"])
@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_answers_files_as_the_whole_table(name, layout, files, tmp_path):
    table, source = files
    model = PREDICTORS[name]().fit(table, np.random.default_rng(1).normal(size=N))
    found = read(distributed.predict(source, model, tmp_path / "1", n_workers=1, layout=layout))
    assert (found["prediction"].to_numpy() == model.predict(table)).all()
    low, high = model.predict_interval(table, level=0.9)
    assert (found["prediction_low"].to_numpy() == low).all()
    assert (found["prediction_high"].to_numpy() == high).all()


def _joined(tables):
    return pa.concat_tables(list(tables))


@pytest.mark.parametrize("name", IMPUTERS)
def test_an_imputer_answers_a_scan_as_the_whole_table(name, files):
    table, source = files
    rows = halfseen.scan(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = IMPUTERS[name]().fit(table)
        assert _joined(imputer.transform(rows)).equals(imputer.transform(table))
        expected = imputer.sample(table, 2, row_ids=np.arange(N))
        found = [_joined(part) for part in zip(*imputer.sample(rows, 2), strict=True)]
        assert all(one.equals(other) for one, other in zip(found, expected, strict=True))
        low, high = (_joined(parts) for parts in zip(*imputer.interval(rows, level=0.8), strict=True))
        expected_low, expected_high = imputer.interval(table, level=0.8)
        assert low.equals(expected_low)
        assert high.equals(expected_high)
        if imputer.capabilities.density:
            assert (imputer.score_samples(rows) == imputer.score_samples(table)).all()
            assert imputer.score(rows) == imputer.score(table)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_predictor_answers_a_scan_as_the_whole_table(name, files):
    table, source = files
    model = PREDICTORS[name]().fit(table, np.random.default_rng(1).normal(size=N))
    rows = halfseen.scan(source)
    assert (model.predict(rows) == model.predict(table)).all()
    for found, end in zip(model.predict_interval(rows), model.predict_interval(table), strict=True):
        assert (found == end).all()


@pytest.mark.parametrize("name", ["BoostingClassifier", "NeuMissClassifier"])
def test_a_classifier_answers_a_scan_as_the_whole_table(name, files):
    table, source = files
    shorter = {} if name == "BoostingClassifier" else {"max_epochs": 2}
    target = np.random.default_rng(1).choice(["no", "yes"], N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs are too few
        model = getattr(halfseen, name)(random_state=0, **shorter).fit(table, target)
    rows = halfseen.scan(source)
    assert (model.predict(rows) == model.predict(table)).all()
    assert (model.predict_proba(rows) == model.predict_proba(table)).all()
    assert (model.predict_log_proba(rows) == model.predict_log_proba(table)).all()
