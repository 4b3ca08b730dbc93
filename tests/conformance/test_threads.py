"""Laws of answers given by several threads: no gradients, and the same state in every thread."""

import numpy as np
import pytest
from conformance.gradients import calls_with_gradients, tensors
from conformance.registry import ESTIMATORS, PREDICTORS
from conformance.tables import gaussian_array

import halfseen

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
