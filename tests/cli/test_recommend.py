"""The command `halfseen recommend`."""

import numpy as np
import pytest

import halfseen
from halfseen.cli.requests import RecommendRequest
from halfseen.ratings.recommender import MIN_RATINGS


@pytest.fixture
def ratings(tmp_path):
    """A file of ratings by users of two tastes; users are numbers, items are text."""
    rng = np.random.default_rng(0)
    users, items = np.nonzero(rng.random((16, 12)) < 0.5)
    liked = users % 2 == items % 2
    lines = [
        f"{user},i{item},{4 + like if like else 2}"
        for user, item, like in zip(users, items, liked, strict=True)
    ]
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    return path


def test_items_are_printed_with_their_predicted_ratings(run, ratings, tmp_path):
    code, out, err = run(
        "recommend", ratings, "--user", "7", "-k", "3", "--save-model", tmp_path / "model", "--quiet"
    )
    assert (code, err) == (0, "")
    header, *lines = out.splitlines()
    assert header == "item,rating,n_ratings"
    assert len(lines) == 3
    model = halfseen.load(tmp_path / "model")
    assert isinstance(model, halfseen.ratings.RatingEnsemble)
    items, predicted = model.recommend(7, k=3)
    counts = [ratings.read_text().count(f",{item},") for item in items]
    assert [line.split(",") for line in lines] == [
        [item, f"{rating:.2f}", str(count)]
        for item, rating, count in zip(items, predicted, counts, strict=True)
    ]


def test_an_item_with_one_rating_is_not_recommended_first(run, ratings, tmp_path):
    """Nobody rated it but one, who rates all others low; by its predicted rating it would be the first."""
    lines = [
        "0,praised,5\n",
        *(
            f"{user},i{item},{1 + (user + item) % 3}\n"
            for user in range(12)
            for item in range(5)
            if (user, item) != (7, 0) and (user + item) % 4
        ),
    ]
    ratings.write_text("user,item,rating\n" + "".join(lines))
    assert len(lines) < 50  # so that a network predicts offsets
    ask = ["recommend", ratings, "--recommender", "autorec", "--rows", "user", "--user", "7"]
    code, out, err = run(*ask)
    assert code == 0
    *_, last = rows = [line.split(",") for line in out.splitlines()[1:]]
    assert (last[0], last[2]) == ("praised", "1")
    assert float(last[1]) > max(float(row[1]) for row in rows[:-1])
    assert "1 of 6 items have fewer than 5 ratings" in err
    code, out, err = run(*ask, "--min-ratings", "0")
    assert out.splitlines()[1].startswith("praised,")
    assert "fewer than" not in err


def test_the_fewest_ratings_are_those_of_the_library():
    assert RecommendRequest(user="7").min_ratings == MIN_RATINGS


def test_options_of_a_recommender_to_fit_are_refused_with_another(run, ratings, tmp_path):
    code, _, err = run("recommend", ratings, "--user", "7", "--rows", "user")
    assert code == 2
    assert "--rows needs --recommender autorec or cfnade" in err
    code, _, err = run("recommend", "--model", tmp_path / "m", "--user", "7", "--recommender", "autorec")
    assert code == 2
    assert "--recommender and --rows are of a recommender to fit" in err


def test_a_saved_recommender_answers_without_the_ratings(run, ratings, tmp_path):
    saved = tmp_path / "model.halfseen"
    _, first, _ = run("recommend", ratings, "--user", "7", "-k", "3", "--save-model", saved, "--quiet")
    ratings.unlink()
    code, out, err = run("recommend", "--model", saved, "--user", "7", "-k", "3", "--quiet")
    assert (code, err) == (0, "")
    assert out == first
    code, _, err = run("recommend", "--model", saved, "--user", "999", "--quiet")
    assert code == 2
    assert "model.halfseen: User 999 has no ratings" in err


