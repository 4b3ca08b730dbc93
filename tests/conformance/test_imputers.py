"""Laws of every imputer on every table: what comes back, in what form, and what it may depend on."""

import copy

import numpy as np
import pytest
import torch
from conformance.tables import (
    assert_close,
    bits,
    cells,
    dtypes,
    fit_quietly,
    hide,
    index,
    missing,
    names,
    scores,
    stays_empty,
    take,
)
from tolerances import EXACT


def answers(imputer, table):
    """Every table that an imputer makes of another."""
    return [imputer.transform(table), *imputer.sample(table, n_draws=2), *imputer.interval(table, level=0.8)]


def learned(imputer):
    """Everything that was learned, as plain data and tensors."""
    tensors = {name: tensor.clone() for name, tensor in imputer._state().items()}
    return copy.deepcopy(imputer._manifest()), tensors, set(vars(imputer))


def assert_same_learned(one, other):
    assert one[0] == other[0]
    assert one[2] == other[2]
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        assert torch.equal(tensor, other[1][name]), name


def test_observed_cells_come_back_bit_identical(imputer, table):
    seen = ~missing(table)
    for answer in answers(imputer, table):
        for before, after, kept in zip(bits(table), bits(answer), seen.T, strict=True):
            assert [v for v, k in zip(before, kept, strict=True) if k] == [
                v for v, k in zip(after, kept, strict=True) if k
            ]


def test_cells_are_missing_exactly_where_columns_left_or_a_skip_rule_says_so(imputer, table, case):
    assert set(imputer.columns_left_) == set(case.left)
    assert set(imputer.skip_rules_) == set(case.skipped)
    for answer in answers(imputer, table):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, table, answer))


def test_with_fill_for_every_column_only_what_nothing_can_fill_stays_empty(row, table, case):
    imputer = fit_quietly(row.make(random_state=0, schema={"*": {"fill": True, "skip": False}}), table)
    unfillable = {"empty text", "codes"} & set(case.left)
    assert set(imputer.columns_left_) == unfillable
    filled = [name not in unfillable for name in names(table)]
    assert not missing(imputer.transform(table))[:, filled].any()


def test_library_dtypes_index_and_order_are_kept(imputer, table):
    for answer in answers(imputer, table):
        assert type(answer) is type(table)
        assert names(answer) == names(table)
        assert dtypes(answer) == dtypes(table)
        assert index(answer) == index(table)


def test_only_levels_that_were_declared_or_seen_are_filled_in(imputer, table):
    levels = {column.name: column.levels for column in imputer.schema_ if column.levels and column.modelled}
    for answer in answers(imputer, table):
        for name, column in zip(names(answer), cells(answer), strict=True):
            assert name not in levels or set(column) - {None} <= set(levels[name])


def test_the_caller_s_table_is_never_written_to(row, table):
    before = bits(table)
    imputer = fit_quietly(row.make(random_state=0), table)
    answers(imputer, table)
    scores(imputer, table)
    assert bits(table) == before


def test_writing_into_an_answer_leaves_the_table_alone(row):
    array = np.array([[1.5, 2.0], [2.5, np.nan], [4.0, 1.0], [0.5, 3.0]])
    imputer = row.make(random_state=0).fit(array)
    complete = imputer.transform(array[[0, 2]])
    complete[:] = -1.0
    low, high = imputer.interval(array[[0, 2]])
    low[:] = -2.0
    assert (high > 0).all()
    first, second = imputer.sample(array[[0, 2]], n_draws=2)
    first[:] = -3.0
    assert (second > 0).all()
    np.testing.assert_array_equal(array[[0, 2]], [[1.5, 2.0], [4.0, 1.0]])


def test_the_same_random_state_gives_the_same_answer(row, table, imputer):
    again = fit_quietly(row.make(random_state=0), table)
    assert_same_learned(learned(again), learned(imputer))
    for one, other in zip(answers(again, table), answers(imputer, table), strict=True):
        assert bits(one) == bits(other)


def test_fitting_twice_equals_fitting_once(row, table, imputer):
    other_shape = np.random.default_rng(0).normal(size=(30, 2))
    twice = fit_quietly(row.make(random_state=0).fit(other_shape), table)
    assert_same_learned(learned(twice), learned(imputer))


def test_complete_data_pass_through(imputer, table):
    complete = imputer.transform(table)
    for answer in answers(imputer, complete):
        assert bits(answer) == bits(complete)


def test_answering_never_refits(imputer, table):
    before = learned(imputer)
    answers(imputer, take(table, range(3, 20)))
    scores(imputer, table)
    imputer.class_probabilities(table)
    assert_same_learned(learned(imputer), before)


def test_a_row_is_completed_in_the_same_way_alone_and_with_any_other_rows(imputer, table):
    together = imputer.transform(table)
    low, high = imputer.interval(table)
    for i in np.flatnonzero(missing(table).any(axis=1))[:3]:
        alone = take(table, [i])
        assert_close(imputer.transform(alone), take(together, [i]))
        assert_close(imputer.interval(alone)[0], take(low, [i]))
        assert_close(imputer.interval(alone)[1], take(high, [i]))
    rows = np.random.default_rng(0).permutation(len(table))[:50]
    assert_close(imputer.transform(take(table, rows)), take(together, rows))


