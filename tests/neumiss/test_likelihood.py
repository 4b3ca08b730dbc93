"""NeuMiss against the best predictions that there are, and its own promises."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from conformance.tables import PENGUINS
from scipy import stats
from sklearn.base import clone
from tolerances import FAILURE_RATE

import halfseen
from halfseen import NeuMissClassifier, NeuMissRegressor
from halfseen.data.incomplete import Incomplete
from halfseen.neumiss import model as neumiss
from halfseen.testing.tables import hide, names
from papers.problems import GaussianClassificationProblem, GaussianProblem

SMALL = {"n_networks": 2, "width": 16, "max_epochs": 5, "random_state": 0}
REGRESSOR, CLASSIFIER = NeuMissRegressor(**SMALL), NeuMissClassifier(**SMALL)
BOTH = pytest.mark.parametrize("estimator", [REGRESSOR, CLASSIFIER], ids=["regressor", "classifier"])
NEAR_BAYES = 0.01
"""Of R², with 1000 rows of five features, and twice this in nats. Over five problems of each kind, with 30
epochs, the largest gaps were 0.003 and 0.02."""


def incomplete(n_rows=300, n_features=4, seed=0):
    """Gaussian inputs with 20% of cells missing, a linear target, and two classes of it."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features))
    y = X.sum(axis=1) + 0.3 * rng.normal(size=n_rows)
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


def target_of(estimator, y):
    return y if isinstance(estimator, NeuMissRegressor) else np.where(y > 0, "up", "down")


def answers(model, X):
    return model.predict_proba(X) if isinstance(model, NeuMissClassifier) else model.predict_interval(X)


@pytest.mark.parametrize(
    ("mechanism", "chosen"),
    [
        ("mcar", {"mar"}),
        ("mar", {"mar"}),
        ("self-masking-gaussian", {"self-masking-gaussian", "self-masking-probit"}),
    ],
)
def test_linear_gaussian_problems_are_predicted_nearly_as_well_as_can_be(mechanism, chosen):
    problem = GaussianProblem.draw(n_features=5, mechanism=mechanism, rate=0.3, random_state=0)
    train, test = problem.sample(1000, random_state=100), problem.sample(4000, random_state=200)
    model = clone(REGRESSOR).fit(train.incomplete, train.y)
    assert model.missingness_ in chosen
    assert model.score(test.incomplete, test.y) > problem.bayes_r2(test.incomplete, test.y) - NEAR_BAYES


@pytest.mark.parametrize(
    ("mechanism", "chosen"), [("mcar", "mar"), ("self-masking-gaussian", "self-masking-gaussian")]
)
def test_probabilities_are_nearly_the_best(mechanism, chosen):
    problem = GaussianClassificationProblem.draw(n_features=5, mechanism=mechanism, rate=0.3, random_state=0)
    train, test = problem.sample(1000, random_state=100), problem.sample(4000, random_state=200)
    model = clone(CLASSIFIER).fit(train.incomplete, train.y)
    assert model.missingness_ == chosen
    probabilities = model.predict_proba(test.incomplete)
    loss = -np.log(probabilities[np.arange(len(test.y)), test.y]).mean()
    assert loss < problem.bayes_log_loss(test.incomplete, test.y) + 2 * NEAR_BAYES
    np.testing.assert_allclose(np.exp(model.predict_log_proba(test.incomplete)), probabilities, rtol=1e-12)


def test_networks_correct_what_is_not_linear():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    y = X[:, 0] ** 2 + X[:, 1] + 0.1 * rng.normal(size=1000)
    model = NeuMissRegressor(max_epochs=40, random_state=0).fit(X[:700], y[:700])
    linear = NeuMissRegressor(head="linear", random_state=0).fit(X[:700], y[:700])
    assert model.score(X[700:], y[700:]) > 0.9
    assert linear.score(X[700:], y[700:]) < 0.5
    assert model.head_weight_ > 0.9


