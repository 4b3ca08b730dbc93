r"""The log likelihood of latent-variable models: on a grid of latents, by many weighted draws, after a refit.

With a mask model, `with_mask` selects the likelihood: that of the observed cells alone,
:math:`\log p(x_o)`, or that of cells and mask together, :math:`\log p(x_o, o)`. An ignorable mask adds
nothing.
"""

import itertools
import math
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.mixture import GaussianMixture
from halfseen.errors import warn_user
from halfseen.latent.bounds import LatentObjective
from halfseen.latent.model import LatentModel
from halfseen.latent.self_masking import N_NODES
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import Progress

WORKING_BYTES = 16 * 2**20  # small enough to stay near the processor
MAX_BORDER = 1e-3
"""The share of a posterior on the border cells of a grid above which the grid is called too small."""

MAX_UNEVENNESS = 0.2
"""How much neighbouring cells may differ in all; for a Gaussian, the log likelihood is then off by 2e-4."""

REFIT = TrainingSettings(schedule="cosine", patience=500, gradient_clip=5.0)
"""How encoders are refitted: to the end of the schedule."""

_MIN_POINTS = 64  # decoded at once: fewer waste the decoder on many rows


@dataclass(frozen=True)
class LatentGrid:
    r"""Equal cells that tile an interval, or a square, of latents.

    Parameters
    ----------
    n_latent : int
        :math:`L`, 1 or 2.
    bounds : tuple of float
        The same on each axis.
    n_points : int
        The number of cells along each axis.

    Examples
    --------
    >>> LatentGrid(1, (-1.0, 1.0), 4).points.flatten()
    tensor([-0.7500, -0.2500,  0.2500,  0.7500], dtype=torch.float64)
    """

    n_latent: int
    bounds: tuple[float, float] = (-10.0, 10.0)
    n_points: int = 500

    def __post_init__(self) -> None:
        if self.n_latent not in (1, 2):
            raise ValueError(
                f"A grid holds 1 or 2 latents, the model has {self.n_latent}: use estimate_iwelbo."
            )
        if not self.bounds[0] < self.bounds[1] or self.n_points < 2:
            raise ValueError(
                f"A grid needs rising bounds and 2 points or more, got {self.bounds} and {self.n_points}."
            )

    @property
    def log_volume(self) -> float:
        """The log of the size of a cell."""
        return self.n_latent * math.log((self.bounds[1] - self.bounds[0]) / self.n_points)

    @cached_property
    def axis(self) -> Tensor:
        """The middles of cells along an axis, in float64."""
        low, high = self.bounds
        steps = torch.arange(self.n_points, dtype=torch.float64) + 0.5
        return low + steps * ((high - low) / self.n_points)

    @cached_property
    def points(self) -> Tensor:
        """The middles of all cells (G, L); the last latent changes fastest."""
        return torch.stack(torch.meshgrid(*[self.axis] * self.n_latent, indexing="ij"), dim=-1).flatten(0, -2)

    @cached_property
    def on_border(self) -> Tensor:
        """Which cells (G) are at an end of an axis."""
        return (self._positions % (self.n_points - 1) == 0).any(dim=-1)

    @cached_property
    def marks(self) -> Tensor:
        """Ones, which cells are on the border, and chequered patterns of signs: (G, 1 + 1 + 2^L - 1)."""
        odd = 1.0 - 2.0 * (self._positions % 2).double()  # (G, L)
        axes = range(self.n_latent)
        chosen = [some for size in range(1, self.n_latent + 1) for some in itertools.combinations(axes, size)]
        signs = [odd[:, list(some)].prod(dim=-1) for some in chosen]
        return torch.stack(
            [torch.ones(len(odd), dtype=torch.float64), self.on_border.double(), *signs], dim=-1
        )

    @property
    def _positions(self) -> Tensor:
        steps = torch.arange(self.n_points)
        return torch.stack(torch.meshgrid(*[steps] * self.n_latent, indexing="ij"), dim=-1).flatten(0, -2)


