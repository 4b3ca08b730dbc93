"""What a joint Gaussian implies for scores and targets, against the textbook's conditionals."""

import itertools

import numpy as np
import pytest
import torch
from tolerances import EXACT

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.mask_factors import GaussianMaskFactor, ProbitMaskFactor
from halfseen.gaussian.self_masked import (
    SelfMaskedGaussian,
    condition,
    joint_from_state,
    joint_state,
    only_features,
    with_scores,
)

SCORE = 1e-5
"""A score has a little noise of its own, of a millionth of its variance."""

PATTERNS = np.array(list(itertools.product([False, True], repeat=3)))
LAWS = ("gaussian", "bump", "probit")


def make_law(kind, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_features, n_features + 1))
    gaussian = Gaussian(torch.from_numpy(rng.normal(size=n_features)), torch.from_numpy(root @ root.T))
    active = torch.tensor([True] * (n_features - 1) + [False])
    if kind == "gaussian":
        return gaussian
    if kind == "bump":
        return SelfMaskedGaussian(
            gaussian, GaussianMaskFactor(active, torch.from_numpy(rng.normal(size=(n_features, 3))))
        )
    return SelfMaskedGaussian(
        gaussian, ProbitMaskFactor(active, torch.from_numpy(rng.normal(size=(n_features, 2))))
    )


def every_pattern(seed=1):
    x = np.random.default_rng(seed).normal(size=PATTERNS.shape)
    return Incomplete(torch.from_numpy(x), torch.from_numpy(PATTERNS))


def textbook(law, row, observed):
    """Mean and covariance of the features of one row: a hidden cell is a pseudo-observation with noise."""
    gaussian = law if isinstance(law, Gaussian) else law.gaussian
    loc, covariance = gaussian.loc.numpy(), gaussian.covariance.numpy()
    seen = observed.copy()
    noise, value = np.zeros(len(loc)), row.copy()
    if isinstance(law, SelfMaskedGaussian):
        pseudo = ~observed & law.mask.active.numpy()
        noise[pseudo] = (1 / law.mask.precision).numpy()[pseudo]
        value[pseudo] = law.mask.centre.numpy()[pseudo]
        seen |= pseudo
    gain = covariance[:, seen] @ np.linalg.inv(covariance[np.ix_(seen, seen)] + np.diag(noise[seen]))
    return loc + gain @ (value - loc)[seen], covariance - gain @ covariance[seen]


@pytest.mark.parametrize("kind", ["gaussian", "bump"])
def test_a_score_has_the_moments_of_the_sum_that_it_is(kind):
    law, batch = make_law(kind), every_pattern()
    weights = np.random.default_rng(2).normal(size=(3, 2))
    mean, variance = condition(with_scores(law, torch.from_numpy(weights)), batch, 2)
    for n, observed in enumerate(PATTERNS):
        expected, covariance = textbook(law, batch.x[n].numpy(), observed)
        np.testing.assert_allclose(mean[n, :3], expected, rtol=1e-8)
        score = weights.T @ (expected - law.loc.numpy())
        scale = np.sqrt(np.diag(weights.T @ law.covariance.numpy() @ weights))
        np.testing.assert_allclose(mean[n, 3:], score, atol=SCORE * scale.max())
        spread = np.diag(weights.T @ covariance @ weights)
        np.testing.assert_allclose(variance[n, 3:], spread, atol=SCORE * scale.max() ** 2)


@pytest.mark.parametrize("kind", LAWS)
def test_scores_do_not_change_the_joint_of_the_features(kind):
    law, batch = make_law(kind), every_pattern()
    scored = with_scores(law, torch.from_numpy(np.random.default_rng(2).normal(size=(3, 4))))
    for part, whole in zip(law.moments(batch), condition(scored, batch, 4), strict=True):
        torch.testing.assert_close(whole[:, :3], part, rtol=1e-8, atol=1e-8)


def test_more_scores_than_features_and_weights_of_zero_do_no_harm():
    law, batch = make_law("bump"), every_pattern()
    weights = torch.zeros(3, 7, dtype=torch.float64)
    mean, variance = condition(with_scores(law, weights), batch, 7)
    torch.testing.assert_close(mean[:, 3:], weights.new_zeros(8, 7), rtol=0, atol=1e-6)
    torch.testing.assert_close(variance[:, 3:], weights.new_zeros(8, 7), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", LAWS)
def test_the_joint_of_the_features_is_what_scores_were_added_to(kind):
    law = make_law(kind)
    again = only_features(with_scores(law, torch.ones(3, 2, dtype=torch.float64)), 3)
    assert type(again) is type(law)
    for a, b in zip(joint_state(again).values(), joint_state(law).values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", LAWS)
def test_a_target_is_a_feature_that_is_not_seen(kind):
    law, batch = make_law(kind, n_features=4), every_pattern()
    hidden = torch.zeros(len(batch), 1, dtype=torch.bool)
    joined = Incomplete(
        torch.cat([batch.x, torch.full((len(batch), 1), torch.nan)], dim=1),
        torch.cat([batch.observed, hidden], dim=1),
    )
    for found, expected in zip(condition(law, batch, 1), law.moments(joined), strict=True):
        torch.testing.assert_close(found, expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("kind", LAWS)
def test_values_under_the_mask_are_never_read(kind):
    law, batch = make_law(kind), every_pattern()
    poison = Incomplete(torch.where(batch.observed, batch.x, torch.nan), batch.observed)
    for one, other in zip(condition(law, batch, 0), condition(law, poison, 0), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", LAWS)
def test_a_joint_survives_its_state(kind):
    law, batch = make_law(kind), every_pattern()
    again = joint_from_state(joint_state(law))
    assert type(again) is type(law)
    for one, other in zip(law.moments(batch), again.moments(batch), strict=True):
        assert torch.equal(one, other)