def test_intervals_of_short_tables_hold_the_target_as_often_as_they_say():
    """Coverage given a training table varies with it; its mean over tables does not."""
    coverage = {0.5: [], 0.9: []}
    for seed in range(20):
        problem = GaussianProblem.draw(n_features=4, mechanism="mcar", rate=0.3, random_state=seed)
        train, test = (
            problem.sample(100, random_state=100 + seed),
            problem.sample(500, random_state=200 + seed),
        )
        model = NeuMissRegressor(head="linear", random_state=seed).fit(train.incomplete, train.y)
        for level, found in coverage.items():
            low, high = model.predict_interval(test.incomplete, level=level)
            found.append(((low <= test.y) & (test.y <= high)).mean())
    for level, found in coverage.items():
        assert stats.ttest_1samp(found, level).pvalue > FAILURE_RATE


def test_intervals_know_errors_that_are_not_gaussian():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = X.sum(axis=1) + rng.standard_t(1.5, size=3000)
    model = NeuMissRegressor(head="linear", random_state=0).fit(X[:2000], y[:2000])
    for level in (0.5, 0.9):
        low, high = model.predict_interval(X[2000:], level)
        inside = ((low <= y[2000:]) & (y[2000:] <= high)).mean()
        assert abs(inside - level) < 4.4 * np.sqrt(level * (1 - level) * (1 / 1000 + 1 / 400))


@BOTH
def test_a_linear_head_has_no_network(estimator):
    X, y = incomplete()
    model = clone(estimator).set_params(head="linear").fit(X, target_of(estimator, y))
    assert model.model_.correction is None
    assert model.head_weight_ == 0.0
    assert model.history_.train_loss == ()


@BOTH
def test_a_full_head_counts_by_one(estimator):
    X, y = incomplete()
    assert clone(estimator).set_params(head="mlp").fit(X, target_of(estimator, y)).head_weight_ == 1.0


def test_how_bold_scores_are_does_not_change_what_networks_see():
    X, y = incomplete()
    model = clone(CLASSIFIER).fit(X, y > 0)
    batch = model._features.encode(model._read(X, reset=False).codes)
    warmer = replace(model.model_, calibration=replace(model.model_.calibration, temperature=17.0))
    assert torch.equal(warmer.first(batch).inputs, model.model_.first(batch).inputs)
    assert not torch.equal(warmer.predict(batch)[0], model.model_.predict(batch)[0])


@BOTH
def test_values_under_the_mask_are_never_read(estimator):
    X, y = incomplete()
    model = clone(estimator).fit(X, target_of(estimator, y))
    batch = model._features.encode(model._read(X, reset=False).codes)
    poison = Incomplete(torch.where(batch.observed, batch.x, torch.nan), batch.observed)
    first = model.model_.first
    for one, other in zip(first(batch), first(poison), strict=True):
        assert torch.equal(one, other)


@BOTH
def test_any_column_may_be_missing_though_none_was_in_training(estimator):
    X, y = incomplete()
    model = clone(estimator).fit(np.nan_to_num(X), target_of(estimator, y))
    holes = np.where(np.eye(4, dtype=bool), np.nan, np.nan_to_num(X[:4]))
    for rows in (holes, np.full((1, 4), np.nan)):
        assert np.isfinite(np.asarray(answers(model, rows))).all()


@BOTH
def test_an_answer_does_not_depend_on_other_rows(estimator):
    X, y = incomplete()
    model = clone(estimator).fit(X, target_of(estimator, y))
    together = np.asarray(answers(model, X)).reshape(-1, 300 if estimator is REGRESSOR else 2)
    backwards = np.asarray(answers(model, X[::-1])).reshape(together.shape)
    axis = 1 if estimator is REGRESSOR else 0
    np.testing.assert_allclose(np.flip(backwards, axis), together, rtol=1e-6, atol=1e-6)
    alone = np.asarray(answers(model, X[[3]])).ravel()
    np.testing.assert_allclose(alone, np.take(together, 3, axis), rtol=1e-5, atol=1e-6)


@BOTH
def test_to_double_all_weights_changes_nothing(estimator):
    X, y = incomplete()
    weights = np.random.default_rng(1).random(300)
    one, other = (
        clone(estimator).fit(X, target_of(estimator, y), sample_weight=w) for w in (weights, 2 * weights)
    )
    np.testing.assert_array_equal(answers(one, X), answers(other, X))


