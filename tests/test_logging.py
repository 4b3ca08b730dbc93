"""What the logger of the library tells a service, and that a warning is not repeated with every answer."""

import logging
import subprocess
import sys
import warnings

import numpy as np
import pytest

import halfseen
from halfseen import (
    AutoImputer,
    GaussianImputer,
    GaussianRegressor,
    HalfseenWarning,
    MixtureImputer,
    TreeImputer,
)
from halfseen.training.progress import time_limit


def table():
    X = np.random.default_rng(0).normal(size=(120, 3)) + np.arange(3)
    X[::5, 0] = np.nan
    return X


def logged(caplog, level=logging.INFO):
    return [
        one.getMessage()
        for one in caplog.records
        if one.name.startswith("halfseen.") and one.levelno >= level
    ]


@pytest.fixture
def log(caplog):
    caplog.set_level(logging.DEBUG, logger="halfseen")
    return caplog


def test_nothing_is_shown_by_default():
    program = (
        "import halfseen, logging, numpy as np; "
        "halfseen.GaussianImputer().fit(np.random.default_rng(0).normal(size=(60, 2))); "
        "logging.getLogger('halfseen.base').error('not shown')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def test_a_fit_is_logged_with_its_epochs_and_the_bounds_of_columns(log):
    imputer = MixtureImputer(2, max_epochs=3, random_state=0).fit(table())
    n_epochs = len(imputer.history_.train_loss)
    (fitted,) = logged(log)
    assert fitted.startswith("MixtureImputer was fitted in ")
    assert f"with {n_epochs} epochs (stopped by {imputer.history_.stopped})" in fitted
    details = [text for text in logged(log, logging.DEBUG) if text not in logged(log)]
    assert sum(text.startswith("Epoch ") for text in details) == n_epochs
    assert sum("with the bounds or levels" in text for text in details) == 3


def test_a_predictor_and_iterations_are_logged(log):
    GaussianRegressor(random_state=0).fit(table(), np.arange(120.0))
    imputer = GaussianImputer(random_state=0).fit(table())
    assert "GaussianRegressor was fitted in " in logged(log)[0]
    assert f", with {imputer.n_iter_} iterations." in logged(log)[-1]


def test_a_choice_is_logged_with_its_reason(log):
    imputer = AutoImputer(random_state=0).fit(
        table()[:40]
    )  # too few rows for a comparison, which takes longer
    assert f"AutoImputer: {imputer.reason_}" in logged(log)


def test_a_time_limit_that_is_met_is_logged_once(log):
    with time_limit(0.0):
        MixtureImputer(2, random_state=0).fit(table())
    assert sum("time limit was met" in text for text in logged(log)) == 1


def test_near_copies_are_logged(log):
    X = table()
    X[:, 1] = 2 * X[:, 2] + 1e-9 * X[:, 1]
    with pytest.warns(HalfseenWarning, match="nearly copies"):
        MixtureImputer(2, max_epochs=3, random_state=0).fit(X)
    assert "Column 'x1' is a near-copy of 'x2'" in " ".join(logged(log))


def test_loading_is_logged(log, tmp_path):
    GaussianImputer(random_state=0).fit(table()).save(tmp_path / "model")
    halfseen.load(tmp_path / "model")
    assert logged(log)[-1].startswith(
        f"Loaded a GaussianImputer from {str(tmp_path / 'model')!r}, written by "
    )


@pytest.mark.parametrize("imputer", [GaussianImputer(random_state=0), TreeImputer(random_state=0)])
def test_the_same_warning_is_shown_once_over_many_answers_of_a_loaded_model(tmp_path, monkeypatch, imputer):
    imputer.fit(table()).save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    # A value is "far" if it may only lie within the highest tenth of the observed range, or above it.
    monkeypatch.setattr("halfseen.base.completion.FAR", -0.9)
    monkeypatch.setattr("halfseen.errors._SHOWN", set())  # as in a new process
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(50):
            loaded.transform([[np.nan, 1.0, 9.0]])
    texts = [str(one.message) for one in caught if issubclass(one.category, HalfseenWarning)]
    assert len(texts) == 1
