"""Recommenders: what they predict and recommend, new and cold users, and ratings that they refuse."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

import halfseen
from halfseen.ratings import CFNADE, AutoRec, MatrixFactorization, RatingEnsemble
from halfseen.ratings.recommender import hold_out
from halfseen.ratings.table import SparseRows

SMALL = {"n_hidden": 16, "max_epochs": 60, "penalty": 2.0, "learning_rate": 1e-2, "random_state": 0}
FACTORS = {"n_factors": 2, "n_warmup": 20, "n_draws": 5}
BRIEF = {AutoRec: {"max_epochs": 2}, CFNADE: {"max_epochs": 2}, MatrixFactorization: {}, RatingEnsemble: {}}
KINDS = {
    "AutoRec of items": partial(AutoRec, "item", **SMALL),
    "AutoRec of users": partial(AutoRec, "user", **SMALL),
    "CFNADE of users": partial(CFNADE, "user", **SMALL),
    "CFNADE of items": partial(CFNADE, "item", **SMALL),
    "factorisation": partial(MatrixFactorization, **FACTORS, random_state=0),
    "ensemble": partial(
        RatingEnsemble,
        [AutoRec("user", **SMALL | {"max_epochs": 5}), MatrixFactorization(**FACTORS)],
        random_state=0,
    ),
}


def make_ratings(n_users=60, n_items=40, share=0.4, seed=0):
    """Ratings of two groups of users with opposite tastes, and the matrix of expected ratings."""
    rng = np.random.default_rng(seed)
    taste = np.where(np.arange(n_users) % 2, 1.0, -1.0)
    genre = np.where(np.arange(n_items) % 2, 1.0, -1.0)
    expected = 3 + 1.5 * taste[:, None] * genre
    users, items = np.nonzero(rng.random((n_users, n_items)) < share)
    noise = 0.3 * rng.normal(size=len(users))
    rating = np.clip(np.round(2 * (expected[users, items] + noise)) / 2, 1, 5)
    return pd.DataFrame({"user": users + 100, "item": items, "rating": rating}), expected


@pytest.fixture(scope="module", params=KINDS)
def make(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def fitted(make):
    ratings, expected = make_ratings()
    return make().fit(ratings), ratings, expected


def test_ratings_that_were_not_given_are_predicted(fitted):
    model, ratings, expected = fitted
    given = np.zeros(expected.shape, dtype=bool)
    given[ratings["user"] - 100, ratings["item"]] = True
    users, items = np.nonzero(~given)
    error = model.predict(users + 100, items) - expected[users, items]
    assert np.sqrt(np.mean(error**2)) < 0.5
    assert model.score(ratings) > -0.5


def test_the_best_items_come_first_and_rated_items_are_left_out(fitted):
    model, ratings, _ = fitted
    items, predicted = model.recommend(103, k=5)
    assert (np.diff(predicted) <= 0).all()
    assert not set(items) & set(ratings["item"][ratings["user"] == 103])
    assert (items % 2 == 1).all()
    np.testing.assert_allclose(model.predict(103, items), predicted, rtol=1e-5)
    everything, _ = model.recommend(103, k=1000)
    assert len(everything) == 40 - (ratings["user"] == 103).sum()


def test_a_new_user_is_folded_in_without_refitting(fitted):
    model, _, expected = fitted
    before = model.predict(101, model.items_)
    items = np.arange(0, 16)
    predicted = model.predict_new(items, expected[1, items])
    assert np.sqrt(np.mean((predicted - expected[1]) ** 2)) < 0.6
    best, _ = model.recommend_new(items, expected[1, items], k=4)
    assert (best % 2 == 1).all()
    assert (best >= 16).all()
    np.testing.assert_array_equal(model.predict(101, model.items_), before)


@pytest.mark.parametrize("kind", [AutoRec, CFNADE])
def test_rows_of_users_answer_a_known_user_and_the_same_ratings_alike(kind):
    ratings, _ = make_ratings()
    model = kind("user", **SMALL | {"max_epochs": 2}).fit(ratings)
    own = ratings[ratings["user"] == 107]
    folded = model.predict_new(own["item"], own["rating"])
    np.testing.assert_allclose(folded, model.predict(107, model.items_), atol=1e-5)


def test_predictions_stay_within_the_scale(fitted):
    model, _, _ = fitted
    low, high = model.rating_range_
    users, items = np.meshgrid(model.users_, model.items_)
    predicted = model.predict(users.ravel(), items.ravel())
    assert low <= predicted.min()
    assert predicted.max() <= high


def test_cold_users_and_items_have_means(fitted):
    model, ratings, _ = fitted
    assert model.predict("nobody", 99)[0] == pytest.approx(ratings["rating"].mean())
    by_item = model.predict([-1] * 2, [0, 1])
    means = [ratings["rating"][ratings["item"] == item].mean() for item in (0, 1)]
    np.testing.assert_allclose(by_item, means, atol=0.3)
    with pytest.raises(ValueError, match="User 'nobody' has no rating in fit"):
        model.recommend("nobody")


def test_empty_rows_and_columns_of_a_matrix_are_cold(make):
    ratings, _ = make_ratings()
    matrix = sp.csr_matrix((ratings["rating"], (ratings["user"] - 100, ratings["item"])), shape=(62, 43))
    model = make(**BRIEF[make.func]).fit(matrix)
    assert len(model.users_) == 62
    mean = ratings["rating"].mean()
    assert model.predict(61, 42)[0] == pytest.approx(mean)
    assert np.isfinite(model.recommend(61, k=3)[1]).all()


@pytest.fixture(scope="module")
def quick(make):
    """A model of few epochs, the ratings, and the model's predictions."""
    short = partial(make, **BRIEF[make.func])
    ratings, _ = make_ratings(20, 10, share=0.7)
    return short, ratings, short().fit(ratings).predict(101, np.arange(10))


