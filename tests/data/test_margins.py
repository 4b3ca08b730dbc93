"""Margins: maps between values and scores that are monotone, invertible and keep what a column is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from halfseen.data.columns import Column
from halfseen.data.frames import Table
from halfseen.data.margin_choice import (
    N_FOLDS,
    _apply_links,
    _folds,
    _held_out,
    _held_out_lattice,
    bounded_margin,
    choose_margin,
    choose_margins,
    fold_numbers,
)
from halfseen.data.margin_fits import line, refit_margin, spline, thresholds
from halfseen.data.margins import Link, Margin, log_mass, truncated_moments
from halfseen.data.schema import Schema

N = 800
SCORES = stats.norm.ppf((np.random.default_rng(0).permutation(N) + 0.5) / N)
UNIFORM = stats.norm.cdf(SCORES)
SHAPES = {
    "log-normal": np.exp(1 + SCORES),
    "exponential": stats.expon.ppf(UNIFORM),
    "beta": stats.beta.ppf(UNIFORM, 0.8, 2),
    "bimodal": SCORES + 4 * np.sign(SCORES),
    "counts": stats.poisson.ppf(UNIFORM, 2),
    "zero-inflated": np.where(UNIFORM < 0.4, 0.0, 5 + stats.expon.ppf((UNIFORM - 0.4).clip(0) / 0.6)),
}
SMOOTH = ("log-normal", "exponential", "beta", "bimodal")


def column(kind="continuous", **changes):
    return Column(name="x", kind=kind, dtype="float64", storage="number", **changes)


def chosen(name):
    counts = {"kind": "count", "integer": True, "minimum": 0.0}
    margin = choose_margin(column(**counts) if name == "counts" else column(), SHAPES[name])
    assert margin is not None
    return margin, torch.from_numpy(SHAPES[name])


@pytest.mark.parametrize("name", ["counts", "zero-inflated"])
def test_values_with_an_interval_have_its_expected_score_on_the_lattice_and_beside_it(name):
    margin, x = chosen(name)
    for values in (x, x[:1], torch.cat([x, torch.tensor([2.5, 1e12], dtype=torch.float64)])):
        below, above = margin.interval(values)
        expected = torch.where(above > below, truncated_moments(below, above)[0], below)
        torch.testing.assert_close(margin.forward(values), expected / margin.reliability)
    below, above = margin.interval(x)
    within = torch.where(above > below, truncated_moments(below, above)[1], 0.0)
    assert margin.reliability == pytest.approx(1 - float(within.mean()))


def test_margins_do_not_depend_on_the_order_of_values():
    """Every second one of more values than are compared has another distribution."""
    rng = np.random.default_rng(0)
    half = rng.binomial(20, 0.5, size=1_500), rng.poisson(1.0, size=1_500)
    counts, numbers = np.stack(half, axis=1).ravel().astype(float), np.exp(rng.normal(size=3_000))
    whole = column(kind="count", integer=True)
    for one, values in ((whole, counts), (whole, counts[:300]), (column(), numbers)):
        found = [choose_margin(one, order) for order in (values, values[::-1], rng.permutation(values))]
        assert found[0] is not None
        assert all(repr(margin) == repr(found[0]) for margin in found)


def test_held_out_counts_are_scored_by_the_densities_of_fits_without_them():
    values, counts = SHAPES["counts"], column(kind="count", integer=True, minimum=0.0)
    folds = fold_numbers(len(values))
    scores = _held_out_lattice(counts, values.astype(int), np.arange(values.max() + 1), 1.0)
    for fold in range(N_FOLDS):
        train, test = values[folds != fold], torch.from_numpy(values[folds == fold])
        fits = replace(line(Link(), train), half=0.5), thresholds(counts, train, 1.0)
        for found, fit in zip(scores[:, folds == fold], fits, strict=True):
            np.testing.assert_allclose(found, fit.log_density(test).numpy(), rtol=1e-9)


def test_held_out_numbers_are_scored_by_the_densities_of_fits_without_them():
    samples = np.sort(np.stack([SHAPES["exponential"], SHAPES["log-normal"], SHAPES["bimodal"]]), axis=1)
    linked = _apply_links(samples, [Link("above", -1.0, 0.5), None, None])
    best = np.array([0, 1, 3])
    scores = _held_out(linked.places, linked.slopes, best)
    assert linked.valid.tolist() == [
        [True] * 3,
        [False, True, False],
        [False, True, False],
        [False, True, True],
    ]
    for kind, g in zip(*np.nonzero(linked.valid), strict=True):
        x, link = torch.from_numpy(samples[g]), linked.links[kind][g]
        np.testing.assert_allclose(linked.places[kind, g], link.forward(x), rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(linked.slopes[kind, g], link.log_slope(x), rtol=1e-7, atol=1e-12)
        for train, test in _folds(N):
            fit = line(link, samples[g, train])
            np.testing.assert_allclose(scores[kind, g, test], fit.log_density(x[test]), rtol=1e-7, atol=1e-9)
            if kind == best[g]:
                fit = spline(link, samples[g, train])
                np.testing.assert_allclose(scores[-1, g, test], fit.log_density(x[test]), rtol=1e-7)


def test_margins_of_columns_are_chosen_together_as_they_are_one_by_one():
    columns = [column() for _ in SMOOTH]
    values = [SHAPES[name][: N - 10 * i] for i, name in enumerate(SMOOTH)]
    together = choose_margins([*columns, column()], [*values, SCORES])
    assert together.pop() is None
    for margin, x in zip(together, values, strict=True):
        alone = choose_margin(column(), x)
        assert margin is not None
        assert alone is not None
        assert margin.link.kind == alone.link.kind
        torch.testing.assert_close(margin.score(torch.from_numpy(x)), alone.score(torch.from_numpy(x)))


def test_a_normal_column_needs_no_margin():
    assert choose_margin(column(), SCORES) is None
    assert choose_margin(column(), np.array([1.0])) is None
    assert choose_margin(column(), np.ones(200)) is None
    assert choose_margin(column(), np.empty(0)) is None


def test_a_log_normal_column_has_the_logarithm_as_its_margin():
    margin, _ = chosen("log-normal")
    assert margin.link.kind == "log"
    assert len(margin.places) == 2  # a straight line, the simplest that does


def test_an_exponential_column_has_a_power_as_its_margin_and_the_tail_of_an_exponential():
    margin, _ = chosen("exponential")
    assert margin.link.kind == "power"
    assert margin.least > 0  # a column of positive numbers has no zero among its answers
    farther = torch.tensor([2.0, 2.5, 3.0], dtype=torch.float64)
    truth = torch.from_numpy(stats.expon.isf(stats.norm.sf(farther.numpy())))
    torch.testing.assert_close(margin.inverse(farther), truth, rtol=0.15, atol=0.0)
    assert float(margin.inverse(torch.tensor(-9.0, dtype=torch.float64))) > 0


@pytest.mark.parametrize("name", SMOOTH)
def test_the_inverse_undoes_the_map(name):
    margin, x = chosen(name)
    torch.testing.assert_close(margin.inverse(margin.forward(x)), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["counts", "zero-inflated"])
def test_every_score_between_its_ends_gives_the_value_back_exactly(name):
    margin, x = chosen(name)
    below, above = (end.clamp(-8, 8) for end in margin.interval(x))
    for share in (0.01, 0.5, 0.99):
        back = margin.inverse(below + share * (above - below))
        torch.testing.assert_close(back, x, rtol=1e-9, atol=1e-9)
    assert torch.equal(back[x == 0], x[x == 0])


@pytest.mark.parametrize("name", SHAPES)
def test_maps_are_monotone_and_finite_even_far_out(name):
    margin, _ = chosen(name)
    inner = torch.linspace(-10, 100, 997, dtype=torch.float64)
    grid = torch.tensor([-1e300, -1e10, *inner.tolist(), 1e10, 1e300], dtype=torch.float64)
    scores = margin.forward(grid)
    assert scores.isfinite().all()
    assert (torch.diff(scores) >= 0).all()
    values = margin.inverse(torch.linspace(-40, 40, 1001, dtype=torch.float64))
    assert values.isfinite().all()
    assert (torch.diff(values) >= 0).all()


@pytest.mark.parametrize("name", SHAPES)
def test_scores_of_the_values_are_standard_normal(name):
    margin, x = chosen(name)
    below, above = margin.interval(x)
    mean, within = truncated_moments(below, above)
    score = torch.where(above > below, mean, below)
    assert abs(float(score.mean())) < 0.02
    assert float(score.var() + torch.where(above > below, within, 0.0).mean()) == pytest.approx(1, abs=0.05)
    reliability = 1 - float(torch.where(above > below, within, 0.0).mean())
    assert margin.reliability == pytest.approx(reliability, abs=1e-9)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_density_integrates_to_one_and_is_that_of_the_map(name):
    margin, _ = chosen(name)
    # in the coordinate of the link, where no tail is out of reach
    ends = margin.link.forward(margin.inverse(torch.tensor([-4.0, 4.0], dtype=torch.float64)))
    grid = torch.linspace(float(ends[0]), float(ends[1]), 200_001, dtype=torch.float64)
    values = margin.link.inverse(grid)
    density = (margin.log_density(values) - margin.link.log_slope(values)).exp().numpy()
    mass = np.diff(stats.norm.cdf(margin.forward(values[[0, -1]]).numpy()))[0]
    assert integrate.trapezoid(density, grid.numpy()) == pytest.approx(mass, abs=1e-4)
    assert mass > 0.99


def test_probabilities_of_all_counts_sum_to_one():
    margin, _ = chosen("counts")
    assert float(margin.log_density(torch.arange(60, dtype=torch.float64)).exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.8), (-1.2, 0.5)])
def test_the_mean_is_that_of_a_fine_grid(name, mean, std):
    margin, x = chosen(name)
    shares = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    grid = mean + std * torch.special.ndtri(shares)
    exact = float(margin.inverse(grid).mean())
    found = margin.mean(torch.tensor([mean]).double(), torch.tensor([std]).double())
    assert float(found) == pytest.approx(exact, abs=0.01 * float(x.std()))


@pytest.mark.parametrize("name", SHAPES)
def test_a_margin_is_rebuilt_from_its_tensors(name):
    margin, x = chosen(name)
    again = Margin.from_state(margin.state())
    assert torch.equal(again.forward(x), margin.forward(x))
    assert torch.equal(again.inverse(margin.forward(x)), margin.inverse(margin.forward(x)))


def test_tensors_that_are_no_margin_are_refused():
    state = chosen("beta")[0].state()
    with pytest.raises(ValueError, match="do not fit together"):
        Margin.from_state(state | {"settings": state["settings"][:3]})
    settings = state["settings"].clone()
    settings[0] = 99
    with pytest.raises(ValueError, match="unknown link function: 99"):
        Margin.from_state(state | {"settings": settings})


@pytest.mark.parametrize(
    "link",
    [
        Link("log"),
        Link("yeo-johnson", 1.0, 2.0, 0.0),
        Link("yeo-johnson", 1.0, 2.0, 2.0),
        Link("yeo-johnson", 1.0, 2.0, 0.6),
        Link("above", 0.1, 2.0),
        Link("below", 30.0, 2.0),
        Link("between", 0.1, 30.0),
        Link("power", 0.0, 3.0, 0.05),
        Link("power", 0.0, 3.0, 2.0),
    ],
    ids=str,
)
def test_a_link_is_undone_by_its_inverse_and_has_its_slope(link):
    x = torch.linspace(0.2, 25, 200, dtype=torch.float64).requires_grad_()
    u = link.forward(x)
    (slope,) = torch.autograd.grad(u.sum(), x)
    torch.testing.assert_close(link.inverse(u), x, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(link.log_slope(x), slope.log(), rtol=1e-8, atol=1e-8)


def test_moments_and_mass_between_two_scores_are_those_of_a_truncated_normal():
    below = torch.tensor([-torch.inf, -1.0, 0.5, 3.0, 7.0, -8.0], dtype=torch.float64)
    above = torch.tensor([-2.0, 0.3, torch.inf, 4.0, 7.5, -7.0], dtype=torch.float64)
    mean, variance = truncated_moments(below, above)
    other = stats.truncnorm(below.numpy(), above.numpy())
    np.testing.assert_allclose(mean, other.mean(), rtol=1e-4)  # scipy is the less exact far out
    np.testing.assert_allclose(variance[:4], other.var()[:4], rtol=1e-5)
    exact = stats.norm.logcdf(above.numpy()) + np.log1p(
        -np.exp(stats.norm.logcdf(below.numpy()) - stats.norm.logcdf(above.numpy()))
    )
    np.testing.assert_allclose(log_mass(below, above)[:4], exact[:4], rtol=1e-6)
    mirrored = log_mass(-above, -below)
    torch.testing.assert_close(log_mass(below, above), mirrored, rtol=1e-9, atol=1e-9)


def test_answers_stay_within_firm_bounds_also_where_values_touch_them():
    values = np.clip(SCORES, -0.5, 1.0)
    margin = choose_margin(column(minimum=-0.5, maximum=1.0, firm=True), values)
    drawn = margin.inverse(torch.from_numpy(SCORES)).clamp(-0.5, 1.0)
    assert float((drawn == -0.5).double().mean()) == pytest.approx((values == -0.5).mean(), abs=0.02)
    assert float((drawn == 1.0).double().mean()) == pytest.approx((values == 1.0).mean(), abs=0.02)


@pytest.mark.parametrize("choose", [choose_margin, bounded_margin])
def test_where_observed_values_are_beyond_the_bounds_answers_follow_those_within(choose):
    margin = choose(column(minimum=0.5, firm=True), SCORES)
    drawn = margin.inverse(margin.forward(torch.from_numpy(SCORES)))
    assert float(drawn.min()) >= 0.5
    assert float((drawn == 0.5).double().mean()) < 0.02
    assert float(drawn.mean()) == pytest.approx(SCORES[SCORES >= 0.5].mean(), abs=0.05)


@pytest.mark.parametrize("name", SHAPES)
def test_margins_fitted_with_random_weights_vary_as_margins_of_new_samples_do(name):
    margin, x = chosen(name)
    counts = {"kind": "count", "integer": True, "minimum": 0.0}
    about = column(**counts) if name == "counts" else column()
    rng = np.random.default_rng(3)
    weighted, renewed = [], []
    for _ in range(60):
        weighted.append(refit_margin(about, margin, x.numpy(), rng.exponential(size=N)))
        rows = margin.inverse(torch.from_numpy(rng.normal(size=N))).numpy()
        renewed.append(refit_margin(about, margin, rows, np.ones(N)))
    places = torch.from_numpy(np.quantile(SHAPES[name], [0.45, 0.75, 0.95]))
    spreads = [np.std([one.forward(places).numpy() for one in some], axis=0) for some in (weighted, renewed)]
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=0.5)
    assert spreads[0].min() > 0


@pytest.mark.parametrize("largest", [1e90, 1e-90, 1e50])
def test_values_of_very_different_sizes_have_a_finite_margin(largest):
    values = largest * np.exp(-np.linspace(0, 700, N)) * np.sign(np.sin(np.arange(N)) + 2)
    for some in (values, np.r_[-values, values], np.r_[np.ones(N), values]):
        margin = choose_margin(column(), some)
        if margin is not None:
            assert margin.forward(torch.from_numpy(some)).isfinite().all()
            assert margin.inverse(torch.linspace(-5, 5, 11, dtype=torch.float64)).isfinite().all()


def test_a_new_value_beyond_all_others_has_a_score_in_proportion_though_many_values_are_the_least():
    """A tail that follows repeated values would be vertical: the score of 0.9 would be thousands."""
    rng = np.random.default_rng(0)
    values = np.sort(np.r_[np.full(30, 1.4), 1.5 + rng.lognormal(sigma=0.5, size=400)])
    margin = spline(Link(), values)
    scores = margin.forward(torch.tensor([0.9, 1.4, float(values[-1]), float(values[-1]) + 1.0]).double())
    assert -8.0 < scores[0] < scores[1] < scores[2] < scores[3] < 8.0


def test_whole_numbers_with_a_gap_before_the_last_do_not_reach_far_beyond_it():
    """The scores between numbers that were not observed are close to each other, so that a tail is steep."""
    values = np.repeat([1.0, 2.0, 3.0, 5.0, 8.0, 25.0], [20, 20, 20, 10, 5, 3])
    column = Schema.infer(Table(values[:, None])).columns[0]
    margin = choose_margin(column, values)
    assert margin.half
    reached = margin.inverse(torch.tensor([-8.0, 8.0], dtype=torch.float64))
    assert reached.min() >= 0
    assert reached.max() <= 25 + 0.25 * 24
