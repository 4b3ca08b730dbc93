"""Masks of MAR mechanisms do not depend on hidden values, given what is seen; self-masked ones do.

Each column is a function of the always-seen first column plus noise of its own. If a mask depends on the
table through the first column alone, the noise may be permuted over rows without anyone noticing. The
permutation distribution of a sum of products is normal in the limit, with known mean and variance.
"""

import numpy as np
import pytest
from scipy.stats import norm
from tolerances import FAILURE_RATE

from halfseen import missingness as ms

N_ROWS = 20_000
RNG = np.random.default_rng(1)
NOISE = RNG.gamma(2.0, size=(N_ROWS, 4))
DRIVER = RNG.normal(size=N_ROWS)
X = NOISE * [1.0, 5.0, 0.2, 1.0] + np.outer(DRIVER, [0.0, 3.0, 0.1, 1.0])
X[:, 0] = DRIVER


def permutation_p(hidden, noise):
    """The smallest p-value of four functions of the noise, times four."""
    p = []
    for values in (noise, noise**2, np.sqrt(noise), noise > np.median(noise)):
        a, b = hidden - hidden.mean(), values - np.mean(values)
        deviation = np.sqrt(np.sum(a**2) * np.sum(b**2) / (len(a) - 1))
        p.append(2.0 * norm.sf(abs(a @ b) / deviation) if deviation > 0.0 else 1.0)
    return 4.0 * min(p)


def p_values(mechanism):
    hidden = ~mechanism.sample(X, random_state=7)
    return [permutation_p(hidden[:, j].astype(float), NOISE[:, j]) for j in (1, 2, 3)]


def learned():
    return ms.learn(ms.MARLogistic(0.3, predictors=0).fit(X).amputate(X, random_state=0))


IGNORABLE = {
    "MCAR": ms.MCAR(0.3),
    "MCAR rows": ms.MCAR(0.3, unit="rows"),
    "MARLogistic": ms.MARLogistic(0.3, predictors=0),
    "MARLogistic, steep": ms.MARLogistic(0.5, predictors=0, steepness=50.0),
    "ByColumn": ms.ByColumn({(1, 2, 3): ms.MARLogistic(0.3, predictors=0)}),
    "MonotoneDropout": ms.MonotoneDropout(0.7, steepness=2.0, columns=[0, 1]),
}
OWN = {
    "LogisticSelfMasking": ms.LogisticSelfMasking(0.3),
    "ProbitSelfMasking": ms.ProbitSelfMasking(0.3),
    "GaussianSelfMasking": ms.GaussianSelfMasking(0.3),
    "Threshold": ms.Threshold(),
    "QuantileCensoring upper": ms.QuantileCensoring(0.3),
    "QuantileCensoring lower": ms.QuantileCensoring(0.3, tail="lower"),
    "QuantileCensoring both": ms.QuantileCensoring(0.3, tail="both"),
    "DetectionLimit": ms.DetectionLimit(lower={1: 5.0, 2: 0.2, 3: 1.0}),
}


@pytest.mark.parametrize("name", IGNORABLE)
def test_masks_at_random_do_not_depend_on_hidden_values(name):
    mechanism = IGNORABLE[name].fit(X)
    assert min(p_values(mechanism)) > FAILURE_RATE


@pytest.mark.parametrize("name", OWN)
def test_self_masked_cells_depend_on_their_own_value(name):
    mechanism = OWN[name].fit(X)
    assert max(p_values(mechanism)) < FAILURE_RATE


def test_a_learned_mechanism_depends_on_what_is_seen_alone():
    mechanism = learned()
    assert min(p_values(mechanism)) > FAILURE_RATE
    hidden = ~mechanism.sample(X, random_state=7)
    assert abs(np.corrcoef(hidden[:, 1], DRIVER)[0, 1]) > 0.2


def test_masks_at_random_do_depend_on_what_is_seen():
    hidden = ~ms.MARLogistic(0.3, predictors=0).fit(X).sample(X, random_state=7)
    assert hidden[:, 0].sum() == 0
    for j in (1, 2, 3):
        assert permutation_p(hidden[:, j].astype(float), DRIVER - DRIVER.min()) < FAILURE_RATE


def test_completely_at_random_depends_on_nothing():
    hidden = ~ms.MCAR(0.3).fit(X).sample(X, random_state=7)
    for j in range(4):
        for k in range(4):
            assert permutation_p(hidden[:, j].astype(float), X[:, k] - X[:, k].min()) > FAILURE_RATE
            if j != k:
                assert permutation_p(hidden[:, j].astype(float), hidden[:, k] + 0.0) > FAILURE_RATE


def test_dropout_looks_at_the_last_value_seen_and_never_comes_back():
    mechanism = ms.MonotoneDropout(0.7, steepness=3.0, columns=[0, 3, 1]).fit(X)
    observed = mechanism.sample(X, random_state=0)
    ordered = observed[:, [0, 3, 1]]
    assert np.all(ordered[:, :-1] >= ordered[:, 1:])
    assert observed[:, 2].all()
    stayed = observed[:, 3]
    left_next = (stayed & ~observed[:, 1]).astype(float)
    assert permutation_p(left_next[stayed], (X[stayed, 3] - X[:, 3].min())) < FAILURE_RATE
    assert permutation_p(left_next[stayed], NOISE[stayed, 1]) > FAILURE_RATE
