"""Small, odd and wrong input; seeds; one mechanism for all tables."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from missingness.five_tables import RATED, table

from halfseen import missingness as ms
from halfseen.missingness.base import Mechanism

TRAIN, TEST = table("mixed", n_rows=300)


@pytest.mark.parametrize("kind", RATED)
def test_the_same_seed_gives_the_same_mask_and_the_mechanism_stays_as_it_was(kind):
    mechanism = RATED[kind](0.3).fit(TRAIN)
    first = mechanism.sample(TEST, random_state=4)
    mechanism.sample(TRAIN, random_state=5)
    mechanism.amputate(TEST)
    np.testing.assert_array_equal(mechanism.sample(TEST, random_state=4), first)
    np.testing.assert_array_equal(~np.isnan(mechanism.amputate(TEST, random_state=4)), first)
    assert (mechanism.sample(TEST, random_state=6) != first).any()
    again = RATED[kind](0.3).fit(TEST).fit(TRAIN)  # a second fit forgets the first
    np.testing.assert_array_equal(again.sample(TEST, random_state=4), first)
    generators = [np.random.default_rng(1), np.random.default_rng(1)]
    one, other = (mechanism.sample(TEST, random_state=generator) for generator in generators)
    np.testing.assert_array_equal(one, other)
    assert (mechanism.sample(TEST, random_state=generators[0]) != one).any()


@pytest.mark.parametrize("kind", RATED)
def test_train_and_test_share_one_mechanism(kind):
    """The probability of a test row is the same alone, in its table, and among the training rows."""
    mechanism = RATED[kind](0.3).fit(TRAIN)
    together = mechanism.probability(np.concatenate([TRAIN, TEST]))
    np.testing.assert_array_equal(mechanism.probability(TRAIN), together[: len(TRAIN)])
    np.testing.assert_allclose(mechanism.probability(TEST[3:4]), together[[len(TRAIN) + 3]], atol=1e-12)


def test_nothing_given_is_ever_written_to():
    for X in (TRAIN.copy(), torch.from_numpy(TRAIN.copy())):
        kept = np.asarray(X).copy()
        for kind in RATED:
            RATED[kind](0.5).fit(X).amputate(X, random_state=0)
        np.testing.assert_array_equal(np.asarray(X), kept)
    frozen = TRAIN.copy()
    frozen.flags.writeable = False
    assert np.isnan(ms.LogisticSelfMasking(0.3).fit(frozen).amputate(frozen)).any()


@pytest.mark.parametrize("kind", RATED)
@pytest.mark.parametrize("n_rows", [0, 1])
def test_no_rows_and_one_row(kind, n_rows):
    mechanism = RATED[kind](0.3).fit(TRAIN)
    observed = mechanism.sample(TEST[:n_rows], random_state=0)
    assert observed.shape == (n_rows, 5)
    assert mechanism.amputate(TEST[:n_rows], random_state=0).shape == (n_rows, 5)
    assert mechanism.log_prob(observed, TEST[:n_rows]).shape == (n_rows,)
    with pytest.raises(ValueError, match=r"X has shape \(0, 5\): there is nothing to calibrate on"):
        RATED[kind](0.3).fit(TRAIN[:0])


@pytest.mark.parametrize("kind", RATED)
def test_one_row_can_be_fitted(kind):
    mechanism = RATED[kind](0.3).fit(TRAIN[:1])
    assert mechanism.sample(TEST, random_state=0).shape == TEST.shape
    assert np.all(mechanism.expected_rate_[mechanism.columns_] <= 0.3 + 1e-9)


@pytest.mark.parametrize("kind", RATED)
def test_constant_columns_get_their_rate_too(kind):
    X = np.tile([1e9, 0.0, -3.0, 0.1, 7.0], (500, 1))
    mechanism = RATED[kind](0.3).fit(X)
    if "Dropout" not in kind:
        np.testing.assert_allclose(mechanism.expected_rate_[mechanism.columns_], 0.3, atol=1e-9)
    assert np.isfinite(mechanism.log_prob(mechanism.sample(X, random_state=0), X)).all()


@pytest.mark.parametrize("kind", RATED)
def test_a_column_that_is_missing_as_a_whole_stays_so(kind):
    X = TRAIN.copy()
    X[:, 1] = np.nan
    mechanism = RATED[kind](0.3).fit(X)
    observed = mechanism.sample(X, random_state=0)
    assert not observed[:, 1].any()
    assert mechanism.expected_rate_[1] == 0.0
    assert np.isfinite(mechanism.log_prob(observed, X)).all()
    assert mechanism.sample(TEST, random_state=0).shape == TEST.shape


def test_a_fit_that_fails_leaves_no_mechanism_behind():
    mechanism = ms.DetectionLimit(lower=0.0).fit(TRAIN)
    mechanism.upper = -1.0
    with pytest.raises(ValueError, match="is above upper limit"):
        mechanism.fit(TRAIN)
    with pytest.raises(ValueError, match="not calibrated yet"):
        mechanism.sample(TRAIN)


def test_infinity_is_refused_where_it_is_read():
    X = TRAIN.copy()
    X[7, 2] = -np.inf
    for mechanism in (
        ms.LogisticSelfMasking(0.3),
        ms.QuantileCensoring(0.3),
        ms.MARLogistic(0.3, predictors=2),
    ):
        with pytest.raises(ValueError, match=r"Column 'x2' contains infinity \(-inf in row 7, 1 in all\)"):
            mechanism.fit(X)
    assert np.isinf(ms.MCAR(0.0).fit(X).amputate(X)[7, 2])
    assert ms.LogisticSelfMasking(0.3, columns=[0, 1]).fit(X).sample(X).shape == X.shape


def test_an_incomplete_predictor_counts_as_its_mean():
    X = TRAIN.copy()
    mechanism = ms.MARLogistic(0.3, predictors=0).fit(X)
    row = X[:1].copy()
    row[0, 0] = np.nan
    mean = X[:1].copy()
    mean[0, 0] = X[:, 0].mean()
    np.testing.assert_allclose(mechanism.probability(row), mechanism.probability(mean), atol=1e-12)


def test_every_public_mechanism_is_documented_with_its_class_and_an_example():
    for name in ms.__all__:
        thing = getattr(ms, name)
        if isinstance(thing, type) and issubclass(thing, Mechanism) and thing is not Mechanism:
            assert dataclasses.is_dataclass(thing)
            text = thing.__doc__
            assert ">>>" in text, name
            parameters = {field.name for field in dataclasses.fields(thing)}
            missing = [
                p
                for p in parameters
                if f"    {p} :" not in text and f"{p}, " not in text and f", {p} " not in text
            ]
            assert not missing, (name, missing)
            if name not in ("Compose", "ByColumn"):
                assert any(word in text for word in ("MCAR", "MAR", "MNAR")), name


def test_a_mechanism_prints_its_parameters():
    assert (
        repr(ms.QuantileCensoring(0.2, tail="lower"))
        == "QuantileCensoring(rate=0.2, tail='lower', columns=None)"
    )


X5 = np.zeros((4, 5))
WRONG = [
    (lambda: ms.MCAR(1.1), "rate must be a number between 0 and 1, got 1.1"),
    (lambda: ms.MCAR("0.3"), "rate must be a number between 0 and 1, got '0.3'"),
    (lambda: ms.MCAR(float("nan")), "rate must be a number between 0 and 1, got nan"),
    (lambda: ms.MCAR(True), "rate must be a number between 0 and 1, got True"),
    (lambda: ms.MCAR([0.1, -0.2]), r"rate\[1\] must be a number between 0 and 1, got -0.2"),
    (lambda: ms.MCAR(0.3, unit="cell"), "unit must be one of 'cells', 'rows', 'blocks', got 'cell'"),
    (
        lambda: ms.MCAR(0.3, unit="blocks"),
        "blocks must be given if and only if unit='blocks', got blocks=None",
    ),
    (lambda: ms.MCAR(0.3, "blocks", [0], [[0]]), r"either blocks or columns, not both; got columns=\[0\]"),
    (lambda: ms.MCAR(0.3, "blocks", None, [[0], [0]]).fit(X5), "blocks must not overlap, but 'x0' is in two"),
    (lambda: ms.MCAR(0.3, columns=[0, 0]).fit(X5), "columns names 'x0' more than once"),
    (lambda: ms.MCAR(0.3, columns=9).fit(X5), "columns contains 9, but X has 5 columns"),
    (lambda: ms.MCAR(0.3, columns="a").fit(X5), "columns contains 'a', but X has no names, only positions"),
    (lambda: ms.MCAR(0.3).fit(np.zeros(4)), r"X must have two axes, rows and columns, got shape \(4,\)"),
    (lambda: ms.MCAR(0.3).fit([["a"]]), "X must contain numbers, or be a data frame; a list"),
    (lambda: ms.MCAR(0.3).sample(X5), r"This MCAR is not calibrated yet; call fit\(X\) first"),
    (lambda: ms.MCAR(0.3).fit(X5).sample(X5, random_state="a"), "random_state must be None, an integer"),
    (lambda: ms.MARLogistic(0.3, steepness=(5.0, 2.0)), r"a pair 0 < low <= high, got \(5.0, 2.0\)"),
    (lambda: ms.MARLogistic(0.3, steepness=-1.0), "steepness must be a number of at least 0, got -1.0"),
    (
        lambda: ms.MARLogistic(0.3, predictor_share=2),
        "predictor_share must be a number between 0 and 1, got 2",
    ),
    (
        lambda: ms.MARLogistic(0.3, predictors=[]).fit(X5),
        r"predictors must name at least one column, got \[\]",
    ),
    (
        lambda: ms.MARLogistic(0.3, predictors=0, columns=[0, 1]).fit(X5),
        "'x0' is in both columns and predictors",
    ),
    (lambda: ms.MARLogistic(0.3, columns=list(range(5))).fit(X5), "needs a predictor that stays observed"),
    (
        lambda: ms.MARLogistic(0.3, predictors=list(range(5))).fit(X5),
        "needs a column from which it can remove",
    ),
    (lambda: ms.MARLogistic(0.3).fit(X5[:, :1]), "MARLogistic needs at least two columns"),
    (lambda: ms.LogisticSelfMasking(0.3, steepness=np.inf), "steepness must be a number, got inf"),
    (
        lambda: ms.GaussianSelfMasking(0.3, amplitude=0.2),
        "amplitude must exceed the rate, got 0.2 with rate 0.3",
    ),
    (lambda: ms.GaussianSelfMasking(1.0, amplitude=0.9), "amplitude must be 1 for a rate of 1, got 0.9"),
    (
        lambda: ms.GaussianSelfMasking(0.3, calibration="x"),
        "calibration must be one of 'data', 'gaussian', got",
    ),
    (lambda: ms.GaussianSelfMasking(0.3, variance=0.0), "variance must be a number of at least"),
    (
        lambda: ms.QuantileCensoring(0.3, tail="top"),
        "tail must be one of 'upper', 'lower', 'both', got 'top'",
    ),
    (lambda: ms.Threshold(side="left"), "side must be one of 'above', 'below', got 'left'"),
    (lambda: ms.Threshold(chance=2.0), "chance must be a number between 0 and 1, got 2.0"),
    (lambda: ms.DetectionLimit(), "DetectionLimit needs lower or upper, got neither"),
    (lambda: ms.DetectionLimit(lower=2.0, upper=1.0).fit(X5), "'x0': lower limit 2 is above upper limit 1"),
    (
        lambda: ms.DetectionLimit(lower={0: 1}, columns=0),
        "Limits given as a mapping name their columns, .* got 0",
    ),
    (lambda: ms.DetectionLimit(lower={7: 1}).fit(X5), "lower or upper contains 7, but X has 5 columns"),
    (lambda: ms.DetectionLimit(lower="low").fit(X5), "lower: column 'x0' cannot be compared with 'low'"),
    (lambda: ms.DetectionLimit(lower=np.nan).fit(X5), "lower must contain numbers, got nan"),
    (
        lambda: ms.MonotoneDropout([0.3, 0.1]),
        r"rate must not decrease from one column to the next, got \[0.3, 0.1\]",
    ),
    (lambda: ms.MonotoneDropout([0.1, 0.3]).fit(X5), r"rate must be one number, or 5 \(one per column\)"),
    (lambda: ms.MonotoneDropout(0.3, columns=0).fit(X5), "MonotoneDropout needs at least two columns"),
    (lambda: ms.SkipPattern(None, when=0, equals=1), "SkipPattern needs columns to skip, got None"),
    (lambda: ms.SkipPattern([0, 1], when=0, equals=1).fit(X5), "Column 'x0' decides about the others"),
    (lambda: ms.Compose([]), "mechanisms must not be empty"),
    (lambda: ms.Compose([3]), r"mechanisms\[0\] must be a mechanism, got 3"),
    (lambda: ms.ByColumn({}), "mechanisms must map columns to mechanisms, got {}"),
    (lambda: ms.ByColumn({0: ms.Quadrants()}), r"mechanisms\[0\] must be a mechanism for columns, got Quad"),
    (lambda: ms.ByColumn({0: 3}), r"mechanisms\[0\] must be a mechanism for columns, got 3"),
    (
        lambda: ms.ByColumn({0: ms.MCAR(), (0, 1): ms.MCAR()}).fit(X5),
        r"Column 'x0' has two mechanisms: 0 and \(0, 1\)",
    ),
    (lambda: ms.Learned(penalty=0.0), "penalty must be greater than 0"),
    (lambda: ms.learn(X5), "X has no missing values, so there is no missingness to learn"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_value_that_a_text_column_has_not_is_named():
    frame = pd.DataFrame({"smoker": ["no", "yes"], "x": [1, 2]})
    with pytest.raises(ValueError, match="equals: column 'smoker' has no 'never'; it has 'no', 'yes'"):
        ms.SkipPattern("x", when="smoker", equals="never").fit(frame)
