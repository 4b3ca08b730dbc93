"""Laws of `score_samples`: it is the log density of what was seen, in the units of the table."""

import numpy as np
import pytest
from conformance.fitted import fitted
from conformance.registry import IMPUTERS
from conformance.tables import ARRAY, NASTY, PENGUINS
from scipy import integrate
from tolerances import CONDITIONED, EXACT, QUADRATURE

from halfseen.testing.tables import hide, missing, names, take

SCORED = [row for row in IMPUTERS if row.has_density]


@pytest.fixture(scope="module", params=SCORED, ids=str)
def row(request):
    return request.param


@pytest.mark.parametrize("other", [row for row in IMPUTERS if not row.has_density], ids=str)
def test_the_error_of_an_imputer_without_a_density_gives_the_reason(other):
    imputer = other.make()
    for name in ("score", "score_samples"):
        assert not hasattr(imputer, name)
        with pytest.raises(AttributeError, match=f"'{type(imputer).__name__}' has no attribute '{name}'"):
            getattr(imputer, name)


def test_a_row_with_nothing_observed_scores_zero(imputer, row, table):
    """Or, where masks are scored, the log probability that all its numbers are missing."""
    scores = imputer.score_samples(hide(take(table, [0, 5]), True))
    np.testing.assert_allclose(scores, scores[0] if row.scores_the_mask else 0.0, atol=EXACT)
    assert scores[0] <= EXACT


def test_scores_are_finite_and_follow_their_rows(imputer, table):
    scores = imputer.score_samples(table)
    assert scores.shape == (len(table),)
    assert np.isfinite(scores).all()
    order = np.random.default_rng(0).permutation(len(table))
    for rows in (order, [7]):
        np.testing.assert_allclose(imputer.score_samples(take(table, rows)), scores[rows], rtol=CONDITIONED)


def test_the_score_is_the_mean_of_the_scores_of_rows(imputer, table):
    assert imputer.score(table) == pytest.approx(imputer.score_samples(table).mean(), rel=EXACT)


def test_in_other_units_the_density_changes_by_the_factor(row):
    """A factor that is a power of two rounds nothing, so even a trained model is the same."""
    table = ARRAY.make()
    scales = np.array([8.0, 1.0, 0.25, 1.0])
    one, other = fitted(row, ARRAY), row.make(random_state=0).fit(table * scales)
    shift = -np.where(np.isnan(table), 0.0, np.log(scales)).sum(axis=1)
    np.testing.assert_allclose(
        other.score_samples(table * scales), one.score_samples(table) + shift, rtol=EXACT, atol=EXACT
    )


# Neither of a bound, nor where a missing number has a factor of its own: see `ImputerRow`.
MARGINALS = [row for row in IMPUTERS if row.exact_score and not row.scores_the_mask]


@pytest.mark.parametrize("row", MARGINALS, ids=str)
@pytest.mark.parametrize("hidden", [(), (1,), (0, 2)], ids=str)
@pytest.mark.parametrize("column", [1, 3])
def test_a_missing_number_is_integrated_out(row, column, hidden):
    table, imputer = ARRAY.make(), fitted(row, ARRAY)
    seen = table[~np.isnan(table).any(axis=1)][1]
    seen[list(hidden)] = np.nan
    centre, spread = np.nanmean(table[:, column]), np.nanstd(table[:, column])
    grid = np.linspace(centre - 15 * spread, centre + 15 * spread, 12_001)
    rows = np.tile(seen, (len(grid), 1))
    rows[:, column] = grid
    total = integrate.trapezoid(np.exp(imputer.score_samples(rows)), grid)
    seen[column] = np.nan
    assert np.log(total) == pytest.approx(imputer.score_samples([seen])[0], abs=QUADRATURE)


@pytest.mark.parametrize("row", [row for row in IMPUTERS if row.levels_sum], ids=str)
@pytest.mark.parametrize("case", [PENGUINS, NASTY], ids=str)
def test_a_missing_level_is_summed_out(row, case):
    table, imputer = case.make(), fitted(row, case)
    modelled = [names(table).index(column.name) for column in imputer.schema_ if column.modelled]
    complete = np.flatnonzero(~missing(table)[:, modelled].any(axis=1))[0]
    levelled = [column for column in imputer.schema_ if column.modelled and column.levels]
    assert levelled
    for column in levelled:
        rows = take(table, [complete] * len(column.levels)).copy()
        rows[column.name] = list(column.levels)
        if hasattr(table[column.name].dtype, "categories"):
            rows[column.name] = rows[column.name].astype(table[column.name].dtype)
        total = np.exp(imputer.score_samples(rows)).sum()
        hole = hide(take(table, [complete]), np.array(names(table)) == column.name)
        assert np.log(total) == pytest.approx(imputer.score_samples(hole)[0], abs=1e-9), column.name


def test_a_level_never_seen_in_training_does_not_count(row):
    table, imputer = PENGUINS.make(), fitted(row, PENGUINS)
    strange, hole = table.iloc[:1].copy(), hide(table.iloc[:1], np.array(names(table)) == "island")
    strange["island"] = "Elba"
    np.testing.assert_array_equal(imputer.score_samples(strange), imputer.score_samples(hole))