@pytest.mark.parametrize("library", [pl.DataFrame, pa.table], ids=["polars", "arrow"])
def test_frames_of_all_libraries_give_the_same_model(quick, library):
    make, ratings, expected = quick
    columns = {name: ratings[name].to_numpy() for name in ("rating", "item", "user")}
    columns["when"] = np.arange(len(ratings))
    np.testing.assert_array_equal(make().fit(library(columns)).predict(101, np.arange(10)), expected)


def test_a_sparse_matrix_and_another_order_give_the_same_model(quick):
    make, ratings, expected = quick
    matrix = sp.coo_array((ratings["rating"], (ratings["user"] - 100, ratings["item"])))
    np.testing.assert_array_equal(make().fit(matrix).predict(1, np.arange(10)), expected)
    shuffled = make().fit(ratings.sample(frac=1, random_state=1))
    np.testing.assert_array_equal(shuffled.predict(101, np.arange(10)), expected)


def test_text_and_whole_floats_are_identifiers(quick):
    make, ratings, expected = quick
    floats = make().fit(ratings.astype({"user": float}))
    np.testing.assert_array_equal(floats.predict(101, np.arange(10)), expected)
    text = make().fit(ratings.assign(user="u" + ratings["user"].astype(str)))
    np.testing.assert_array_equal(text.predict("u101", np.arange(10)), expected)


