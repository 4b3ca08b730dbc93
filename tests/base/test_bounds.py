"""Bounds are met by the distribution, and values beyond a detection limit count as what is known of them."""

import numpy as np
import pandas as pd
import pytest

from halfseen import GaussianImputer, MIWAEImputer, MixtureImputer
from halfseen.data.frames import Table
from halfseen.data.schema import Schema
from halfseen.errors import SchemaError

IMPUTERS = {
    "gaussian": GaussianImputer(random_state=0),
    "mixture": MixtureImputer(n_components=5, max_epochs=40, random_state=0),
    "miwae": MIWAEImputer(n_latent=2, width=16, n_blocks=1, max_epochs=10, random_state=0),
}


def beside_a_number(column, seed=0):
    """A table of a column and a number that follows it; a third of the column is missing."""
    rng = np.random.default_rng(seed)
    ranks = np.argsort(np.argsort(column)) / len(column)
    table = np.column_stack([column, ranks + 0.3 * rng.normal(size=len(column))])
    table[rng.random(len(column)) < 0.33, 0] = np.nan
    return table


@pytest.mark.parametrize("name", IMPUTERS)
def test_draws_do_not_pile_up_on_a_bound_that_excludes_much_of_what_was_observed(name):
    table = beside_a_number(np.random.default_rng(1).normal(size=600))
    imputer = IMPUTERS[name].set_params(schema={0: {"minimum": 0.4}}).fit(table)
    drawn = imputer.sample(table, n_draws=5)[:, np.isnan(table[:, 0]), 0]
    assert drawn.min() >= 0.4
    assert (drawn == 0.4).mean() < 0.05  # 64% when draws were clipped
    seen = table[:, 0][table[:, 0] >= 0.4]
    assert drawn.mean() == pytest.approx(seen.mean(), abs=0.25)


@pytest.mark.parametrize("name", IMPUTERS)
def test_draws_of_a_share_lie_within_and_follow_its_distribution(name):
    share = np.random.default_rng(2).beta(0.7, 1.5, size=600)
    table = beside_a_number(share)
    imputer = IMPUTERS[name].set_params(schema=None).fit(table)
    assert imputer.schema_.columns[0].firm
    assert (imputer.schema_.columns[0].minimum, imputer.schema_.columns[0].maximum) == (0.0, 1.0)
    drawn = imputer.sample(table, n_draws=5)[:, np.isnan(table[:, 0]), 0]
    assert drawn.min() >= 0
    assert drawn.max() <= 1
    assert ((drawn == 0) | (drawn == 1)).mean() < 0.02
    assert drawn.mean() == pytest.approx(share.mean(), abs=0.06)
    point = imputer.transform(table)[np.isnan(table[:, 0]), 0]
    assert point.mean() == pytest.approx(drawn.mean(), abs=0.03)


def schema_of(values, **settings):
    return Schema.infer(Table(pd.DataFrame({"x": values})), {"x": settings} if settings else {}).columns[0]


def test_a_percentage_that_fills_its_range_has_natural_limits():
    rng = np.random.default_rng(0)
    found = schema_of(rng.uniform(0, 100, size=300))
    assert (found.minimum, found.maximum, found.firm) == (0.0, 100.0, True)
    assert "natural limit" in found.reason
    at_the_end = schema_of(np.r_[rng.uniform(60, 99, size=300), [100.0] * 10])
    assert at_the_end.maximum == 100.0


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).uniform(0, 60, size=300),
        np.random.default_rng(0).exponential(20, size=300),
        np.random.default_rng(0).uniform(0, 100.5, size=3000),
        np.random.default_rng(0).normal(0.5, 0.2, size=300),
        np.linspace(0, 1, 20),
    ],
    ids=["far from 100", "a tail", "beyond 100", "negative", "few"],
)
def test_other_numbers_have_no_natural_limits(values):
    found = schema_of(values)
    assert found.maximum is None
    assert not found.firm


