"""Networks of ratings beside offsets: weights by held-out ratings, and predictions that do not lose."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import halfseen
from halfseen.ratings import CFNADE, AutoRec
from halfseen.ratings.network import COUNT_PRIORS, NetworkWeight
from halfseen.ratings.recommender import PRIOR, RatingOffsets
from halfseen.ratings.table import SparseRows, read_ratings

SMALL = {"n_hidden": 16, "max_epochs": 20, "penalty": 2.0, "learning_rate": 1e-2, "random_state": 0}
KINDS = [(AutoRec, "item"), (AutoRec, "user"), (CFNADE, "user"), (CFNADE, "item")]


def make_uneven(seed, n_users=150, n_items=100, n_ratings=1500):
    """Ratings that are offsets and noise; a few users and items have most of them."""
    rng = np.random.default_rng(seed)
    shares = [1.0 / (np.arange(n) + 3.0) for n in (n_users, n_items)]
    users, items = (rng.choice(len(p), 8 * n_ratings, p=p / p.sum()) for p in shares)
    pairs = rng.permutation(np.unique(users * n_items + items))[:n_ratings]
    user, item = pairs // n_items, pairs % n_items
    level = 3.2 + rng.normal(0, 0.5, n_users)[user] + rng.normal(0, 0.5, n_items)[item]
    rating = np.clip(np.round(level + rng.normal(0, 0.7, len(pairs))), 1, 5)
    ratings = pd.DataFrame({"user": user, "item": item, "rating": rating})
    return ratings[: n_ratings * 4 // 5], ratings[n_ratings * 4 // 5 :]


def predict_offsets(train, users, items):
    """The offsets of a table of ratings, by rows of users."""
    read = read_ratings(train)
    offsets = RatingOffsets.fit(SparseRows.from_scipy(read.matrix))
    predicted = offsets.predict(read.users.positions(users), read.items.positions(items))
    return np.clip(predicted, train["rating"].min(), train["rating"].max())


def error(predicted, truth):
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (AutoRec, "user"),
        pytest.param(AutoRec, "item", marks=pytest.mark.slow),
        pytest.param(CFNADE, "user", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_few_uneven_ratings_are_predicted_as_well_as_by_offsets(kind, rows, seed):
    """The truth is a sum of offsets, so a network can only be worse; alone it is, by more than 2%."""
    train, test = make_uneven(seed)
    users, items, truth = (test[name].to_numpy() for name in ("user", "item", "rating"))
    of_offsets = error(predict_offsets(train, users, items), truth)
    model = kind(rows, n_hidden=20, random_state=seed).fit(train)
    assert error(model.predict(users, items), truth) < 1.01 * of_offsets
    model.network_weight_ = (1.0, 0.0, 0.0)
    assert error(model.predict(users, items), truth) > 1.02 * of_offsets


@pytest.mark.parametrize("seed", range(5))
def test_the_error_on_the_ratings_of_the_weights_is_not_larger_than_that_of_offsets(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    offsets, network, truth = rng.normal(size=(3, n)) * np.array([[1.0], [3.0], [1.0]])
    counts = rng.integers(1, 100, size=(2, n))
    found = NetworkWeight.fit(network, offsets, truth, *counts)
    weight = found.of(*counts)
    assert error((1 - weight) * offsets + weight * network, truth) <= error(offsets, truth) + 1e-12
    assert 0 <= found.weight <= 1


def test_the_weight_is_the_lower_end_of_an_interval_of_regression():
    """With rows and columns of very many ratings the priors have no effect."""
    rng = np.random.default_rng(0)
    offsets, noise, truth = rng.normal(size=(3, 200))
    network = truth + 0.8 * noise
    counts = np.full(200, 10**9)
    fitted = sm.OLS(truth - offsets, network - offsets).fit()
    expected = fitted.conf_int(alpha=0.1)[0, 0]
    found = NetworkWeight.fit(network, offsets, truth, counts, counts)
    assert found.of(counts[:1], counts[:1])[0] == pytest.approx(expected, abs=1e-6)
    assert 0.2 < found.weight < 0.9


def test_one_rating_gives_the_network_no_weight():
    one = np.ones(1, dtype=np.int64)
    assert NetworkWeight.fit(np.array([5.0]), np.array([3.0]), np.array([5.0]), one, one).weight == 0.0


def test_a_network_that_is_right_for_rows_with_many_ratings_is_trusted_there():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    offsets = truth + rng.normal(size=2000)
    rows = np.where(np.arange(2000) % 2, 2, 300)
    network = truth + np.where(rows == 2, 3.0, 0.1) * rng.normal(size=2000)
    found = NetworkWeight.fit(network, offsets, truth, rows, np.full(2000, 50))
    few, many = found.of(np.array([2, 300]), np.array([50, 50]))
    assert few < 0.3
    assert many > 0.7
    assert found.row_prior in COUNT_PRIORS[1:]


@pytest.mark.parametrize(("kind", "rows"), KINDS)
def test_the_weight_0_gives_the_offsets_and_1_the_network(kind, rows):
    train, test = make_uneven(0, 40, 30, 500)
    users, items = test["user"].to_numpy(), test["item"].to_numpy()
    model = kind(rows, **SMALL).fit(train)
    model.network_weight_ = (0.0, 0.0, 0.0)
    expected = np.clip(model._offsets.predict(*model._oriented(
        model._positions("user", users), model._positions("item", items)
    )), *model.rating_range_)  # fmt: skip
    np.testing.assert_array_equal(model.predict(users, items), expected)
    if rows == "user":
        np.testing.assert_array_equal(expected, predict_offsets(train, users, items))
    model.network_weight_ = (1.0, 0.0, 0.0)
    alone = kind(rows, shrink=False, **SMALL).fit(train)
    assert alone.network_weight_ == (1.0, 0.0, 0.0)
    np.testing.assert_array_equal(model.predict(users, items), alone.predict(users, items))


@pytest.mark.parametrize("rows", ["item", "user"])
def test_the_offset_of_a_new_user_is_that_of_the_formula(rows):
    train, _ = make_uneven(0, 40, 30, 500)
    model = AutoRec(rows, **SMALL).fit(train)
    model.network_weight_ = (0.0, 0.0, 0.0)
    own = model.predict_new([], [])  # no offset of the user
    given = model.items_[:3]
    unclipped = own[:3]
    assert ((unclipped > 1) & (unclipped < 5)).all()
    shift = (np.array([4.0, 5.0, 4.0]) - unclipped).sum() / (3 + PRIOR)
    np.testing.assert_allclose(
        model.predict_new(given, [4, 5, 4]), np.clip(own + shift, *model.rating_range_), rtol=1e-12
    )


def test_the_weight_depends_on_the_seed_alone():
    train, _ = make_uneven(0, 40, 30, 500)
    first, second = (AutoRec("user", **SMALL).fit(train).network_weight_ for _ in range(2))
    assert first == second


def test_ratings_that_are_too_few_to_hold_any_out_are_predicted_by_offsets():
    train, test = make_uneven(0, 12, 8, 50)
    assert len(train) < 50
    users, items = test["user"].to_numpy(), test["item"].to_numpy()
    model = AutoRec("user", **SMALL).fit(train)
    np.testing.assert_array_equal(model.predict(users, items), predict_offsets(train, users, items))
    assert AutoRec("user", **SMALL, validation_fraction=0.0).fit(train).network_weight_[0] == 1.0


def test_a_file_without_a_weight_predicts_as_its_network(tmp_path):
    train, _ = make_uneven(0, 40, 30, 500)
    model = AutoRec("user", **SMALL, shrink=False).fit(train)
    expected = model.predict(0, model.items_)
    del model.network_weight_
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(halfseen.load(tmp_path / "model").predict(0, model.items_), expected)
    model.network_weight_ = (2.0, 0.0, 0.0)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="the weight of the network is"):
        halfseen.load(tmp_path / "model")


@pytest.mark.parametrize("kind", [AutoRec, CFNADE])
def test_the_constant_of_the_normalisation_can_be_set(kind):
    """The paper has 500 in CF-NADE; by default it is the mean number of ratings."""
    train, _ = make_uneven(0, 40, 30, 500)
    own, usual = (kind("user", **SMALL, mean_count=count).fit(train) for count in (500, None))
    assert float(own.module_.mean_count) == 500.0
    assert float(usual.module_.mean_count) < 20.0
    off = kind("user", **SMALL, mean_count=500, sparsity_norm=False).fit(train)
    assert float(off.module_.mean_count) == 0.0
    with pytest.raises(ValueError, match="mean_count must be positive and finite, got 0"):
        kind("user", mean_count=0).fit(train)
    with pytest.raises(ValueError, match="shrink must be True or False, got 'auto'"):
        kind("user", shrink="auto").fit(train)


@pytest.mark.parametrize("rows", ["item", "user"])
def test_items_with_few_ratings_come_last(rows):
    train, _ = make_uneven(0, 60, 40, 600)
    others = train[train["user"] != 0].assign(rating=lambda frame: frame["rating"].clip(upper=3))
    praised = pd.DataFrame({"user": [5], "item": [99], "rating": [5.0]})
    mine = pd.DataFrame({"user": [0], "item": [int(train["item"].mode()[0])], "rating": [3.0]})
    ratings = pd.concat([others, praised, mine])
    model = AutoRec(rows, **SMALL).fit(ratings)
    model.network_weight_ = (0.0, 0.0, 0.0)
    counts = ratings["item"].value_counts()
    np.testing.assert_array_equal(model.item_counts_, counts.reindex(model.items_))
    assert model.recommend(0, k=1, min_ratings=0)[0] == [99]
    items, predicted = model.recommend(0, k=1000)
    enough = counts.reindex(items).to_numpy() >= 5
    assert enough.any()
    assert not enough.all()
    assert (np.diff(enough.astype(int)) <= 0).all()
    for part in (enough, ~enough):
        assert (np.diff(predicted[part]) <= 0).all()
    new, _ = model.recommend_new([int(mine["item"][0])], [3.0], k=1000)
    np.testing.assert_array_equal(new, items)
    with pytest.raises(ValueError, match="min_ratings must be at least 0, got -1"):
        model.recommend(0, min_ratings=-1)