def test_identifiers_of_another_type_do_not_count_as_unknown(quick):
    make, ratings, _ = quick
    model = make().fit(ratings.assign(item=ratings["item"].astype(str)))
    for wrong, message in (
        (lambda: model.predict("101", "1"), "There is no user '101' in fit, but 101: convert its type"),
        (lambda: model.predict(101, 1), "There is no item 1 in fit, but '1': convert its type"),
        (lambda: model.predict_new(["1", 2], [3, 3]), "There is no item 2 in fit, but '2'"),
        (lambda: model.recommend("101"), "There is no user '101' in fit, but 101"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


@pytest.mark.parametrize(("n_ratings", "expected"), [(40, 0), (1_000, 50), (300_000, 10_000)])
def test_a_share_of_the_ratings_is_held_out_but_not_more_than_are_needed(n_ratings, expected):
    starts = torch.tensor([0, n_ratings], dtype=torch.int32)
    row = SparseRows(starts, torch.arange(n_ratings, dtype=torch.int32), torch.zeros(n_ratings), n_ratings)
    train, held = hold_out(row, 0.05, torch.Generator().manual_seed(0))
    assert len(train.values) == n_ratings - expected
    assert (0 if held is None else len(held.values)) == expected


@pytest.mark.parametrize(("n_ratings", "expected"), [(1_000, 6.0), (100_000, 6.0), (400_000, 12.0)])
def test_the_penalty_grows_with_the_square_root_of_many_ratings(n_ratings, expected):
    starts = torch.tensor([0, n_ratings], dtype=torch.int32)
    row = SparseRows(starts, torch.arange(n_ratings, dtype=torch.int32), torch.zeros(n_ratings), n_ratings)
    assert AutoRec(n_hidden=50)._penalty(row) == pytest.approx(expected)
    assert AutoRec(n_hidden=50, penalty=3.0)._penalty(row) == 3.0


@pytest.mark.parametrize(("kind", "rows"), [(AutoRec, "item"), (AutoRec, "user"), (CFNADE, "user")])
@pytest.mark.slow
def test_few_ratings_are_learned_without_any_setting(kind, rows):
    ratings, expected = make_ratings()
    model = kind(rows, n_hidden=50, random_state=0).fit(ratings)
    predicted = np.array([model.predict(user + 100, model.items_) for user in range(6)])
    assert np.sqrt(np.mean((predicted - expected[:6]) ** 2)) < 0.5


@pytest.mark.parametrize("rows", ["item", pytest.param("user", marks=pytest.mark.slow)])
def test_the_variants_of_the_paper_can_be_fitted(rows):
    ratings, _ = make_ratings()
    for options in ({"sparsity_norm": False}, {"centre": True}, {"centre": False}):
        assert AutoRec(rows, **SMALL | options).fit(ratings).score(ratings) > -1


def test_a_saved_recommender_recommends_the_same(fitted, tmp_path):
    model, _, _ = fitted
    model.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    for ours, theirs in zip(loaded.recommend(103), model.recommend(103), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(loaded.predict_new([1, 2], [5, 1]), model.predict_new([1, 2], [5, 1]))


FRAME = pd.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "rating": [3.0, 4.0, 5.0]})


@pytest.mark.parametrize(
    ("ratings", "message"),
    [
        (pd.concat([FRAME, FRAME[:1]]), "1 pairs of user and item have more than one rating, .* user 1"),
        (FRAME.assign(rating=[3.0, np.nan, 5.0]), "1 of 3 ratings are missing or infinite, .* row 1"),
        (FRAME.assign(rating=["a", "b", "c"]), "Column 'rating' .* must hold numbers"),
        (FRAME.assign(user=[1.5, 1, 2]), "Column 'user' holds 1.5, which is not a whole number"),
        (FRAME.assign(item=[1, None, 2]), "Column 'item' is missing in 1 rows, the first is row 1"),
        (FRAME.assign(user=pd.to_datetime(["2020", "2021", "2022"])), "'user' .* neither whole numbers"),
        (FRAME.drop(columns="item"), "The table has no column for the items. Name it 'item'"),
        (FRAME.assign(user_id=1), "The table has more than one column for the users"),
        (FRAME.set_axis(["196", "242", "3"], axis=1), "seems to have no header"),
        (FRAME[:0], "There are no ratings"),
        (FRAME.assign(user=[2**60, 2**60 + 1, 1]), "holds numbers above"),
        ([[1, 1, 3.0]], "Ratings must be a data frame with the columns user, item and rating"),
        (sp.csr_array((2, 2)), "There are no ratings"),
    ],
)
def test_tables_that_hold_no_ratings_are_refused(make, ratings, message):
    with pytest.raises(ValueError, match=message):
        make().fit(ratings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": "movie"}, "rows must be 'item' or 'user', got 'movie'"),
        ({"alpha": "half"}, "alpha must be 'auto' or a number of at least 0, got 'half'"),
        ({"centre": "mean"}, "centre must be True, False or 'auto', got 'mean'"),
        ({"subsets": "auto"}, "subsets must be True or False, got 'auto'"),
        ({"penalty": 0}, "penalty must be positive and finite, got 0"),
        ({"n_hidden": 0}, "n_hidden must be at least 1, got 0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"rating_range": (1, 4)}, r"1 ratings are outside rating_range=\(1, 4\), the first is 5"),
        ({"rating_range": (5, 1)}, "rating_range must be a pair of increasing numbers"),
        ({"rating_range": 5}, "rating_range must be a pair of numbers, got 5"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AutoRec(**SMALL | options).fit(FRAME)


def test_questions_that_cannot_be_answered_are_refused(fitted):
    model, _, _ = fitted
    with pytest.raises(ValueError, match="There are 2 users and 3 items"):
        model.predict([101, 102], [1, 2, 3])
    with pytest.raises(ValueError, match=r"The user 1\.5 is neither a whole number nor text"):
        model.predict([1.5], [1])
    with pytest.raises(ValueError, match="A user is missing"):
        model.predict([None], [1])
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        model.recommend(101, k=0)
    with pytest.raises(ValueError, match="recommend takes one user, got 2"):
        model.recommend([101, 102])
    with pytest.raises(ValueError, match="Item 99 has no rating in fit"):
        model.predict_new([99], [3])
    with pytest.raises(ValueError, match="There are 2 items and 1 ratings"):
        model.predict_new([1, 2], [3])
    with pytest.raises(ValueError, match="An item has more than one rating"):
        model.predict_new([1, 1], [3, 3])
    with pytest.raises(ValueError, match="1 ratings are outside"):
        model.predict_new([1], [30])
    with pytest.raises(ValueError, match="The rating of item 2 is missing"):
        model.predict_new([1, 2], [3, np.nan])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (MatrixFactorization(n_factors=0), "n_factors must be at least 1, got 0"),
        (MatrixFactorization(n_draws=0), "n_draws must be at least 1, got 0"),
        (RatingEnsemble([]), r"models must be a list of recommenders, got \[\]"),
        (RatingEnsemble([halfseen.MeanImputer()]), r"models must be recommenders, got MeanImputer\(\)"),
        (RatingEnsemble(validation_fraction=1), r"validation_fraction must be in \[0, 1\), got 1"),
    ],
)
def test_parameters_of_other_recommenders_out_of_range_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(FRAME)


def test_an_ensemble_weights_the_recommender_that_predicts_held_out_ratings():
    ratings, _ = make_ratings()
    poor = AutoRec("user", n_hidden=2, max_epochs=0)
    model = RatingEnsemble([poor, MatrixFactorization(**FACTORS)], random_state=0).fit(ratings)
    assert model.weights_[1] > max(0.7, model.weights_[0])
    alone = MatrixFactorization(**FACTORS, random_state=0).fit(ratings)
    assert model.predict(101, 1)[0] == pytest.approx(alone.predict(101, 1)[0], abs=0.3)
    few = RatingEnsemble([poor, MatrixFactorization(**FACTORS)], random_state=0).fit(ratings[:30])
    assert few.weights_ == [0.5, 0.5]


def test_a_damaged_file_is_refused_before_a_product_is_made(fitted, tmp_path):
    model, _, _ = fitted
    content = model._state() | {"ratings.columns": model._ratings.columns + 1000}
    with pytest.raises(ValueError, match="outside its"):
        model._restore(content)


def test_ratings_without_a_scale_of_levels_are_refused():
    ratings = pd.DataFrame({"user": np.arange(30), "item": 1, "rating": np.linspace(1, 5, 30)})
    with pytest.raises(ValueError, match="There are 30 different ratings, but CFNADE has weights for each"):
        CFNADE(**SMALL).fit(ratings)
    with pytest.raises(ValueError, match="alpha must be a number of at least 0, got 'auto'"):
        CFNADE(alpha="auto").fit(FRAME)
