"""Laws of an imputer on a table: what comes back, in what form, and what it may depend on.

Draws belong to rows, not to the batch in which a row is asked for.

Beside what `halfseen.testing.laws` names, a law takes ``imputer``, which is fitted to ``table``.
"""

from contextlib import contextmanager
from inspect import signature

import numpy as np
import torch

from halfseen.testing.laws import (
    Law,
    assert_function_of_the_block,
    assert_function_of_the_row,
    learned,
    registered_in,
    sparser,
)
from halfseen.testing.tables import (
    ARRAY,
    answers,
    assert_close,
    assert_identical,
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

IMPUTER_LAWS: list[Law] = []
law = registered_in(IMPUTER_LAWS)
N_EQUAL, N_PARTS = 1000, 100
EVERYTHING = {"*": {"fill": True, "skip": False}}
"""A schema by which no cell is left empty on purpose."""


@law()
def observed_cells_are_unchanged(imputer, table):
    """Observed cells come back bit by bit, in every answer."""
    observed = ~missing(table)
    for answer in answers(imputer, table):
        columns = zip(names(table), bits(table), bits(answer), observed.T, strict=True)
        for name, before, after, seen in columns:
            for i in np.flatnonzero(seen):
                same = before[i] == after[i]
                assert same, f"an observed cell of column {name!r} was changed from {before[i]} to {after[i]}"


@law()
def missing_cells_are_filled_unless_the_imputer_says_so(imputer, table):
    """Cells stay empty in `columns_left_` and where a rule of `skip_rules_` holds, and nowhere else."""
    for answer in answers(imputer, table):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, table, answer))


@law()
def the_form_of_the_table_is_kept(imputer, table):
    """The library, names, types and order of columns, and labels of rows, are those of the table."""
    for answer in answers(imputer, table):
        assert type(answer) is type(table), f"a {type(table).__name__} became a {type(answer).__name__}"
        for what in (names, dtypes, index):
            assert what(answer) == what(table), f"{what.__name__}: {what(answer)}, not {what(table)}"


@law()
def imputed_levels_were_declared_or_observed(imputer, table):
    """Text and yes/no columns are completed by levels that the schema declares or the table has."""
    declared = {column.name: column.levels for column in getattr(imputer, "schema_", ()) if column.levels}
    for answer in answers(imputer, table):
        for name, before, after in zip(names(answer), cells(table), cells(answer), strict=True):
            levels = {v for v in before if isinstance(v, str | bool)} | {*declared.get(name, ())}
            strange = {v for v in after if isinstance(v, str | bool)} - levels
            assert not strange, f"column {name!r} was completed by {strange}"


@law()
def values_under_the_mask_are_never_read(make):
    """A masked array of numpy is an array with missing cells, whatever numbers are under the mask."""
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 3))
    gone = rng.random(complete.shape) < 0.2
    plain = np.where(gone, np.nan, complete)
    expected = answers(fit_quietly(make(), plain), plain)
    for under in (-999.0, 1e6):
        masked = np.ma.array(np.where(gone, under, complete), mask=gone)
        imputer = fit_quietly(make(), masked)
        found = answers(imputer, masked)
        assert not any(isinstance(answer, np.ma.MaskedArray) for answer in found)
        for answer, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(answer, other, err_msg=f"{under} is under the mask")


@law()
def answers_depend_on_the_row_alone(imputer, table):
    """`transform`, intervals, probabilities and scores of a row are the same in any batch and order."""

    def ask(rows):
        found = [imputer.transform(rows)]
        if hasattr(imputer, "interval"):
            found.extend(imputer.interval(rows, level=0.8))
        if hasattr(imputer, "class_probabilities"):
            found.extend(imputer.class_probabilities(rows).values())
        return [*found, scores(imputer, rows)]

    assert_function_of_the_row(ask, sparser(table))