@dataclass(frozen=True)
class GridLikelihood:
    r"""Log likelihoods by summation, with diagnostics of whether the grid covers the posteriors.

    Shapes
    ------
    log_prob : :math:`(N)`
    border : :math:`(N)`, the share of the posterior in the outermost cells; near 0 if it lies on the grid
    unevenness : :math:`(N)`, how much even and odd cells differ, in shares of the posterior; near 0 if cells
        are smaller than the posterior is wide
    """

    log_prob: Tensor
    border: Tensor
    unevenness: Tensor


@torch.no_grad()
def grid_log_likelihood(
    model: LatentModel,
    batch: Incomplete,
    *,
    bounds: tuple[float, float] = (-10.0, 10.0),
    n_points: int = 500,
    with_mask: bool = False,
    working_bytes: int = WORKING_BYTES,
) -> GridLikelihood:
    r"""Returns the log likelihood of rows under a model of one or two latents, exact up to the grid.

    .. math:: \log p(x_o) = \log \sum_g p(z_g) \prod_{j \in o} p(x_j \mid z_g) + L \log \Delta

    over the middles :math:`z_g` of cells of side :math:`\Delta`. For a smooth decoder the error falls faster
    than any power of :math:`\Delta`, once cells are smaller than the posterior is wide. It warns if
    posteriors lie on the border or between the points.

    Parameters
    ----------
    model : LatentModel
        With one or two latents.
    batch : Incomplete
        Rows (N, D).
    bounds : tuple of float
        Where the grid begins and ends, on each axis.
    n_points : int
        The number of cells along each axis.
    with_mask : bool
        Whether the mask counts; it can if the mask model integrates missing cells out.
    working_bytes : int
        About how much memory to use at once.

    Examples
    --------
    >>> from halfseen.distributions.observation_model import ObservationModel
    >>> from halfseen.nn.residual import ResidualMLP
    >>> observation = ObservationModel.for_pixels(3, "gaussian")
    >>> model = LatentModel(ResidualMLP(6, 2), ResidualMLP(1, 6), observation, 1)
    >>> nothing = Incomplete(torch.full((1, 3), torch.nan), torch.zeros(1, 3, dtype=torch.bool))
    >>> grid_log_likelihood(model, nothing).log_prob.abs() < 1e-6  # no observed values: probability 1
    tensor([True])
    """
    grid = LatentGrid(model.n_latent, bounds, n_points)
    pairs = working_bytes // (8 * 8 * model.observation.n_columns)  # of a point, decoded once, and a row
    points = working_bytes // _bytes_of_latent(model, with_mask=with_mask)
    found = []
    for rows in batch.chunks(max(1, pairs // _MIN_POINTS)) if len(batch) else iter([batch]):
        size = max(1, min(points, pairs // max(1, len(rows))))
        found.append(_sum_over_cells(model, rows, grid, with_mask, size))
    top, sums = (torch.cat(parts, dim=-1) for parts in zip(*found, strict=True))
    shares = (sums[1:] / sums[0]).abs()
    result = GridLikelihood(top + sums[0].log() + grid.log_volume, shares[0], shares[1:].amax(dim=0))
    _warn_of_misfit(result, grid)
    return result


def log_joint(model: LatentModel, batch: Incomplete, z: Tensor, *, with_mask: bool = False) -> Tensor:
    r"""Returns :math:`\log p(x_o, z)` or :math:`\log p(x_o, o, z)` of all rows at latents (G, L): (G, N)."""
    if with_mask and model.mask_term == "sample":
        raise ValueError(
            "The mask model does not integrate missing cells out, so the mask has no exact likelihood on a "
            "grid: use estimate_iwelbo, or with_mask=False."
        )
    dtype = next(model.parameters()).dtype
    zeros = torch.zeros(1, model.n_latent, dtype=dtype)
    prior = GaussianMixture(zeros[:, 0], zeros, torch.ones_like(zeros))
    latents = z.to(dtype)[:, None, None]  # (G, 1, 1, L)
    # Weighed against the prior itself, a latent's log weight is its log likelihood.
    weighted = model.weigh(batch, prior, latents, zeros, mask_weight=float(with_mask))
    log_prior = -0.5 * (z.double().square().sum(dim=-1) + model.n_latent * math.log(2.0 * math.pi))
    return weighted.log_w.squeeze(-1).double().expand(len(z), len(batch)) + log_prior[:, None]


def _sum_over_cells(
    model: LatentModel, rows: Incomplete, grid: LatentGrid, with_mask: bool, size: int
) -> tuple[Tensor, Tensor]:
    """Returns the largest log joint (N), and sums (M, N) of marks over cells in units of its exponential."""
    top = torch.full((len(rows),), -torch.inf, dtype=torch.float64)
    sums = torch.zeros(grid.marks.shape[1], len(rows), dtype=torch.float64)
    for points, marks in zip(grid.points.split(size), grid.marks.split(size), strict=True):
        joint = log_joint(model, rows, points, with_mask=with_mask)  # (G, N)
        higher = torch.maximum(top, joint.amax(dim=0))
        sums = sums * (top - higher).exp() + marks.mT @ (joint - higher).exp()
        top = higher
    return top, sums


def _warn_of_misfit(result: GridLikelihood, grid: LatentGrid) -> None:
    is_outside = result.border > MAX_BORDER
    outside = int(is_outside.sum())
    between = int((~is_outside & (result.unevenness > MAX_UNEVENNESS)).sum())
    if outside:
        warn_user(
            f"The posteriors of {outside} of {len(result.border)} rows reach the border of the grid "
            f"{grid.bounds}; their log likelihood is too low. Widen bounds."
        )
    if between:
        warn_user(
            f"The posteriors of {between} of {len(result.border)} rows are narrower than the cells of the "
            f"grid; their log likelihood is inaccurate. Take more than {grid.n_points} points."
        )


@dataclass(frozen=True)
class BoundEstimate:
    r"""Importance weighted bounds with their standard errors.

    Shapes
    ------
    log_prob : :math:`(N)`, the bounds
    standard_error : :math:`(N)`, by the delta method; infinite for a single draw of each component. It knows
        of the draws that were made only: weights with heavy tails make it too small.
    """

    log_prob: Tensor
    standard_error: Tensor


@torch.no_grad()
def estimate_iwelbo(
    model: LatentModel,
    batch: Incomplete,
    n_draws: int,
    *,
    generator: torch.Generator,
    with_mask: bool = False,
    working_bytes: int = WORKING_BYTES,
) -> BoundEstimate:
    r"""Returns the importance weighted bound of each row, from any number of draws in bounded memory.

    .. math:: \log \sum_k \pi_k \frac1S \sum_{s=1}^S w_{sk} \leq \log p(x_o) \text{ in expectation}

    Draws are stratified, so that each of the :math:`K` components has :math:`S = \lceil n / K \rceil`.

    Parameters
    ----------
    model : LatentModel
        Its own posterior makes the draws, see `refit_encoder`.
    batch : Incomplete
        Rows (N, D).
    n_draws : int
        The number :math:`n` of draws of all components.
    generator : torch.Generator
        Makes the draws.
    with_mask : bool
        Whether the mask counts.
    working_bytes : int
        About how much memory to use at once.

    References
    ----------
    Burda, Grosse & Salakhutdinov (2016), Importance weighted autoencoders.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1, got {n_draws!r}.")
    n_strata = model.n_components
    n_each = math.ceil(n_draws / n_strata)
    at_once = max(1, working_bytes // (n_strata * _bytes_of_latent(model, with_mask=with_mask)))
    n_rows = max(1, at_once // min(n_each, _MIN_POINTS))
    pieces = batch.chunks(n_rows) if len(batch) else iter([batch])
    found = [
        _weigh_rows(model, rows, n_each, max(1, at_once // max(1, len(rows))), generator, with_mask)
        for rows in pieces
    ]
    return BoundEstimate(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _weigh_rows(
    model: LatentModel, rows: Incomplete, n_each: int, size: int, generator: torch.Generator, with_mask: bool
) -> tuple[Tensor, Tensor]:
    """Returns bounds and standard errors (N), from running sums of weights and squares per component."""
    top = torch.full((len(rows),), -torch.inf, dtype=torch.float64)
    sums = squares = torch.zeros(len(rows), model.n_components, dtype=torch.float64)
    for start in range(0, n_each, size):
        objective = LatentObjective.for_model(
            model, sampling="stratified", n_draws=min(size, n_each - start), mask_weight=float(with_mask)
        )
        noise = objective.draw_noise(rows, generator)
        piece = model.log_weights(rows, noise, mask_weight=float(with_mask), exact=True)
        log_w = piece.log_w.double()  # (S, N, K)
        higher = torch.maximum(top, log_w.amax(dim=(0, 2)))
        shrink, w = (top - higher).exp()[:, None], (log_w - higher[:, None]).exp()
        sums, squares = sums * shrink + w.sum(dim=0), squares * shrink.square() + w.square().sum(dim=0)
        top = higher
    strata = piece.log_strata.double().exp()  # (N, K)
    mean = sums / n_each
    total = (strata * mean).sum(dim=1)
    variance = (squares / n_each - mean.square()).clamp(min=0.0)
    error = (strata.square() * variance).sum(dim=1).div(n_each - 1).sqrt() / total
    return top + total.log(), error if n_each > 1 else torch.full_like(error, torch.inf)


def refit_encoder(
    model: LatentModel,
    batch: Incomplete,
    *,
    n_draws: int,
    generator: torch.Generator,
    settings: TrainingSettings = REFIT,
    validation: Incomplete | None = None,
    with_mask: bool = False,
) -> LatentModel:
    r"""Returns a copy of a model whose encoder alone was trained further, on the IWELBO.

    The likelihood is the same function of the rows; the bound on it comes closer, and models whose encoders
    were trained by different bounds can be compared. The fill belongs to the encoder.

    Parameters
    ----------
    model : LatentModel
        Left as it is.
    batch, validation : Incomplete
        The rows to train on, usually those to evaluate; and rows by whose bound to choose the best epoch.
        Without them the last epoch is taken: the bounds of a poor posterior are the noisiest, and among many
        epochs the luckiest would win.
    n_draws : int
        Draws of the posterior, ancestral if it is a mixture.
    generator : torch.Generator
        Of batches and draws.
    settings : TrainingSettings
        How to train; with little patience, a noisy bound ends it too early.
    with_mask : bool
        Whether the bound is on the cells and the mask together.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, appendix E.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1, got {n_draws!r}.")
    copy = deepcopy(model)
    flags = {name: parameter.requires_grad for name, parameter in copy.named_parameters()}
    copy.requires_grad_(False)
    for part in (copy.encoder, copy.fill):
        part.requires_grad_(True)
    # Doubly reparametrised, or many draws would drown the signal of the encoder's gradient.
    objective = LatentObjective.for_model(
        copy, gradient="dreg", n_draws=n_draws, mask_weight=float(with_mask)
    )
    last: dict[str, Tensor] = {}

    def keep(_: Progress) -> None:
        last.update({name: value.clone() for name, value in copy.state_dict().items()})

    fit_module(
        copy, objective, batch, generator=generator, validation=validation, settings=settings, callback=keep
    )
    if validation is None and last:
        copy.load_state_dict(last)
    for name, parameter in copy.named_parameters():
        parameter.requires_grad_(flags[name])
    return copy


def _bytes_of_latent(model: LatentModel, *, with_mask: bool) -> int:
    """Returns about how many bytes one latent takes while it is decoded and weighed."""
    observation = model.observation
    widths = [len(weight) for weight in model.decoder.parameters() if weight.dim() > 1]
    numbers = 3 * max([*widths, 1]) + 4 * observation.n_parameters + 4 * observation.n_features
    if with_mask and model.mask_term == "integrated":
        numbers += 4 * N_NODES * (observation.n_features + observation.n_columns)
    return 8 * numbers
