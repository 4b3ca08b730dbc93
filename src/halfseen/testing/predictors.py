"""Laws of a predictor of a table: regressors and classifiers that take missing inputs.

Beside what `halfseen.testing.laws` names, a law takes ``predictor``, which is fitted to ``table``.
"""

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import has_fit_parameter

from halfseen.testing.laws import (
    Law,
    assert_function_of_the_block,
    assert_function_of_the_row,
    registered_in,
    sparser,
)
from halfseen.testing.tables import fit_quietly, hide, names, take

PREDICTOR_LAWS: list[Law] = []
law = registered_in(PREDICTOR_LAWS)


def predictions(predictor, table):
    """Every answer of a predictor about a table."""
    found = [predictor.predict(table)]
    if hasattr(predictor, "predict_proba"):
        found.append(predictor.predict_proba(table))
    if hasattr(predictor, "predict_interval"):
        found.extend(predictor.predict_interval(table, level=0.8))
    return [np.asarray(answer) for answer in found]


def make_target(predictor, n_rows, seed=0):
    """Random numbers for a regressor, and two random labels for a classifier."""
    numbers = np.random.default_rng(seed).normal(size=n_rows)
    return np.where(numbers > np.median(numbers), "high", "low") if is_classifier(predictor) else numbers


def assert_usable(predictor, table):
    """Predictions are one for each row, and finite numbers or known classes."""
    for answer in predictions(predictor, table):
        assert len(answer) == len(table), f"{len(answer)} predictions of {len(table)} rows"
        known = np.isfinite(answer) if answer.dtype.kind == "f" else np.isin(answer, predictor.classes_)
        assert known.all(), f"predictions are {answer[~known]}"


@law()
def predictions_depend_on_the_row_alone(predictor, table):
    """The prediction of a row is the same alone, beside copies of itself, in any batch and order."""
    assert_function_of_the_row(lambda rows: predictions(predictor, rows), sparser(table))


@law()
def predictions_of_whole_blocks_are_those_of_the_table(predictor, table):
    """A table that is split between blocks has the predictions of the whole table, bit by bit."""
    assert_function_of_the_block(lambda rows, _: predictions(predictor, rows), table)


@law()
def rows_without_any_value_are_predicted(predictor, table):
    """All inputs of a row may be missing."""
    assert_usable(predictor, hide(take(table, [0, 1]), True))


@law()
def any_input_may_be_missing_though_it_never_was_in_training(make):
    """A predictor that was fitted to complete inputs takes missing ones."""
    X = np.random.default_rng(1).normal(size=(80, 3))
    predictor = fit_quietly(make(), X, make_target(make(), len(X)))
    assert_usable(predictor, hide(X[:8], np.arange(8)[:, None] // 2 ** np.arange(3) % 2 == 1))


@law()
def values_under_the_mask_are_never_read(make):
    """A masked array of numpy is an array with missing cells, whatever numbers are under the mask."""
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    gone = rng.random(complete.shape) < 0.2
    target = make_target(make(), len(complete))
    plain = np.where(gone, np.nan, complete)
    expected = predictions(fit_quietly(make(), plain, target), plain)
    for under in (-999.0, 1e6):
        masked = np.ma.array(np.where(gone, under, complete), mask=gone)
        found = predictions(fit_quietly(make(), masked, target), masked)
        for answer, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(answer, other, err_msg=f"{under} is under the mask")


@law()
def weights_of_rows_are_relative(make):
    """Equal weights are no weights, and doubling all weights changes nothing, if `fit` takes weights."""
    if has_fit_parameter(make(), "sample_weight"):
        X, target, weights = _weighted_rows(make)
        for one, other in ((None, np.full(len(X), 3.0)), (weights, 2.0 * weights)):
            first, second = (_answers(make, X, target, chosen, X) for chosen in (one, other))
            _assert_equal(first, second, "weights were multiplied")


@law()
def a_row_of_weight_zero_is_as_good_as_absent(make):
    """Neither the values nor the target of a row with zero weight matter, not even as a further class."""
    if has_fit_parameter(make(), "sample_weight"):
        X, target, weights = _weighted_rows(make)
        counted = weights > 0.5
        unlike = np.where(counted, target, "other" if is_classifier(make()) else 1e6)
        first = _answers(make, X[counted], target[counted], weights[counted], X)
        second = _answers(make, X, unlike, np.where(counted, weights, 0.0), X)
        _assert_equal(first, second, "rows of weight zero were added")


def _weighted_rows(make):
    """Returns inputs, targets and weights of a few rows."""
    rng = np.random.default_rng(2)
    X = np.where(rng.random((90, 3)) < 0.2, np.nan, rng.normal(size=(90, 3)))
    return X, make_target(make(), len(X), seed=3), rng.uniform(0.1, 2.0, size=len(X))


def _answers(make, X, target, weights, asked):
    return predictions(fit_quietly(make(), X, target, sample_weight=weights), asked)


def _assert_equal(found, expected, what):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=what)


@law("predict_proba")
def probabilities_sum_to_one_and_the_predicted_class_is_a_most_probable_one(predictor, table):
    """`predict` agrees with `predict_proba`, and ``classes_`` are their columns."""
    probabilities, predicted = predictor.predict_proba(table), predictor.predict(table)
    assert probabilities.shape == (len(table), len(predictor.classes_))
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    own = probabilities[predicted[:, None] == predictor.classes_]
    np.testing.assert_allclose(own, probabilities.max(axis=1), rtol=1e-6)


@law("predict_interval")
def intervals_of_predictions_nest(predictor, table):
    """An interval of a higher level contains one of a lower level."""
    (low, high), (inner_low, inner_high) = (predictor.predict_interval(table, level=p) for p in (0.95, 0.5))
    assert ((low <= inner_low) & (inner_low <= inner_high) & (inner_high <= high)).all()


@law()
def the_number_of_columns_is_checked(predictor, table):
    """A table that lacks a column is refused."""
    fewer = table[:, 1:] if isinstance(table, np.ndarray) else table[names(table)[1:]]
    with np.testing.assert_raises(ValueError):
        predictor.predict(fewer)
