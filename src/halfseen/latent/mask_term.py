r"""The probability of a mask given latents alone: missing cells of self-masking columns integrated out."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.distributions.leaf import NumericLeaf
from halfseen.distributions.leaves import GaussianLeaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.leaves_levels import LevelLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.mask_models import MaskModel
from halfseen.latent.self_masking import SelfMaskModel

N_NODES = 25
REACH = 3.0  # range of the nodes before stretching: sinh(3), ten standard deviations

SMOOTH = (GaussianLeaf, SharedGaussianLeaf, StudentTLeaf)


def nodes(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Returns where to evaluate standardised densities, and the log of the distances, both (Q).

    The trapezoidal rule in :math:`u` with :math:`t = \sinh u`, which converges fast for smooth densities
    with any tail.
    """
    u = torch.linspace(-REACH, REACH, N_NODES, dtype=dtype)
    return u.sinh(), (u.cosh() * (2 * REACH / (N_NODES - 1))).log()


def is_integrable(observation: ObservationModel, mask_model: MaskModel) -> bool:
    """Whether every column is self-masking and has a density that the nodes resolve, or levels."""
    kinds = all(isinstance(leaf, (*SMOOTH, LevelLeaf)) for leaf in observation.leaves)
    return isinstance(mask_model, SelfMaskModel) and kinds


@dataclass(frozen=True)
class CellGrid:
    r"""The distribution of every number given latents, :math:`p(x_c \mid z)`, on nodes.

    Shapes
    ------
    values : :math:`(Q, *, J)`, features of the columns `observation.numeric`
    log_weights : :math:`(Q, *, J)`, of which sums of exponentials over nodes are 1
    """

    values: Tensor
    log_weights: Tensor

    @classmethod
    def of(cls, observation: ObservationModel, parameters: Tensor) -> "CellGrid":
        """Places the nodes around the mean, in units of the standard deviation."""
        at, log_distance = nodes(parameters.dtype)
        shape = (-1, *[1] * parameters.dim())
        at, log_distance = (part.to(parameters.device).view(shape) for part in (at, log_distance))
        values, log_weights = [], []
        for leaf, part in zip(observation.leaves, observation.split(parameters), strict=True):
            if isinstance(leaf, NumericLeaf):
                values.append(leaf.mean(part) + at * leaf.variance(part).sqrt())
                log_weights.append(leaf.log_prob(part, values[-1]) + log_distance)
        if not values:
            empty = parameters.new_empty(N_NODES, *parameters.shape[:-1], 0)
            return cls(empty, empty)
        order = observation.order_of_numbers  # from the order of leaves
        pair = torch.cat(values, dim=-1), torch.cat(log_weights, dim=-1).log_softmax(dim=0)
        return cls(*pair) if order is None else cls(*(part.index_select(-1, order) for part in pair))


@dataclass(frozen=True)
class TiltedCells:
    r"""What a missing cell is, given latents and that it is missing, under a self-masking model.

    .. math:: p(x_c \mid z, o_c = 0) = \frac{p(x_c \mid z) \, p(o_c = 0 \mid x_c)}{\mathrm{E}[p(o_c = 0 \mid
              x_c) \mid z]}

    Shapes
    ------
    log_missing : :math:`(*, C)`, the log of the denominator
    values : :math:`(Q, *, J)`, nodes of the features of the columns `observation.numeric`
    log_weights : :math:`(Q, *, J)`, the log probabilities of the nodes, normalised
    mean : :math:`(*, D)`, expected features; of indicators, probabilities
    """

    log_missing: Tensor
    values: Tensor
    log_weights: Tensor
    mean: Tensor

    @classmethod
    def of(
        cls, observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor
    ) -> "TiltedCells":
        """Tilts the distribution of every cell by its probability of being missing."""
        grid = CellGrid.of(observation, parameters)
        columns = torch.tensor(observation.numeric, dtype=torch.long).to(parameters.device)
        log_hidden = _log_hidden(mask_model, grid.values, columns)
        tilted = grid.log_weights + torch.where(modelled_columns(mask_model)[columns], log_hidden, 0.0)
        log_number = tilted.logsumexp(dim=0)
        log_weights = tilted - log_number
        mean, log_missing = _tilted_levels(mask_model, observation.mean(parameters))
        numbers = mask_model.feature[columns]
        expected = (log_weights.exp() * grid.values).sum(dim=0)
        return cls(
            log_missing.index_copy(-1, columns, log_number),
            grid.values,
            log_weights,
            mean.index_copy(-1, numbers, expected),
        )


