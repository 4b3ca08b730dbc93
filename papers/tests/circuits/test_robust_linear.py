"""The robust linear classifier: its loss by enumeration, and its optimum by the linear program."""

from itertools import combinations

import numpy as np
import pytest
from tolerances import EXACT

from papers.circuits.robust_linear import (
    RobustLinear,
    _margins,
    delete,
    descend,
    robust_loss,
    solve_program,
)


def two_classes(n=24, d=5, seed=0):
    rng = np.random.default_rng(seed)
    signs = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    x = np.maximum(rng.normal(size=(n, d)) + 0.8 * signs[:, None] * np.array([1, 1, -1, 0, 0])[:d], 0.0)
    return x, signs


@pytest.mark.parametrize("n_deleted", [0, 1, 2, 5, 9])
def test_the_loss_is_that_of_the_worst_deletion_by_enumeration(n_deleted):
    x, signs = two_classes()
    coef, intercept = np.array([0.5, -0.2, 0.3, 0.0, -0.4]), 0.1
    worst = np.full(len(x), -np.inf)
    for size in range(min(n_deleted, 5) + 1):
        for deleted in combinations(range(5), size):
            shown = x.copy()
            shown[:, list(deleted)] = 0.0
            worst = np.maximum(worst, 1 - signs * (shown @ coef + intercept))
    expected = np.maximum(worst, 0.0).mean()
    assert robust_loss(x, signs, n_deleted, coef, intercept) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("n_deleted", [0, 1, 3])
def test_steps_reach_the_optimum_of_the_linear_program(n_deleted):
    x, signs = two_classes()
    optimum, coef, intercept = solve_program(x, signs, n_deleted, 0.7)
    assert robust_loss(x, signs, n_deleted, coef, intercept) == pytest.approx(optimum, abs=1e-8)
    found = robust_loss(x, signs, n_deleted, *descend(x, signs, n_deleted, 0.7, n_steps=3000))
    assert optimum - 1e-9 <= found <= optimum + 0.01
    assert np.abs(descend(x, signs, n_deleted, 0.7)[0]).max() <= 0.7


def test_only_features_that_are_not_zero_are_deleted():
    x = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 0.0, 4.0]])
    found = delete(x, 2, np.random.default_rng(0))
    assert ((found == x) | (found == 0)).all()
    assert (found != 0).sum(axis=1).tolist() == [1, 0]


def test_robust_weights_are_more_even_and_survive_deletions():
    rng = np.random.default_rng(1)
    signs = np.where(rng.random(400) < 0.5, 1.0, -1.0)
    strong = (signs[:, None] > 0) * rng.random((400, 1))
    weak = (signs[:, None] > 0) * 0.6 * rng.random((400, 30))
    x = np.hstack([3 * strong, weak])
    plain, robust = (RobustLinear(n, counts=[n], bounds=[1.0], scale=1.0).fit(x, signs) for n in (0, 10))
    shown = x.copy()
    shown[:, 0] = 0.0
    accuracies = [np.mean(model.predict(shown) == signs) for model in (plain, robust)]
    assert accuracies[1] >= accuracies[0]
    share = [np.abs(model.coef_[0]) / np.abs(model.coef_).sum() for model in (plain, robust)]
    assert share[1] < share[0]


def test_features_of_equal_terms_are_deleted_in_equal_parts():
    x, signs = np.array([[1.0, 1.0, 1.0, 0.5, 0.0]]), np.array([1.0])
    hinge, kept = _margins(x, signs, 2, np.ones(5), 0.0)
    np.testing.assert_allclose(kept, [[1 / 3, 1 / 3, 1 / 3, 1, 1]])
    np.testing.assert_allclose(hinge, [1 - 1.5])


def test_held_out_rows_choose_by_the_deletions_they_are_told_of():
    rng = np.random.default_rng(2)
    signs = np.where(rng.random(600) < 0.5, 1.0, -1.0)
    strong = (signs[:, None] > 0) * rng.uniform(0.5, 1, (600, 1))  # exact, if it is there
    weak = rng.random((600, 20)) * np.where(signs[:, None] > 0, 1.0, 0.4)
    x = np.hstack([strong, weak])
    model = RobustLinear(0, counts=[0, 5], bounds=[0.1, 1.0], scale=1.0)
    few, many = model.fit_for([0, 18], x, signs)
    alone = RobustLinear(18, counts=[0, 5], bounds=[0.1, 1.0], scale=1.0).fit(x, signs)
    np.testing.assert_array_equal(alone.coef_, many.coef_)
    assert (few.n_deleted, many.n_deleted) == (0, 18)
    assert np.mean(few.predict(x) == signs) > 0.95
    shown = delete(x, 18, np.random.default_rng(3))
    assert np.mean(many.predict(shown) == signs) >= np.mean(few.predict(shown) == signs)


def test_classes_other_than_two_are_refused():
    with pytest.raises(ValueError, match="two classes, got 3"):
        RobustLinear(1).fit(np.eye(3), [0, 1, 2])
