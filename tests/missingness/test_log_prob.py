"""The probability of a mask: it sums to one over masks, has the right gradient, and is what is drawn from."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from tolerances import EXACT, FAILURE_RATE

from halfseen import missingness as ms

N_FEATURES = 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, N_FEATURES)) * [1.0, 2.0, 0.5, 10.0] + [0.0, 1.0, 0.0, 5.0]
X[:, 2] = np.round(2 * X[:, 2])
HOLED = ms.MCAR([0.1, 0.3, 0.05, 0.2]).fit(X).amputate(X, random_state=0)
MASKS = np.array(list(itertools.product([False, True], repeat=N_FEATURES)))

SMOOTH = {
    "MARLogistic": ms.MARLogistic(0.3, predictors=[1, 3], steepness=2.0),
    "LogisticSelfMasking": ms.LogisticSelfMasking(0.4),
    "ProbitSelfMasking": ms.ProbitSelfMasking(0.4),
    "GaussianSelfMasking": ms.GaussianSelfMasking(0.4),
    "MonotoneDropout": ms.MonotoneDropout(0.6, steepness=1.0),
    "Compose": ms.Compose([ms.MARLogistic(0.3, predictors=0, steepness=1.0), ms.LogisticSelfMasking(0.2)]),
    "ByColumn": ms.ByColumn({0: ms.ProbitSelfMasking(0.2), (3, 1): ms.GaussianSelfMasking(0.3)}),
}
STEPS = {
    "MCAR": ms.MCAR([0.1, 0.3, 0.5, 0.9]),
    "MCAR rows": ms.MCAR(0.3, unit="rows", columns=[0, 2, 3]),
    "MCAR blocks": ms.MCAR([0.3, 0.6], unit="blocks", blocks=[[0, 3], [1]]),
    "Threshold": ms.Threshold(offset=0.2, chance=0.7, columns=[0, 2]),
    "QuantileCensoring": ms.QuantileCensoring(0.35, tail="both"),
    "DetectionLimit": ms.DetectionLimit(lower=0.0),
    "SkipPattern": ms.SkipPattern([0, 1], when=2, equals=[0, 1], chance=0.8),
    "AngularSector": ms.AngularSector(columns=[0, 1]),
    "FeatureDeletion": ms.FeatureDeletion(n=2),
    "MonotoneDropout, MCAR": ms.MonotoneDropout([0.1, 0.3, 0.3, 0.7]),
    "Learned": ms.Learned(),
}
ALL = SMOOTH | STEPS


def test_every_public_mechanism_of_tables_is_here():
    public = {getattr(ms, name) for name in ms.__all__ if isinstance(getattr(ms, name), type)}
    images = {ms.Disc, ms.IIDPixels, ms.Quadrants, ms.Rectangles}  # see test_images.py
    assert {type(mechanism) for mechanism in ALL.values()} == public - images - {ms.Mechanism}


def fitted(name):
    return ALL[name].fit(HOLED if name == "Learned" else X)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("holes", [False, True])
def test_it_sums_to_one_over_all_masks(name, holes):
    mechanism = fitted(name)
    rows = (HOLED if holes else X)[:40]
    total = np.zeros(len(rows))
    for mask in MASKS:
        observed = np.broadcast_to(mask, rows.shape)
        reachable = ~(observed & np.isnan(rows)).any(axis=1)
        log_p = mechanism.log_prob(observed[reachable], rows[reachable])
        total[reachable] += np.exp(log_p)
    np.testing.assert_allclose(total, 1.0, atol=EXACT)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("holes", [False, True])
def test_drawn_masks_have_that_probability(name, holes):
    mechanism = fitted(name)
    table = (HOLED if holes else X)[:12]
    repeats = 2000
    for row in table[np.isnan(table).sum(axis=1) < N_FEATURES]:
        observed = mechanism.sample(np.tile(row, (repeats, 1)), random_state=3)
        counts = (observed[:, None, :] == MASKS).all(axis=2).sum(axis=0)
        possible = ~(MASKS & np.isnan(row)).any(axis=1)
        assert counts[~possible].sum() == 0
        rows = np.tile(row, (possible.sum(), 1))
        expected = repeats * np.exp(mechanism.log_prob(MASKS[possible], rows))
        counts = counts[possible]
        assert counts[expected < 1e-9].sum() == 0
        rare = expected < 5.0  # together one class of the chi-square test
        counts = np.r_[counts[~rare], counts[rare].sum()]
        expected = np.r_[expected[~rare], expected[rare].sum()]
        kept = expected > 1e-9
        statistic = np.sum((counts[kept] - expected[kept]) ** 2 / expected[kept])
        assert chi2.sf(statistic, max(1, kept.sum() - 1)) > FAILURE_RATE / len(table)


@pytest.mark.parametrize("name", SMOOTH)
def test_its_gradient_is_that_of_finite_differences(name):
    mechanism = fitted(name)
    observed = torch.from_numpy(mechanism.sample(X[:30], random_state=2))
    x = torch.from_numpy(X[:30].copy()).requires_grad_()
    mechanism.log_prob(observed, x).sum().backward()
    step = 1e-5
    for j in range(N_FEATURES):
        high, low = X[:30].copy(), X[:30].copy()
        high[:, j] += step
        low[:, j] -= step
        slope = (mechanism.log_prob(observed, high) - mechanism.log_prob(observed, low)) / (2 * step)
        np.testing.assert_allclose(x.grad[:, j].numpy(), slope, rtol=1e-5, atol=1e-6)
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize("name", SMOOTH)
def test_its_gradient_is_finite_in_extreme_places(name):
    mechanism = fitted(name)
    far = np.concatenate([X[:4], X[:4] * 1e4, -X[:4] * 1e4, np.tile(X.mean(axis=0), (4, 1))])
    if name == "GaussianSelfMasking":
        far[-1, mechanism.columns_] = mechanism.centres_
    observed = torch.from_numpy(mechanism.sample(far, random_state=0))
    x = torch.from_numpy(far).requires_grad_()
    log_p = mechanism.log_prob(observed, x)
    assert log_p.isfinite().all()
    log_p.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_missing_values_add_nothing_and_are_not_read(name):
    mechanism = fitted(name)
    observed = mechanism.sample(HOLED[:50], random_state=0)
    x = torch.from_numpy(HOLED[:50].copy()).requires_grad_()
    log_p = mechanism.log_prob(torch.from_numpy(observed), x)
    assert log_p.isfinite().all()
    if log_p.requires_grad:
        log_p.sum().backward()
        assert x.grad.isfinite().all()
    np.testing.assert_array_equal(log_p.detach().numpy(), mechanism.log_prob(observed, HOLED[:50]))


@pytest.mark.parametrize("name", ALL)
def test_batch_axes_are_free_and_tensors_come_back_as_tensors(name):
    mechanism = fitted(name)
    observed = mechanism.sample(X[:24], random_state=0)
    flat = mechanism.log_prob(observed, X[:24])
    assert flat.shape == (24,)
    assert isinstance(flat, np.ndarray)
    cube = mechanism.log_prob(observed.reshape(2, 3, 4, 4), torch.from_numpy(X[:24].reshape(2, 3, 4, 4)))
    assert isinstance(cube, torch.Tensor)
    np.testing.assert_array_equal(cube.numpy().reshape(-1), flat)
    single = mechanism.log_prob(observed, torch.from_numpy(X[:24]).float())
    assert single.dtype == torch.float32
    assert mechanism.log_prob(observed[0], X[0]).shape == ()


def test_a_mask_that_cannot_occur_has_probability_zero():
    observed = np.ones((1, N_FEATURES), dtype=bool)
    observed[0, 1] = False
    assert ms.MCAR(0.3, columns=[0]).fit(X).log_prob(observed, X[:1]) == -np.inf
    assert ms.MonotoneDropout(0.5).fit(X).log_prob(observed, X[:1]) == -np.inf
    assert ms.MARLogistic(0.3, predictors=1).fit(X).log_prob(observed, X[:1]) == -np.inf


def test_a_mechanism_without_a_closed_form_raises_an_error():
    images = np.zeros((2, 4, 4))
    mechanism = ms.Rectangles(n=2, width=2).fit(images)
    with pytest.raises(NotImplementedError, match="Rectangles has no log_prob"):
        mechanism.log_prob(np.ones((2, 4, 4), dtype=bool), images)
    both = ms.Compose([ms.MCAR(0.3, unit="rows"), ms.MCAR(0.3)]).fit(X)
    with pytest.raises(NotImplementedError, match="MCAR shares columns"):
        both.log_prob(np.ones(X.shape, dtype=bool), X)


def test_a_mask_must_fit_its_table():
    mechanism = ms.MCAR(0.3).fit(X)
    with pytest.raises(
        ValueError, match=r"observed must be boolean \(True for observed values\), got torch.float64"
    ):
        mechanism.log_prob(np.ones(X.shape), X)
    with pytest.raises(ValueError, match=r"shape of X, \(400, 4\), got \(3, 4\)"):
        mechanism.log_prob(np.ones((3, 4), dtype=bool), X)
    with pytest.raises(ValueError, match=r"observed is True in row . of column 'x.', where X is missing"):
        mechanism.log_prob(np.ones(X.shape, dtype=bool), HOLED)
