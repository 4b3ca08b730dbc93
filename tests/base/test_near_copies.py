"""Near-copies: the methods that draw them too widely say so, and only they do."""

import numpy as np
import pytest

from halfseen import BootstrapImputer, CircuitImputer, MIWAEImputer, MixtureImputer
from halfseen.base.near_copies import find_near_copies
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.errors import HalfseenWarning


def table(correlation, n_rows=200, seed=0):
    """Two columns with a correlation, one of which has missing values, and two without any."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    X[:, 2] = correlation * X[:, 0] + np.sqrt(1 - correlation**2) * X[:, 2]
    X[: n_rows // 5, 2] = np.nan
    return X


@pytest.mark.parametrize("imputer", [MixtureImputer, CircuitImputer])
def test_a_method_that_cannot_represent_near_copies_names_the_columns_once(imputer):
    with pytest.warns(HalfseenWarning, match=r"Columns 'x0' and 'x2' .*\(correlation -0.999\d*\)") as caught:
        imputer(max_epochs=1, random_state=0).fit(table(-0.9995))
    assert len(caught) == 1
    assert "GaussianImputer" in str(caught[0].message)
    imputer(max_epochs=1, random_state=0).fit(table(0.98))  # warnings are errors


def test_a_latent_model_warns_of_near_copies_beyond_its_smallest_scale_but_not_of_exact_ones():
    imputer = MIWAEImputer(max_epochs=1, n_imputation_draws=20, random_state=0)
    with pytest.warns(HalfseenWarning, match=r"'x0' and 'x2' .*\(correlation 0.999999\d*\).* MIWAEImputer"):
        imputer.fit(table(0.9999995))
    imputer.fit(table(1.0))  # warnings are errors
    imputer.fit(table(0.9999))


def test_narrow_clusters_are_represented_though_their_columns_have_a_high_correlation():
    rng = np.random.default_rng(0)
    X = rng.choice([-5.0, 5.0], size=(200, 1)) + 0.3 * rng.normal(size=(200, 2))
    assert len(find(X)) == 1
    MixtureImputer(2, random_state=0).fit(X)  # warnings are errors


def test_imputers_that_combine_others_do_not_warn_for_each_of_them():
    BootstrapImputer(MixtureImputer(max_epochs=1), random_state=0).fit(table(0.9995))  # warnings are errors


def find(X, narrowest=0.1, exact=0.0):
    codes = Incomplete.from_array(X)
    columns = [Column(f"x{j}", "continuous", "float64", "number") for j in range(X.shape[1])]
    features = FeatureMap.fit(columns, codes, all_indicators=True)
    return find_near_copies(features, codes, narrowest, exact)


def test_correlations_are_those_of_the_rows_that_have_both_values():
    X = np.concatenate([table(0.999), -table(0.9995, seed=1)], axis=1)
    X[150:, 4] = np.nan
    found = find(X)
    assert [pair[1:] for pair in found] == [(0, 2), (4, 6)]
    for correlation, one, other in found:
        both = ~np.isnan(X[:, one]) & ~np.isnan(X[:, other])
        assert correlation == pytest.approx(np.corrcoef(X[both][:, [one, other]].T)[0, 1], abs=1e-12)


def test_few_common_rows_and_coarse_columns_are_no_evidence():
    X = table(0.9995)
    X[np.arange(200) >= 40 + 19, 2] = np.nan
    assert find(X) == []
    ratings = np.random.default_rng(0).integers(1, 6, size=200).astype(float)
    assert find(np.column_stack([ratings, ratings, table(0.5)[:, 0]])) == []


def test_parts_of_the_correlations_give_the_same_pairs(monkeypatch):
    X = np.concatenate([table(0.999), -table(0.9995, seed=1)], axis=1)
    whole = find(X)
    monkeypatch.setattr("halfseen.base.near_copies.AT_ONCE", 3 * X.shape[1])
    assert [pair[1:] for pair in find(X)] == [pair[1:] for pair in whole] == [(0, 2), (4, 6)]
