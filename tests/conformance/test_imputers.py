"""Laws of every imputer of the registry beyond those of `halfseen.testing`: schemas and quantiles."""

import numpy as np
import torch
from tolerances import EXACT

from halfseen.testing.tables import answers, cells, fit_quietly, missing, names


def test_the_columns_that_are_left_empty_and_those_with_a_skip_rule_are_named(imputer, case):
    assert set(imputer.columns_left_) == set(case.left)
    assert set(imputer.skip_rules_) == set(case.skipped)


def test_with_fill_for_every_column_only_what_nothing_can_fill_stays_empty(row, table, case):
    imputer = fit_quietly(row.make(random_state=0, schema={"*": {"fill": True, "skip": False}}), table)
    unfillable = {"empty text", "codes"} & set(case.left)
    assert set(imputer.columns_left_) == unfillable
    filled = [name not in unfillable for name in names(table)]
    assert not missing(imputer.transform(table))[:, filled].any()


def test_an_interval_of_a_symmetric_distribution_holds_the_mean_at_any_level(imputer, table, row):
    numeric = {column.name for column in imputer.schema_ if column.modelled and not column.levels}
    tables = [cells(each) for each in (imputer.transform(table), *imputer.interval(table, level=0.3))]
    for name, *columns in zip(names(table), *tables, strict=True):
        for middle, low, high in zip(*columns, strict=True):
            if row.symmetric and name in numeric and middle is not None:
                assert low <= middle <= high


def test_a_quantile_depends_on_its_own_probability_only_and_does_not_decrease_with_it(imputer, table):
    model, codes = imputer._fitted_model, imputer._read(table, reset=False).codes
    asked = (0.02, 0.05, 0.3, 0.5, 0.95, 0.98)
    together = model.quantiles(codes, asked)
    for q, probability in enumerate(asked):
        torch.testing.assert_close(
            model.quantiles(codes, [probability])[0], together[q], rtol=EXACT, atol=EXACT
        )
    for first, second in ((0, 1), (1, 4), (2, 3)):  # two probabilities are no interval
        pair = model.quantiles(codes, [asked[first], asked[second]])
        torch.testing.assert_close(pair, together[[first, second]], rtol=EXACT, atol=EXACT)
    assert bool((together.diff(dim=0) >= 0).all())


def test_bounds_and_whole_numbers_are_honoured_everywhere(row):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(150, 4)) * [1, 1, 5, 1] + rng.normal(size=(150, 1))
    table[rng.random(table.shape) < 0.4] = np.nan
    table[:, 2] = np.round(table[:, 2])
    schema = {
        0: {"minimum": -0.5},
        "x1": {"maximum": 0.25},
        2: {"minimum": -3, "maximum": 4, "integer": True},
    }
    imputer = row.make(random_state=0, schema=schema).fit(table)
    holes = np.isnan(table)
    for answer in (*answers(imputer, table), *imputer.sample(table, n_draws=20)):
        filled = np.where(holes, answer, 0.0)
        assert (filled[:, 0] >= -0.5).all()
        assert (filled[:, 1] <= 0.25).all()
        assert ((filled[:, 2] >= -3) & (filled[:, 2] <= 4)).all()
        assert (filled[:, 2] == np.round(filled[:, 2])).all()
    assert (imputer.sample(table, n_draws=20)[:, :, 3][:, holes[:, 3]] != 0).all()
