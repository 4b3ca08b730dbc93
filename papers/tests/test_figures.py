"""Further figures of experiments, from the arrays that their runs have stored."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from papers import EXPERIMENTS, Cell, Results
from papers.circuits import mnist as convac_mnist
from papers.figures.latent import FIGURES, enclosing_level, sheet_of
from papers.figures.sparsity import drift_curves
from papers.missvae import images as missvae_images
from papers.missvae import mixtures as missvae
from papers.missvae.methods import DECODER_SNR, ENCODER_SNR
from papers.missvae.mixtures import MISSSVAE, MVAE, N_SEEN, POSTERIORS, SCORE, TRUTH
from papers.notmiwae import tables as notmiwae
from papers.sparsity.series import CURVE

KEPT = np.full((len(N_SEEN), 3, 16, 16), 1 / 256, dtype=np.float16)


def missvae_results(**arrays):
    cells = [
        Cell({"plan": "small"}, name, 0, {SCORE: -3.0, ENCODER_SNR: 0.1, DECODER_SNR: 0.2}, arrays=kept)
        for name, kept in arrays.items()
    ]
    cells.append(Cell({"plan": "small"}, TRUTH, 0, {SCORE: -2.0}))
    return Results(missvae.EXPERIMENT, "small", cells, {}, Path("missvae-small.json"))


def test_figures_belong_to_known_experiments():
    assert set(FIGURES) <= set(EXPERIMENTS)


def digits_results(*cells):
    return Results(convac_mnist.EXPERIMENT, "small", cells, {}, Path("convac-mnist-small.json"))


def test_curves_of_digits_have_the_masks_that_a_model_was_scored_under():
    setting, some = {"plan": "small"}, {convac_mnist.of_pixels(0.9): 0.8, convac_mnist.of_squares(3, 15): 0.6}
    every = dict.fromkeys(map(convac_mnist.of_pixels, convac_mnist.RATES), 0.9)
    cells = [
        Cell(setting, convac_mnist.CIRCUIT, 0, every),
        Cell(setting, convac_mnist.MIWAE, 0, some),
        Cell(setting, convac_mnist.DENSITY, 0, {convac_mnist.BITS: 2.0}),
    ]
    left, right = FIGURES["convac-mnist"]["curves"](digits_results(*cells)).axes
    assert [len(line.get_xdata()) for line in left.get_lines()] == [7, 1]
    assert [list(line.get_xdata()) for line in right.get_lines()] == [[], [8]]
    assert FIGURES["convac-mnist"]["curves"](digits_results(cells[2])) is None


def test_digits_that_a_circuit_draws_are_shown_by_class():
    arrays = {"drawn": np.zeros((10, 8, 28, 28), np.float32), "channels": np.zeros((16, 28, 28), np.float32)}
    arrays["drawn"][3, 5] = 1.0
    cell = Cell({"plan": "small"}, convac_mnist.CIRCUIT, 0, {}, arrays=arrays)
    drawn, channels = FIGURES["convac-mnist"]["pictures"](digits_results(cell)).axes
    sheet = drawn.get_images()[0].get_array()
    assert sheet.shape == (300, 240)
    assert sheet[91:119, 151:179].min() == sheet.max() == 1.0
    assert channels.get_images()[0].get_array().shape == (120, 120)
    assert FIGURES["convac-mnist"]["pictures"](digits_results()) is None


def test_posteriors_are_plotted_for_the_runs_that_stored_them():
    draw = FIGURES["missvae"]["posteriors"]
    figure = draw(missvae_results(**{MVAE: {POSTERIORS: KEPT}, MISSSVAE: {}}))
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == [MVAE]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[::3] == [
        f"Test row {place + 1}, {n_seen} of 5 cells observed\nall cells"
        for place, n_seen in enumerate(N_SEEN)
    ]
    assert draw(missvae_results(**{MVAE: {}})) is None


def test_contours_enclose_their_share():
    mass = np.array([[0.4, 0.3], [0.2, 0.1]])
    assert [enclosing_level(mass, share) for share in (0.39, 0.69, 0.75)] == [0.4, 0.3, 0.2]


def test_the_noise_of_gradients_is_plotted_for_trained_models():
    first, second = FIGURES["missvae"]["snr"](missvae_results(**{MVAE: {}, MISSSVAE: {}})).axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == [ENCODER_SNR, DECODER_SNR]
    assert [label.get_text() for label in first.get_yticklabels()] == [MVAE, MISSSVAE]


def test_images_of_a_sheet_are_in_lines_and_their_draws_in_columns():
    images = np.arange(1, 1 + 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    sheet = sheet_of(images)
    assert sheet.shape == (3 * 6, 2 * 7)
    for draw, image in np.ndindex(2, 3):
        tile = sheet[6 * image : 6 * image + 4, 7 * draw : 7 * draw + 5]
        np.testing.assert_array_equal(tile, images[draw, image])


def test_observed_pixels_are_black_or_white_and_missing_ones_show_nothing_of_the_truth():
    rng = np.random.default_rng(0)
    truth, draws = rng.random((2, 784)) < 0.5, rng.random((3, 2, 784)) < 0.5
    observed = np.broadcast_to(np.arange(784) < 392, (2, 784))
    arrays = {"truth": truth, "observed": observed, "draws": draws}
    cell = Cell({"data": "mnist"}, "model", 0, {}, arrays=arrays)
    results = Results(missvae_images.EXPERIMENT, "small", [cell], {}, Path())
    [part] = FIGURES["missvae-images"]["grid"](results).subfigs
    whole, seen, drawn = (np.asarray(axes.images[0].get_array()) for axes in part.axes)
    np.testing.assert_array_equal(whole[:28, :28], truth[0].reshape(28, 28))
    np.testing.assert_array_equal(seen[:14, :28], truth[0].reshape(28, 28)[:14])
    assert (seen[14:28, :28] == 2).all()
    np.testing.assert_array_equal(drawn[:14, 30:58], truth[0].reshape(28, 28)[:14])
    np.testing.assert_array_equal(drawn[14:28, 30:58], 3 + draws[1, 0].reshape(28, 28)[14:])


def masks(seed=0, table=notmiwae.PICTURED, model=notmiwae.KNOWN, arrays=None):
    cells = [Cell({"table": table}, model, seed, {notmiwae.RMSE: 1.0}, arrays=arrays or {})]
    return FIGURES["notmiwae"]["masks"](Results(notmiwae.EXPERIMENT, "small", cells, {}, Path()))


def test_each_column_has_its_learned_curve_and_the_step_at_the_mean():
    curves = np.random.default_rng(0).random((len(notmiwae.VALUES), 4))
    for place, axes in enumerate(masks(arrays={notmiwae.CURVES: curves}).axes):
        truth, learned = axes.lines
        np.testing.assert_array_equal(learned.get_ydata(), curves[:, place])
        np.testing.assert_array_equal(learned.get_xdata(), notmiwae.VALUES)
        assert list(truth.get_xdata())[1:3] == [0.0, 0.0]
        assert axes.get_title(loc="left") == notmiwae.PICTURED_COLUMNS[place]


@pytest.mark.parametrize("other", [{"seed": 1}, {"table": "red"}, {"model": "MIWAE"}, {"arrays": {}}])
def test_no_missingness_is_plotted_for_other_runs(other):
    assert masks(**({"arrays": {notmiwae.CURVES: np.zeros((len(notmiwae.VALUES), 4))}} | other)) is None


def test_a_curve_without_an_interval_is_drawn_at_equal_shares():
    cells = [Cell({"rows": "item"}, "AutoRec", seed, arrays={CURVE: np.array([1.0, 2.0])}) for seed in (0, 1)]
    (axes,) = drift_curves(SimpleNamespace(cells=cells)).axes
    assert axes.get_title(loc="left") == "AutoRec\nitem"
    assert len(axes.lines) == 2
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.5, 1.0], [1.0, 2.0]])
