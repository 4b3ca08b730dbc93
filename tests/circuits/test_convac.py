"""Circuits over images: what they learn and refuse."""

import itertools

import numpy as np
import pytest
import torch

from halfseen import load
from halfseen.circuits import ConvAC, ConvACClassifier
from halfseen.circuits.evidence import information_gain
from halfseen.data.incomplete import Incomplete

TINY = {"n_leaves": 4, "n_channels": [4, 4], "max_epochs": 12, "random_state": 0}


def stripes(n_images, seed=0, n_colours=0, shades=4):
    """Images of 6 x 6 pixels: class 1 is bright on the left, class 0 on the right."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_images) % 2
    left = np.arange(6) < 3
    bright = (y[:, None] == left).astype(float)[:, None, :]
    X = np.round((shades - 1) * np.clip(0.7 * bright + 0.3 * rng.random((n_images, 6, 6)), 0, 1))
    return (np.repeat(X[..., None], n_colours, axis=-1) if n_colours else X), y


@pytest.mark.parametrize(("n_colours", "shades"), [(0, 4), (0, 2), (3, 256)])
def test_a_single_row_of_pixels_predicts_the_class_though_training_images_were_complete(n_colours, shades):
    X, y = stripes(120, n_colours=n_colours, shades=shades)
    model = ConvACClassifier(**TINY).fit(X, y)
    partly = np.full_like(X, np.nan)
    partly[:, 2] = X[:, 2]
    assert model.score(partly, y) > 0.95
    nothing = model.predict_proba(np.full_like(X[:1], np.nan))
    np.testing.assert_allclose(nothing, [[0.5, 0.5]], atol=0.02)


def test_probabilities_are_averages_over_shifted_images():
    X, y = stripes(60)
    model = ConvACClassifier(**TINY | {"max_epochs": 2}, shifts=1).fit(X, y)
    partly = np.where(np.random.default_rng(1).random(X.shape) < 0.5, np.nan, X)[:5]
    features = (np.nan_to_num(partly) - 1.5) / 1.5  # shades from -1 to 1
    logs, joint = [], []
    for down, across in itertools.product((-1, 0, 1), repeat=2):
        frame, seen = np.zeros((5, 8, 8)), np.zeros((5, 8, 8), dtype=bool)
        place = slice(None), slice(1 + down, 7 + down), slice(1 + across, 7 + across)
        frame[place], seen[place] = features, ~np.isnan(partly)
        batch = Incomplete(torch.tensor(frame).flatten(1), torch.tensor(seen).flatten(1))
        logs.append(model.circuit_.class_probabilities(batch).log())
        joint.append(model.circuit_.class_log_likelihood(batch).exp() * model.circuit_.log_prior.exp())
    expected = torch.stack(logs).mean(dim=0).softmax(dim=-1)
    np.testing.assert_allclose(model.predict_proba(partly), expected, atol=1e-9)
    mixed = torch.stack(joint).sum(dim=0)
    mixture = model.set_params(averaging="mixture").predict_proba(partly)
    np.testing.assert_allclose(mixture, mixed / mixed.sum(dim=1, keepdim=True), atol=1e-9)


@pytest.mark.parametrize(("n_colours", "shifts"), [(0, 0), (0, 1), (2, 0)])
def test_the_information_gain_of_a_pixel_is_that_of_the_circuit_over_the_image(n_colours, shifts):
    X, y = stripes(60, n_colours=n_colours)
    model = ConvACClassifier(**TINY | {"max_epochs": 6}, shifts=shifts).fit(X, y)
    partly = X[:3].copy()
    partly[:, 1:, :] = np.nan
    partly[0] = np.nan
    gain = model.information_gain(partly)
    assert gain.shape == partly.shape
    assert (gain[~np.isnan(partly)] == 0).all()
    assert gain[0].max() > gain[1].max() > 0  # a row of pixels has told part of it
    frame = np.full((3, n_colours or 1, 6 + 2 * shifts, 6 + 2 * shifts), np.nan)
    inside = slice(shifts, 6 + shifts)
    frame[:, :, inside, inside] = np.moveaxis(partly, -1, 1) if n_colours else partly[:, None]
    features = (frame.reshape(3, -1) - 1.5) / 1.5  # shades from -1 to 1
    direct = information_gain(model.circuit_, Incomplete.from_array(features)).numpy().reshape(frame.shape)
    direct = direct[:, :, inside, inside]
    np.testing.assert_allclose(gain, np.moveaxis(direct, 1, -1) if n_colours else direct[:, 0], atol=1e-9)


def test_missing_pixels_are_imputed_from_the_rest_of_the_image():
    X, _ = stripes(120)
    model = ConvAC(**TINY | {"max_epochs": 30}).fit(X)
    partly = X.copy()
    partly[:, 3:] = np.nan
    completed = model.transform(partly)
    np.testing.assert_array_equal(completed[:, :3], X[:, :3])
    rmse = np.sqrt(np.mean((completed[:, 3:] - X[:, 3:]) ** 2))
    assert rmse < 0.6 * X[:, 3:].std()
    low, high = model.interval(partly, level=0.9)
    assert 0.8 < ((low <= X) & (X <= high))[:, 3:].mean() <= 1


def test_probabilities_of_all_images_of_few_shades_sum_to_one():
    shades = np.array(list(itertools.product([0.0, 1.0, 2.0], repeat=4))).reshape(-1, 2, 2)
    rng = np.random.default_rng(0)
    X = shades[rng.integers(0, 81, 60)]
    model = ConvAC(3, 3, pixels="discretised", max_epochs=3, random_state=0).fit(X)
    assert np.exp(model.score_samples(shades)).sum() == pytest.approx(1.0, abs=1e-5)
    bits = -model.score_samples(X[:5]) / np.log(2) / 4
    np.testing.assert_allclose(model.bits_per_dimension(X[:5]), bits)
    assert np.isnan(model.bits_per_dimension(np.full((1, 2, 2), np.nan))).all()


@pytest.mark.parametrize("settings", [{}, {"shifts": 1}])
def test_images_that_are_drawn_of_a_class_look_like_it(settings):
    X, y = stripes(120)
    model = ConvACClassifier(**TINY, **settings).fit(X, y)
    drawn = {label: model.draw_images(60, label=label) for label in (0, 1)}
    brighter = {label: images[:, :, :3].mean() - images[:, :, 3:].mean() for label, images in drawn.items()}
    assert brighter[1] > 1 > -1 > brighter[0]  # of three shades, 2.1 on average in the training images
    assert drawn[0].shape == (60, 6, 6)
    assert set(np.unique(drawn[0])) <= {0.0, 1.0, 2.0, 3.0}
    np.testing.assert_array_equal(model.draw_images(60, label=0), drawn[0])
    others = model.draw_images(60, label=0, random_state=1)
    assert (others != drawn[0]).any()
    either = model.draw_images(60)
    assert 0.2 < (either[:, :, :3].mean(axis=(1, 2)) > either[:, :, 3:].mean(axis=(1, 2))).mean() < 0.8
    with pytest.raises(ValueError, match=r"label must be one of the classes .*, got 7"):
        model.draw_images(1, label=7)


def test_prototypes_are_images_in_the_shades_of_the_training_images():
    X, _ = stripes(60, n_colours=3, shades=256)
    model = ConvAC(4, [5, 4], max_epochs=2, random_state=0).fit(X)
    shown = model.prototypes(0)
    assert shown.shape == (5, 6, 6, 3)
    assert shown.min() >= 0
    assert shown.max() <= 255
    assert shown.max() - shown.min() > 100  # patches are dark or bright
    assert model.draw_images(2).shape == (2, 6, 6, 3)
    with pytest.raises(ValueError, match="level must be below 2, the number of levels, got 2"):
        model.prototypes(2)
    same = ConvAC(2, 2, max_epochs=0).fit(np.ones((5, 2, 2)))
    with pytest.raises(ValueError, match="there is no model to draw from"):
        same.draw_images()


def test_em_never_loses_likelihood_of_images():
    X, _ = stripes(60)
    model = ConvAC(**TINY | {"max_epochs": 5}, algorithm="em").fit(X)
    assert (np.diff(model.history_.train_loss) < 1e-6).all()
    assert model.score(X) > ConvAC(**TINY | {"max_epochs": 0}).fit(X).score(X) + 1.0


def test_weight_decay_makes_weights_more_equal():
    X, y = stripes(60)
    squares = [
        ConvACClassifier(**TINY, weight_decay=decay, schedule="linear").fit(X, y).circuit_.squared_weights()
        for decay in (0.0, 1.0)
    ]
    assert squares[1] < 0.9 * squares[0]


def test_numbers_have_no_shades_to_be_discretised():
    X = np.random.default_rng(0).normal(size=(20, 2, 2))
    with pytest.raises(ValueError, match="pixels='discretised' needs images of whole shades"):
        ConvAC(2, 2, pixels="discretised", max_epochs=0).fit(X)


def test_images_in_which_every_patch_is_incomplete_can_be_learned_from():
    X, y = stripes(60)
    X[:, ::2, ::2] = np.nan
    assert ConvACClassifier(**TINY).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize("channels", [(4, 4), [4, 4], 4])
def test_the_parameters_of_a_loaded_model_are_those_that_were_saved(tmp_path, channels):
    X, _ = stripes(20)
    model = ConvAC(2, channels, max_epochs=0, image_shape=(6, 6), random_state=0).fit(X)
    model.save(tmp_path / "model")
    parameters, loaded = model.get_params(), load(tmp_path / "model").get_params()
    assert loaded == parameters
    assert type(loaded["n_channels"]) is type(parameters["n_channels"])


@pytest.mark.parametrize(
    ("X", "y", "settings", "message"),
    [
        (np.ones((6, 4, 4)), [0, 1] * 3, {}, "All pixels of all images have the same value"),
        (stripes(6)[0], [None] * 6, {}, "ConvACClassifier needs labels: all values of y are missing"),
        (stripes(6)[0], ["a"] * 6, {}, "at least two classes, got 1 class: 'a'"),
        (
            stripes(6)[0],
            [0, 1] * 3,
            {"structure": "tree"},
            "structure must be 'deep' or 'shallow', got 'tree'",
        ),
        (stripes(6)[0], [0, 1] * 3, {"n_channels": [4, 0]}, "n_channels must be at least 1, got 0"),
        (stripes(6)[0], [0, 1] * 3, {"averaging": "mean"}, "averaging must be 'geometric' or 'mixture'"),
        (stripes(6)[0], [0, 1] * 3, {"weight_decay": -1.0}, "weight_decay must be at least 0 and finite"),
        (stripes(6)[0], [0, 1] * 3, {"schedule": "half"}, "schedule must be one of constant, cosine"),
        (stripes(6)[0], [0, 1] * 3, {"shifts": -1}, "shifts must be at least 0, got -1"),
        (stripes(6)[0].reshape(6, -1), [0, 1] * 3, {}, "Rows of pixels need image_shape"),
        (stripes(6)[0].reshape(6, -1), [0, 1] * 3, {"image_shape": (5, 7)}, "has 35 pixels"),
    ],
)
def test_images_and_settings_that_do_not_fit_are_refused(X, y, settings, message):
    with pytest.raises(ValueError, match=message):
        ConvACClassifier(**TINY | settings).fit(X, y)


def test_constant_pixels_unseen_classes_and_other_shapes_after_training():
    X, y = stripes(40)
    X[:, :, 5] = 0.0  # a border that never changes
    model = ConvACClassifier(**TINY | {"max_epochs": 4}).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.score(X, np.full(40, 7)) == 0.0  # a class that training never saw is never predicted
    changed = X.copy()
    changed[:, :, 5] = 3.0
    assert np.isfinite(model.predict_proba(changed)).all()
    with pytest.raises(ValueError, match="image_shape, given or learned in fit"):
        model.predict(X[:, :4])


def series_of_two_classes(n=240, steps=16, features=2, seed=0):
    """Series whose second feature rises or falls; the first is noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    ramp = np.linspace(-1, 1, steps)
    X = rng.normal(scale=0.3, size=(n, steps, features))
    X[:, :, 1] += np.where(y[:, None] == 1, ramp, -ramp)
    return X, y


