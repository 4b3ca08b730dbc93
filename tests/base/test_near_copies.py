"""Numbers that are nearly copies of each other, where a model draws them too widely."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import halfseen
from halfseen import BootstrapImputer, ChainedImputer, MeanImputer, MixtureImputer, TreeImputer
from halfseen.base.near_copies import NearCopy, WithNearCopies, find_near_copies, relate_near_copies
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


def columns(X):
    return [Column(f"x{j}", "continuous", "float64", "number") for j in range(X.shape[1])]


def find(X):
    return find_near_copies(columns(X), Incomplete.from_array(X))


def quietly(imputer, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HalfseenWarning)
        return imputer.fit(X)


@pytest.fixture(scope="module")
def mixture():
    return quietly(MixtureImputer(max_epochs=1, random_state=0), table(-0.9995))


def test_the_user_is_told_once_which_columns_are_imputed_from_each_other():
    with pytest.warns(HalfseenWarning, match=r"Columns 'x0' and 'x2' are nearly copies .*MixtureI") as caught:
        imputer = MixtureImputer(max_epochs=1, random_state=0).fit(table(-0.9995))
    assert len(caught) == 1
    assert caught[0].message.note.severity == "check"
    assert imputer.near_copies_ == {"x0": ["x2"], "x2": ["x0"]}
    imputer = MixtureImputer(max_epochs=1, random_state=0).fit(table(0.98))
    assert imputer.near_copies_ == {}


def test_exact_copies_in_other_units_are_imputed_exactly():
    X = table(1.0)
    X[:, 0] = 1.8 * X[:, 0] + 32
    filled = quietly(MixtureImputer(max_epochs=1, random_state=0), X).transform(X)
    np.testing.assert_allclose(filled[:, 2], (X[:, 0] - 32) / 1.8, atol=1e-9)


def test_residuals_that_grow_with_the_source_are_drawn_as_wide_as_they_are_there():
    rng = np.random.default_rng(0)
    size = np.exp(rng.normal(size=1000))
    X = np.column_stack([size, size * (1 + 0.01 * rng.normal(size=1000))])
    X[::4, 1] = np.nan
    draws = quietly(MixtureImputer(max_epochs=1, random_state=0), X).sample(X, n_draws=20)
    error = (draws[:, ::4, 1] / X[::4, 0] - 1) / 0.01
    small = X[::4, 0] < np.median(X[::4, 0])
    assert 0.5 < error[:, small].std() < 2
    assert 0.5 < error[:, ~small].std() < 2


def test_a_residual_that_a_model_knows_from_other_columns_is_left_to_it():
    """A Gaussian knows a sum exactly; a linear relation to its largest part does not."""
    X = table(0.0)
    X[:, 2] = X[:, 0] + 0.01 * X[:, 1]
    assert len(find(X)) == 2
    X[:40, 2] = np.nan
    imputer = halfseen.GaussianImputer().fit(X)
    assert imputer.near_copies_ == {}
    np.testing.assert_allclose(imputer.transform(X)[:40, 2], X[:40, 0] + 0.01 * X[:40, 1], atol=1e-4)


def test_narrow_clusters_are_represented_though_their_columns_have_a_high_correlation():
    rng = np.random.default_rng(0)
    X = rng.choice([-5.0, 5.0], size=(200, 1)) + 0.3 * rng.normal(size=(200, 2))
    assert len(find(X)) == 2
    assert MixtureImputer(2, random_state=0).fit(X).near_copies_ == {}


def test_other_columns_are_imputed_as_if_there_were_no_near_copies(mixture):
    X = table(-0.9995)
    X[::3, 1] = np.nan
    own = mixture.model_.point(Incomplete.from_array(X))[:, 1].numpy()
    expected = mixture.schema_.columns[1].constrain(own)
    np.testing.assert_allclose(mixture.transform(X)[:, 1], expected, rtol=1e-10)


def test_imputers_that_combine_others_relate_near_copies_once():
    with pytest.warns(HalfseenWarning, match="BootstrapImputer would draw") as caught:
        BootstrapImputer(MixtureImputer(max_epochs=1), n_resamples=2, random_state=0).fit(table(0.9995))
    assert len(caught) == 1


@pytest.mark.parametrize(
    "imputer",
    [
        MeanImputer(),
        BootstrapImputer(MeanImputer(), n_resamples=2),
        TreeImputer(0, predictors={"c": ["b"]}),
        ChainedImputer(2, n_cycles=1, constraints=["c <= 100"]),
    ],
    ids=repr,
)
def test_columns_are_not_related_where_this_would_change_what_was_asked_for(imputer):
    frame = pd.DataFrame(table(0.9999), columns=list("abcd"))
    assert quietly(imputer, frame).near_copies_ == {}


def test_relations_are_saved_and_checked_on_loading(mixture, tmp_path):
    X = table(-0.9995)
    mixture.save(tmp_path / "model.halfseen")
    again = halfseen.load(tmp_path / "model.halfseen")
    assert again.near_copies_ == mixture.near_copies_
    np.testing.assert_array_equal(again.sample(X, n_draws=2), mixture.sample(X, n_draws=2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": 4}, {"target": -1}, {"source": True}, {"source": 2}, {"numbers": [0.1, 1.0]},
        {"numbers": [0.1, 1e300, 0.0, 1.0, 0.0, 1.0]}, {"numbers": [0.1, 1.0, 0.0, 0.0, 0.0, 1.0]},
        {"numbers": [0.1, 1.0, float("nan"), 1.0, 0.0, 1.0]}, {"edges": [0.0, 0.0, 1.0]}, {"atoms": [[]]},
        {"atoms": [[1.0, 0.0]], "edges": []}, {"atoms": [[0.0, 1e300]], "edges": []}, {"edges": [[0.0]]},
    ],
    ids=str,
)  # fmt: skip
def test_forged_relations_are_refused(mixture, wrong):
    (saved,) = (copy.to_dict() for copy in mixture._near_copies if copy.target == 2)
    assert NearCopy.from_dict(json.loads(json.dumps(saved)), columns(table(0))).target == 2
    with pytest.raises((ValueError, TypeError)):
        NearCopy.from_dict(saved | wrong, columns(table(0)))


def test_correlations_are_those_of_the_rows_that_have_both_values():
    X = np.concatenate([table(0.999), -table(0.9995, seed=1)], axis=1)
    X[150:, 4] = np.nan
    found = find(X)
    assert [(copy.target, copy.source) for copy in found] == [(0, 2), (2, 0), (4, 6), (6, 4)]
    for copy in found:
        both = ~np.isnan(X[:, copy.target]) & ~np.isnan(X[:, copy.source])
        correlation = np.corrcoef(X[both][:, [copy.target, copy.source]].T)[0, 1]
        assert copy.residual == pytest.approx(np.sqrt(1 - correlation**2), rel=1e-9)
        assert np.sign(copy.slope) == np.sign(correlation)


def test_few_common_rows_and_coarse_columns_are_no_evidence():
    X = table(0.9995)
    X[np.arange(200) >= 40 + 19, 2] = np.nan
    assert find(X) == []
    ratings = np.random.default_rng(0).integers(1, 6, size=200).astype(float)
    assert find(np.column_stack([ratings, ratings, table(0.5)[:, 0]])) == []


def test_parts_of_the_correlations_give_the_same_relations(monkeypatch):
    X = np.concatenate([table(0.999), -table(0.9995, seed=1)], axis=1)
    whole = find(X)
    monkeypatch.setattr("halfseen.base.near_copies.AT_ONCE", 3 * X.shape[1])
    assert [copy.to_dict() for copy in find(X)] == [copy.to_dict() for copy in whole]


def test_the_mean_of_a_relation_is_that_of_its_quantiles():
    (copy,) = (one for one in find(table(0.999, n_rows=300)) if one.target == 2)
    levels = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    for source in (-2.0, 0.0, 0.7):
        sources = torch.full_like(levels, source)
        of_levels = copy.quantiles(sources, levels)
        assert of_levels.mean().item() == pytest.approx(copy.mean(sources[:1]).item(), abs=1e-7)
        assert bool((of_levels.diff() >= 0).all())


class Wide:
    """A model that completes every number by noise, which determines nothing."""

    def point(self, codes):
        return torch.where(codes.observed, codes.x, 7.0)

    def interval(self, codes, level):
        return torch.stack([torch.where(codes.observed, codes.x, end) for end in (-9.0, 9.0)])

    def draws(self, codes, keys, n_draws):
        return torch.where(codes.observed, codes.x, 1.0).expand(n_draws, -1, -1)


def test_values_that_are_missing_together_follow_from_each_other_by_the_nearest_relations():
    """Columns 1 and 2 are much nearer to each other than to column 0, from which they are both drawn."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=500)
    second = first + 0.05 * rng.normal(size=500)
    X = np.column_stack([first, second, 2 * second + 2e-4 * rng.normal(size=500)])
    codes = Incomplete.from_array(X)
    copies = relate_near_copies(columns(X), Wide(), codes)
    assert len(copies) == 6
    model = WithNearCopies(Wide(), copies)
    observed = codes.observed.clone()
    observed[:250, 1:] = False
    observed[250:] = False
    keys = np.arange(500, dtype=np.uint64) * np.uint64(2**32 + 12345)
    drawn = model.draws(Incomplete(codes.x, observed), keys, 4).numpy()
    assert 0.5 < (drawn[:, :250, 1] - first[:250]).std() / 0.05 < 2
    assert 0.5 < (drawn[..., 2] - 2 * drawn[..., 1]).std() / 2e-4 < 2
    assert (drawn[:, 250:, 0] == 1.0).all()  # the first is that of the model
    point = model.point(Incomplete(codes.x, observed)).numpy()
    assert (point[250:] == 7.0).all()
    np.testing.assert_allclose(point[:250, 1], first[:250], atol=0.05)


