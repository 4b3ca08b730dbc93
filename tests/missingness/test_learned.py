"""A learned mechanism: it finds the weights that hid cells, and hides cells in the same way."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm
from tolerances import FAILURE_RATE

from halfseen import missingness as ms
from halfseen.datasets import load_penguins
from halfseen.missingness.logistic import ridge_logistic


def complete_table(n_rows, seed):
    rng = np.random.default_rng(seed)
    return rng.lognormal(size=(n_rows, 5)) @ (np.eye(5) + 0.3 * rng.random((5, 5)))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.7])
def test_a_learned_mechanism_removes_as_many_cells_as_were_missing(rate):
    X, fresh = np.split(complete_table(40_000, 0), 2)
    truth = ms.MARLogistic(rate, predictors=[0, 1], steepness=2.0).fit(X)
    mechanism = ms.learn(truth.amputate(X, random_state=0))
    assert sorted(mechanism.columns_) == [2, 3, 4]
    share = 1.0 - mechanism.sample(fresh, random_state=1).mean(axis=0)
    # Twice binomial error: of the cells that it learned from, and of those that it hides.
    error = np.sqrt(2 * rate * (1 - rate) / len(X))
    np.testing.assert_allclose(share, mechanism.expected_rate_, atol=4 * error)
    np.testing.assert_allclose(share, truth.expected_rate_, atol=4 * error)


def test_it_finds_the_probabilities_with_which_cells_were_hidden():
    X = complete_table(40_000, 1)
    truth = ms.MARLogistic(0.3, predictors=[0, 1], steepness=1.5, columns=[2, 3]).fit(X)
    mechanism = ms.learn(truth.amputate(X, random_state=0))
    observed = truth.sample(X, random_state=1)
    gap = truth.log_prob(observed, X) - mechanism.log_prob(observed, X)
    assert (
        0.0 <= gap.mean() < 0.001
    )  # Kullback-Leibler divergence per row; its expectation is about 4 / 40,000


def test_cells_that_are_missing_together_are_hidden_together():
    X = complete_table(5000, 2)
    holed = ms.MCAR(0.2, unit="blocks", blocks=[[1, 2, 3]]).fit(X).amputate(X, random_state=0)
    hidden = ~ms.learn(holed).sample(X, random_state=1)
    assert (hidden[:, 1] != hidden[:, 2]).mean() < 0.01
    assert hidden[:, 1].mean() == pytest.approx(0.2, abs=0.03)


def test_a_value_that_it_hid_itself_no_longer_decides():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    holed = X.copy()
    holed[rng.random(20_000) < 0.2, 0] = np.nan
    holed[np.where(np.isnan(holed[:, 0]), rng.random(20_000) < 0.4, holed[:, 0] > 0.5), 1] = np.nan
    mechanism = ms.learn(holed)
    assert mechanism.columns_.tolist() == [0, 1]
    observed = mechanism.sample(X, random_state=1)
    seen, hidden = observed[:, 0], ~observed[:, 0]
    assert np.corrcoef(observed[seen, 1], X[seen, 0])[0, 1] < -0.5
    correlation = np.corrcoef(observed[hidden, 1], X[hidden, 0])[0, 1]
    assert 2 * norm.sf(abs(correlation) * np.sqrt(hidden.sum())) > FAILURE_RATE


def test_text_decides_by_level_whatever_its_order():
    rng = np.random.default_rng(0)
    town = rng.choice(["a", "b", "c"], 3000)
    frame = pd.DataFrame({"town": town, "x": rng.normal(size=3000)})
    frame.loc[town == "b", "x"] = np.nan
    complete = pd.DataFrame({"town": ["a", "b", "c"] * 200, "x": np.zeros(600)})
    hidden = ~ms.learn(frame).sample(complete, random_state=0)[:, 1]
    assert hidden[1::3].mean() > 0.95
    assert hidden[0::3].mean() < 0.05
    assert hidden[2::3].mean() < 0.05


def test_the_bundled_table_is_learned_from_in_any_library():
    masks = []
    for library in ("pandas", "polars", "pyarrow"):
        frame = load_penguins(library)
        mechanism = ms.learn(frame)
        masks.append(mechanism.sample(frame, random_state=0))
        assert mechanism.expected_rate_[6] == pytest.approx(11 / 344)
    np.testing.assert_array_equal(masks[0], masks[1])
    np.testing.assert_array_equal(masks[0], masks[2])


def test_chosen_columns_and_whole_columns():
    X = complete_table(500, 3)
    X[::2, 1] = np.nan
    X[::3, 2] = np.nan
    X[:, 4] = np.nan
    only = ms.learn(X, columns=[2])
    assert only.columns_.tolist() == [2]
    observed = only.sample(np.abs(complete_table(500, 4)), random_state=0)
    assert observed[:, [0, 1, 3, 4]].all()
    every = ms.learn(X)
    assert every.columns_.tolist() == [2, 1, 4]
    assert not every.sample(complete_table(500, 4), random_state=0)[:, 4].any()
    never = ms.learn(X, columns=[0, 1])
    assert never.sample(complete_table(500, 4), random_state=0)[:, 0].all()


def test_the_regression_is_at_its_minimum_also_when_separable():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 3))
    for outcome in (rng.random(200) < expit(A[:, 0]), A[:, 0] > 0):
        w, b = ridge_logistic(A, outcome, penalty=0.5)

        def loss(theta, outcome=outcome):
            score = A @ theta[:3] + theta[3]
            return np.logaddexp(0, np.where(outcome, -score, score)).sum() + 0.25 * theta[:3] @ theta[:3]

        best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8})
        assert loss(np.r_[w, b]) <= best.fun + 1e-9
        assert expit(A @ w + b).mean() == pytest.approx(outcome.mean(), abs=1e-8)


def test_probabilities_of_cells_are_not_known_in_closed_form():
    X = complete_table(50, 3)
    X[::2, 1] = np.nan
    with pytest.raises(NotImplementedError, match="Learned has no probability in closed form"):
        ms.learn(X).probability(X)
