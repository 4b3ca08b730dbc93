"""The picture of learned missingness, beside the truth."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from halfseen.experiments import Cell, Results
from halfseen.experiments.notmiwae import (
    CURVES,
    EXPERIMENT,
    KNOWN,
    PICTURED,
    PICTURED_COLUMNS,
    RMSE,
    VALUES,
)
from halfseen.report.experiment_figures import FIGURES
from halfseen.report.latent_svg import _HEIGHT, _WIDTH

DRAW = FIGURES["notmiwae"]["masks"]


def results(seed=0, table=PICTURED, model=KNOWN, arrays=None):
    cells = [Cell({"table": table}, model, seed, {RMSE: 1.0}, arrays=arrays or {})]
    return Results(EXPERIMENT, "small", cells, {}, Path("notmiwae-small.json"))


def paths(svg, shade):
    found = [one for one in ElementTree.fromstring(svg).iter() if one.get("class") == shade]
    return [
        [float(n) for n in one.get("d").translate(str.maketrans("MLHV", "    ")).split()] for one in found
    ]


def test_each_column_has_its_learned_curve_and_the_step_at_the_mean():
    rates = (0.1, 0.4, 0.6, 0.9)
    curves = np.tile(rates, (len(VALUES), 1))
    svg = DRAW(results(arrays={CURVES: curves}))
    text = " ".join(ElementTree.fromstring(svg).itertext())
    assert all(name in text for name in PICTURED_COLUMNS)
    heights = [path[1::2] for path in paths(svg, "hs-curve")]
    assert len(heights) == len(rates)
    for found, rate in zip(heights, rates, strict=True):
        np.testing.assert_allclose(found, _HEIGHT * (1 - rate), atol=0.051)  # one decimal
    place = _WIDTH * (0.0 - VALUES[0]) / (VALUES[-1] - VALUES[0])
    for low, bottom, x, top, right in (path[:1] + path[1:] for path in paths(svg, "hs-truth")):
        assert (low, bottom, top, right) == (0.0, _HEIGHT, 0.0, _WIDTH)
        assert x == pytest.approx(place, abs=0.051)


def test_a_curve_rises_where_the_model_says():
    curves = np.tile((VALUES > 1.0).astype(float)[:, None], (1, 4))
    (first, *_) = paths(DRAW(results(arrays={CURVES: curves})), "hs-curve")
    x, y = np.array(first[::2]), np.array(first[1::2])
    middle = x[np.argmin(np.abs(y - _HEIGHT / 2))]
    assert middle == pytest.approx(_WIDTH * (1.0 - VALUES[0]) / (VALUES[-1] - VALUES[0]), abs=_WIDTH / 60)


@pytest.mark.parametrize("other", [{"seed": 1}, {"table": "red"}, {"model": "MIWAE"}, {"arrays": {}}])
def test_nothing_is_drawn_of_other_runs(other):
    given = {"arrays": {CURVES: np.zeros((len(VALUES), 4))}} | other
    assert DRAW(results(**given)) is None
