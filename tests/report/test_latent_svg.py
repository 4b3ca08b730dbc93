"""Pictures of latent models: read back from the SVG, they show the densities and the curves."""

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from scipy import special, stats
from tolerances import EXACT

from halfseen.evaluation.latent_diagnostics import Divergences, PosteriorGrid
from halfseen.evaluation.latent_likelihood import LatentGrid
from halfseen.nn.mask_models import KnownMask, LinearMask, MaskLayout
from halfseen.nn.self_masking import FlexibleSelfMask, SelfMask
from halfseen.report import latent_svg
from halfseen.report.latent_svg import mask_curves_figure, posterior_figure, posterior_table_figure

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&"


def gaussian_log_mass(grid, loc, std):
    density = stats.norm.logpdf(grid.points.numpy(), loc, std).sum(axis=1)
    return torch.tensor(density).log_softmax(dim=0)


def make_grid(loc=(1.0, -2.0), std=(0.5, 0.25), n_points=200):
    grid = LatentGrid(2, (-5.0, 5.0), n_points)
    log_p, log_q = gaussian_log_mass(grid, loc, std), gaussian_log_mass(grid, (0.0, 0.0), (1.0, 1.0))
    between = Divergences.between(log_q, log_p)
    return PosteriorGrid(grid, log_p, log_q, log_p, between, Divergences(0.0, 0.0, 0.0), (0.0, 0.0))


def panels_of(svg):
    root = ElementTree.fromstring(svg)
    return [group for group in root if group.tag == f"{SVG}g"]


def axis_map(panel, axis):
    """The map from places to latents, from the labels of ticks."""
    texts = [
        (float(text.get(axis)), float(text.text.replace("\N{MINUS SIGN}", "-")))
        for text in panel.iter(f"{SVG}text")
        if text.get("class") == "hs-tick" and (text.get("text-anchor") == "middle") == (axis == "x")
    ]
    (first, low), (last, high) = texts[0], texts[-1]
    offset = 0.0 if axis == "x" else 4.0  # labels stand below their line
    return lambda place: low + (place - first + offset) * (high - low) / (last - first)


def test_contours_enclose_the_true_posterior():
    """The ellipse that holds a share s of a Gaussian has radius sqrt(-2 log(1 - s)) standard deviations."""
    for panel in panels_of(posterior_figure([make_grid()])):
        to_x = axis_map(panel, "x")
        contour = next(path for path in panel.iter(f"{SVG}path") if path.get("class") == "hs-contour")
        points = np.array(
            [[float(v) for v in pair.split()] for pair in re.findall(r"[\d.]+ [\d.]+", contour.get("d"))]
        )
        xs = to_x(points[:, 0])
        reach = 0.5 * math.sqrt(-2 * math.log(1 - 0.95))
        assert xs.min() == pytest.approx(1 - reach, abs=0.06)
        assert xs.max() == pytest.approx(1 + reach, abs=0.06)
    to_y = axis_map(panels_of(posterior_figure([make_grid()]))[0], "y")
    ys = to_y(points[:, 1])
    assert (ys.min(), ys.max()) == pytest.approx((-2 - reach / 2, -2 + reach / 2), abs=0.06)


@pytest.mark.parametrize("n_points", [40, 200, 333])
def test_the_darkest_cells_are_at_the_mode(n_points):
    first, encoder, _ = panels_of(posterior_figure([make_grid(n_points=n_points)]))
    for panel, mode in ((first, (1.0, -2.0)), (encoder, (0.0, 0.0))):
        paths = [path for path in panel.iter(f"{SVG}path") if path.get("opacity")]
        darkest = max(paths, key=lambda path: float(path.get("opacity")))
        runs = np.array(re.findall(r"M(\d+) (\d+)h(\d+)", darkest.get("d")), dtype=float)
        inner = next(group for group in panel.iter(f"{SVG}g") if "scale" in (group.get("transform") or ""))
        side = float(re.search(r"scale\(([\d.]+)", inner.get("transform"))[1])
        x = side * np.average(runs[:, 0] + runs[:, 2] / 2, weights=runs[:, 2])
        y = latent_svg._SIDE - side * np.average(runs[:, 1] + 0.5, weights=runs[:, 2])
        found = axis_map(panel, "x")(x), axis_map(first, "y")(y)
        assert found == pytest.approx(mode, abs=0.25)