@BOTH
def test_a_row_of_weight_zero_is_as_good_as_not_there(estimator):
    X, y = incomplete()
    counted = np.random.default_rng(1).random(300) < 0.7
    spoilt, odd = np.where(counted[:, None], X, 1e6 * X), np.where(counted, y, -1e6 * y)
    one = clone(estimator).fit(X[counted], target_of(estimator, y[counted]))
    other = clone(estimator).fit(spoilt, target_of(estimator, odd), sample_weight=3.0 * counted)
    np.testing.assert_array_equal(answers(one, X), answers(other, X))


def test_integer_weights_are_repeated_rows_where_no_rows_are_held_out():
    """A ridge and a random split count rows, so there is neither here."""
    X, y = incomplete(n_rows=120)
    weights = np.random.default_rng(1).integers(0, 4, size=120)
    model = NeuMissRegressor(ridge=0.0, validation_fraction=0.0, random_state=0)
    one = clone(model).fit(X, y, sample_weight=weights)
    other = clone(model).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(one.predict(X), other.predict(X), atol=0.01 * y.std())
    assert np.abs(one.predict(X) - clone(model).fit(X, y).predict(X)).max() > 0.02 * y.std()


@pytest.mark.parametrize(
    "labels",
    [
        *(["b", "a", "c"], [True, False], ["a", "b"]),
        *(pytest.param(numbers, marks=pytest.mark.slow) for numbers in ([7, -3, 0], [2.0, 1.0])),
        np.array(["2021-01-01T05", "2020-01-01T00", "2022-02-02T00"], dtype="datetime64[ns]"),
        *(
            pytest.param(np.array(*content), marks=pytest.mark.slow)
            for content in ((["2021-01-01", "2020-01-01"], "datetime64[D]"), ([5, -3], "timedelta64[h]"))
        ),
    ],
    ids=str,
)
def test_classes_may_be_anything_that_can_be_sorted_and_survive_a_file(labels, tmp_path):
    X, y = incomplete()
    classes = np.array(labels, dtype=object if len(labels) == 2 and labels[0] == "a" else None)
    target = classes[np.digitize(y, [-1, 1][: len(labels) - 1])]
    model = clone(CLASSIFIER).fit(X, target)
    assert model.classes_.tolist() == sorted(classes.tolist())
    assert model.score(X, target) > 0.6
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    model.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.predict(X).dtype == model.predict(X).dtype == target.dtype
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_class_of_one_row_does_no_harm():
    X, y = incomplete()
    for seed in range(3):
        target = np.where(np.arange(300) == 5, 2, y > 0)
        model = clone(CLASSIFIER).set_params(random_state=seed).fit(X, target)
        assert model.predict_proba(X).shape == (300, 3)
        assert model.predict_proba(X)[:, 2].mean() < 0.1


def test_several_targets_keep_their_shape_and_survive_a_file(tmp_path):
    X, y = incomplete()
    model = clone(REGRESSOR).fit(X, np.column_stack([y, -2 * y + 1]))
    assert model.predict(X).shape == (300, 2)
    assert clone(REGRESSOR).fit(X, y[:, None]).predict(X).shape == (300, 1)
    model.save(tmp_path / "model")
    loaded = halfseen.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
    low, high = model.predict_interval(X)
    assert (low < high).all()
    assert loaded.history_.train_loss == model.history_.train_loss


def test_a_wild_value_does_not_spoil_the_rest():
    X, y = incomplete(n_rows=600)
    X[np.flatnonzero(~np.isnan(X[:, 0]))[:3], 0] *= 1e5
    model = NeuMissRegressor(head="linear", random_state=0).fit(X[:500], y[:500])
    assert model.model_.first.bounds.isfinite().any()
    assert model.score(X[500:], y[500:]) > 0.8


def test_a_long_tail_that_predicts_the_target_is_kept():
    rng = np.random.default_rng(0)
    X = np.exp(1.2 * rng.normal(size=(600, 2)))
    y = X.sum(axis=1) + 0.1 * rng.normal(size=600)
    model = NeuMissRegressor(head="linear", random_state=0).fit(X, y)
    assert not model.model_.first.bounds.isfinite().any()
    assert model.score(X, y) > 0.99


