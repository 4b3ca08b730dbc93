"""Networks with Sparsity Normalization: what they predict, dropout, class weights, calibration and drift."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.evaluation import vsp_curve
from halfseen.nn import SparsityNormMLP
from halfseen.sparsity import SparsityNormClassifier, SparsityNormRegressor
from halfseen.training.logistic import fit_scaling
from halfseen.training.supervised import Labelled, SquaredError, WithDropout


def make_rows(n_rows=600, n_columns=8, seed=0):
    """Rows of which very different shares are known, whatever they hold; inputs have a positive mean."""
    rng = np.random.default_rng(seed)
    X = rng.normal(1.0, 1.0, size=(n_rows, n_columns)) + rng.normal(size=(n_rows, 1))
    y = X.mean(axis=1)
    X[rng.random(X.shape) < rng.uniform(0, 0.8, size=(n_rows, 1))] = np.nan
    return X, y


@pytest.fixture(scope="module")
def rows():
    return make_rows()


def test_the_network_predicts_from_what_is_known(rows):
    X, y = rows
    model = SparsityNormRegressor(max_epochs=40, random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.5
    low, high = model.predict_interval(X[400:], level=0.9)
    assert ((low <= y[400:]) & (y[400:] <= high)).mean() > 0.75  # 0.9 up to 4 standard errors


def test_predictions_do_not_drift_with_the_number_of_known_values(rows):
    X, y = rows
    model = SparsityNormRegressor(max_epochs=40, random_state=0).fit(X, y)
    assert vsp_curve(model, X, y, n_draws=10).index < 0.15


def test_classes_are_distinguished_and_probabilities_are_calibrated(rows):
    X, y = rows
    label = np.where(y > 1.8, "ill", "well")
    model = SparsityNormClassifier(max_epochs=40, class_weight="balanced", random_state=0)
    model.fit(X[:400], label[:400])
    ill = model.predict_proba(X[400:])[:, 0]
    assert roc_auc_score(label[400:] == "ill", ill) > 0.8
    assert ill.mean() == pytest.approx((label[400:] == "ill").mean(), abs=0.08)


def test_class_weights_move_decisions_and_not_probabilities(rows):
    X, y = rows
    label = np.where(y > 1.8, "ill", "well")
    plain, balanced = (
        SparsityNormClassifier(max_epochs=15, class_weight=weight, random_state=0).fit(X, label)
        for weight in (None, "balanced")
    )
    assert (balanced.predict(X) == "ill").sum() > (plain.predict(X) == "ill").sum()
    shift = balanced.predict_proba(X)[:, 0].mean() - plain.predict_proba(X)[:, 0].mean()
    assert abs(shift) < 0.08


def test_class_weights_must_be_positive(rows):
    X, _ = rows
    label = np.arange(len(X)) % 2
    with pytest.raises(ValueError, match="class_weight must hold positive numbers"):
        SparsityNormClassifier(class_weight={0: 1.0, 1: 0.0}).fit(X, label)


def test_the_exponent_can_be_learned(rows):
    X, y = rows
    model = SparsityNormRegressor(alpha="learned", max_epochs=5, random_state=0).fit(X, y)
    assert float(model.module_.norm.alpha) != 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1, got 0"),
        ({"n_layers": -1}, "n_layers must be at least 0, got -1"),
        ({"alpha": "half"}, "alpha must be a finite number or 'learned', got 'half'"),
        ({"shrinkage": -1}, "shrinkage must be finite and at least 0, got -1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"batch_size": 0}, "batch_size must be 'auto' or at least 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(rows, options, message):
    with pytest.raises(ValueError, match=message):
        SparsityNormRegressor(**options).fit(*rows)


def test_dropout_is_drawn_by_the_objective_and_only_in_training(generator):
    network = SparsityNormMLP(3, 1, widths=[5, 4]).double()
    network.reset_parameters(generator)
    network.norm.fit(torch.ones(2, 3, dtype=torch.bool))
    batch = Labelled(
        Incomplete(torch.ones(6, 3, dtype=torch.float64), torch.ones(6, 3, dtype=torch.bool)),
        torch.zeros(6, 1, dtype=torch.float64),
        torch.ones(6, dtype=torch.float64),
    )
    loss = WithDropout(SquaredError(), 0.5, (5, 4))
    noise = loss.draw_noise(batch, generator)
    assert [mask.shape for mask in noise] == [(6, 5), (6, 4)]
    assert len(loss(network.train(), batch, noise).unique()) > 1
    plain = SquaredError()(network.eval(), batch, ())
    torch.testing.assert_close(loss(network.eval(), batch, noise), plain, rtol=0, atol=0)


def test_scaling_recovers_the_logits_of_the_classes(generator):
    logits = 2 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)
    factor, offsets = 0.5, torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64)
    probabilities = (factor * logits + offsets).softmax(dim=1)
    target = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
    found, shifts = fit_scaling(logits, target, weights=torch.ones(4000, dtype=torch.float64))
    assert found == pytest.approx(factor, abs=0.05)
    torch.testing.assert_close(shifts - shifts.mean(), offsets, atol=0.15, rtol=0)
    assert abs(float(shifts.sum())) < 1e3 * EXACT