def test_ratings_or_a_recommender_are_needed_and_not_both(run, ratings, tmp_path):
    for arguments in ([], [ratings, "--model", tmp_path / "m"]):
        code, _, err = run("recommend", *arguments, "--user", "7", "--quiet")
        assert code == 2
        assert "either a table of RATINGS" in err
    halfseen.sparsity.SparsityNormalizer().fit(np.zeros((3, 1))).save(tmp_path / "other")
    code, _, err = run("recommend", "--model", tmp_path / "other", "--user", "7", "--quiet")
    assert code == 2
    assert "holds a SparsityNormalizer; --model needs a recommender" in err
    code, _, err = run("recommend", ratings, "--user", "7", "--save-model", ratings, "--quiet")
    assert code == 2
    assert ratings.read_text().startswith("user,item,rating\n")


def test_an_unknown_user_is_one_line_of_error_before_the_fit(run, ratings, monkeypatch):
    monkeypatch.setattr(halfseen.ratings.RatingEnsemble, "fit", None)
    code, out, err = run("recommend", ratings, "--user", "999", "--quiet")
    assert (code, out) == (2, "")
    assert "ratings.csv: User 999 has no ratings. There are 16 users, such as 0." in err
    code, _, err = run("recommend", ratings, "--user", "bob", "--quiet")
    assert code == 2
    assert "Users are whole numbers, such as 0, got 'bob'" in err


def test_a_file_without_a_header_is_refused(run, tmp_path):
    (tmp_path / "u.data").write_text("196,242,3\n186,302,3\n22,377,1\n")
    code, _, err = run("recommend", tmp_path / "u.data", "--from", "csv", "--user", "22", "--quiet")
    assert code == 2
    assert "header" in err


def test_identifiers_of_a_file_have_the_type_of_those_of_the_model(run, ratings, tmp_path):
    saved, pairs, out = tmp_path / "m.halfseen", tmp_path / "pairs.csv", tmp_path / "out.csv"
    with_text = tmp_path / "text.csv"
    with_text.write_text(ratings.read_text() + "anna,i1,5\n")
    code, _, err = run("fit", with_text, "--recommender", "matrix-factorisation", "--save-model", saved)
    assert code == 0, err
    pairs.write_text("user,item\n7,i1\n8,i2\n")
    code, _, err = run("predict", saved, pairs, "-o", out)
    assert code == 0, err
    assert "without ratings in the training" not in err
    saved.unlink()
    code, _, err = run("fit", ratings, "--recommender", "matrix-factorisation", "--save-model", saved)
    assert code == 0, err
    pairs.write_text("user,item\n7,i1\nanna,i2\n")
    code, _, err = run("predict", saved, pairs, "-o", out, "--overwrite")
    assert code == 0, err
    assert "1 rows with a user without ratings in the training" in err


def test_ratings_are_fitted_and_predicted_as_files(run, ratings, tmp_path):
    saved, pairs, out = tmp_path / "m.halfseen", tmp_path / "pairs.csv", tmp_path / "out.csv"
    code, _, err = run("fit", ratings, "--recommender", "matrix-factorisation", "--save-model", saved)
    assert code == 0, err
    assert "MatrixFactorization" in err
    pairs.write_text("item,note,user,rating\ni1,a,7,5\ni2,b,7,2\nnew,c,8,\n")
    code, _, err = run("predict", saved, pairs, "-o", out)
    assert code == 0, err
    assert "an item without ratings in the training" in err
    header, *lines = out.read_text().splitlines()
    assert header == "item,note,user,rating,prediction"
    expected = halfseen.load(saved).predict([7, 7, 8], ["i1", "i2", "new"])
    written = [float(line.split(",")[-1]) for line in lines]
    np.testing.assert_allclose(written, expected, rtol=5e-6)  # six digits are written
    error = np.sqrt(np.mean((expected[:2] - [5, 2]) ** 2))
    assert f"'rating' is known in 2 rows: root mean squared error {error:.4f}" in err


def test_a_file_without_pairs_and_a_target_beside_a_recommender_are_refused(run, ratings, tmp_path):
    saved, wrong = tmp_path / "m.halfseen", tmp_path / "wrong.csv"
    code, _, err = run("fit", ratings, "--save-model", saved)
    assert code == 2
    assert "--recommender" in err
    run("fit", ratings, "--recommender", "autorec", "--save-model", saved, "--quiet")
    wrong.write_text("user,movie\n7,i1\n")
    code, _, err = run("predict", saved, wrong, "-o", tmp_path / "out.csv")
    assert code == 2
    assert "The table has no column for the items" in err
