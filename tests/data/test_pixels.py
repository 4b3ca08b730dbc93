"""Columns that are pixels: one kind for all, and the way from shades to features."""

import numpy as np
import pandas as pd
import pytest
import torch
from tolerances import EXACT

from halfseen.data.frames import Table
from halfseen.data.incomplete import Incomplete
from halfseen.data.pixels import image_planes, n_shades, pixel_features, pixel_schema, read_images
from halfseen.errors import SchemaError


def columns_of(array):
    return list(pixel_schema(Table(np.asarray(array, dtype=float))))


def test_two_values_anywhere_make_all_pixels_binary():
    columns = columns_of([[0, 7, np.nan, 7], [0, 0, np.nan, 7]])
    assert {(column.kind, column.levels) for column in columns} == {("binary", (0.0, 7.0))}
    assert [(column.n_observed, column.n_missing) for column in columns] == [(2, 0), (2, 0), (0, 2), (2, 0)]
    assert {n_shades(column) for column in columns} == {2}


def test_whole_numbers_are_shades_between_the_least_and_the_greatest_of_all():
    for column in columns_of([[0, 2, 5], [0, 0, 17]]):
        assert (column.kind, column.integer, column.minimum, column.maximum) == ("count", True, 0.0, 17.0)
        assert n_shades(column) == 18
    assert {column.kind for column in columns_of([[-1, 0, 1], [0, 0, 0]])} == {"continuous"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_multiples_of_a_255th_are_shades_and_every_shade_can_be_filled(dtype):
    shades = (np.arange(256).reshape(1, -1) / 255).astype(dtype)
    for part in (shades, shades[:, 3:90]):
        columns = columns_of(part)
        assert n_shades(columns[0]) == part.shape[1]
        kept = columns[0].constrain(part[0].astype(float))
        np.testing.assert_allclose(kept, part[0], atol=1e-7)
        assert len(np.unique(kept)) == part.shape[1]


def test_other_numbers_are_numbers_within_their_range():
    for column in columns_of([[0.5, -2.25], [0.3, 1e3]]):
        assert (column.kind, column.minimum, column.maximum) == ("continuous", -2.25, 1e3)
        assert n_shades(column) is None
    assert n_shades(columns_of([[0, 1], [3, 256]])[0]) is None  # too many for shades


def test_a_table_of_one_value_has_nothing_to_model():
    assert not any(column.modelled for column in columns_of([[3, 3], [np.nan, 3]]))


def test_booleans_are_binary_and_text_and_infinity_no_pixels():
    column = next(iter(pixel_schema(Table(pd.DataFrame({"a": [True, False], "b": [True, True]})))))
    assert column.levels == (False, True)
    with pytest.raises(SchemaError, match=r"Column 'b' of dtype .* does not contain numbers"):
        pixel_schema(Table(pd.DataFrame({"a": [0.0, 1.0], "b": ["x", "y"]})))
    with pytest.raises(SchemaError, match="Column 'x1' contains infinity"):
        columns_of([[0.0, np.inf]])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        ([[0.0, 1.0], [0.0, 0.0]], [[-1.0, 1.0], [-1.0, -1.0]]),  # codes of two levels
        ([[0, 255], [51, 102]], [[-1.0, 1.0], [-0.6, -0.2]]),
        ([[0.5, -1.5], [0.5, 2.5]], [[0.0, -np.sqrt(2)], [0.0, np.sqrt(2)]]),  # one scale for all
    ],
)
def test_features_have_zero_in_the_middle_and_come_back(array, expected):
    codes = Incomplete.from_array(array)
    features = pixel_features(columns_of(array), codes)
    encoded = features.encode(codes)
    np.testing.assert_allclose(encoded.x, expected, atol=1e-6)
    torch.testing.assert_close(features.numbers(encoded.x), codes.x, rtol=0, atol=EXACT)


def test_features_of_numbers_ignore_what_is_under_the_mask():
    x = torch.tensor([[1.0, torch.nan], [3.0, 1e9]], dtype=torch.float64)
    observed = torch.tensor([[True, False], [True, False]])
    features = pixel_features(columns_of([[1.5, 2.25], [3.0, 0.1]]), Incomplete(x, observed))
    torch.testing.assert_close(features.scaler.loc, torch.full((2,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(features.scaler.scale, torch.ones(2, dtype=torch.float64))


def test_a_shape_is_planes_rows_and_columns():
    assert image_planes((3, 4, 5), 60) == (3, 4, 5)
    assert image_planes(np.array([4, 5]), 20) == (1, 4, 5)
    with pytest.raises(ValueError, match=r"image_shape \(4, 5\) has 20 pixels, but the table has 21 columns"):
        image_planes([4, 5], 21)
    for wrong in (20, (20,), (1, 1, 4, 5), (0, 5), (4.0, 5), "ab"):
        with pytest.raises(ValueError, match="image_shape must be"):
            image_planes(wrong, 20)


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (np.arange(12.0).reshape(2, 2, 3), np.arange(12.0).reshape(2, 6)),
        (np.arange(12.0).reshape(2, 2, 3).tolist(), np.arange(12.0).reshape(2, 6)),
        (np.arange(24.0).reshape(2, 2, 3, 2), np.arange(24.0).reshape(2, 6, 2).swapaxes(1, 2).reshape(2, 12)),
    ],
    ids=["grey", "list", "coloured"],
)
def test_images_become_rows_of_pixels_plane_by_plane_and_back(given, rows):
    table, layout = read_images(given)
    np.testing.assert_array_equal(table, rows)
    np.testing.assert_array_equal(layout.restore(table), given)
    draws = np.stack([table, table + 1.0])
    np.testing.assert_array_equal(layout.restore(draws)[1], np.asarray(given) + 1.0)


def test_masked_pixels_are_missing():
    table, _ = read_images(np.ma.array(np.ones((1, 2, 2)), mask=[[[False, True], [False, False]]]))
    np.testing.assert_array_equal(table, [[1.0, np.nan, 1.0, 1.0]])


@pytest.mark.parametrize(
    ("given", "image_shape", "match"),
    [
        (np.ones((3, 4)), None, r"Rows of pixels need image_shape, such as \(28, 28\)"),
        (np.ones((3, 4)), (2, 3), r"image_shape \(2, 3\) has 6 pixels, but the table has 4 columns"),
        (np.ones((3, 4, 5)), (4, 4), r"\(C, H, W\) = \(1, 4, 5\), but image_shape, .* is \(1, 4, 4\)"),
        (np.ones((3, 4, 5, 2)), (4, 5), r"\(2, 4, 5\), but image_shape, .* is \(1, 4, 5\)"),
        (np.ones(3), (1, 3), r"Images must be an array of shape .*, got the shape \(3,\)"),
        (np.ones((3, 0, 4)), None, r"got the shape \(3, 0, 4\)"),
    ],
)
def test_what_is_no_array_of_images_is_refused(given, image_shape, match):
    with pytest.raises(ValueError, match=match):
        read_images(given, image_shape)