def _log_hidden(mask_model: SelfMaskModel, values: Tensor, columns: Tensor) -> Tensor:
    """Returns the log probability (Q, *, J) that numbers of these columns are missing."""
    every = values.new_zeros(*values.shape[:-1], mask_model.n_columns)
    logits = mask_model.column_logits(every.index_copy(-1, columns, values))
    return functional.logsigmoid(-logits.index_select(-1, columns))


def log_missing(observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor) -> Tensor:
    """Returns `TiltedCells.log_missing` of the columns whose mask is modelled; zeros of the others."""
    grid = CellGrid.of(observation, parameters)
    columns = torch.tensor(observation.numeric, dtype=torch.long).to(parameters.device)
    kept = modelled_columns(mask_model)[columns].nonzero().squeeze(1)
    values, log_weights = (part.index_select(-1, kept) for part in (grid.values, grid.log_weights))
    log_number = (log_weights + _log_hidden(mask_model, values, columns[kept])).logsumexp(dim=0)
    _, of_levels = _tilted_levels(mask_model, observation.mean(parameters))
    return of_levels.index_copy(-1, columns[kept], log_number)


def _tilted_levels(mask_model: SelfMaskModel, probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Returns indicators (*, D) expected of missing cells, and the log probability (*, C) of missing."""
    if len(mask_model.of_blocks) == 0:
        return probabilities, probabilities.new_zeros(*probabilities.shape[:-1], mask_model.n_columns)
    member = mask_model.member.to(probabilities)  # (E, C)
    base = mask_model.column_logits(probabilities.new_zeros(mask_model.n_columns))  # (C)
    missing = torch.sigmoid(-(member @ base + mask_model.level_logits))  # (E)
    missing = torch.where(modelled_columns(mask_model)[member.argmax(dim=1)], missing, 1.0)
    joint = probabilities[..., mask_model.of_blocks] * missing
    total = joint @ member  # (*, C)
    share = joint / (total @ member.mT).clamp(min=torch.finfo(joint.dtype).tiny)
    levels = probabilities.index_copy(-1, mask_model.of_blocks, share)
    return levels, torch.where(mask_model.is_number, 1.0, total).clamp(min=math.exp(-80)).log()


def modelled_columns(mask_model: MaskModel) -> Tensor:
    """Returns of which columns (C) the mask is modelled; the others count as missing at random."""
    columns, device = mask_model.layout.columns, next(mask_model.parameters()).device
    if columns is None:
        return torch.ones(mask_model.n_columns, dtype=torch.bool).to(device)
    modelled = torch.zeros(mask_model.n_columns, dtype=torch.bool)
    return modelled.index_fill(0, torch.tensor(list(columns), dtype=torch.long), True).to(device)


def integrated_log_prob(
    observation: ObservationModel, mask_model: SelfMaskModel, parameters: Tensor, x: Tensor, observed: Tensor
) -> Tensor:
    r"""Returns the log probability (*) of masks given latents and observed cells.

    .. math:: \sum_{c \in o} \log p(o_c = 1 \mid x_c) + \sum_{c \in m} \log \mathrm{E}[p(o_c = 0 \mid x_c)
              \mid z]

    Shapes
    ------
    parameters : :math:`(*, P)`
    x : :math:`(*, D)`, features with anything finite for missing values
    observed : :math:`(*, C)`
    """
    log_observed = functional.logsigmoid(mask_model.logits(x))
    terms = torch.where(observed, log_observed, log_missing(observation, mask_model, parameters))
    return torch.where(modelled_columns(mask_model), terms, 0.0).sum(dim=-1)