@law()
def answers_about_whole_blocks_are_those_about_the_table(imputer, table):
    """A table that is split between blocks has the answers of the whole table, bit by bit; draws with ids."""
    with_ids = hasattr(imputer, "sample") and "row_ids" in signature(imputer.sample).parameters

    def ask(rows, ids):
        found = [imputer.transform(rows), scores(imputer, rows)]
        if with_ids:
            found.extend(imputer.sample(rows, n_draws=2, row_ids=ids))
        if hasattr(imputer, "interval"):
            found.extend(imputer.interval(rows, level=0.8))
        if hasattr(imputer, "class_probabilities"):
            found.extend(imputer.class_probabilities(rows).values())
        return found

    assert_function_of_the_block(ask, table)


@law()
def writing_into_an_answer_changes_nothing_else(make):
    """An answer shares no memory with the table or with other answers."""
    array = np.array([[1.5, 2.0], [2.5, np.nan], [4.0, 1.0], [0.5, 3.0]])
    imputer = fit_quietly(make(), array)
    complete = array[[0, 2]]
    written = answers(imputer, complete)
    expected = [answer.copy() for answer in written]
    for position, answer in enumerate(written):
        answer[:] = -1.0
        for other, before in zip(written[position + 1 :], expected[position + 1 :], strict=True):
            np.testing.assert_array_equal(other, before)
    np.testing.assert_array_equal(complete, [[1.5, 2.0], [4.0, 1.0]])


@law()
def fitting_again_forgets_the_first_fit(make, table, imputer):
    """An imputer that was fitted to another table before learns the same as a new one."""
    other_shape = np.random.default_rng(0).normal(size=(30, 2))
    twice = fit_quietly(make().fit(other_shape), table)
    assert learned(twice) == learned(imputer), "what was learned differs"
    assert_identical([twice.transform(table)], [imputer.transform(table)])


@law()
def complete_data_pass_through(imputer, table):
    """A table that `transform` has completed is returned as it is by every answer."""
    complete = imputer.transform(table)
    assert_identical(answers(imputer, complete), [complete] * len(answers(imputer, complete)))


@law()
def any_column_may_be_missing_though_it_never_was_in_training(make, table):
    """A column without missing cells in `fit` may have some in `transform`."""
    whole = make(schema=EVERYTHING) if hasattr(make(), "schema") else make()
    training = fit_quietly(whole, table).transform(table)
    imputer = fit_quietly(make(), training)
    n_columns = len(names(table))
    holes = hide(take(training, range(n_columns)), np.eye(n_columns, dtype=bool))
    for answer in answers(imputer, holes):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, holes, answer))
    assert np.isfinite(scores(imputer, holes)).all()


@law()
def rows_without_any_value_are_filled(imputer, table):
    """All cells of a row may be missing."""
    nothing = hide(take(table, [0, 1]), True)
    for answer in answers(imputer, nothing):
        np.testing.assert_array_equal(missing(answer), stays_empty(imputer, nothing, answer))


@law()
def no_rows_in_gives_no_rows_out(imputer, table):
    """A table without rows is completed by a table of the same form without rows."""
    for answer in answers(imputer, take(table, [])):
        assert type(answer) is type(table)
        assert len(answer) == 0
        assert names(answer) == names(table)
    assert scores(imputer, take(table, [])).shape == (0,)


@law("interval")
def intervals_contain_the_point_and_nest(imputer, table):
    """The ends of a wide interval enclose `transform` and the ends of a narrower one."""
    point = imputer.transform(table)
    wide, narrow = imputer.interval(table, level=0.95), imputer.interval(table, level=0.3)
    tables = [cells(each) for each in (wide[0], narrow[0], point, narrow[1], wide[1])]
    for name, *columns in zip(names(table), *tables, strict=True):
        for low, inner_low, middle, inner_high, high in zip(*columns, strict=True):
            if middle is None or isinstance(middle, str | bool):
                continue
            nested = low <= inner_low <= inner_high <= high
            assert nested, f"column {name!r}: [{inner_low}, {inner_high}] is not in [{low}, {high}]"
            assert low <= middle <= high, f"column {name!r}: {middle} is not in [{low}, {high}]"