def test_series_are_classified_by_a_circuit_over_time_whatever_steps_are_missing():
    X, y = series_of_two_classes()
    model = ConvACClassifier(8, [8, 8], shape=(16, 2), max_epochs=15, random_state=0).fit(X[:160], y[:160])
    regions = [level.n_regions for level in model.circuit_.structure.levels]
    assert regions == [8, 4, 2]  # windows of two steps, halved along time
    holed = X[160:].copy()
    holed[:, 2:14] = np.nan
    assert model.score(X[160:], y[160:]) > 0.95
    assert model.score(holed, y[160:]) > 0.9
    rows = holed.reshape(len(holed), -1)
    np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(holed))
    assert model.draw_images(3).shape == (3, 16, 2)
    gain = model.information_gain(holed[:2])
    assert gain.shape == (2, 16, 2)
    assert (gain[:, :2] == 0).all()
    nothing = np.full((1, 16, 2), np.nan)
    np.testing.assert_allclose(model.predict_proba(nothing), [[0.5, 0.5]], atol=0.02)


def test_a_circuit_over_time_is_that_of_an_image_of_one_row():
    X, y = series_of_two_classes(60)
    settings = {"max_epochs": 2, "random_state": 0}
    series = ConvACClassifier(4, [4], shape=(16, 2), **settings).fit(X, y)
    image = ConvACClassifier(4, [4], **settings).fit(X[:, None], y)
    np.testing.assert_array_equal(series.predict_proba(X), image.predict_proba(X[:, None]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (16,)}, r"shape must be \(n_steps, n_features\), got \(16,\)"),
        ({"shape": (16, 0)}, r"shape\[1\]"),
        (
            {"shape": (8, 2)},
            r"X must have the shape \(n_series, 8, 2\) or \(n_series, 16\), got \(60, 16, 2\)",
        ),
        ({"shape": (16, 2), "shifts": 1}, "shifts must be 0 with shape, got 1"),
        ({"shape": (16, 2), "image_shape": (2, 1, 16)}, "give one of both"),
    ],
)
def test_shapes_of_series_that_do_not_fit_are_refused(settings, message):
    X, y = series_of_two_classes(60)
    with pytest.raises(ValueError, match=message):
        ConvACClassifier(**settings).fit(X, y)
