"""The classifier of sequences: what it learns, the conventions that it accepts, and what it refuses."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import halfseen
from halfseen import SequenceClassifier
from halfseen.sequences.classifier import SequenceNetwork


def tiny(**parameters):
    return SequenceClassifier(**{"width": 4, "max_epochs": 1, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def data():
    """The mean of the first feature decides; one class of four is rare."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6, 2)) * [1.0, 1000.0]
    y = np.where(X[:, :, 0].mean(axis=1) > 0.3, "yes", "no")
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, y


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_held_out_auroc_chooses_the_epoch_and_rises_above_chance(data, cell):
    X, y = data
    held = {"X": X[160:], "y": y[160:]}
    model = tiny(cell=cell, width=8, max_epochs=12, batch_size=32, learning_rate=0.03)
    model.fit(X[:160], y[:160], validation=held)
    auroc = roc_auc_score(y[160:] == "yes", model.predict_proba(X[160:])[:, 1])
    assert 1 - auroc == pytest.approx(min(model.history_.validation_loss), abs=0.01)
    assert model.history_.best_epoch == np.argmin(model.history_.validation_loss)
    assert auroc > 0.8


def test_class_weights_change_decisions_and_leave_probabilities_calibrated(data):
    X, y = data
    plain, balanced = (
        tiny(max_epochs=4, learning_rate=0.03, class_weight=weight, monitor="log-loss").fit(X, y)
        for weight in (None, "balanced")
    )
    assert (balanced.predict(X) == "yes").sum() > (plain.predict(X) == "yes").sum()
    for model in (plain, balanced):
        assert model.predict_proba(X)[:, 1].mean() == pytest.approx((y == "yes").mean(), abs=0.08)


def test_subsets_hide_values_in_training_and_calibration_and_not_in_the_choice_of_the_epoch(
    data, monkeypatch
):
    X, y = data
    seen = []
    read = SequenceNetwork._inputs

    def note(network, values):
        seen.append((network.training, float(values.observed.double().mean())))
        return read(network, values)

    monkeypatch.setattr(SequenceNetwork, "_inputs", note)
    tiny(subsets=True, batch_size=240).fit(X[:180], y[:180], validation={"X": X[180:], "y": y[180:]})
    known = 1 - np.isnan(X[:180]).mean()
    trained = [share for training, share in seen if training]
    judged = [share for training, share in seen if not training]
    assert trained == [pytest.approx(known / 2, abs=0.08)]  # the mean share is a half
    whole = pytest.approx(1 - np.isnan(X[180:]).mean())
    assert judged[:2] == [whole, whole]  # the choice of the epoch, and the calibration with all values
    assert len(judged) == 6
    assert np.mean(judged[2:]) == pytest.approx(np.mean(judged[0]) / 2, abs=0.15)


def test_a_saved_classifier_is_calibrated_by_the_number_of_values_as_before(data, tmp_path):
    X, y = data
    model = tiny(subsets=True).fit(X, y)
    assert len(model._scaling.knots) > 1
    model.save(tmp_path / "model")
    few = np.where(np.arange(X.shape[1])[:, None] < 2, X, np.nan)
    for rows in (X, few):
        np.testing.assert_array_equal(
            halfseen.load(tmp_path / "model").predict_proba(rows), model.predict_proba(rows)
        )


def test_dicts_are_accepted_as_in_pypots(data):
    X, y = data
    lengths = np.full(len(X), 5)
    expected = tiny().fit(X[:200], y[:200], validation={"X": X[200:], "y": y[200:]})
    found = tiny().fit({"X": X[:200], "y": y[:200]}, {"X": X[200:], "y": y[200:]})
    np.testing.assert_array_equal(found.predict_proba({"X": X}), expected.predict_proba(X))
    np.testing.assert_array_equal(
        found.predict_proba({"X": X, "lengths": lengths}), expected.predict_proba(X[:, :5])
    )
    assert found.score({"X": X, "y": y}) == expected.score(X, y) == np.mean(expected.predict(X) == y)


