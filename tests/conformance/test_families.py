"""The laws of estimators of other data than tables: what holds for tables holds for them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from conformance.families import DATA, ArrayData
from conformance.gradients import calls_with_gradients, tensors
from conformance.registry import OTHERS
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import halfseen
from halfseen.base.catalogue import Family
from halfseen.testing.laws import other_defaults

ARRAYS = [row for row in OTHERS if row.family in (Family.IMAGES, Family.SEQUENCES)]
IMAGES = [row for row in OTHERS if row.family == Family.IMAGES]
SEQUENCES = [row for row in OTHERS if row.family == Family.SEQUENCES]
ROUNDING = 1e-9


@pytest.fixture(scope="module", params=OTHERS, ids=str)
def other(request):
    return request.param


@pytest.fixture(scope="module")
def data(other):
    return DATA[other.family]()


@pytest.fixture(scope="module")
def fitted(other, data):
    return data.fit(other.make(random_state=0))


def assert_same(answers, expected, rtol=0.0):
    assert answers.keys() == expected.keys()
    for name, answer in answers.items():
        assert answer.shape == expected[name].shape
        if answer.dtype.kind == "f":
            np.testing.assert_allclose(answer, expected[name], rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(answer, expected[name])


def test_answers_are_finite_and_one_for_each_row(fitted, data):
    answers = data.ask(fitted)
    assert answers
    for answer in answers.values():
        assert len(answer) == len(data.cells()[0])
        assert answer.dtype.kind != "f" or np.isfinite(answer).all()


def test_equal_seeds_give_equal_answers(other, fitted, data):
    again = data.fit(other.make(random_state=0))
    assert_same(data.ask(again), data.ask(fitted))


def test_the_modes_and_defaults_of_torch_do_not_matter(other, fitted, data, tmp_path):
    fitted.save(tmp_path / "model")
    with other_defaults():
        answers = [data.ask(one) for one in (fitted, data.fit(other.make(random_state=0)))]
        loaded = halfseen.load(tmp_path / "model")
    for found in (*answers, data.ask(loaded)):
        assert_same(found, data.ask(fitted))


def test_an_answer_does_not_depend_on_the_other_rows(fitted, data):
    rows = np.array([7, 3, 20])
    expected = {name: answer[rows] for name, answer in data.ask(fitted).items()}
    assert_same(data.take(rows).ask(fitted), expected, ROUNDING)
    assert all(len(answer) == 0 for answer in data.take(rows[:0]).ask(fitted).values())


def test_the_data_of_a_user_are_never_changed(other):
    data = DATA[other.family]()
    before = data.copy()
    data.ask(data.fit(other.make(random_state=0)))
    for cells, old in zip(data.cells(), before.cells(), strict=True):
        np.testing.assert_array_equal(cells, old)


def test_two_threads_answer_without_gradients_and_parameters_ask_for_none(fitted, data):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with calls_with_gradients() as found:
            assert data.ask(fitted)
    finally:
        torch.set_num_threads(before)
    assert found == []
    assert not any(tensor.requires_grad for tensor in tensors(fitted, set()))


def test_a_loaded_model_is_the_saved_one(fitted, data, tmp_path):
    fitted.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    assert type(loaded) is type(fitted)
    assert repr(loaded.get_params()) == repr(fitted.get_params())  # estimators in it have no equality
    assert vars(loaded).keys() == vars(fitted).keys()
    assert_same(data.ask(loaded), data.ask(fitted))


def test_a_clone_has_the_parameters_and_nothing_that_was_learned(fitted, data):
    copy = clone(fitted)
    assert repr(copy.get_params()) == repr(fitted.get_params())  # estimators in it have no equality
    assert vars(copy).keys() == fitted.get_params().keys()
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        data.ask(copy)


def test_an_estimator_that_was_not_fitted_cannot_be_saved(other, tmp_path):
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        other.make().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_fit_that_fails_leaves_the_estimator_as_it_was(other, data):
    fitted, unfitted = data.fit(other.make(random_state=0)), other.make(random_state=0)
    expected = data.ask(fitted)
    for estimator in (fitted, unfitted):
        before = dict(vars(estimator))
        for broken in data.broken(estimator):
            with pytest.raises(ValueError, match=r"infinity|sample|finite"):
                broken.fit(estimator)
            assert vars(estimator).keys() == before.keys()
            assert all(value is before[name] for name, value in vars(estimator).items())
    assert_same(data.ask(fitted), expected)


@pytest.mark.parametrize("row", ARRAYS, ids=str)
def test_anything_may_be_missing_although_it_never_was_in_training(row):
    data = DATA[row.family]()
    fitted = data.fit(row.make(random_state=0))
    never_missing = ~np.isnan(data.X).any(axis=0)
    assert never_missing.any()
    for hidden in (np.where(never_missing, np.nan, data.X), np.full_like(data.X, np.nan)):
        for answer in ArrayData(hidden, data.y, data.extra).ask(fitted).values():
            assert answer.dtype.kind != "f" or np.isfinite(answer).all()


@pytest.mark.parametrize("row", ARRAYS, ids=str)
def test_arrays_of_another_shape_are_refused(row):
    data = DATA[row.family]()
    fitted = data.fit(row.make(random_state=0))
    for wrong in (data.X[..., :1], data.X[0], data.X[None]):
        with pytest.raises(ValueError, match=r"features|dimensions|shape"):
            replace(data, X=wrong).ask(fitted)


@pytest.mark.parametrize("row", IMAGES, ids=str)
def test_images_are_arrays_or_rows_of_pixels(row):
    data = DATA[row.family]()
    fitted = data.fit(row.make(random_state=0))
    rows = replace(data, X=data.X.reshape(len(data.X), -1))
    trained = rows.fit(row.make(random_state=0).set_params(image_shape=data.X.shape[1:]))
    coloured = replace(data, X=data.X[..., None])
    expected = {name: answer.reshape(len(answer), -1) for name, answer in data.ask(fitted).items()}
    for estimator in (fitted, trained):
        for same in (data, rows, coloured):
            found = {name: answer.reshape(len(answer), -1) for name, answer in same.ask(estimator).items()}
            assert_same(found, expected)
    completed = (data, rows, coloured) if hasattr(fitted, "transform") else ()
    for answer, X in ((fitted.transform(same.X), same.X) for same in completed):
        assert answer.shape == X.shape
        np.testing.assert_array_equal(answer[~np.isnan(X)], X[~np.isnan(X)])


@pytest.mark.parametrize("row", SEQUENCES, ids=str)
def test_steps_after_the_end_are_never_read_and_more_of_them_change_nothing(row):
    data = DATA[row.family]()
    fitted = data.fit(row.make(random_state=0))
    after = np.arange(data.X.shape[1]) >= data.extra["lengths"][:, None]
    poisoned = np.where(after[..., None], 1e6, data.X)
    longer = np.concatenate([data.X, np.full_like(data.X[:, :3], np.nan)], axis=1)
    for X in (poisoned, longer):
        assert_same(ArrayData(X, data.y, data.extra).ask(fitted), data.ask(fitted), ROUNDING)
    trained = ArrayData(poisoned, data.y, data.extra).fit(row.make(random_state=0))
    assert_same(data.ask(trained), data.ask(fitted))


def test_no_two_recommenders_answer_alike():
    """The laws say nothing of a network whose predictions are replaced by offsets of users and items."""
    data = DATA[Family.RATINGS]()
    rows = [row for row in OTHERS if row.name.startswith(("autorec", "cfnade"))]
    answers = [data.ask(data.fit(row.make(random_state=0))) for row in rows]
    for one, two in combinations(answers, 2):
        assert any(not np.array_equal(one[name], two[name]) for name in one)
