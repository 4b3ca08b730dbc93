"""Laws of draws beyond those of `halfseen.testing`: they follow the distribution that an imputer reports."""

import numpy as np
import pytest
from conformance.fitted import fitted
from conformance.registry import IMPUTERS
from conformance.tables import ARRAY, NASTY, PENGUINS
from scipy import stats
from tolerances import FAILURE_RATE

from halfseen.testing.tables import cells, hide, missing, names, take

FITTED_PARAMETERS = [row for row in IMPUTERS if row.draws_have_the_mean]


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
