"""Further pictures of experiments, from what their runs have kept."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from halfseen.experiments import EXPERIMENTS, Cell, Results
from halfseen.experiments.missvae import EXPERIMENT, MISSSVAE, MVAE, N_SEEN, POSTERIORS, SCORE, TRUTH
from halfseen.experiments.missvae_methods import DECODER_SNR, ENCODER_SNR
from halfseen.report.experiment_figures import FIGURES

KEPT = np.full((len(N_SEEN), 3, 16, 16), 1 / 256, dtype=np.float16)


def results(**arrays):
    cells = [
        Cell({"plan": "small"}, name, 0, {SCORE: -3.0, ENCODER_SNR: 0.1, DECODER_SNR: 0.2}, arrays=kept)
        for name, kept in arrays.items()
    ]
    cells.append(Cell({"plan": "small"}, TRUTH, 0, {SCORE: -2.0}))
    return Results(EXPERIMENT, "small", cells, {}, Path("missvae-small.json"))


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text]


def test_figures_are_of_experiments_that_there_are():
    assert set(FIGURES) <= set(EXPERIMENTS)


def test_posteriors_are_drawn_of_the_runs_that_kept_them():
    draw = FIGURES["missvae"]["posteriors"]
    found = words(draw(results(**{MVAE: {POSTERIORS: KEPT}, MISSSVAE: {}})))
    assert MVAE in found
    assert MISSSVAE not in found
    assert [word for word in found if word.startswith("Test row")] == [
        f"Test row {place + 1}, {n_seen} of 5 cells seen" for place, n_seen in enumerate(N_SEEN)
    ]
    assert draw(results(**{MVAE: {}})) is None


def test_the_noise_of_gradients_is_drawn_of_trained_models():
    found = words(FIGURES["missvae"]["snr"](results(**{MVAE: {}, MISSSVAE: {}})))
    assert {MVAE, MISSSVAE, ENCODER_SNR, DECODER_SNR} <= set(found)
    assert TRUTH not in found
