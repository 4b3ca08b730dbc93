r"""What a law of rows says of the targets and features that a row does not show.

A target that depends on the features linearly is one more feature of a Gaussian: seen in training, missing
when it is to be predicted. A linear score of the features is one more feature, too, which is never seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian
from halfseen.distributions.low_rank import LowRankGaussian
from halfseen.distributions.self_masked import SelfMaskedGaussian
from halfseen.distributions.self_masks import Bump, Probit, SelfMask

SCORE_NOISE = 1e-6  # of a score that is added to a law: a Gaussian needs full rank

RowLaw = Gaussian | SelfMaskedGaussian


def only_features(law: RowLaw, n_features: int) -> RowLaw:
    """Returns the distribution of the first features."""
    if isinstance(law, SelfMaskedGaussian):
        mask = _with_cells(law.mask, law.mask.active[:n_features], law.mask.coefficients[:n_features])
        return SelfMaskedGaussian(_leading(law.gaussian, n_features), mask)
    return _leading(law, n_features)


def with_scores(law: RowLaw, weights: Tensor) -> RowLaw:
    r"""Returns the distribution of the features followed by unobserved scores :math:`W^\top (x - \mu)`.

    Shapes
    ------
    weights : :math:`(D, T)`
    """
    if isinstance(law, SelfMaskedGaussian):
        n_scores = weights.shape[1]
        mask = _with_cells(
            law.mask,
            functional.pad(law.mask.active, (0, n_scores)),
            functional.pad(law.mask.coefficients, (0, 0, 0, n_scores)),
        )
        return SelfMaskedGaussian(_scored(law.gaussian, weights), mask)
    return _scored(law, weights)


def condition(law: RowLaw, batch: Incomplete, n_unseen: int) -> tuple[Tensor, Tensor]:
    """Returns mean and variance (N, D + T) of features, and of so many targets or scores after them."""
    unseen = batch.x.new_zeros(len(batch), n_unseen)
    joined = Incomplete(
        torch.cat([batch.filled(), unseen], dim=1), torch.cat([batch.observed, unseen.bool()], dim=1)
    )
    return law.moments(joined)


def law_state(law: RowLaw) -> dict[str, Tensor]:
    """Returns the tensors of a joint distribution, to be saved."""
    gaussian = law.gaussian if isinstance(law, SelfMaskedGaussian) else law
    state = {"law.loc": gaussian.loc}
    if isinstance(gaussian, LowRankGaussian):
        state |= {"law.loadings": gaussian.loadings, "law.noise": gaussian.noise}
    else:
        state["law.covariance"] = gaussian.covariance
    if isinstance(law, SelfMaskedGaussian):
        kind = type(law.mask).__name__.lower()
        state |= {f"law.{kind}.active": law.mask.active, f"law.{kind}.coefficients": law.mask.coefficients}
    return state


def law_from_state(state: Mapping[str, Tensor]) -> RowLaw:
    """Rebuilds a joint distribution from what `law_state` returned."""
    gaussian = _gaussian_from_state(state)
    for kind, mask in (("bump", Bump), ("probit", Probit)):
        if f"law.{kind}.active" in state:
            found = mask(state[f"law.{kind}.active"], state[f"law.{kind}.coefficients"])
            return SelfMaskedGaussian(gaussian, found)
    return gaussian


def _gaussian_from_state(state: Mapping[str, Tensor]) -> Gaussian:
    loc = state["law.loc"]
    if "law.loadings" in state:
        loadings, noise = state["law.loadings"], state["law.noise"]
        fits = loadings.ndim == 2 and loadings.shape[:1] == loc.shape == noise.shape
        if not fits or not loc.dtype == loadings.dtype == noise.dtype:
            raise ValueError("law.loc, law.loadings and law.noise do not fit together.")
        return LowRankGaussian(loc, loadings, noise)
    covariance = state["law.covariance"]
    if covariance.shape != (*loc.shape, *loc.shape) or covariance.dtype != loc.dtype:
        raise ValueError("law.loc and law.covariance do not fit together.")
    return Gaussian(loc, covariance)


def _with_cells(mask: SelfMask, active: Tensor, coefficients: Tensor) -> SelfMask:
    """Returns a mask of the same kind for other features."""
    return replace(cast("Bump | Probit", mask), active=active, coefficients=coefficients)


def _leading(gaussian: Gaussian, n_features: int) -> Gaussian:
    if isinstance(gaussian, LowRankGaussian):
        return LowRankGaussian(
            gaussian.loc[:n_features], gaussian.loadings[:n_features], gaussian.noise[:n_features]
        )
    return Gaussian(gaussian.loc[:n_features], gaussian.covariance[:n_features, :n_features])


def _scored(gaussian: Gaussian, weights: Tensor) -> Gaussian:
    cross = gaussian.covariance @ weights  # (D, T)
    own = weights.T @ cross
    noise = SCORE_NOISE * own.diagonal().clamp(min=1e-6)
    top = torch.cat([gaussian.covariance, cross], dim=1)
    bottom = torch.cat([cross.T, own + noise.diag()], dim=1)
    return Gaussian(functional.pad(gaussian.loc, (0, weights.shape[1])), torch.cat([top, bottom], dim=0))
