"""Draws know whether they may be pooled; resamples give parameters the right variance."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import halfseen
from halfseen import BootstrapImputer, GaussianImputer, HalfseenWarning, MeanImputer, MixtureImputer
from halfseen.pooling.multiple import properly


def incomplete(n_rows=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=n_rows)
    X[: n_rows // 3, 1] = np.nan
    return X


def mean_of_last(table):
    last = table.iloc[:, -1] if isinstance(table, pd.DataFrame) else table[:, -1]
    return last.mean(), last.var(ddof=1) / len(last)


@pytest.mark.parametrize(
    ("imputer", "message"),
    [
        (GaussianImputer(), "GaussianImputer ignore that its parameters are uncertain"),
        (MixtureImputer(2, max_epochs=2), "MixtureImputer ignore"),
        (GaussianImputer(n_posterior_draws=2), "4 draws share 2 draws of the parameters"),
        (GaussianImputer(n_posterior_draws=4, max_iter=1), "EM did not converge within max_iter=1"),
        (BootstrapImputer(MeanImputer(), 3), "4 draws share 3 draws of the parameters"),
    ],
)
@pytest.mark.parametrize("as_frame", [False, True])
def test_pool_warns_about_draws_that_should_not_be_pooled(imputer, message, as_frame):
    X = pd.DataFrame(incomplete(), columns=["a", "b"]) if as_frame else incomplete()
    draws = imputer.fit(X).sample(X, n_draws=4)
    with pytest.warns(HalfseenWarning, match=message):
        halfseen.pool(mean_of_last, draws)
    with pytest.warns(HalfseenWarning, match=message):
        halfseen.pool(mean_of_last, draws[:3] if as_frame else draws[:, :, 1:])


@pytest.mark.parametrize("imputer", [None, MeanImputer(), GaussianImputer(missingness="self-masking-probit")])
def test_multiple_imputation_is_proper_for_every_imputer(imputer):
    X = incomplete()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tables = halfseen.multiple_imputation(X, imputer, n_draws=3, random_state=0)
        pooled = halfseen.pool(LinearRegression(), tables.draws[:, :, 1:], X[:, 0])
        halfseen.pool(mean_of_last, tables)
    assert tables.reservations == ()
    assert len(tables) == len(list(tables)) == 3
    np.testing.assert_array_equal(tables[1][40:], X[40:])
    again = halfseen.multiple_imputation(X, imputer, n_draws=3, random_state=0)
    np.testing.assert_array_equal(tables.draws, again.draws)
    new = tables.complete(X[:5])
    assert pooled.predict(new[:, :, 1:]).shape == (5,)


def test_the_way_to_proper_draws_is_that_of_the_catalogue():
    assert properly(GaussianImputer(ridge=2.0), 7).n_posterior_draws == 7
    masked = properly(GaussianImputer(missingness="self-masking-probit", random_state=3), 7)
    assert (type(masked), masked.n_resamples, masked.random_state) == (BootstrapImputer, 7, 3)
    assert properly(BootstrapImputer(n_resamples=4), 7).n_resamples == 7
    with pytest.raises(ValueError, match="must be an imputer of tables, got LinearRegression"):
        properly(LinearRegression(), 3)


@pytest.mark.parametrize("resampling", ["bootstrap", "half-sample"])
def test_parameters_of_resamples_have_the_variance_of_an_estimate(resampling):
    """The mean of 300 numbers over 300 resamples; the ratio of variances has a standard deviation of 8%."""
    X = np.random.default_rng(0).normal(5, 2, size=(300, 1))
    imputer = BootstrapImputer(MeanImputer(), 300, resampling=resampling, random_state=0).fit(X)
    means = [float(member.model_.features.scaler.loc[0]) for member in imputer.resamples_]
    assert np.var(means) == pytest.approx(X.var() / 300, rel=0.33)
    assert np.mean(means) == pytest.approx(X.mean(), abs=4 * X.std() / 300)


def test_imputers_that_hold_out_rows_are_fitted_to_halves():
    X = incomplete()
    codes = BootstrapImputer(MixtureImputer(2, max_epochs=1), 1, random_state=0).fit(X)
    rows = codes._resample(codes._read(X, reset=False).codes, np.random.default_rng(0))
    assert len(rows) == len(set(rows)) == 60


def test_draws_carry_the_uncertainty_of_the_parameters():
    X = np.random.default_rng(0).normal(size=(12, 1))
    X[-1] = np.nan
    plain = MeanImputer(random_state=0).fit(X)
    proper = BootstrapImputer(MeanImputer(), 400, random_state=0).fit(X)
    spread = proper.sample(X, n_draws=400)[:, -1, 0].std() / plain.sample(X, n_draws=400)[:, -1, 0].std()
    assert 1.0 < spread < 1.2  # sqrt(1 + 1 / 11) is 1.04
    np.testing.assert_array_equal(proper.transform(X), plain.transform(X))


def test_misuse_of_the_bootstrap_is_explained():
    X = incomplete()
    with pytest.raises(ValueError, match="resampling must be one of auto, bootstrap, half-sample, got 'x'"):
        BootstrapImputer(resampling="x").fit(X)
    with pytest.raises(ValueError, match="n_resamples"):
        BootstrapImputer(n_resamples=0).fit(X)
    with pytest.raises(ValueError, match="must be an imputer of tables"):
        BootstrapImputer(BootstrapImputer()).fit(X)
    with pytest.raises(ValueError, match="Images cannot be resampled"):
        BootstrapImputer(halfseen.MIWAEImputer(image_shape=[1, 2])).fit(X)


def test_the_schema_of_the_imputer_counts():
    X = pd.DataFrame({"a": [1.0, 2.0, 1.0, 2.0, 1.0, np.nan] * 4, "b": np.arange(24.0)})
    imputer = BootstrapImputer(MeanImputer(schema={"a": "categorical"}), 2, random_state=0).fit(X)
    assert imputer.schema_.columns[0].kind == "categorical"
    other = BootstrapImputer(MeanImputer(), 2, schema={"a": "ordinal"}, random_state=0).fit(X)
    assert other.schema_.columns[0].kind == "ordinal"


def test_parameters_of_chained_equations_can_be_passed_at_once():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"]).mask(rng.random((60, 3)) < 0.2)
    controls = {
        "methods": {"c": "pmm"},
        "predictors": {"a": ["b"]},
        "constraints": ["a <= 9"],
        "visit_order": ["c"],
        "n_cycles": 2,
    }
    found = halfseen.multiple_imputation(table, n_draws=2, random_state=0, **controls)
    imputer = halfseen.ChainedImputer(**controls)
    expected = halfseen.multiple_imputation(table, imputer, n_draws=2, random_state=0)
    for one, other in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(one, other)
    blocks = halfseen.multiple_imputation(table, n_draws=2, blocks=[["a", "b"]], random_state=0)
    assert blocks.imputer.blocks == [["a", "b"]]
    with pytest.raises(ValueError, match="blocks= is a parameter of ChainedImputer, got GaussianImputer"):
        halfseen.multiple_imputation(table, halfseen.GaussianImputer(), blocks=[["a", "b"]])
    with pytest.raises(ValueError, match="pass analysis="):
        halfseen.multiple_imputation(table, family="poisson")
