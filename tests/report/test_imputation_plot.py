"""Figures of multiple imputation show the observed and imputed values, and the steps of the parameters."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import halfseen


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "g": ["u", "v", "w"] * 20})
    frame.loc[:15, "a"] = np.nan
    frame.loc[10:20, "g"] = None
    return frame


@pytest.fixture(scope="module")
def tables(table):
    return halfseen.multiple_imputation(table, n_draws=3, random_state=0)


def test_a_density_has_a_line_for_the_observed_values_and_one_for_each_draw(table, tables):
    figure = halfseen.plot_imputed(table, tables)
    numbers, levels = figure.axes
    assert numbers.get_title() == "a: 27% missing"
    assert len(numbers.lines) == len(levels.lines) == 4
    observed = levels.lines[-1].get_ydata()
    np.testing.assert_allclose(observed, table["g"].value_counts(normalize=True).sort_index())


def test_a_strip_has_every_value(table, tables):
    (axes,) = halfseen.plot_imputed(table, tables, columns=["a"], kind="strip").axes
    observed, *imputed = axes.lines
    np.testing.assert_array_equal(observed.get_ydata(), table["a"].dropna())
    for line, draw in zip(imputed, tables, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), draw["a"][:16])


def test_frames_of_other_libraries_and_arrays_are_plotted(table, tables):
    given = pl.from_pandas(table)
    assert len(halfseen.plot_imputed(given, [pl.from_pandas(t) for t in tables]).axes) == 2
    array, drawn = table[["a", "b"]].to_numpy(), [t[["a", "b"]].to_numpy() for t in tables]
    assert len(halfseen.plot_imputed(array, drawn, columns=["x0"]).axes) == 1


def test_the_trace_has_every_step_and_marks_those_that_are_kept(table):
    imputer = halfseen.GaussianImputer(n_posterior_draws=3, random_state=0).fit(table)
    trace = imputer.trace_
    assert trace.names == ("a", "b")
    assert trace.kept == [24, 29, 34]  # 20 to warm up, then every fifth
    assert trace.mean.shape == trace.std.shape == (35, 2)
    kept = [float(model.gaussian.loc[0]) for model in imputer.model_.posterior]
    np.testing.assert_allclose(trace.mean[trace.kept, 0], kept)
    assert len(halfseen.plot_trace(imputer, columns=["b"]).axes) == 2


def test_the_trace_of_chained_equations_has_a_line_for_each_chain(tables):
    axes = halfseen.plot_trace(tables.imputer, columns=["a"]).axes
    assert [one.get_title() for one in axes] == [
        "a: mean of the completed column",
        "a: std of the completed column",
    ]
    assert [len(line.get_xdata()) for line in axes[0].lines] == [5, 5, 5, 1, 1, 1]


def test_misuse_is_explained(table, tables):
    with pytest.raises(ValueError, match="kind must be one of density, strip, got 'box'"):
        halfseen.plot_imputed(table, tables, kind="box")
    with pytest.raises(ValueError, match="no column 'z'"):
        halfseen.plot_imputed(table, tables, columns=["z"])
    with pytest.raises(ValueError, match="no completed table"):
        halfseen.plot_imputed(table, [])
    with pytest.raises(ValueError, match="nothing to plot"):
        halfseen.plot_imputed(table[["b"]], [table[["b"]]])
    with pytest.raises(ValueError, match="no trace: fit a ChainedImputer"):
        halfseen.plot_trace(halfseen.MeanImputer().fit(table))
    with pytest.raises(ValueError, match="The trace has no column 'b'"):
        halfseen.plot_trace(tables.imputer, columns=["b"])