def test_densities_of_a_line_share_one_scale():
    """The encoder here is eight times as flat: by the square root, its darkest level is a third."""
    panels = panels_of(posterior_figure([make_grid()]))
    darkest = [max(float(path.get("opacity") or 0) for path in panel.iter(f"{SVG}path")) for panel in panels]
    assert darkest[0] == darkest[2] == 1.0
    assert darkest[1] == pytest.approx(math.sqrt(1 / 8), abs=0.5 / 8)


def test_a_window_holds_both_posteriors():
    mass = np.zeros((100, 100))
    mass[20, 30], mass[60, 50] = 0.5, 0.5
    (first_x, first_y), (last_x, last_y) = latent_svg._window(mass)
    assert first_x < 20 < 60 < last_x
    assert first_y < 30 < 50 < last_y
    assert last_x - first_x == last_y - first_y < 60


def test_pooled_cells_keep_the_mean():
    panel = np.random.default_rng(0).uniform(size=(12, 12))
    pooled, side = latent_svg._pooled(panel, 6)
    np.testing.assert_allclose(pooled, panel.reshape(6, 2, 6, 2).mean(axis=(1, 3)), atol=EXACT)
    assert side == latent_svg._SIDE / 6
    assert latent_svg._pooled(panel[:11, :11], 6)[0][5, 5] == pytest.approx(panel[10, 10], abs=EXACT)


def test_an_enclosing_level_encloses():
    mass = np.array([[0.4, 0.3], [0.2, 0.1]])
    assert latent_svg._enclosing(mass, 0.69) == 0.3
    assert latent_svg._enclosing(mass, 0.75) == 0.2


def test_a_line_is_drawn_for_each_row_with_its_label():
    svg = posterior_figure([make_grid(), make_grid((0.0, 1.0))], ["one", HOSTILE])
    assert len(panels_of(svg)) == 6
    assert "<script" not in svg
    assert "KL" in svg


@pytest.mark.parametrize(
    ("grids", "labels", "message"),
    [([], None, "one row or more"), ([make_grid()], ["a", "b"], "as many labels")],
)
def test_labels_must_fit(grids, labels, message):
    with pytest.raises(ValueError, match=message):
        posterior_figure(grids, labels)


def test_one_latent_is_refused():
    grid = LatentGrid(1)
    flat = torch.zeros(500, dtype=torch.float64).log_softmax(dim=0)
    same = Divergences(0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="two latents"):
        posterior_figure([PosteriorGrid(grid, flat, flat, flat, same, same, (0.0, 0.0))])


# ---------------------------------------------------------------------------------------------- tables

BOUNDS = (-4.0, 4.0)


def cell_masses(loc, std, n_points=128):
    axis = np.linspace(*BOUNDS, n_points, endpoint=False) + 4.0 / n_points
    mass = np.outer(stats.norm.pdf(axis, loc[0], std), stats.norm.pdf(axis, loc[1], std))
    return mass / mass.sum()


def three(shift=0.0):
    """Posteriors of one row: from all cells, from those seen, the encoder's."""
    locs = ((0.5, -1.0), (shift, 0.0), (0.0, 1.0))
    return np.array([cell_masses(loc, std) for loc, std in zip(locs, (0.1, 0.5, 0.8), strict=True)])


def mode_of(panel):
    """The middle of the darkest cells, counted from the first lines at whole numbers."""
    paths = [path for path in panel.iter(f"{SVG}path") if path.get("opacity")]
    darkest = max(paths, key=lambda path: float(path.get("opacity")))
    runs = np.array(re.findall(r"M(\d+) (\d+)h(\d+)", darkest.get("d")), dtype=float)
    (scale,) = [g.get("transform") for g in panel.iter(f"{SVG}g") if " -" in g.get("transform", "")]
    side = float(re.search(r"scale\(([\d.]+)", scale)[1])
    x = side * np.average(runs[:, 0] + runs[:, 2] / 2, weights=runs[:, 2])
    y = side * np.average(runs[:, 1] + 0.5, weights=runs[:, 2])
    lines = [path.get("d") for path in panel.iter(f"{SVG}path") if path.get("class") == "hs-grid"]
    xs = [float(re.match(r"M([\d.]+) 0v", line)[1]) for line in lines if "v" in line]
    ys = [latent_svg._SIDE - float(re.match(r"M0 ([\d.]+)h", line)[1]) for line in lines if "h" in line]
    return (x - xs[0]) / (xs[1] - xs[0]), (y - ys[0]) / (ys[1] - ys[0])