def test_any_column_may_be_missing_though_it_never_was_in_training(row, table):
    everything = {"*": {"fill": True, "skip": False}}
    training = fit_quietly(row.make(random_state=0, schema=everything), table).transform(table)
    imputer = fit_quietly(row.make(random_state=0), training)
    n_columns = len(names(table))
    holes = hide(take(training, range(n_columns)), np.eye(n_columns, dtype=bool))
    for answer in answers(imputer, holes):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, holes, answer))
    assert np.isfinite(scores(imputer, holes)).all()


def test_a_row_with_everything_missing_is_filled(imputer, row, table):
    nothing = hide(take(table, [0, 1]), True)
    for answer in answers(imputer, nothing):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, nothing, answer))
    if not row.scores_the_mask:
        np.testing.assert_allclose(scores(imputer, nothing), 0.0, atol=1e-12)


def test_an_interval_holds_the_point_and_nests_in_wider_ones(imputer, table, row):
    numeric = {column.name for column in imputer.schema_ if column.modelled and not column.levels}
    point = imputer.transform(table)
    wide, narrow = imputer.interval(table, level=0.95), imputer.interval(table, level=0.3)
    tables = [cells(each) for each in (wide[0], narrow[0], point, narrow[1], wide[1])]
    for name, *columns in zip(names(table), *tables, strict=True):
        for low, inner_low, middle, inner_high, high in zip(*columns, strict=True):
            if name in numeric and middle is not None:
                assert low <= inner_low <= inner_high <= high
                assert low <= middle <= high
                assert not row.symmetric or inner_low <= middle <= inner_high


def test_an_interval_of_levels_holds_the_most_probable_one_or_encloses_it_in_their_order(
    imputer, table, row, case
):
    columns = {column.name: column for column in imputer.schema_ if column.levels}
    tables = [cells(each) for each in (*imputer.interval(table), imputer.transform(table))]
    for name, lows, highs, points in zip(names(table), *tables, strict=True):
        if name in columns and columns[name].kind == "ordinal":
            rank = columns[name].levels.index
            for low, high, point in zip(lows, highs, points, strict=True):
                assert rank(low) <= rank(point) <= rank(high)
        elif name in columns:
            assert lows == highs == points


def test_intervals_of_missing_numbers_grow_with_the_level(row):
    table = np.random.default_rng(0).normal(size=(60, 3))
    imputer = row.make(random_state=0).fit(table)
    widths = [
        np.subtract(*imputer.interval([[np.nan, 0.3, -0.2]], level)[::-1])[0, 0] for level in (0.5, 0.8, 0.99)
    ]
    assert 0 < widths[0] < widths[1] < widths[2]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_level_outside_0_and_1_is_refused(row, level):
    imputer = row.make(random_state=0).fit([[1.0], [2.0]])
    with pytest.raises(ValueError, match="level must be between 0 and 1, got"):
        imputer.interval([[1.0]], level=level)


@pytest.mark.parametrize("n_draws", [0, -1])
def test_fewer_than_one_draw_is_refused(row, n_draws):
    imputer = row.make(random_state=0).fit([[1.0], [2.0]])
    with pytest.raises(ValueError, match=f"n_draws must be at least 1, got {n_draws}"):
        imputer.sample([[1.0]], n_draws=n_draws)


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


def test_class_probabilities_are_certain_where_seen_and_sum_to_one(imputer, table):
    found = imputer.class_probabilities(table)
    holes = dict(zip(names(table), missing(table).T, strict=True))
    levels = {column.name: column.levels for column in imputer.schema_ if column.modelled and column.levels}
    assert found.keys() == levels.keys()
    for name, probabilities in found.items():
        assert probabilities.shape == (len(table), len(levels[name]))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=EXACT)
        assert (probabilities >= 0).all()
        assert (probabilities[holes[name]] > 0).all(), "every level stays possible"
        assert set(probabilities[~holes[name]].ravel().tolist()) <= {0.0, 1.0}


def test_transform_fills_in_the_most_probable_level(imputer, table, row, case):
    found = imputer.class_probabilities(table)
    point = dict(zip(names(table), cells(imputer.transform(table)), strict=True))
    for column in imputer.schema_:
        if column.name in found:
            best = found[column.name].argmax(axis=1)
            for i, value in zip(best, point[column.name], strict=True):
                assert value in (column.levels[i], None), column.name


def test_the_top_probability_is_the_greatest_of_the_class_probabilities(imputer, table):
    dense, top = imputer.class_probabilities(table), imputer.top_probabilities(table)
    assert list(top) == list(dense)
    for name, probabilities in dense.items():
        np.testing.assert_allclose(top[name], probabilities.max(axis=1), rtol=EXACT)