def test_a_share_of_each_class_is_held_out_and_none_of_few_sequences(data):
    X, y = data
    rare = np.where(np.arange(len(y)) < 2, "rare", y)
    model = tiny().fit(X, rare)
    assert len(model.history_.validation_loss) == 1
    few = tiny().fit(X[:20], y[:20])
    assert few.history_.validation_loss == ()
    assert tiny(validation_fraction=0.0).fit(X, y).history_.validation_loss == ()


def test_a_sequence_without_values_is_classified_like_one_of_zeros_in_training_units(data):
    X, y = data
    model = tiny(learning_rate=0.03).fit(X, y)
    empty = model.predict_proba(np.full((2, 6, 2), np.nan))
    assert np.isfinite(empty).all()
    np.testing.assert_array_equal(empty[0], empty[1])


def test_extreme_values_are_clipped_at_those_of_training(data):
    X, y = data
    model = tiny().fit(X, y)
    shown = np.where(np.isnan(X), np.nan, 1e6)
    np.testing.assert_array_equal(model.predict_proba(shown), model.predict_proba(1e3 * shown))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell": "rnn"}, r"cell must be 'lstm' or 'gru', got 'rnn'\."),
        ({"count_over": "row"}, r"count_over must be 'sequence' or 'step', got 'row'\."),
        ({"monitor": "accuracy"}, r"monitor must be 'auroc' or 'log-loss', got 'accuracy'\."),
        ({"alpha": np.nan}, r"alpha must be a finite number, got nan\."),
        ({"width": 0}, r"width must be at least 1, got 0\."),
    ],
)
def test_wrong_parameters_are_named(data, change, message):
    with pytest.raises(ValueError, match=message):
        tiny(**change).fit(*data)


def test_wrong_data_are_refused_with_what_to_do(data):
    X, y = data
    ragged = [[[1.0], [2.0]], [[1.0]]]
    with pytest.raises(ValueError, match=r"different numbers of steps, from 1 to 2\. Pad all sequences"):
        tiny().fit(ragged, [0, 1])
    with pytest.raises(ValueError, match=r"All 24 values of X are missing: nothing can be learned\."):
        tiny().fit(np.full((2, 6, 2), np.nan), [0, 1])
    with pytest.raises(ValueError, match=r"must hold 'X', got the keys \['x'\]\."):
        tiny().fit({"x": X})
    with pytest.raises(ValueError, match="Give classes and lengths within the dict"):
        tiny().fit({"X": X, "y": y}, lengths=np.full(len(X), 6))
    with pytest.raises(ValueError, match=r"validation\['y'\] has the class 'maybe', which is not in y\."):
        tiny().fit(X, y, validation={"X": X[:2], "y": ["yes", "maybe"]})
    with pytest.raises(ValueError, match=r"one class for each of the 2 sequences .* shape \(3,\)\."):
        tiny().fit(X, y, validation={"X": X[:2], "y": y[:3]})
    with pytest.raises(ValueError, match="AUROC is not defined: the held-out rows have only one class"):
        tiny().fit(X, y, validation={"X": X[y == "no"][:3], "y": ["no"] * 3})


def test_the_drift_of_a_sequence_classifier_is_measured_over_the_values_of_all_steps(data):
    X, y = data
    model = tiny().fit(X, y)
    curve = halfseen.evaluation.vsp_curve(model, X, n_levels=3, n_draws=2, n_rows=10, n_bootstraps=20)
    flat = halfseen.evaluation.vsp_curve(
        lambda rows: model.predict_proba(rows.reshape(-1, 6, 2))[:, 1],
        X.reshape(len(X), -1),
        n_levels=3,
        n_draws=2,
        n_rows=10,
        n_bootstraps=20,
    )
    np.testing.assert_array_equal(curve.means, flat.means)
