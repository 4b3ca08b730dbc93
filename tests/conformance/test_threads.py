"""Laws of several threads: no gradients, the same state and results, and no waiting within libraries."""

import numpy as np
import pytest
import torch
from conformance.gradients import calls_with_gradients, tensors
from conformance.registry import ESTIMATORS, PREDICTORS
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_info, threadpool_limits

import halfseen
from halfseen.testing.tables import gaussian_array

N_ROWS = 600  # more than a sampler handles at once, so that threads share them


def fitted(row, table):
    estimator = row.make(random_state=0)
    if row not in PREDICTORS:
        return estimator.fit(table)
    return estimator.fit(table, row.target(np.nan_to_num(table[:, 0])))


def answers(estimator, table):
    """Yields every answer that the estimator can give, as arrays."""
    for name in ("transform", "predict", "predict_proba", "score_samples"):
        if hasattr(estimator, name):
            yield np.asarray(getattr(estimator, name)(table))
    for name in ("interval", "predict_interval"):
        if hasattr(estimator, name):
            yield from getattr(estimator, name)(table)
    if hasattr(estimator, "sample"):
        yield estimator.sample(table, n_draws=2)


@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_two_threads_answer_without_gradients(row, two_threads):
    table = gaussian_array(N_ROWS)
    estimator = fitted(row, table)
    with calls_with_gradients() as found:
        assert all(np.shape(answer)[-1] for answer in answers(estimator, table))
    assert found == []


@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_parameters_of_a_fitted_model_ask_for_no_gradient(row, tmp_path):
    estimator = fitted(row, gaussian_array())
    held = list(tensors(estimator, set()))
    assert held
    assert not any(tensor.requires_grad for tensor in held)
    estimator.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert not any(tensor.requires_grad for tensor in tensors(loaded, set()))


def boosted(table):
    """Yields what grows boosted trees, by name, as functions without arguments."""
    yield "describe", lambda: halfseen.describe(table)
    yield "TreeImputer", lambda: halfseen.TreeImputer(n_rounds=1, random_state=0).fit(table)
    y = np.nan_to_num(table[:, 0])
    for target, task in ((y, "Regressor"), (y > 0, "Classifier")):
        for name in (f"Boosting{task}", f"ImputeThen{task}"):
            model = getattr(halfseen, name)(max_iter=3, random_state=0)
            yield name, lambda model=model, target=target: model.fit(table, target).predict(table)


BOOSTED = [name for name, _ in boosted(np.zeros((1, 1)))]


@pytest.mark.parametrize("name", BOOSTED)
def test_boosted_trees_are_grown_on_the_thread_that_asks_for_them(name, monkeypatch):
    """Threads of OpenMP would wait for each other thousands of times, which a busy machine cannot afford."""
    monkeypatch.setattr("halfseen._threads.count_processors", lambda: 1)
    seen = []
    for booster in (HistGradientBoostingClassifier, HistGradientBoostingRegressor):
        for method in ("fit", "_raw_predict"):
            monkeypatch.setattr(booster, method, recording(getattr(booster, method), seen))
    with threadpool_limits(2, user_api="openmp"):
        dict(boosted(gaussian_array()))[name]()
    assert seen
    assert set(seen) == {1}


def recording(function, seen):
    def record(*args, **kwargs):
        seen.extend(found["num_threads"] for found in threadpool_info() if found["user_api"] == "openmp")
        return function(*args, **kwargs)

    return record


def test_a_diagnosis_does_not_depend_on_the_number_of_threads(two_threads):
    table = gaussian_array(N_ROWS)
    several = halfseen.describe(table).predictability
    torch.set_num_threads(1)
    assert halfseen.describe(table).predictability == several