def test_a_bound_may_only_clip():
    assert schema_of([1.0, 2.0, 3.5], maximum=9.0).firm
    assert not schema_of([1.0, 2.0, 3.5], maximum=9.0, firm=False).firm
    with pytest.raises(SchemaError, match="firm must be true or false, got 1"):
        schema_of([1.0, 2.0, 3.5], maximum=9.0, firm=1)


def censored_table(n_rows=2000, seed=0):
    """Concentrations, 30% below the limit of detection, beside a number; some cells are missing."""
    rng = np.random.default_rng(seed)
    scores = rng.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=n_rows)
    truth = np.column_stack([np.exp(scores[:, 0]), scores[:, 1]])
    limit = np.quantile(truth[:, 0], 0.3)
    table = truth.copy()
    table[truth[:, 0] < limit, 0] = limit / 2
    table[rng.random(n_rows) < 0.2, 0] = np.nan
    return truth, table, limit


def log_correlation(table):
    return np.corrcoef(np.log(table[:, 0]), table[:, 1])[0, 1]


def test_values_below_a_detection_limit_are_modelled_as_an_interval():
    truth, table, limit = censored_table()
    missing = np.isnan(table[:, 0])
    schema = {0: {"kind": "positive", "minimum": 0.0, "firm": False, "censored_below": limit}}
    imputer = GaussianImputer(schema=schema, random_state=0).fit(table)
    drawn = imputer.sample(table, n_draws=10)
    substituted = GaussianImputer(random_state=0).fit(table).sample(table, n_draws=10)

    def errors(draws):
        means = np.mean([draw[missing, 0].mean() for draw in draws])
        correlations = np.mean([log_correlation(draw[missing]) for draw in draws])
        return abs(means / truth[missing, 0].mean() - 1), abs(correlations - log_correlation(truth[missing]))

    assert errors(drawn)[0] < 0.08
    assert errors(drawn)[1] < 0.05
    below = (drawn[:, missing, 0] < limit).mean()
    assert below == pytest.approx(0.3, abs=0.04)
    piled = (substituted[:, missing, 0] == limit / 2).mean()
    assert piled > 0.2  # the number that stood for "below the limit" is taken for a value
    assert (drawn[:, missing, 0] == limit / 2).mean() == 0


@pytest.mark.parametrize("number", [0.0, 1e-6, 0.2])
def test_what_stands_for_a_censored_value_does_not_matter(number):
    _, table, limit = censored_table(n_rows=400)
    other = table.copy()
    other[table[:, 0] == limit / 2, 0] = number * limit
    schema = {0: {"kind": "continuous", "censored_below": limit}}
    one, another = (GaussianImputer(schema=schema, random_state=0).fit(t) for t in (table, other))
    np.testing.assert_allclose(
        one.transform(table)[np.isnan(table[:, 0])],
        another.transform(other)[np.isnan(table[:, 0])],
        rtol=0.02,
    )
    np.testing.assert_allclose(one.score_samples(table), another.score_samples(other), atol=0.02)


def test_censored_cells_come_back_as_they_were_and_models_without_limits_do_not_see_them():
    _, table, limit = censored_table(n_rows=300)
    schema = {0: {"kind": "positive", "censored_below": limit}}
    other = np.where(table == limit / 2, limit / 9, table)
    for imputer in (GaussianImputer(margins="gaussian"), MixtureImputer(n_components=2, max_epochs=3)):
        imputer.set_params(schema=schema, random_state=0)
        one, another = imputer.fit(table).transform(table), imputer.fit(other).transform(other)
        np.testing.assert_array_equal(one[~np.isnan(table)], table[~np.isnan(table)])
        np.testing.assert_allclose(one[np.isnan(table)], another[np.isnan(table)])


def test_a_limit_that_is_no_number_is_refused():
    with pytest.raises(SchemaError, match="censored_below must be a number, got 'low'"):
        schema_of([1.0, 2.0, 3.5], censored_below="low")
