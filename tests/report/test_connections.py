"""Figures of missingness patterns and of influx and outflux show the numbers of the diagnosis."""

import numpy as np
import pandas as pd
import pytest

import halfseen
from halfseen.report import plot_flux, plot_patterns


@pytest.fixture(scope="module")
def table():
    nan = np.nan
    return pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [1.0, nan, nan, nan], "c": [1.0, nan, nan, 4]})


def test_patterns_are_cells_with_their_counts(table):
    figure = plot_patterns(table)
    (axes,) = figure.axes
    cells = np.asarray(axes.collections[0].get_array()).reshape(3, 2)
    counts = [text.get_text() for text in axes.get_yticklabels()]
    shown = {count: row.tolist() for count, row in zip(counts, cells, strict=True) if count == "2"}
    assert shown == {"2": [1.0, 1.0]}
    assert sorted(counts) == ["1", "1", "2"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["3", "2"]
    figure.canvas.draw()


def test_a_table_without_missing_values_has_no_patterns(table):
    with pytest.raises(ValueError, match="The table has no missing values"):
        plot_patterns(table[["a"]])


def test_points_are_influx_and_outflux(table):
    (axes,) = plot_flux(table).axes
    found = halfseen.diagnosis.flux(table)
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), found.influx)
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), found.outflux)
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c"]
