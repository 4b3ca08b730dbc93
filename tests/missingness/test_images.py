"""Mechanisms for images: their geometry against brute force, pixel by pixel."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from tolerances import EXACT, FAILURE_RATE

from halfseen import missingness as ms

SHAPES = [(4, 5), (7, 3)]


def uniform_p(counts):
    """The p-value that all outcomes are equally likely."""
    expected = counts.sum() / len(counts)
    return chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1)


def rectangles_of(shape, height, width):
    for top, left in itertools.product(range(shape[0] - height + 1), range(shape[1] - width + 1)):
        hidden = np.zeros(shape, dtype=bool)
        hidden[top : top + height, left : left + width] = True
        yield hidden


@pytest.mark.parametrize("shape", SHAPES)
def test_one_rectangle_is_anywhere_within_the_image_equally_likely(shape):
    X = np.zeros((6000, *shape))
    hidden = ~ms.Rectangles(n=1, width=2, height=3).fit(X).sample(X, random_state=0)
    masks = np.array(list(rectangles_of(shape, 3, 2)))
    counts = (hidden[:, None] == masks).all(axis=(2, 3)).sum(axis=0)
    assert counts.sum() == len(X)
    assert uniform_p(counts) > FAILURE_RATE


@pytest.mark.parametrize("n", [1, 2, 3, (0, 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_how_often_rectangles_cover_a_pixel(n, shape):
    X = np.zeros((1, *shape))
    one = np.mean(list(rectangles_of(shape, 2, 2)), axis=0)
    counts = range(n[0], n[1] + 1) if isinstance(n, tuple) else [n]
    expected = np.mean([1.0 - (1.0 - one) ** k for k in counts], axis=0)
    mechanism = ms.Rectangles(n=n, width=2).fit(X)
    np.testing.assert_allclose(mechanism.expected_rate_, expected, atol=EXACT)
    many = np.zeros((20_000, *shape))
    share = 1.0 - mechanism.sample(many, random_state=0).mean(axis=0)
    assert np.all(np.abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / len(many)) + EXACT)


def test_rectangles_of_random_size_stay_in_range():
    X = np.zeros((3000, 9, 9))
    mechanism = ms.Rectangles(n=1, width=(2, 4), height=(5, 5)).fit(X)
    hidden = ~mechanism.sample(X, random_state=0)
    heights, widths = hidden.any(axis=2).sum(axis=1), hidden.any(axis=1).sum(axis=1)
    assert set(heights) == {5}
    np.testing.assert_array_equal(hidden.sum(axis=(1, 2)), 5 * widths)
    assert uniform_p(np.bincount(widths)[2:]) > FAILURE_RATE
    np.testing.assert_allclose(hidden.mean(axis=0), mechanism.expected_rate_, atol=0.06)
    squares = ~ms.Rectangles(n=1, width=(2, 4)).fit(X).sample(X, random_state=0)
    np.testing.assert_array_equal(squares.any(axis=2).sum(axis=1), squares.any(axis=1).sum(axis=1))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(4, 4), (5, 3)])
def test_quadrants_are_all_choices_equally_likely(n, shape):
    X = np.zeros((3000, *shape))
    mechanism = ms.Quadrants(n=n).fit(X)
    observed = mechanism.sample(X, random_state=0)
    high, wide = shape[0] // 2, shape[1] // 2
    parts = np.zeros((4, *shape), dtype=bool)
    parts[0, :high, :wide] = parts[1, :high, wide:] = parts[2, high:, :wide] = parts[3, high:, wide:] = True
    masks = np.array([parts[list(chosen)].any(axis=0) for chosen in itertools.combinations(range(4), n)])
    counts = (~observed[:, None] == masks).all(axis=(2, 3)).sum(axis=0)
    assert counts.sum() == len(X)
    if len(masks) > 1:
        assert uniform_p(counts) > FAILURE_RATE
    log_p = mechanism.log_prob(~masks, np.zeros(masks.shape))
    np.testing.assert_allclose(log_p, -np.log(len(masks)), atol=EXACT)
    if 0 < n < 4:
        broken = ~masks[:1]
        broken[0, 0, 0] = not broken[0, 0, 0]
        assert mechanism.log_prob(broken, np.zeros(broken.shape))[0] == -np.inf


def test_quadrants_that_an_image_lacks_are_summed_over():
    X = np.zeros((1, 2, 2))
    X[0, 0, 0] = np.nan
    mechanism = ms.Quadrants(n=2).fit(np.zeros((1, 2, 2)))
    total = 0.0
    for seen in itertools.product([False, True], repeat=3):
        total += np.exp(mechanism.log_prob(np.array([[[False, seen[0]], seen[1:]]]), X))[0]
    assert total == pytest.approx(1.0, abs=EXACT)


@pytest.mark.parametrize("centre", [None, (0, 0), (1.5, 4.0)])
@pytest.mark.parametrize("radius", [0.0, 1.0, 1.5, 2.3])
def test_a_disc_is_the_pixels_within_its_radius(radius, centre):
    X = np.zeros((1, 6, 5))
    hidden = ~ms.Disc(radius=radius, centre=centre).fit(X).sample(X)[0]
    down, across = centre or (2.5, 2.0)
    for h, w in np.ndindex(6, 5):
        assert hidden[h, w] == (np.hypot(h - down, w - across) <= radius)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_disc_with_a_threshold_removes_by_value(absolute):
    X = np.random.default_rng(0).uniform(-1, 1, size=(50, 5, 5))
    mechanism = ms.Disc(radius=2.0, threshold=0.5, absolute=absolute).fit(X)
    observed = mechanism.sample(X)
    inside = np.hypot(*(np.indices((5, 5)) - 2)) <= 2.0
    np.testing.assert_array_equal(~observed, inside & ((np.abs(X) if absolute else X) > 0.5))
    np.testing.assert_allclose(mechanism.expected_rate_, 1 - observed.mean(axis=0), atol=EXACT)
    np.testing.assert_array_equal(mechanism.log_prob(observed, X), 0.0)
    observed[0, 0, 0] = False
    assert mechanism.log_prob(observed, X)[0] == -np.inf


def test_pixels_are_independent_and_shared_by_channels():
    X = np.zeros((4000, 3, 2, 2))
    mechanism = ms.IIDPixels(rate=0.25).fit(X)
    observed = mechanism.sample(X, random_state=0)
    assert observed.shape == X.shape
    np.testing.assert_array_equal(observed, np.repeat(observed[:, :1], 3, axis=1))
    codes = (~observed[:, 0]).reshape(-1, 4) @ [1, 2, 4, 8]
    counts = np.bincount(codes, minlength=16)
    masks = ((np.arange(16)[:, None] >> np.arange(4)) & 1).astype(bool).reshape(16, 1, 2, 2)
    log_p = mechanism.log_prob(~np.repeat(masks, 3, axis=1), np.zeros((16, 3, 2, 2)))
    expected = 4000 * np.exp(log_p)
    assert expected.sum() == pytest.approx(4000, abs=1e-6)
    assert chi2.sf(np.sum((counts - expected) ** 2 / expected), 15) > FAILURE_RATE
    torn = np.ones((1, 3, 2, 2), dtype=bool)
    torn[0, 0, 0, 0] = False
    assert mechanism.log_prob(torn, X[:1])[0] == -np.inf


@pytest.mark.parametrize(
    "make",
    [
        lambda **shape: ms.IIDPixels(0.3, **shape),
        lambda **shape: ms.Rectangles(2, 3, **shape),
        lambda **shape: ms.Quadrants(1, **shape),
        lambda **shape: ms.Disc(2.0, threshold=0.0, **shape),
    ],
)
def test_flat_images_arrays_and_tensors_get_the_same_masks(make):
    X = np.random.default_rng(0).normal(size=(20, 6, 8))
    observed = make().fit(X).sample(X, random_state=3)
    flat = make(shape=(6, 8)).fit(X.reshape(20, 48))
    np.testing.assert_array_equal(flat.sample(X.reshape(20, 48), random_state=3), observed.reshape(20, 48))
    tensor = torch.from_numpy(X)
    drawn = make().fit(tensor).sample(tensor, random_state=3)
    assert isinstance(drawn, torch.Tensor)
    np.testing.assert_array_equal(drawn.numpy(), observed)
    holed = make().fit(X).amputate(X, random_state=3)
    np.testing.assert_array_equal(np.isnan(holed), ~observed)
    np.testing.assert_array_equal(holed[observed], X[observed])
    probability = make().fit(X).probability(X)
    assert probability.shape == X.shape
    assert not (~observed & (probability == 0.0)).any()


@pytest.mark.parametrize("shape", [(0, 4, 4), (0, 3, 4, 4)])
def test_no_images_at_all(shape):
    for mechanism in (ms.IIDPixels(0.3), ms.Rectangles(1, 2), ms.Quadrants(2), ms.Disc(1.0, threshold=0.0)):
        X = np.zeros(shape)
        mechanism.fit(np.zeros((2, *shape[1:])))
        observed = mechanism.sample(X, random_state=0)
        assert observed.shape == mechanism.amputate(X).shape == shape
        if not isinstance(mechanism, ms.Rectangles):
            assert mechanism.log_prob(observed, X).shape == (0,)


def test_pixels_that_are_gone_stay_gone():
    X = np.zeros((5, 4, 4))
    X[:, 0, 0] = np.nan
    for mechanism in (ms.IIDPixels(0.3), ms.Rectangles(1, 2), ms.Quadrants(2), ms.Disc(1.0)):
        observed = mechanism.fit(X).sample(X, random_state=0)
        assert not observed[:, 0, 0].any()
        if not isinstance(mechanism, ms.Rectangles):
            assert np.isfinite(mechanism.log_prob(observed, X)).all()


def test_feature_deletion_takes_that_many_non_zero_features_equally_likely():
    row = np.array([0.0, 1.0, 2.0, 0.0, 3.0, 4.0])
    X = np.tile(row, (6000, 1))
    hidden = ~ms.FeatureDeletion(n=2).fit(X).sample(X, random_state=0)
    assert not hidden[:, row == 0].any()
    pairs = [list(pair) for pair in itertools.combinations([1, 2, 4, 5], 2)]
    masks = np.array([np.isin(np.arange(6), pair) for pair in pairs])
    counts = (hidden[:, None] == masks).all(axis=2).sum(axis=0)
    assert counts.sum() == len(X)
    assert uniform_p(counts) > FAILURE_RATE


def test_feature_deletion_of_rows_with_too_few_features_takes_all():
    X = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, np.nan, 2.0]])
    mechanism = ms.FeatureDeletion(n=5).fit(X)
    observed = mechanism.sample(X, random_state=0)
    np.testing.assert_array_equal(observed, [[1, 0, 1], [1, 1, 1], [0, 0, 0]])
    np.testing.assert_allclose(mechanism.log_prob(observed, X), 0.0, atol=EXACT)
    np.testing.assert_allclose(mechanism.expected_rate_, [1 / 3 * 1, 1 / 2, 1 / 3], atol=EXACT)


def test_a_sector_removes_by_angle_also_through_pi():
    angle = np.linspace(-np.pi, np.pi, 401)[:-1] + 0.003
    X = 3.0 + np.column_stack([np.cos(angle), np.sin(angle)])
    hidden = ~ms.AngularSector(start=np.pi / 4, stop=3 * np.pi / 4, centre=(3.0, 3.0)).fit(X).sample(X)
    np.testing.assert_array_equal(hidden[:, 0], (angle >= np.pi / 4) & (angle <= 3 * np.pi / 4))
    assert not hidden[:, 1].any()
    through = ms.AngularSector(1, start=3.0, stop=3.5, centre=(3.0, 3.0)).fit(X)
    np.testing.assert_array_equal(~through.sample(X)[:, 1], (angle >= 3.0) | (angle <= 3.5 - 2 * np.pi))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ms.Rectangles(1, 9).fit(np.zeros((1, 4, 4))),
            r"height must fit into images of shape \(4, 4\), got 9",
        ),
        (
            lambda: ms.Rectangles(1, (3, 2)),
            r"width must be a whole number or a pair low <= high, got \(3, 2\)",
        ),
        (lambda: ms.Rectangles(-1), "n must be a whole number of at least 0, got -1"),
        (lambda: ms.Quadrants(5), "n must be a number between 0 and 4, got 5"),
        (lambda: ms.Quadrants(2).fit(np.zeros((1, 1, 4))), "have no quadrants"),
        (lambda: ms.Disc(-1.0), "radius must be a number of at least 0, got -1.0"),
        (lambda: ms.IIDPixels(1.2), "rate must be a number between 0 and 1, got 1.2"),
        (lambda: ms.IIDPixels(0.2).fit(np.zeros((3, 16))), r"with a shape, got \(3, 16\)"),
        (
            lambda: ms.IIDPixels(0.2, shape=(4, 5)).fit(np.zeros((3, 16))),
            r"shape \(4, 5\) were expected, got an",
        ),
        (lambda: ms.IIDPixels(0.2).sample(np.zeros((3, 4, 4))), "IIDPixels is not calibrated yet"),
        (
            lambda: ms.IIDPixels(0.2).fit(np.zeros((1, 3, 4, 4))).sample(np.zeros((1, 4, 4))),
            "has 1 channels; in fit",
        ),
        (lambda: ms.FeatureDeletion(n=1.5), "n must be a whole number of at least 0, got 1.5"),
        (
            lambda: ms.AngularSector(start=1.0, stop=0.5),
            "stop must be a number between 1 and 7.28319, got 0.5",
        ),
    ],
)
def test_wrong_settings_of_images_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
