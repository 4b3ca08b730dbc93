"""Laws of draws: they belong to rows, and they follow the distribution that the imputer reports."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from conformance.fitted import fitted
from conformance.registry import IMPUTERS
from conformance.tables import (
    ARRAY,
    NASTY,
    PENGUINS,
    assert_close,
    bits,
    cells,
    fit_quietly,
    hide,
    missing,
    names,
    take,
)
from scipy import stats
from tolerances import FAILURE_RATE

FITTED_PARAMETERS = [row for row in IMPUTERS if row.draws_have_the_mean]


@contextmanager
def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_missing(table, rate=0.3, n_rows=40):
    """Distinct rows with more missing cells than the table has."""
    rng = np.random.default_rng(5)
    some = take(table, range(n_rows))
    return hide(some, rng.random((n_rows, len(names(table)))) < rate)


def test_a_row_has_the_same_draw_in_any_batch_order_and_number_of_threads(imputer, table):
    holes = with_missing(table)
    together = imputer.sample(holes, n_draws=2)
    order = np.random.default_rng(0).permutation(len(holes))
    with threads(1):
        shuffled = imputer.sample(take(holes, order), n_draws=2)
    with threads(2):
        half = imputer.sample(take(holes, order[:17]), n_draws=2)
        alone = imputer.sample(take(holes, [3]), n_draws=2)
    for s in range(2):
        assert_close(shuffled[s], take(together[s], order))
        assert_close(half[s], take(together[s], order[:17]))
        assert_close(alone[s], take(together[s], [3]))


def test_equal_rows_have_different_draws_determined_by_their_rank(imputer, table):
    nothing = hide(take(table, [0]), True)
    thrice = imputer.sample(take(nothing, [0, 0, 0]))[0]
    assert len({str(cells(take(thrice, [i]))) for i in range(3)}) == 3
    once = imputer.sample(nothing)[0]
    assert_close(once, take(thrice, [0]))
    among_others = imputer.sample(take(hide(take(table, [0, 1]), [[True], [False]]), [1, 0, 1, 0]))[0]
    assert_close(take(among_others, [1, 3]), take(thrice, [0, 1]))


def test_the_first_draws_do_not_depend_on_how_many_are_asked_for(imputer, table):
    holes = with_missing(table)
    three, five = imputer.sample(holes, n_draws=3), imputer.sample(holes, n_draws=5)
    for one, other in zip(three, five[:3], strict=True):
        assert_close(one, other)
    assert len({str(cells(draw)) for draw in five}) == 5


def test_another_seed_gives_other_draws(imputer, row, table):
    holes = with_missing(table)
    other = fit_quietly(row.make(random_state=1), table)
    assert bits(other.sample(holes)[0]) != bits(imputer.sample(holes)[0])


def test_without_a_random_state_the_seed_is_chosen_once(row):
    table = ARRAY.make()
    imputer = row.make().fit(table)
    np.testing.assert_array_equal(imputer.sample(table), imputer.sample(table))
    assert not np.array_equal(row.make().fit(table).sample(table), imputer.sample(table))


def test_a_draw_of_an_array_is_an_array_with_the_draws_axis_first(row):
    table = ARRAY.make()
    draws = fitted(row, ARRAY).sample(table, n_draws=3)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == (3, *table.shape)


@pytest.mark.parametrize("row", FITTED_PARAMETERS, ids=str)
@pytest.mark.parametrize("case", [PENGUINS, NASTY], ids=str)
def test_levels_are_drawn_as_often_as_their_probabilities_say(row, case):
    table, imputer = case.make(), fitted(row, case)
    levels = {c.name: list(c.levels) for c in imputer.schema_ if c.modelled and c.levels}
    modelled = [names(table).index(column.name) for column in imputer.schema_ if column.modelled]
    complete = np.flatnonzero(~missing(table)[:, modelled].any(axis=1))[0]
    for name in levels:
        hole = hide(take(table, [complete] * 700), np.array(names(table)) == name)
        drawn = cells(imputer.sample(hole)[0])[names(table).index(name)]
        expected = imputer.class_probabilities(take(hole, [0]))[name][0] * len(hole)
        counts = np.array([drawn.count(level) for level in levels[name]])
        rare = expected < 5
        if rare.any():
            counts = np.append(counts[~rare], counts[rare].sum())
            expected = np.append(expected[~rare], expected[rare].sum())
        if len(counts) > 1:
            assert stats.chisquare(counts, expected).pvalue > FAILURE_RATE, name


@pytest.mark.parametrize("pattern", [(0,), (0, 2), (0, 1, 2, 3)], ids=str)
def test_draws_of_numbers_have_the_mean_of_transform_and_the_quantiles_of_interval(row, pattern):
    table, imputer = ARRAY.make(), fitted(row, ARRAY)
    seen = table[~np.isnan(table).any(axis=1)][0]
    seen[list(pattern)] = np.nan
    hole = np.tile(seen, (1000, 1))
    draws = imputer.sample(hole, n_draws=4).reshape(4000, -1)
    low, high = (end[0] for end in imputer.interval(hole[:1], level=0.8))
    for j in pattern:
        if row.draws_have_the_mean:
            mean = imputer.transform(hole[:1])[0, j]
            assert stats.ttest_1samp(draws[:, j], mean).pvalue > FAILURE_RATE
        for end, share in ((low[j], 0.1), (high[j], 0.9)):
            below = int((draws[:, j] < end).sum())
            assert stats.binomtest(below, len(draws), share).pvalue > FAILURE_RATE


@pytest.fixture(scope="module", params=[row for row in FITTED_PARAMETERS if row.coherent], ids=str)
def drawn_together(request):
    """A row of penguins without species, island and body mass, 2000 times, and a draw of each."""
    table, imputer = PENGUINS.make(), fitted(request.param, PENGUINS)
    hidden = np.isin(names(table), ["species", "island", "body_mass_g"])
    hole = hide(take(table, [0] * 2000), hidden)
    return imputer, hole, imputer.sample(hole)[0]


def test_a_number_drawn_with_a_level_follows_that_level(drawn_together):
    imputer, hole, drawn = drawn_together
    for levels, group in drawn.groupby(["species", "island"]):
        if len(group) >= 50:
            given = hole.head(1).assign(species=levels[0], island=levels[1])
            mean = imputer.transform(given)["body_mass_g"].iloc[0]  # both are whole numbers
            assert stats.ttest_1samp(group["body_mass_g"], mean).pvalue > FAILURE_RATE


def test_a_level_drawn_with_a_level_follows_it(drawn_together):
    imputer, hole, drawn = drawn_together
    for species, group in drawn.groupby("species"):
        shares = imputer.class_probabilities(hole.head(1).assign(species=species))["island"][0]
        counts = group["island"].value_counts().reindex(["Biscoe", "Dream", "Torgersen"], fill_value=0)
        for count, share in zip(counts, shares, strict=True):
            assert stats.binomtest(int(count), len(group), share).pvalue > FAILURE_RATE


def test_columns_that_are_nearly_one_stay_so_in_a_draw():
    rng = np.random.default_rng(0)
    first = rng.normal(size=400)
    table = np.column_stack([first, first + 0.05 * rng.normal(size=400)])
    imputer = IMPUTERS[0].make(random_state=0).fit(table)
    draws = imputer.sample(np.full((500, 2), np.nan))[0]
    assert stats.pearsonr(*draws.T).statistic > 0.95