ODD_INPUTS = {
    "one column": lambda X: X[:, :1],
    "an empty column": lambda X: np.column_stack([X, np.full(len(X), np.nan)]),
    "nothing at all": lambda X: np.full((len(X), 2), np.nan),
    "constants": lambda X: np.full((len(X), 2), 3.0),
    "a repeated column": lambda X: np.column_stack([X, X[:, 0], -2 * X[:, 0]]),
    "more columns than rows": lambda X: np.tile(X[:60], (1, 20)) + np.arange(80) ** 2 * 1e-3 * X[:60, :1],
    "nine rows": lambda X: X[:9],
    "huge numbers": lambda X: X * 1e300 / 100,
    "tiny numbers": lambda X: X * 1e-300,
}


@BOTH
@pytest.mark.parametrize("odd", ODD_INPUTS)
def test_odd_tables_are_predicted_from(estimator, odd):
    X, y = incomplete()
    X = ODD_INPUTS[odd](X)
    model = clone(estimator).fit(X, target_of(estimator, y[: len(X)]))
    for rows in (X, X[:1], np.full((1, X.shape[1]), np.nan)):
        assert np.isfinite(np.asarray(answers(model, rows))).all()
    assert len(model.predict(X[:0])) == 0
    assert np.asarray(answers(model, X[:0])).size == 0


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e300 / 100])
def test_odd_targets_are_predicted(scale):
    X, y = incomplete()
    model = clone(REGRESSOR).fit(X, 5 * scale + scale * y)
    ordinary = clone(REGRESSOR).fit(X, 5 + y).predict(X)
    np.testing.assert_allclose(model.predict(X), scale * ordinary, rtol=1e-3)
    assert np.isfinite(model.predict_interval(X)).all()


@pytest.fixture(scope="module")
def penguins():
    table = PENGUINS.make().dropna(subset=["body_mass_g"])
    return table.drop(columns="body_mass_g"), table["body_mass_g"]


def test_mixed_frames_are_predicted_from_and_a_level_never_seen_is_no_evidence(penguins):
    X, y = penguins
    model = clone(REGRESSOR).fit(X, y)
    assert model.score(X, y) > 0.8
    strange, hole = X.iloc[:3].assign(island="Elba"), hide(X.iloc[:3], np.array(names(X)) == "island")
    np.testing.assert_array_equal(model.predict(strange), model.predict(hole))


def test_less_evidence_gives_wider_intervals(penguins):
    X, y = penguins
    model = clone(REGRESSOR).set_params(missingness="mar").fit(X, y)
    some = hide(X.iloc[:50], np.array(names(X)) == "species")
    widths = [np.subtract(*model.predict_interval(table)[::-1]) for table in (X.iloc[:50], some)]
    assert (widths[1] >= widths[0] - 1e-9).all()


@pytest.mark.parametrize("level", [0.0, 1.0, -1, 2.0])
def test_a_level_outside_0_and_1_is_refused(level):
    X, y = incomplete(60)
    model = NeuMissRegressor(head="linear").fit(X, y)
    with pytest.raises(ValueError, match=f"level must be between 0 and 1, got {level!r}"):
        model.predict_interval(X, level=level)


@pytest.mark.parametrize(
    ("estimator", "y", "message"),
    [
        (REGRESSOR, [1.0, np.nan, 2.0], "Input y contains NaN"),
        (REGRESSOR, [1.0, np.inf, 2.0], "Input y contains infinity"),
        (REGRESSOR, [1.0, 2.0], "inconsistent numbers of samples"),
        (REGRESSOR, ["a", "b", "c"], "could not convert string to float"),
        (REGRESSOR, None, "requires y to be passed, but the target y is None"),
        (CLASSIFIER, [1.0, np.nan, 2.0], "Input y contains NaN"),
        (CLASSIFIER, [1.0, np.inf, 2.0], "Input y contains infinity"),
        (CLASSIFIER, pd.Series(["a", None, "b"], dtype=object), "Input y contains NaN or None"),
        (CLASSIFIER, pd.Series(["a", None, "b"], dtype="string"), "Input y contains NaN or None"),
        (CLASSIFIER, pd.Series(["a", np.nan, "b"], dtype=object), "Input y contains NaN"),
        (CLASSIFIER, [1, 2], "inconsistent numbers of samples"),
        (CLASSIFIER, [0.1, 0.2, 0.3], "Unknown label type: continuous"),
        (CLASSIFIER, ["a", "a", "a"], "needs at least two classes, got 1 class: 'a'"),
        (CLASSIFIER, [[0, 1], [1, 0], [0, 0]], "y should be a 1d array"),
        (CLASSIFIER, None, "requires y to be passed, but the target y is None"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(estimator, y, message):
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit([[1.0], [2.0], [4.0]], y)


@BOTH
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(60), "at least one non-zero"),
        (-np.ones(60), "Negative values in data passed to `sample_weight`"),
        (np.full(60, np.nan), "Input sample_weight contains NaN"),
        (np.ones(3), "expected"),
    ],
    ids=["none", "negative", "nan", "short"],
)
def test_weights_that_cannot_be_used_are_refused(estimator, weights, message):
    X, y = incomplete(60)
    with pytest.raises(ValueError, match=message):
        clone(estimator).fit(X, target_of(estimator, y), sample_weight=weights)


