"""Laws of answers given by several threads: no gradients, and the same state in every thread."""

import numpy as np
import pytest
import torch
from conformance.registry import ESTIMATORS, PREDICTORS
from conformance.tables import gaussian_array
from torch import nn

import halfseen

N_ROWS = 600  # more than a sampler handles at once, so that threads share them


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def calls_with_gradients():
    """The modules that were called while gradients were on, though no input asked for one."""
    found = []

    def watch(module, inputs):
        asked = any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)
        if torch.is_grad_enabled() and not asked:
            found.append(type(module).__name__)

    handle = nn.modules.module.register_module_forward_pre_hook(watch)
    yield found
    handle.remove()


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


def tensors(value, seen):
    """Yields the tensors that an object holds, in whatever attributes, containers and modules."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set):
        parts = value
    else:
        parts = vars(value).values() if hasattr(value, "__dict__") else ()
    for part in list(parts):
        yield from tensors(part, seen)


@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_two_threads_answer_without_gradients(row, two_threads, calls_with_gradients):
    table = gaussian_array(N_ROWS)
    estimator = fitted(row, table)
    calls_with_gradients.clear()  # training needs them
    assert all(np.shape(answer)[-1] for answer in answers(estimator, table))
    assert calls_with_gradients == []


@pytest.mark.parametrize("row", ESTIMATORS, ids=str)
def test_parameters_of_a_fitted_model_ask_for_no_gradient(row, tmp_path):
    estimator = fitted(row, gaussian_array())
    held = list(tensors(estimator, set()))
    assert held
    assert not any(tensor.requires_grad for tensor in held)
    estimator.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert not any(tensor.requires_grad for tensor in tensors(loaded, set()))
