"""Imputers of images: networks on a grid, pixels of one kind, and nothing that a table of images breaks."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import halfseen
from halfseen import LatentImputer, MIWAEImputer, NotMIWAEImputer
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves_pixels import BernoulliLeaf, DiscretisedLogisticLeaf
from halfseen.latent import DeMissVAEImputer, MVAEImputer
from halfseen.latent.convolutional import ConvDecoder, ConvEncoder, PixelMask
from halfseen.latent.self_masking import SharedSlopeMask

TINY = {
    "n_latent": 2,
    "width": 16,
    "n_blocks": 1,
    "max_epochs": 1,
    "n_draws": 2,
    "n_imputation_draws": 8,
    "random_state": 0,
}

TRAINED = {"width": 32, "n_latent": 4, "max_epochs": 3, "n_draws": 5, "batch_size": 16, "learning_rate": 3e-3}


def halves(n_rows=300, side=8, seed=0):
    """Images of which one half is white, one of four, as rows of zeros and ones."""
    rng = np.random.default_rng(seed)
    late, flat = rng.random((2, n_rows, 1, 1)) < 0.5
    down, across = np.indices((side, side)) >= side // 2
    return (np.where(flat, down, across) ^ late).reshape(n_rows, -1).astype(float)


def with_missing(images, share=0.4, seed=1):
    return np.where(np.random.default_rng(seed).random(images.shape) < share, np.nan, images)


def fit(table, make=MIWAEImputer, **settings):
    settings = {"image_shape": (8, 8), **TINY, **settings}
    return make(**settings).fit(table)


def leaf(imputer):
    return imputer.model_.observation.leaves[0]


def test_networks_are_convolutional_and_no_gaussian_is_fitted(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("EM of all pixels is slow")

    for name in ("fit_start",):
        monkeypatch.setattr(f"halfseen.latent.imputer.{name}", refuse)
    model = fit(with_missing(halves(60)), NotMIWAEImputer).model_
    assert isinstance(model.encoder, ConvEncoder)
    assert isinstance(model.decoder, ConvDecoder)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 9), r"image_shape \(8, 9\) has 72 pixels, but the table has 64 columns"),
        ((2, 8, 8), r"image_shape \(2, 8, 8\) has 128 pixels, but the table has 64 columns"),
        (64, r"image_shape must be \(H, W\) or \(C, H, W\), positive, got 64"),
        ((-8, -8), r"image_shape must be \(H, W\) or \(C, H, W\), positive, got \(-8, -8\)"),
        ((8.0, 8), r"image_shape must be \(H, W\) or \(C, H, W\), positive"),
        ((4, 16), r"sides of at least 8, got \(1, 4, 16\)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_with_its_numbers(shape, message):
    with pytest.raises(ValueError, match=message):
        fit(halves(20), image_shape=shape)


def test_what_is_no_pixel_is_refused():
    table = pd.DataFrame(halves(20)).rename(columns=str)
    with pytest.raises(halfseen.SchemaError, match=r"Column '3' of dtype .* does not contain numbers"):
        fit(table.assign(**{"3": "black"}))
    with pytest.raises(ValueError, match="schema must be None"):
        fit(halves(20), schema={0: "count"})


def test_imputation_beats_the_most_frequent_value():
    truth = halves(200)
    table = with_missing(truth)
    filled = fit(table, **TRAINED).transform(table)
    holes = np.isnan(table)
    most_frequent = np.broadcast_to(np.nanmean(table, axis=0) > 0.5, truth.shape)
    errors = [np.mean((guess != truth)[holes]) for guess in (filled, most_frequent)]
    assert errors[1] > 0.4
    assert errors[0] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("make", [MVAEImputer, DeMissVAEImputer])
def test_a_bound_without_importance_weights_does_not_give_the_latents_up(make):
    """The four kinds of image are distinguished, where pixel means would be wrong in half of the cells."""
    images = halves(400)
    table = with_missing(images)
    start = fit(table, make, max_epochs=0).model_
    scale = start.posterior(start_rows(table)).scale.detach()
    assert 0.05 < float(scale.median()) < 0.2
    filled = fit(table, make, **TRAINED | {"max_epochs": 12}).transform(table)
    hidden = np.isnan(table)
    assert np.mean((filled > 0.5)[hidden] != (images > 0.5)[hidden]) < 0.1


def start_rows(table):
    x = torch.from_numpy(np.where(np.isnan(table), np.nan, 2 * table - 1)).float()
    return Incomplete(x, ~x.isnan())


def test_constant_and_never_seen_pixels_are_filled_and_modelled():
    """As the border of MNIST: they are in the grid, and a value never seen there before counts."""
    table = with_missing(halves(60))
    table[:, 0] = np.where(np.isnan(table[:, 0]), np.nan, 0.0)
    table[:, 9] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imputer = fit(table)
    assert {column.kind for column in imputer.schema_} == {"binary"}
    assert {column.levels for column in imputer.schema_} == {(0.0, 1.0)}
    for answer in (imputer.transform(table), imputer.sample(table)[0], *imputer.interval(table)):
        assert set(np.unique(answer)) <= {0.0, 1.0}
    white = table[:5].copy()
    white[:, 0] = 1.0
    black = np.where(np.arange(64) == 0, 0.0, white)
    assert (imputer.score_samples(white) < imputer.score_samples(black)).all()


def test_images_of_one_value_need_no_model():
    table = np.full((20, 64), 3.0)
    table[4, 5] = np.nan
    imputer = fit(table)
    assert imputer.model_ is None
    assert imputer.transform(table)[4, 5] == 3.0


def test_binary_pixels_are_drawn_as_they_are_and_seen_as_minus_one_and_one():
    table = 255.0 * with_missing(halves(60))
    imputer = fit(table)
    assert isinstance(leaf(imputer), BernoulliLeaf)
    draws = imputer.sample(table, n_draws=3)
    assert set(np.unique(draws)) == {0.0, 255.0}
    np.testing.assert_array_equal(draws[:, ~np.isnan(table)], np.tile(table[~np.isnan(table)], (3, 1)))
    rows = imputer._encoding.rows(imputer._read(table, reset=False).codes)
    assert set(rows.x[rows.observed].unique().tolist()) == {-1.0, 1.0}
    probabilities = imputer.class_probabilities(table)
    assert {values.shape for values in probabilities.values()} == {(60, 2)}
    whole = np.stack(list(probabilities.values()), axis=1)  # (N, D, 2)
    np.testing.assert_allclose(whole.sum(axis=-1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(whole[..., 1] > 0.5, imputer.transform(table) == 255.0)


@pytest.mark.parametrize("step", [1.0, 1 / 255])
def test_shades_are_discretised_and_filled_with_shades(step):
    shades = np.random.default_rng(0).integers(3, 250, size=(40, 64)) * step
    shades[:, 7] = shades[:, 7].min()  # constant, with a value of its own
    table = with_missing(shades)
    imputer = fit(table)
    assert isinstance(leaf(imputer), DiscretisedLogisticLeaf)
    seen = table[~np.isnan(table)]
    assert leaf(imputer).n_bins == round((seen.max() - seen.min()) / step) + 1
    for answer in (imputer.transform(table), imputer.sample(table)[0], *imputer.interval(table)):
        np.testing.assert_allclose(answer / step, np.round(answer / step), atol=1e-6)
        assert seen.min() - 1e-6 <= answer.min()
        assert answer.max() <= seen.max() + 1e-6
    assert imputer.score(table) < 0.0  # probabilities, not densities


def test_the_score_of_numbers_is_a_density_in_their_own_units():
    images = np.random.default_rng(0).normal(size=(40, 64))
    one = fit(images, numeric="gaussian", max_epochs=0)
    ten = fit(10.0 * images, numeric="gaussian", max_epochs=0)
    np.testing.assert_allclose(
        ten.score_samples(10.0 * images), one.score_samples(images) - 64 * np.log(10.0), rtol=1e-4
    )


def test_a_row_with_nothing_observed_is_filled_from_the_prior():
    imputer = fit(with_missing(halves(60)))
    empty = np.full((2, 64), np.nan)
    assert set(np.unique(imputer.sample(empty, n_draws=4))) <= {0.0, 1.0}
    assert not np.isnan(imputer.transform(empty)).any()
    np.testing.assert_array_equal(imputer.score_samples(empty), 0.0)


def test_colours_are_the_first_axis_and_sides_need_not_be_even():
    images = np.random.default_rng(0).random((30, 3 * 8 * 11))
    images[:, : 8 * 11] += 4.0  # the first channel
    table = with_missing(images)
    imputer = fit(table, image_shape=(3, 8, 11))
    filled = imputer.transform(table)
    assert filled.shape == table.shape
    assert not np.isnan(filled).any()
    holes = np.isnan(table)
    assert filled[:, :88][holes[:, :88]].min() > 2.0 > filled[:, 88:][holes[:, 88:]].max()
    model = imputer.model_
    assert model.decoder(torch.zeros(5, 2)).shape == (5, model.observation.n_parameters)


@pytest.mark.parametrize(
    ("missingness", "signs", "kind"),
    [
        ("self-masking-logistic", None, PixelMask),
        ("self-masking-logistic", 1, SharedSlopeMask),
        ("self-masking-monotone", None, SharedSlopeMask),
        ("self-masking-shared-slope", None, SharedSlopeMask),
        ("self-masking-flexible", None, PixelMask),
        ("linear", None, PixelMask),
        ("nonlinear", None, PixelMask),
    ],
)
def test_every_model_of_missingness_has_a_bias_for_each_pixel_and_shares_the_rest(missingness, signs, kind):
    table = with_missing(halves(40))
    imputer = fit(table, LatentImputer, missingness=missingness, signs=signs)
    mask_model = imputer.model_.mask_model
    assert isinstance(mask_model, kind)
    assert mask_model.bias.shape == (64,)
    assert sum(parameter.numel() for parameter in mask_model.parameters()) < 64 + 200
    assert not np.isnan(imputer.transform(table)).any()


@pytest.mark.parametrize("hidden", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_the_direction_in_which_pixels_hide_themselves_is_learned(hidden):
    """Only black, or only white pixels are missing, and what they are follows from the others."""
    truth = halves(200)
    lost = (truth == hidden) & (np.random.default_rng(2).random(truth.shape) < 0.6)
    settings = {**TRAINED, "max_epochs": 8, "learning_rate": 1e-2, "n_starts": 1}
    imputer = fit(np.where(lost, np.nan, truth), NotMIWAEImputer, **settings)
    slope = imputer.model_.mask_model.filter.weight.item()  # of the log odds to be seen
    assert (slope < -0.2) if hidden == 1.0 else (slope > 0.2)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_known_direction_is_that_of_all_pixels(sign):
    table = with_missing(halves(40))
    imputer = fit(table, NotMIWAEImputer, missingness="self-masking-logistic", signs=sign, n_starts=1)
    seen = imputer.model_.mask_model.logits(torch.tensor([[-1.0], [1.0]]).expand(2, 64))
    assert (torch.sign(seen[0] - seen[1]) == sign).all()  # +1: white pixels are seen less often
    with pytest.raises(ValueError, match="signs must be the same for all pixels"):
        fit(table, NotMIWAEImputer, missingness="self-masking-monotone", signs=[1] * 63 + [-1])