@law("interval")
def intervals_of_levels_hold_the_most_probable_one(imputer, table):
    """Both ends are the level of `transform`; of ordered levels they enclose it."""
    columns = {column.name: column for column in getattr(imputer, "schema_", ()) if column.levels}
    tables = [cells(each) for each in (*imputer.interval(table), imputer.transform(table))]
    for name, lows, highs, points in zip(names(table), *tables, strict=True):
        if name in columns and columns[name].kind == "ordinal":
            rank = columns[name].levels.index
            for low, high, point in zip(lows, highs, points, strict=True):
                assert rank(low) <= rank(point) <= rank(high), f"column {name!r}"
        elif name in columns:
            assert lows == highs == points, f"column {name!r}"


@law("interval")
def intervals_grow_with_their_level(make):
    """The interval of a missing number is wider at a higher level, and has a width at all."""
    imputer = fit_quietly(make(), np.random.default_rng(0).normal(size=(60, 3)))
    hole = np.array([[np.nan, 0.3, -0.2]])
    widths = [np.subtract(*imputer.interval(hole, level)[::-1])[0, 0] for level in (0.5, 0.8, 0.99)]
    assert 0 < widths[0] < widths[1] < widths[2], f"widths at levels .5, .8 and .99: {widths}"


@law("interval")
def a_level_outside_0_and_1_is_refused(make):
    """Levels are probabilities, and neither 0 nor 1."""
    imputer = fit_quietly(make(), np.array([[1.0], [2.0]]))
    for level in (0.0, 1.0, -0.5, 1.5, float("nan")):
        with np.testing.assert_raises_regex(ValueError, "level must be between 0 and 1, got"):
            imputer.interval(np.array([[1.0]]), level=level)


@law("class_probabilities")
def class_probabilities_are_certain_where_observed_and_sum_to_one(imputer, table):
    """An observed level has probability one; of a missing cell every level stays possible."""
    found = imputer.class_probabilities(table)
    holes = dict(zip(names(table), missing(table).T, strict=True))
    levels = {column.name: column.levels for column in imputer.schema_ if column.modelled and column.levels}
    assert found.keys() == levels.keys()
    for name, probabilities in found.items():
        assert probabilities.shape == (len(table), len(levels[name]))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-10)
        assert (probabilities >= 0).all(), f"column {name!r}"
        assert (probabilities[holes[name]] > 0).all(), f"a level of column {name!r} is impossible"
        assert {*probabilities[~holes[name]].ravel().tolist()} <= {0.0, 1.0}, f"column {name!r}"


@law("class_probabilities")
def transform_fills_in_the_most_probable_level(imputer, table):
    """`transform` agrees with `class_probabilities`."""
    found = imputer.class_probabilities(table)
    point = dict(zip(names(table), cells(imputer.transform(table)), strict=True))
    for column in imputer.schema_:
        if column.name in found:
            best = found[column.name].argmax(axis=1)
            for i, value in zip(best, point[column.name], strict=True):
                assert value in (column.levels[i], None), f"column {column.name!r}"


@law("class_probabilities", "top_probabilities")
def the_top_probability_is_the_greatest_of_the_class_probabilities(imputer, table):
    """`top_probabilities` are the maxima of `class_probabilities`."""
    dense, top = imputer.class_probabilities(table), imputer.top_probabilities(table)
    assert list(top) == list(dense)
    for name, probabilities in dense.items():
        np.testing.assert_allclose(top[name], probabilities.max(axis=1), rtol=1e-10)


@contextmanager
def threads(number):
    """Another number of threads of torch."""
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


@law("sample")
def draws_of_a_row_do_not_depend_on_its_batch(imputer, table):
    """A row has the same draw in any batch, in any order and with any number of threads."""
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


