r"""The conditional distribution of targets and missing features under a joint distribution.

A target that depends linearly on the features is an additional feature of a Gaussian, which is observed in
training and missing in prediction. A linear score of the features is an additional feature that is never
observed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.mask_factors import GaussianMaskFactor, MaskFactor, ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian

SCORE_NOISE = 1e-6  # of a score that is added to a joint distribution: a Gaussian needs full rank

JointGaussian = Gaussian | SelfMaskedGaussian

MASK_FACTORS: dict[str, type[GaussianMaskFactor] | type[ProbitMaskFactor]] = {
    "gaussian_mask": GaussianMaskFactor,
    "probit_mask": ProbitMaskFactor,
}


def only_features(joint: JointGaussian, n_features: int) -> JointGaussian:
    """Returns the distribution of the first features."""
    if isinstance(joint, SelfMaskedGaussian):
        mask = _with_cells(joint.mask, joint.mask.active[:n_features], joint.mask.coefficients[:n_features])
        return SelfMaskedGaussian(_leading(joint.gaussian, n_features), mask)
    return _leading(joint, n_features)


def with_scores(joint: JointGaussian, weights: Tensor) -> JointGaussian:
    r"""Returns the distribution of the features followed by unobserved scores :math:`W^\top (x - \mu)`.

    Shapes
    ------
    weights : :math:`(D, T)`
    """
    if isinstance(joint, SelfMaskedGaussian):
        n_scores = weights.shape[1]
        mask = _with_cells(
            joint.mask,
            functional.pad(joint.mask.active, (0, n_scores)),
            functional.pad(joint.mask.coefficients, (0, 0, 0, n_scores)),
        )
        return SelfMaskedGaussian(_scored(joint.gaussian, weights), mask)
    return _scored(joint, weights)


def condition(joint: JointGaussian, batch: Incomplete, n_unseen: int) -> tuple[Tensor, Tensor]:
    """Returns mean and variance (N, D + T) of features, and of the targets or scores after them."""
    unseen = batch.x.new_zeros(len(batch), n_unseen)
    joined = Incomplete(
        torch.cat([batch.filled(), unseen], dim=1), torch.cat([batch.observed, unseen.bool()], dim=1)
    )
    return joint.moments(joined)


def joint_state(joint: JointGaussian) -> dict[str, Tensor]:
    """Returns the tensors of a joint distribution, to be saved."""
    gaussian = joint.gaussian if isinstance(joint, SelfMaskedGaussian) else joint
    state = {"joint.loc": gaussian.loc}
    if isinstance(gaussian, LowRankGaussian):
        state |= {"joint.loadings": gaussian.loadings, "joint.noise": gaussian.noise}
    else:
        state["joint.covariance"] = gaussian.covariance
    if isinstance(joint, SelfMaskedGaussian):
        kind = next(kind for kind, factor in MASK_FACTORS.items() if isinstance(joint.mask, factor))
        state |= {
            f"joint.{kind}.active": joint.mask.active,
            f"joint.{kind}.coefficients": joint.mask.coefficients,
        }
    return state


def joint_from_state(state: Mapping[str, Tensor]) -> JointGaussian:
    """Rebuilds a joint distribution from what `joint_state` returned."""
    gaussian = _gaussian_from_state(state)
    for kind, mask in MASK_FACTORS.items():
        if f"joint.{kind}.active" in state:
            found = mask(state[f"joint.{kind}.active"], state[f"joint.{kind}.coefficients"])
            return SelfMaskedGaussian(gaussian, found)
    return gaussian


def _gaussian_from_state(state: Mapping[str, Tensor]) -> Gaussian:
    loc = state["joint.loc"]
    if "joint.loadings" in state:
        return LowRankGaussian.checked_factors(loc, state["joint.loadings"], state["joint.noise"])
    return Gaussian.checked(loc, state["joint.covariance"])


def _with_cells(mask: MaskFactor, active: Tensor, coefficients: Tensor) -> MaskFactor:
    """Returns a mask of the same kind for other features."""
    return replace(
        cast("GaussianMaskFactor | ProbitMaskFactor", mask), active=active, coefficients=coefficients
    )


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