class Sharp(Wide):
    """A model that knows every number well, but not if the last column is observed."""

    def interval(self, codes, level):
        width = torch.where(codes.observed[:, -1:], 9.0, 1e-3)
        return torch.stack([codes.x - width, codes.x + width])


def test_a_source_is_used_only_if_it_is_better_than_the_model_where_nearer_ones_are_missing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 1] = X[:, 0] + 0.05 * X[:, 1]
    X[:, 2] = 3 * X[:, 1]
    copies = relate_near_copies(columns(X), Sharp(), Incomplete.from_array(X))
    assert [(copy.target, copy.source) for copy in copies if copy.target == 1] == [(1, 2)]


def test_the_order_of_rows_changes_no_relation():
    """There are more rows than are looked at, some of them equal."""
    X = table(0.9995, n_rows=12_000)
    X[:3_000] = X[3_000:6_000]
    order = np.random.default_rng(1).permutation(len(X))
    one, other = (
        relate_near_copies(columns(X), Wide(), Incomplete.from_array(rows)) for rows in (X, X[order])
    )
    assert len(one) == 2
    assert [copy.to_dict() for copy in one] == [copy.to_dict() for copy in other]


def test_rows_of_one_kind_at_regular_distances_are_not_the_table():
    """Every second row has a copy: of 20,000 rows, every second one was looked at."""
    X = table(0.0, n_rows=20_000)
    X[::2, 2] = X[::2, 0]
    assert find(X) == []
    X[1::2, 2] = X[1::2, 0]
    assert len(find(X)) == 2
