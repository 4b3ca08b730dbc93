"""Likelihoods of single columns in latent-variable imputers: counts and skewed positive numbers."""

import numpy as np
import pandas as pd
import pytest

import halfseen
from halfseen import LatentImputer

LIKELIHOODS = {"visits": "poisson", "income": "log-normal"}


def table(n_rows=300, seed=0):
    """Counts and incomes that depend on one standard normal column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    visits = rng.poisson(np.exp(0.3 + 0.8 * x)).astype(float)
    income = np.exp(1.0 + 0.9 * x + 0.4 * rng.normal(size=n_rows))
    frame = pd.DataFrame({"x": x, "visits": visits, "income": income})
    frame.loc[::4, "visits"] = np.nan
    frame.loc[1::4, "income"] = np.nan
    return frame


@pytest.fixture(scope="module")
def imputer():
    return LatentImputer(likelihoods=LIKELIHOODS, n_latent=1, max_epochs=20, width=16, random_state=0).fit(
        table()
    )


def test_draws_stay_in_the_support_of_the_likelihood(imputer):
    draws = imputer.sample(table(seed=1), n_draws=20)
    visits = np.concatenate([draw["visits"] for draw in draws])
    income = np.concatenate([draw["income"] for draw in draws])
    assert (visits == np.round(visits)).all()
    assert visits.min() == 0
    assert income.min() > 0


def test_the_right_likelihood_gives_a_better_density_of_new_rows(imputer):
    """Skewed incomes: the expected gain is far above the noise of 300 rows."""
    general = LatentImputer(n_latent=1, max_epochs=20, width=16, random_state=0).fit(table())
    new = table(seed=2)[["x", "income"]].assign(visits=np.nan)[["x", "visits", "income"]]
    gain = imputer.score_samples(new) - general.score_samples(new)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))


def test_a_saved_imputer_keeps_its_likelihoods(imputer, tmp_path):
    imputer.save(tmp_path / "model.halfseen")
    loaded = halfseen.load(tmp_path / "model.halfseen")
    new = table(seed=3)
    pd.testing.assert_frame_equal(loaded.transform(new), imputer.transform(new))
    np.testing.assert_array_equal(loaded.score_samples(new), imputer.score_samples(new))


@pytest.mark.parametrize(
    ("likelihoods", "message"),
    [
        ({"age": "poisson"}, "likelihoods refers to column 'age', which is not in the table"),
        ({"visits": "Poisson"}, "likelihood of column 'visits' must be one of gaussian, .*, got 'Poisson'"),
        ({"x": "log-normal"}, "Column 'x' is continuous, which the likelihood 'log-normal' cannot describe"),
        ("poisson", "likelihoods must be a mapping from columns to families, got 'poisson'"),
    ],
)
def test_likelihoods_that_do_not_fit_are_refused(likelihoods, message):
    with pytest.raises(ValueError, match=message):
        LatentImputer(likelihoods=likelihoods, max_epochs=1, width=8).fit(table(60))


def test_a_count_with_a_maximum_has_no_unbounded_likelihood():
    schema = {"visits": {"maximum": 30, "firm": True}}
    with pytest.raises(ValueError, match="'poisson' of column 'visits' is not bounded above"):
        LatentImputer(likelihoods=LIKELIHOODS, schema=schema, max_epochs=1, width=8).fit(table(60))


def test_pixels_of_images_have_one_likelihood():
    with pytest.raises(ValueError, match="likelihoods must be None"):
        LatentImputer(likelihoods={"0": "gaussian"}, image_shape=(8, 8)).fit(
            np.random.default_rng(0).random((60, 64))
        )
