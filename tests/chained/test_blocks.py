"""Blocks of numbers that are drawn together: posteriors, conditional distributions, the joint Gaussian."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from tolerances import EXACT, FAILURE_RATE

import halfseen
from halfseen.chained.blocks import check_covariance, draw_missing, draw_regression, given_others
from halfseen.chained.imputer import ChainedImputer
from halfseen.chained.regressions import Noise

NAMES = ["a", "b", "c"]
SPREAD = np.array([[1.0, 0.7, 0.4], [0.7, 1.5, 0.2], [0.4, 0.2, 0.8]])


def table_of(seed, n_rows=200, share=0.25):
    rng = np.random.default_rng([seed, 240])
    z = rng.normal(size=n_rows)
    found = pd.DataFrame(rng.multivariate_normal(np.zeros(3), SPREAD, n_rows) + z[:, None], columns=NAMES)
    found["z"], found["g"] = z, rng.choice(["u", "v"], n_rows)
    found["n"] = rng.poisson(np.exp(2.5 + 0.2 * z)).astype(float)
    return found.mask(rng.random(found.shape) < share)


@pytest.fixture(scope="module")
def table():
    return table_of(0)


@pytest.fixture(scope="module")
def fitted(table):
    return ChainedImputer(3, blocks=[NAMES], random_state=0).fit(table)


def test_a_block_of_one_column_changes_nothing(table):
    one, none = (
        ChainedImputer(2, blocks=blocks, find_outcome=False, random_state=0).fit(table).sample(table, 2)
        for blocks in ([["a"], ["z"]], None)
    )
    for drawn, other in zip(one, none, strict=True):
        pd.testing.assert_frame_equal(drawn, other)


def test_parameters_are_drawn_from_the_posterior():
    """Means and covariances of 4,000 draws beside those of the matrix normal inverse Wishart distribution."""
    rng = np.random.default_rng(0)
    n_chains, n_rows, width, size = 4_000, 30, 3, 2
    inputs = np.column_stack([np.ones(n_rows), rng.normal(size=(n_rows, width - 1))])
    scores = inputs @ rng.normal(size=(width, size)) + rng.normal(size=(n_rows, size))
    prior = np.array([1e-6, 2.0, 2.0])
    design, y = (torch.from_numpy(one).expand(n_chains, -1, -1) for one in (inputs, scores))
    rows, noise = torch.ones(n_rows, dtype=torch.bool), Noise(0, range(n_chains))
    gram = design.mT @ design
    drawn = draw_regression(gram, design, torch.arange(width), y, rows, torch.from_numpy(prior), noise)
    precision = inputs.T @ inputs + np.diag(prior)
    fitted = np.linalg.solve(precision, inputs.T @ scores)
    residual = scores - inputs @ fitted
    squares = residual.T @ residual + fitted.T @ np.diag(prior) @ fitted
    expected = squares / (n_rows - 1 - size - 1)  # the constant has no prior
    centred = (drawn.coefficients.numpy() - fitted).reshape(n_chains, -1)
    products = np.einsum("si,sj->sij", centred, centred)
    for found, truth in (
        (centred, np.zeros(width * size)),
        (drawn.covariance.numpy(), expected),
        (products, np.kron(np.linalg.inv(precision), expected)),
    ):
        error = found.std(axis=0, ddof=1) / n_chains**0.5
        z = (found.mean(axis=0) - truth) / error
        assert (2 * stats.norm.sf(np.abs(z)) > FAILURE_RATE).all()


def test_missing_scores_are_drawn_from_their_distribution_given_the_known_ones():
    """By partitioned covariance matrices; the root of the covariance by unit vectors of noise."""
    rng = np.random.default_rng(0)
    known = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=bool)
    mean, scores = rng.normal(size=(2, 1, 5, 3))
    covariance = torch.from_numpy(SPREAD)[None]
    roots = []
    for noise in np.eye(3):
        normals = torch.from_numpy(np.broadcast_to(noise, (1, 5, 3)).copy())
        found, centre, deviation = draw_missing(
            *(torch.from_numpy(mean), covariance, torch.from_numpy(scores), torch.from_numpy(known), normals)
        )
        roots.append((found - centre)[0].numpy())
        np.testing.assert_array_equal(found[0].numpy()[known], scores[0][known])
    for row, seen in enumerate(known):
        weights = SPREAD[~seen][:, seen] @ np.linalg.inv(SPREAD[seen][:, seen])
        expected = mean[0, row][~seen] + weights @ (scores - mean)[0, row][seen]
        left = SPREAD[~seen][:, ~seen] - weights @ SPREAD[seen][:, ~seen]
        np.testing.assert_allclose(centre[0, row].numpy()[~seen], expected, atol=EXACT)
        np.testing.assert_allclose(deviation[0, row].numpy()[~seen] ** 2, np.diag(left), atol=EXACT)
        root = np.array([one[row][~seen] for one in roots])
        np.testing.assert_allclose(root.T @ root, left, atol=EXACT)
        if seen.sum() == 2:
            j = int(np.flatnonzero(~seen)[0])
            alone = given_others(torch.from_numpy(mean), covariance, torch.from_numpy(scores), j)
            np.testing.assert_allclose(alone[0][0, row], expected[0], atol=EXACT)
            np.testing.assert_allclose(alone[1][0], left[0, 0] ** 0.5, atol=EXACT)


def test_one_block_of_all_columns_draws_from_the_joint_gaussian():
    """The distributions, over 120 draws, of means, deviations and correlations of the completed columns."""
    table = table_of(1, n_rows=100, share=0.35)[[*NAMES, "z"]]
    blocks, draws = ChainedImputer(120, blocks=[[*NAMES, "z"]]), 120
    several = [
        halfseen.multiple_imputation(table, imputer, n_draws=draws, random_state=0)
        for imputer in (blocks, halfseen.GaussianImputer())
    ]
    found = [
        np.array([[*one.mean(), *one.std(), *one.corr().to_numpy()[np.triu_indices(4, 1)]] for one in tables])
        for tables in several
    ]
    for one, other in zip(*(values.T for values in found), strict=True):
        assert stats.ks_2samp(one, other).pvalue > FAILURE_RATE


def test_columns_of_a_block_are_correlated_given_the_others(table):
    """Where both are missing; the correlation given z and n is that of the residuals."""
    rng = np.random.default_rng(0)
    new = pd.DataFrame({"z": rng.normal(size=3_000), "g": "u", "n": 12.0}).assign(
        a=np.nan, b=np.nan, c=np.nan
    )
    imputer = ChainedImputer(1, blocks=[NAMES], random_state=0).fit(table)
    drawn = imputer.sample(new[table.columns])[0]
    covariance = imputer.model_.parameters[0].covariance[0].numpy()
    expected = covariance[0, 1] / (covariance[0, 0] * covariance[1, 1]) ** 0.5
    residuals = [drawn[name] - np.poly1d(np.polyfit(drawn["z"], drawn[name], 1))(drawn["z"]) for name in "ab"]
    found = np.corrcoef(*residuals)[0, 1]
    z = (np.arctanh(found) - np.arctanh(expected)) * 3_000**0.5
    assert 2 * stats.norm.sf(abs(z)) > FAILURE_RATE


def test_draws_of_a_row_depend_on_the_row_alone_and_survive_saving(table, fitted, tmp_path):
    whole, part = fitted.sample(table, 2)[1], fitted.sample(table.iloc[:60], 2)[1]
    pd.testing.assert_frame_equal(whole.iloc[:60], part)
    fitted.save(tmp_path / "model")
    again = halfseen.load(tmp_path / "model")
    pd.testing.assert_frame_equal(again.sample(table, 2)[1], whole)
    pd.testing.assert_frame_equal(again.transform(table), fitted.transform(table))


def test_whole_numbers_and_derived_columns_may_be_beside_and_in_blocks(table):
    schema = {"sum": {"derived": "a + z", "predictor": True}}
    with_sum = table.assign(sum=table["a"] + table["z"])
    imputer = ChainedImputer(2, blocks=[["a", "n"]], schema=schema, random_state=0).fit(with_sum)
    for drawn in imputer.sample(with_sum, 2):
        assert drawn.notna().all().all()
        assert (drawn["n"] % 1 == 0).all()
        np.testing.assert_allclose(drawn["sum"], drawn["a"] + drawn["z"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": "abc"}, "blocks must be a list of lists of column names, got 'abc'"),
        ({"blocks": ["ab"]}, "Each of the blocks must be a list of column names, got 'ab'"),
        ({"blocks": [["a", "x"]]}, "blocks refers to column 'x', which is not a modelled column"),
        ({"blocks": [["a", "b"], ["b", "c"]]}, "blocks names column 'b' twice"),
        ({"blocks": [["a", "g"]]}, "Column 'g' of a block has levels"),
        (
            {"blocks": [["a", "b"]], "methods": {"b": "pmm"}},
            "Column 'b' cannot belong to a block: it has a m",
        ),
        ({"blocks": [["a", "b"]], "constraints": ["a <= 9"]}, "Column 'a' cannot belong .* has constraints"),
        (
            {"blocks": [["a", "b"]], "analysis": "c ~ b"},
            "Column 'b' cannot belong .* variable of the analysis",
        ),
        ({"blocks": [["a", "b"]], "groups": "g"}, "Column 'a' cannot belong .* table with groups"),
    ],
)
def test_blocks_that_cannot_be_drawn_are_explained(table, options, message):
    table = table.assign(g=table["g"].fillna("u"))
    with pytest.raises(ValueError, match=message):
        ChainedImputer(1, n_cycles=1, **options).fit(table)


@pytest.mark.parametrize(
    "forged",
    [None, torch.eye(2)[None], -torch.eye(2, dtype=torch.float64)[None], torch.ones(2, 2, 2) * torch.nan],
)
def test_forged_covariances_are_refused(forged):
    with pytest.raises(ValueError, match="covariances of the block of column 'a'"):
        check_covariance(forged, 1, 2, "a")


@pytest.mark.slow
def test_intervals_of_blocks_cover():
    """Over 40 tables with values missing through y, misses of intervals are as many as chance explains."""
    inside = []
    for seed in range(40):
        rng = np.random.default_rng([seed, 241])
        x = rng.multivariate_normal([0, 0], [[1, 0.8], [0.8, 1]], 300)
        table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": 0.5 * x.sum(axis=1) + rng.normal(size=300)})
        gone = rng.random((300, 2)) < 0.5 / (1 + np.exp(-table["y"].to_numpy()[:, None]))
        table[["a", "b"]] = table[["a", "b"]].mask(gone)
        imputer = ChainedImputer(10, blocks=[["a", "b"]])
        drawn = halfseen.multiple_imputation(table, imputer, n_draws=10, random_state=seed)
        low, high = (end[1:] for end in halfseen.pool("y ~ a + b", drawn).interval(0.95))
        inside.append((low <= 0.5) & (high >= 0.5))
    misses = (~np.array(inside)).sum(axis=0)
    assert (stats.binom(40, 0.05).sf(misses - 1) * 2 > FAILURE_RATE).all()