def test_a_table_has_three_panels_for_each_row_of_each_model():
    posteriors = {"one": np.array([three(), three(1.0)]), HOSTILE: np.array([three(), three()])}
    svg = posterior_table_figure(posteriors, BOUNDS, ["first", "second"])
    panels = panels_of(svg)
    assert len(panels) == 12
    assert "<script" not in svg
    contours = [
        next(path for path in panel.iter(f"{SVG}path") if path.get("class") == "hs-contour").get("d")
        for panel in panels
    ]
    assert [bool(contour) for contour in contours] == [False, True, True] * 4
    assert contours[1] == contours[2] == contours[7]  # of what is seen; the third row differs
    assert contours[4] != contours[1]


def test_panels_of_a_row_share_a_window_in_which_modes_are_in_their_places():
    whole, partly, encoder = (
        np.array(mode_of(p)) for p in panels_of(posterior_table_figure({"a": three()[None]}, BOUNDS, ["r"]))
    )
    np.testing.assert_allclose(whole - partly, (0.5, -1.0), atol=0.12)
    np.testing.assert_allclose(encoder - partly, (0.0, 1.0), atol=0.12)


def test_the_divergence_is_of_the_encoder_from_what_is_seen():
    given = three()
    middle = (given[1] + given[2]) / 2
    jsd = 0.5 * (special.rel_entr(given[1], middle).sum() + special.rel_entr(given[2], middle).sum())
    assert f">JS {jsd:.2f}<" in posterior_table_figure({"a": given[None]}, BOUNDS, ["r"])


@pytest.mark.parametrize("given", [{}, {"a": np.ones((2, 3, 8, 8))}, {"a": np.ones((1, 2, 8, 8))}])
def test_a_table_needs_three_posteriors_of_each_row(given):
    with pytest.raises(ValueError, match="three posteriors of each of 1 rows"):
        posterior_table_figure(given, BOUNDS, ["r"])


# ---------------------------------------------------------------------------------------------- curves


def curves_of(svg):
    """For each panel, its title and its curve in values and probabilities, by the labels of ticks."""
    found = {}
    for panel in panels_of(svg):
        name = next(text.text for text in panel.iter(f"{SVG}text") if text.get("class") == "hs-name")
        path = next(path for path in panel.iter(f"{SVG}path") if path.get("class") == "hs-curve")
        points = np.array([pair.split() for pair in path.get("d")[1:].split("L")], dtype=float)
        ticks = [
            (float(text.get("x")), float(re.sub(r"\s", "", text.text).replace("\N{MINUS SIGN}", "-")))
            for text in panel.iter(f"{SVG}text")
            if text.get("class") == "hs-tick" and text.get("text-anchor") == "middle"
        ]
        slope, intercept = np.polyfit(*zip(*ticks, strict=True), 1)
        found[name] = intercept + slope * points[:, 0], 1 - points[:, 1] / latent_svg._HEIGHT
    return found


def self_mask(layout):
    mask = SelfMask(layout)
    mask.raw_slope.data, mask.bias.data = torch.tensor([2.0, -1.0, 0.0]), torch.tensor([0.5, -0.2, 1.0])
    return mask.double()


RANGES = [(20.0, 80.0), (0.0, 4000.0), (-3.0, 3.0)]
UNITS = {"loc": [50.0, 1000.0, 0.0], "scale": [10.0, 500.0, 1.0]}


def test_curves_are_the_probabilities_at_values_of_the_table():
    found = curves_of(mask_curves_figure(self_mask(3), ["age", "income", "z"], RANGES, **UNITS))
    assert list(found) == ["age", "income", "z"]
    for (values, missing), slope, bias, loc, scale in zip(
        found.values(), (2, -1, 0), (0.5, -0.2, 1.0), *UNITS.values(), strict=True
    ):
        expected = special.expit(slope * (values - loc) / scale - bias)
        assert np.abs(missing - expected).max() < 0.01  # a tenth of a pixel each way
    assert np.ptp(found["z"][1]) == 0.0