@BOTH
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"missingness": "at random"}, "missingness must be one of .*, got 'at random'"),
        ({"head": "deep"}, "head must be one of auto, linear, mlp, got 'deep'"),
        ({"n_networks": 0}, "n_networks must be at least 1, got 0"),
        ({"n_networks": True}, "n_networks must be a whole number of at least 1, got True"),
        ({"width": 1.5}, "width must be a whole number of at least 1, got 1.5"),
        ({"validation_fraction": 1.0}, r"validation_fraction must be in \[0, 1\), got 1.0"),
        ({"ridge": -1.0}, "ridge must be 'auto' or a number of at least 0, got -1.0"),
        ({"ridge": None}, "ridge must be 'auto' or a number of at least 0, got None"),
        ({"max_epochs": -1}, "max_epochs must be at least 0, got -1"),
        ({"max_epochs": "auto"}, "max_epochs must be a whole number of at least 0, got 'auto'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": None}, "batch_size must be a whole number of at least 1, got None"),
        ({"learning_rate": "1"}, "learning_rate must be positive and finite, got '1'"),
        ({"learning_rate": 0.0}, "learning_rate must be positive and finite, got 0.0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"patience": 2.5}, "patience must be a whole number of at least 1, got 2.5"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_parameters_out_of_range_are_refused(estimator, parameters, message, monkeypatch):
    X, y = incomplete(60)
    monkeypatch.setattr("halfseen.neumiss.training.fit_masked_gaussian", None)  # refused before any fit
    with pytest.raises(ValueError, match=message):
        clone(estimator).set_params(**parameters).fit(X, target_of(estimator, y))


def test_one_held_out_row_is_no_evidence_for_a_model_of_missingness():
    X, y = incomplete()
    model = clone(REGRESSOR).set_params(validation_fraction=0.001).fit(X, y)  # a warning would be an error
    assert model.missingness_ == "mar"
    assert len(model.validation_errors_) == 3
    assert np.isfinite(model.predict(X)).all()


def test_a_time_that_is_missing_is_no_class():
    X, y = incomplete(60)
    times = np.where(y > 0, np.datetime64("2020-01-01"), np.datetime64("NaT"))
    with pytest.raises(ValueError, match="leave out the rows whose class is not known"):
        clone(CLASSIFIER).fit(X, times)


def test_a_second_fit_without_networks_keeps_no_history_of_the_first():
    X, y = np.random.default_rng(0).normal(size=(2, 100, 1))
    model = NeuMissRegressor(n_networks=1, width=4, max_epochs=2, random_state=0).fit(X, y[:, 0])
    assert len(model.history_.train_loss) == 2
    assert model.set_params(head="linear").fit(X, y[:, 0]).history_.train_loss == ()


@BOTH
def test_a_first_prediction_by_parts_of_the_rows_is_that_of_all_together(estimator, monkeypatch):
    X, y = incomplete()
    first = clone(estimator).fit(X, target_of(estimator, y)).model_.first
    whole = first(Incomplete.from_array(X))
    monkeypatch.setattr(neumiss, "rows_in_piece", lambda n_columns, n_numbers: 70)
    sizes, usual = [], neumiss.FirstPrediction._of
    monkeypatch.setattr(neumiss.FirstPrediction, "_of", lambda *a: sizes.append(len(a[1])) or usual(*a))
    parts = first(Incomplete.from_array(X))
    assert sizes == [70, 70, 70, 70, 20]
    for name in ("inputs", "base", "spread"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name), rtol=1e-6, atol=1e-6)
