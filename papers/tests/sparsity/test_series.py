"""The experiment on stays in intensive care, on a few made-up ones: scores, drift and its figure."""

from dataclasses import replace

import numpy as np
import pytest

from halfseen.datasets.loaders import Stays
from papers import run
from papers.figures.sparsity import drift_curves
from papers.sparsity import series as sparsity_series
from papers.sparsity.series import (
    AUROC,
    CURVE,
    DRIFT,
    EXPERIMENT,
    HALF,
    SEQUENCE,
    make_task,
    score,
)


def stays(part, *, minutes):
    rng = np.random.default_rng(ord(part))
    X = rng.normal(size=(60, 4, 2))
    y = (X[:, :, 0].mean(axis=1) > 0).astype(np.int64)
    X[rng.random(X.shape) < 0.3] = np.nan
    return Stays(X, y, np.arange(60), ("HR", "pH"))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(sparsity_series, "load_physionet2012", stays)
    monkeypatch.setattr(sparsity_series, "SIZES", {60: {"width": 3, "max_epochs": 1}})
    monkeypatch.setattr(sparsity_series, "N_ROWS", 10)
    sparsity_series._stays.cache_clear()
    yield
    sparsity_series._stays.cache_clear()


def test_a_run_has_the_auroc_of_the_test_stays_and_a_drift_with_its_interval(tiny):
    found = score(EXPERIMENT.models[HALF](), make_task({"minutes": 60}, 0))
    assert 0 <= found[AUROC] <= 1
    assert found[DRIFT] == abs(found["slope"])
    assert found["slope, lower end"] <= found["slope"] <= found["slope, upper end"]
    assert found[CURVE].shape == (4, 10)


def test_the_published_numbers_are_beside_their_counterparts():
    published = EXPERIMENT.numbers({"minutes": 10}, SEQUENCE, AUROC)
    assert (published.mean, published.other) == (0.8152, "")
    assert EXPERIMENT.numbers({"minutes": 60}, SEQUENCE, AUROC).other
    assert EXPERIMENT.numbers({"minutes": 10}, HALF, AUROC) is None
    assert EXPERIMENT.numbers({"minutes": 10}, SEQUENCE, DRIFT) is None


def test_the_figure_has_a_panel_for_each_model(tiny, tmp_path):
    results = run(replace(EXPERIMENT, data_sets=lambda setting: ()), "smoke", tmp_path)
    assert not any(cell.failed for cell in results.cells)
    titles = [axes.get_title(loc="left") for axes in drift_curves(results).axes]
    assert titles == ["LSTM\n60"]