def test_columns_without_a_range_or_a_model_are_left_out():
    layout = MaskLayout((0, 1, 2), columns=(0, 2))
    svg = mask_curves_figure(self_mask(layout), ["a", "b", "c"], [None, (0.0, 1.0), (0.0, 1.0)])
    assert list(curves_of(svg)) == ["c"]
    with pytest.raises(ValueError, match="No column is left"):
        mask_curves_figure(self_mask(layout), ["a", "b", "c"], [None, (0.0, 1.0), None])


def test_a_column_is_found_among_the_features_of_others():
    """Column 0 is a block of three levels, column 1 the number before it."""
    mask = FlexibleSelfMask(MaskLayout((1, 0, 0, 0)))
    values, missing = curves_of(mask_curves_figure(mask, ["level", "number"], [None, (-2.0, 2.0)]))["number"]
    x = torch.zeros(len(values), 4)
    x[:, 0] = torch.tensor(values)
    expected = torch.sigmoid(-mask.logits(x)[:, 1]).detach().numpy()
    assert np.abs(missing - expected).max() < 0.01
    with pytest.raises(ValueError, match="'level' has 3 features"):
        mask_curves_figure(mask, ["level", "number"], [(0.0, 1.0), None])


def test_models_that_are_not_self_masking_have_the_others_at_their_means():
    mask = LinearMask(2)
    mask.weight.data, mask.bias.data = torch.tensor([[1.0, 9.0], [9.0, -2.0]]), torch.tensor([0.3, 0.7])
    found = curves_of(mask_curves_figure(mask, ["a", "b"], [(-2.0, 2.0)] * 2))
    assert np.abs(found["a"][1] - special.expit(-found["a"][0] - 0.3)).max() < 0.01
    assert np.abs(found["b"][1] - special.expit(2 * found["b"][0] - 0.7)).max() < 0.01


def test_a_known_mask_has_curves_too():
    mask = KnownMask(lambda x: torch.sigmoid(x - 1.0), layout=1)
    values, missing = curves_of(mask_curves_figure(mask, ["a"], [(-2.0, 4.0)]))["a"]
    assert np.abs(missing - special.expit(values - 1)).max() < 0.01


def test_dates_are_written_as_dates():
    svg = mask_curves_figure(SelfMask(1), ["visit"], [(0.0, 1e9)], loc=[5e8], scale=[3e8], dates=["visit"])
    assert ">1974<" in svg


@pytest.mark.parametrize(
    ("ends", "labels"),
    [
        ((0.0, 250_000.0), ["0", "100\N{NARROW NO-BREAK SPACE}000", "200\N{NARROW NO-BREAK SPACE}000"]),
        ((1e-6, 3e-6), ["1.0e-06", "1.5e-06", "2.0e-06", "2.5e-06", "3.0e-06"]),
        ((2000.0, 2002.0), ["2\N{NARROW NO-BREAK SPACE}000"]),
        ((10.0, 20.0), ["10", "12.5", "15", "17.5", "20"]),
    ],
)
def test_ticks_have_as_few_digits_as_tell_them_apart(ends, labels):
    ticks, label = latent_svg._labelled_ticks(*ends, is_date=False)
    written = [label(tick) for tick in ticks]
    assert written[: len(labels)] == labels
    assert len(set(written)) == len(ticks)


def test_hostile_names_are_escaped():
    svg = mask_curves_figure(SelfMask(1), [HOSTILE], [(0.0, 1.0)])
    assert "<script" not in svg
    ElementTree.fromstring(svg)


@pytest.mark.parametrize(
    ("names", "ranges", "message"),
    [(["a"], [(0.0, 1.0)] * 2, "one entry for each of 2"), (["a", "b"], [(1.0, 1.0)] * 2, "must rise")],
)
def test_what_does_not_fit_is_refused(names, ranges, message):
    with pytest.raises(ValueError, match=message):
        mask_curves_figure(SelfMask(2), names, ranges)