@law("sample")
def equal_rows_have_different_draws_determined_by_their_rank(imputer, table):
    """The first of several equal rows has the draw of the row alone, the second another, and so on."""
    nothing = hide(take(table, [0]), True)
    thrice = imputer.sample(take(nothing, [0, 0, 0]), n_draws=1)[0]
    assert len({str(cells(take(thrice, [i]))) for i in range(3)}) == 3, "equal rows have equal draws"
    assert_close(imputer.sample(nothing, n_draws=1)[0], take(thrice, [0]))
    both = take(hide(take(table, [0, 1]), [[True], [False]]), [1, 0, 1, 0])
    among_others = imputer.sample(both, n_draws=1)[0]
    assert_close(take(among_others, [1, 3]), take(thrice, [0, 1]))


@law("sample")
def equal_rows_in_parts_with_ids_draw_as_in_one_table(imputer, table):
    """A thousand equal rows in a hundred parts have the draws of one table with the same ids, all different.

    A tenth of the parts is drawn, because models that process rows in chunks of a fixed size are slow here.
    """
    if "row_ids" not in signature(imputer.sample).parameters:
        return
    nothing = take(hide(take(table, [0]), True), [0] * N_EQUAL)
    ids = np.arange(N_EQUAL) + 5
    whole = imputer.sample(nothing, n_draws=1, row_ids=ids)[0]
    size = N_EQUAL // N_PARTS
    for start in range(0, N_EQUAL, 10 * size):
        rows = range(start, start + size)
        part = imputer.sample(take(nothing, rows), n_draws=1, row_ids=ids[start : start + size])[0]
        assert_close(part, take(whole, rows))
    by_rank, by_id = (len(set(zip(*bits(draw), strict=True))) for draw in (imputer.sample(nothing)[0], whole))
    enough = N_EQUAL if by_rank == N_EQUAL else 0.9 * by_rank  # draws of levels alone can agree by chance
    assert by_id >= enough, f"{by_id} different draws of {N_EQUAL} equal rows"
    texts = imputer.sample(take(nothing, range(2)), n_draws=1, row_ids=["a", "b"])[0]
    alone = imputer.sample(take(nothing, [0]), n_draws=1, row_ids=["a"])[0]
    assert_close(alone, take(texts, [0]))


@law("sample")
def the_first_draws_do_not_depend_on_how_many_are_asked_for(imputer, table):
    """Three draws are the first three of five, and no two are equal."""
    holes = with_missing(table)
    three, five = imputer.sample(holes, n_draws=3), imputer.sample(holes, n_draws=5)
    for one, other in zip(three, five[:3], strict=True):
        assert_close(one, other)
    assert len({str(cells(draw)) for draw in five}) == 5, "two draws are equal"


@law("sample", "random_state")
def another_seed_gives_other_draws(make, imputer, table):
    """Draws depend on the random state."""
    holes = with_missing(table)
    other = fit_quietly(make(random_state=1), table)
    assert bits(other.sample(holes, n_draws=1)[0]) != bits(imputer.sample(holes, n_draws=1)[0])


@law("sample", "random_state")
def without_a_random_state_the_seed_is_chosen_once(make):
    """Without a random state each fit has draws of its own, which do not change when asked for again."""
    table = ARRAY.make()
    imputer, other = (fit_quietly(make(random_state=None), table) for _ in range(2))
    np.testing.assert_array_equal(imputer.sample(table), imputer.sample(table))
    assert not np.array_equal(other.sample(table), imputer.sample(table)), "two fits have one seed"


@law("sample")
def draws_of_an_array_are_an_array_with_the_draws_axis_first(make):
    """`sample` of an array (N, P) returns an array (n_draws, N, P)."""
    table = ARRAY.make()
    draws = fit_quietly(make(), table).sample(table, n_draws=3)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == (3, *table.shape), f"the shape is {draws.shape}"


@law("sample")
def fewer_than_one_draw_is_refused(make):
    """The number of draws is at least 1."""
    imputer = fit_quietly(make(), np.array([[1.0], [2.0]]))
    for n_draws in (0, -1):
        with np.testing.assert_raises_regex(ValueError, f"n_draws must be at least 1, got {n_draws}"):
            imputer.sample(np.array([[1.0]]), n_draws=n_draws)
