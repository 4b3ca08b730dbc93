"""Diagnostics of latent-variable models: noise of gradients, use of components, posteriors on a grid."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.errors import warn_user
from halfseen.latent.bounds import LatentObjective
from halfseen.latent.model import LatentModel
from halfseen.training.step import Objective
from papers.missvae.latent_likelihood import MAX_BORDER, LatentGrid, log_joint

IN_USE = 0.2
"""A component is in use in a row if its weight is above this share of an even one."""

PARTS = {
    "encoder": "encoder",
    "fill": "encoder",
    "decoder": "decoder",
    "observation": "decoder",
    "mask_model": "mask_model",
}
"""Which parts of a model are counted together."""


@dataclass(frozen=True)
class GradientQuality:
    r"""The signal and the noise of the gradient of some parameters.

    Parameters
    ----------
    snr : float
        :math:`\sum_i |\bar g_i| / s_i`, without those that are not finite.
    variance : float
        :math:`\sum_i s_i^2`.
    n_parameters, n_dropped : int
        How many parameters there are, and how many of them have a ratio that is not finite: their gradient
        never changes.
    """

    snr: float
    variance: float
    n_parameters: int
    n_dropped: int


def gradient_snr(
    model: LatentModel,
    objective: Objective[LatentModel, Incomplete],
    rows: Incomplete,
    *,
    n_steps: int,
    batch_size: int,
    generator: torch.Generator,
) -> dict[str, GradientQuality]:
    r"""Returns the signal-to-noise ratio of gradients, separately for encoder, decoder and mask model.

    .. math:: \mathrm{SNR} = \sum_i \frac{|\bar g_i|}{s_i}, \qquad
              s_i^2 = \frac{1}{T - 1} \sum_{t=1}^T (g_{ti} - \bar g_i)^2

    over :math:`T` steps that leave the parameters as they are. The fill counts as encoder, the likelihood's
    own parameters as decoder.

    Parameters
    ----------
    model : LatentModel
        Left as it is; parameters that do not require a gradient are left out.
    objective : Objective
        The loss.
    rows : Incomplete
        The training rows.
    n_steps : int
        :math:`T`, at least 2.
    batch_size : int
        Rows of a step, drawn without replacement; all of them, in order, if there are not more.
    generator : torch.Generator
        Chooses rows and makes noise.

    References
    ----------
    Rainforth et al. (2018), Tighter variational bounds are not necessarily better. Simkus & Gutmann (2024),
    Improving variational autoencoder estimation from incomplete data with mixture variational families, for
    the sum over parameters.
    """
    if n_steps < 2 or batch_size < 1:
        raise ValueError(f"Needs 2 steps of 1 row or more, got {n_steps} and {batch_size}.")
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    mean = [torch.zeros_like(value, dtype=torch.float64) for value in named.values()]
    squares = [torch.zeros_like(one) for one in mean]
    for step in range(1, n_steps + 1):
        batch = rows
        if batch_size < len(rows):
            batch = rows[torch.randperm(len(rows), generator=generator)[:batch_size]]
        loss = objective(model, batch, objective.draw_noise(batch, generator)).mean()
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
        for position, gradient in enumerate(gradients):
            # Welford's recursion: gradients that never change have a spread of exactly zero.
            before = gradient.double() - mean[position]
            mean[position] += before / step
            squares[position] += before * (gradient.double() - mean[position])
    variance = [one / (n_steps - 1) for one in squares]
    return _by_part(list(named), mean, variance)


def _by_part(names: list[str], mean: list[Tensor], variance: list[Tensor]) -> dict[str, GradientQuality]:
    owners = [PARTS[name.split(".")[0]] for name in names]
    result = {}
    for part in dict.fromkeys(owners):
        chosen = [position for position, owner in enumerate(owners) if owner == part]
        spread = torch.cat([variance[position].flatten() for position in chosen])
        ratio = torch.cat([mean[position].flatten() for position in chosen]).abs() / spread.sqrt()
        kept = ratio[ratio.isfinite()]
        n_dropped = len(ratio) - len(kept)
        result[part] = GradientQuality(float(kept.sum()), float(spread.sum()), len(ratio), n_dropped)
    return result


@dataclass(frozen=True)
class MixtureUsage:
    r"""The use of the components of posteriors, over rows with observed cells.

    Shapes
    ------
    mean_weights : :math:`(K)`
    weight_spread : :math:`(K)`, the standard deviation over rows; near zero if weights ignore the row
    in_use : :math:`(K)`, the share of rows in which the weight is above :math:`0.2 / K`
    components_per_row : :math:`(K + 1)`, the share of rows with 0, 1, ..., K components in use
    distances : :math:`(K, K)`, how far apart components are on average, in pooled standard deviations; near
        zero if they are copies of each other, whatever their weights
    n_dead : int
        How many components are in use in no row.
    """

    mean_weights: Tensor
    weight_spread: Tensor
    in_use: Tensor
    components_per_row: Tensor
    distances: Tensor
    n_dead: int


@torch.no_grad()
def mixture_usage(model: LatentModel, batch: Incomplete) -> MixtureUsage:
    r"""Returns whether the posterior's components are alive, differ, and depend on the row.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families.
    """
    rows = batch[batch.observed.any(dim=1)]
    if len(rows) == 0:
        raise ValueError("No row has an observed value, so there are no posteriors to examine.")
    posterior = model.posterior(rows)
    weights = posterior.log_weights.exp().double()  # (N, K)
    in_use = weights > IN_USE / posterior.n_components
    per_row = torch.bincount(in_use.sum(dim=1), minlength=posterior.n_components + 1)
    return MixtureUsage(
        mean_weights=weights.mean(dim=0),
        weight_spread=weights.std(dim=0, correction=0),
        in_use=in_use.double().mean(dim=0),
        components_per_row=per_row.double() / len(rows),
        distances=posterior.component_distances().double().mean(dim=0),
        n_dead=int((~in_use.any(dim=0)).sum()),
    )


@dataclass(frozen=True)
class Divergences:
    r"""How far :math:`q` is from :math:`p`, in nats: Kullback-Leibler both ways, and Jensen-Shannon."""

    kl_qp: float
    kl_pq: float
    jsd: float

    @classmethod
    def between(cls, log_q: Tensor, log_p: Tensor) -> "Divergences":
        """Sums over cells, of which the log probabilities (G) are given.

        Examples
        --------
        >>> even, sure = torch.tensor([0.5, 0.5]).log(), torch.tensor([1.0, 0.0]).log()
        >>> found = Divergences.between(sure, even)
        >>> round(found.kl_qp, 4), found.kl_pq, round(found.jsd, 4)
        (0.6931, inf, 0.2158)
        """

        def kl(log_a: Tensor, log_b: Tensor) -> float:
            terms = log_a.exp() * (log_a - log_b)
            return max(0.0, float(torch.where(log_a == -torch.inf, 0.0, terms).sum()))

        log_middle = torch.logaddexp(log_q, log_p) - math.log(2.0)
        jsd = 0.5 * (kl(log_q, log_middle) + kl(log_p, log_middle))
        return cls(kl(log_q, log_p), kl(log_p, log_q), jsd)


@dataclass(frozen=True)
class PosteriorGrid:
    r"""The posterior of a row, and its approximation by the model, as probabilities of cells.

    Parameters
    ----------
    grid : LatentGrid
        The cells.
    log_p : Tensor
        Of the true posterior :math:`p(z \mid x_o)` of the model, (G).
    log_q : Tensor
        Of the encoder's :math:`q(z \mid x_o)`.
    log_q_weighted : Tensor
        Of a draw that was resampled from some of :math:`q` by importance: what an IWELBO fits.
    encoder, weighted : Divergences
        From :math:`p`, of `log_q` and of `log_q_weighted`.
    border : tuple of float
        Shares of :math:`p` and :math:`q` in the outermost cells.
    """

    grid: LatentGrid
    log_p: Tensor
    log_q: Tensor
    log_q_weighted: Tensor
    encoder: Divergences
    weighted: Divergences
    border: tuple[float, float]


@torch.no_grad()
def posterior_on_grid(
    model: LatentModel,
    row: Incomplete,
    *,
    generator: torch.Generator,
    bounds: tuple[float, float] = (-5.0, 5.0),
    n_points: int = 200,
    n_draws: int = 5,
    n_repeats: int = 200,
    with_mask: bool = False,
) -> PosteriorGrid:
    r"""Returns the posterior of one row beside the encoder's, for models of one or two latents.

    A draw that is resampled from :math:`n` by importance has the density

    .. math:: q_\mathrm{IW}(z) = \mathrm{E}_{z_2, \dots, z_n \sim q} \left[ \frac{p(x_o, z)}
              {\frac1n \bigl(w(z) + \sum_{i=2}^n w(z_i)\bigr)} \right], \qquad w(z) = \frac{p(x_o, z)}{q(z)}

    of which the expectation is an average over repeats. All three are normalised on the grid; it warns if
    the grid does not hold them.

    Parameters
    ----------
    model : LatentModel
        With one or two latents.
    row : Incomplete
        One row (1, D).
    generator : torch.Generator
        Of the draws.
    bounds, n_points : tuple of float, int
        The grid, see `LatentGrid`.
    n_draws, n_repeats : int
        :math:`n`, as in the bound of training, and over how many sets of draws to average.
    with_mask : bool
        Whether the posterior is given the mask too: :math:`p(z \mid x_o, o)`.

    References
    ----------
    Cremer, Morris & Duvenaud (2017), Reinterpreting importance-weighted autoencoders, eq. 8.
    """
    if len(row) != 1 or n_draws < 1 or n_repeats < 1:
        raise ValueError(
            f"Needs one row, one draw and one repeat, or more draws and repeats; got {len(row)} rows, "
            f"{n_draws} draws, {n_repeats} repeats."
        )
    grid = LatentGrid(model.n_latent, bounds, n_points)
    posterior = model.posterior(row)
    joint = log_joint(model, row, grid.points, with_mask=with_mask)[:, 0]  # (G)
    log_q = posterior.log_prob(grid.points.to(posterior.loc.dtype)[:, None])[:, 0].double()
    others = _log_sum_of_others(model, row, n_draws, n_repeats, generator, with_mask)  # (R)
    blended = torch.full_like(joint, -torch.inf)
    for other in others:
        blended = torch.logaddexp(blended, joint - torch.logaddexp(joint - log_q, other))
    log_p, log_q, blended = (one.log_softmax(dim=0) for one in (joint, log_q, blended))
    border = float(log_p.exp()[grid.on_border].sum()), float(log_q.exp()[grid.on_border].sum())
    if max(border) > MAX_BORDER:
        warn_user(f"The posterior reaches the border of the grid {bounds}. Widen bounds.")
    encoder, weighted = Divergences.between(log_q, log_p), Divergences.between(blended, log_p)
    return PosteriorGrid(grid, log_p, log_q, blended, encoder, weighted, border)


def _log_sum_of_others(
    model: LatentModel,
    row: Incomplete,
    n_draws: int,
    n_repeats: int,
    generator: torch.Generator,
    with_mask: bool,
) -> Tensor:
    """Returns the log of sums (R) of the weights of all draws but one."""
    if n_draws == 1:
        return torch.full((n_repeats,), -torch.inf, dtype=torch.float64)
    objective = LatentObjective.for_model(
        model, sampling="ancestral", n_draws=n_repeats * (n_draws - 1), mask_weight=float(with_mask)
    )
    noise = objective.draw_noise(row, generator)
    log_w = model.log_weights(row, noise, mask_weight=float(with_mask), exact=True).log_w
    return log_w.double().view(n_repeats, n_draws - 1).logsumexp(dim=1)
