"""Several imputations of every row, which are kept between updates, and how a model reads them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.base.density import CompleteDataModel
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.mixture import GaussianMixture
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.model import Preimputed

REACH = 1.5
"""How far imputations may lie from the middle of the observed values, in units of half their range."""


@dataclass(frozen=True)
class Limits:
    r"""Limits of the draws of a feature, which keep a sampler stable while the model is being trained.

    Numbers with a density may lie within `REACH` of the middle of the observed values; features are
    standardised, so half the range counts as one unit at least. Columns with probabilities have no limits.

    Shapes
    ------
    low, high : :math:`(D)`
    """

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, batch: Incomplete, observation: ObservationModel) -> "Limits":
        """Measures the observed values of each feature."""
        lowest, highest = batch.filled(torch.inf).amin(dim=0), batch.filled(-torch.inf).amax(dim=0)
        limited = observation.is_density[observation.columns_of_features] & batch.observed.any(dim=0)
        middle, half = (lowest + highest) / 2, ((highest - lowest) / 2).clamp(min=1.0)
        low = torch.where(limited, middle - REACH * half, -torch.inf)
        return cls(low, torch.where(limited, middle + REACH * half, torch.inf))

    def allow(self, drawn: Tensor) -> Tensor:
        """Returns which features (*, D) are finite and within the limits."""
        return (drawn >= self.low) & (drawn <= self.high) & drawn.isfinite()


@dataclass(frozen=True)
class Completions:
    r"""K completed copies of each of N rows, which samplers update.

    All subsets of the data share this memory, see `CompletedRows`. Observed cells never change.

    Shapes
    ------
    x : :math:`(N, K, D)`, changed in place
    observed : :math:`(N, D)`
    visits : :math:`(N)`, how often each row was updated
    z : :math:`(N, K, L)`, the latents that the copies were drawn from, for samplers that need them; NaN
        before the first draw, and without latents (L = 0) for the others

    References
    ----------
    Simkus & Gutmann (2024), algorithm 1; see `MissVAEImputer`.

    Examples
    --------
    >>> x = torch.tensor([[1.0, torch.nan], [2.0, 3.0]])
    >>> batch = Incomplete(x, ~x.isnan())
    >>> observation = ObservationModel.for_pixels(2, "gaussian")
    >>> Completions.start(batch, observation, 2, torch.Generator().manual_seed(0)).x
    tensor([[[1., 3.],
             [1., 3.]],
    <BLANKLINE>
            [[2., 3.],
             [2., 3.]]])
    """

    x: Tensor
    observed: Tensor
    visits: Tensor
    limits: Limits
    z: Tensor

    @classmethod
    def start(
        cls,
        batch: Incomplete,
        observation: ObservationModel,
        n_completions: int,
        generator: torch.Generator,
        donors: Incomplete | None = None,
        n_latent: int = 0,
    ) -> "Completions":
        """Fills missing values with independent draws from the observed values of each column.

        Parameters
        ----------
        batch : Incomplete
            Rows (N, D).
        observation : ObservationModel
            Has the features of each column, and the fillers of columns that were never observed.
        n_completions : int
            The number of copies K.
        generator : torch.Generator
            Chooses the donors.
        donors : Incomplete, optional
            The rows (M, D) whose values are drawn, such as those of training; `batch` if not given.
        n_latent : int
            The number of latents that are kept of each copy.
        """
        if n_completions < 1:
            raise ValueError(f"n_completions must be at least 1, got {n_completions!r}.")
        donors = batch if donors is None else donors
        observed = observation.observed_columns(donors.observed)  # (M, C)
        seen_first = (~observed).to(torch.uint8).argsort(dim=0, stable=True)  # (M, C), rows
        n_seen = observed.sum(dim=0)
        filler = observation.filler().to(batch.x.dtype)
        known = torch.where((n_seen > 0)[observation.columns_of_features], donors.x, filler)
        copies = []
        for _ in range(n_completions):
            uniforms = torch.rand(len(batch), observation.n_columns, generator=generator, dtype=torch.float64)
            rank = (uniforms * n_seen).long().minimum((n_seen - 1).clamp(min=0))
            donor = seen_first.gather(0, rank)[:, observation.columns_of_features]  # (N, D)
            copies.append(torch.where(batch.observed, batch.x, known.gather(0, donor)))
        visits = torch.zeros(len(batch), dtype=torch.long)
        z = batch.x.new_full((len(batch), n_completions, n_latent), torch.nan)
        return cls(torch.stack(copies, dim=1), batch.observed, visits, Limits.of(donors, observation), z)

    @property
    def n_completions(self) -> int:
        """The number of copies K."""
        return self.x.shape[1]

    @torch.no_grad()
    def update(self, index: Tensor, drawn: Tensor, n_skipped: int = 0) -> None:
        """Replaces the missing values of B different rows by new draws (B, K, D), and counts the visit.

        Draws beyond the limits are discarded, and so are those of the first `n_skipped` visits.
        """
        old = self.x[index]
        due = self.visits[index] >= n_skipped
        taken = ~self.observed[index].unsqueeze(1) & due[:, None, None] & self.limits.allow(drawn)
        self.x[index] = torch.where(taken, drawn, old)
        self.visits[index] += 1


@dataclass(frozen=True)
class CompletedRows:
    """Incomplete rows with the positions of their completions, so that an objective can update these.

    Parameters
    ----------
    batch : Incomplete
        Rows (N, D).
    completions : Completions
        Of all rows.
    index : Tensor
        The position (N) of each row among the completions.
    held_out : bool
        Whether the rows are for evaluation: their completions are then read and never changed.

    Examples
    --------
    >>> batch = Incomplete(torch.zeros(3, 2), torch.ones(3, 2).bool())
    >>> observation = ObservationModel.for_pixels(2, "gaussian")
    >>> completions = Completions.start(batch, observation, 5, torch.Generator().manual_seed(0))
    >>> CompletedRows.of(batch, completions)[1:].completed.shape
    torch.Size([2, 5, 2])
    """

    batch: Incomplete
    completions: Completions
    index: Tensor
    held_out: bool = False

    @classmethod
    def of(cls, batch: Incomplete, completions: Completions, *, held_out: bool = False) -> "CompletedRows":
        """Joins all rows with their completions."""
        if batch.x.shape != completions.observed.shape:
            shapes = f"{tuple(batch.x.shape)} and {tuple(completions.observed.shape)}"
            raise ValueError(f"batch and completions must be of the same rows, got {shapes}.")
        return cls(batch, completions, torch.arange(len(batch)), held_out)

    @property
    def completed(self) -> Tensor:
        """The completions (N, K, D) as they are now, copied."""
        return self.completions.x[self.index].to(self.batch.x.device)

    @property
    def latents(self) -> Tensor:
        """The latents (N, K, L) of the completions as they are now, copied."""
        return self.completions.z[self.index].to(self.batch.x.device)

    def allowed(self, drawn: Tensor) -> Tensor:
        """Returns which features (N, K, D) of draws may take the place of the completions."""
        limits = self.completions.limits
        return Limits(limits.low.to(drawn.device), limits.high.to(drawn.device)).allow(drawn)

    def update(self, drawn: Tensor, z: Tensor, n_skipped: int) -> None:
        """Replaces the completions by draws (N, K, D) of latents (N, K, L), as `Completions.update` does."""
        self.completions.update(self.index, drawn.to(self.completions.x.device), n_skipped)
        self.completions.z[self.index] = z.to(self.completions.z.device)

    def moved(self, move: Callable[[Tensor], Tensor]) -> "CompletedRows":
        """Returns the rows on another device; the completions of all rows stay where they are."""
        batch = Incomplete(move(self.batch.x), move(self.batch.observed))
        return CompletedRows(batch, self.completions, self.index, self.held_out)

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, rows: slice | Tensor) -> "CompletedRows":
        return CompletedRows(self.batch[rows], self.completions, self.index[rows], self.held_out)


def posterior_of(model: CompleteDataModel, completed: Tensor) -> GaussianMixture:
    r"""Returns the posterior :math:`q(z \mid x_o, x_m)` of completed rows (*, D), one Gaussian each.

    All cells count as observed, because the posterior given the complete row does not depend on which cells
    were imputed.
    """
    observed = torch.ones_like(completed, dtype=torch.bool)
    posterior = model.posterior(Preimputed(completed, observed, preimputation=completed))
    if posterior.n_components != 1:
        raise ValueError(
            f"The posterior of a completed row must be a single Gaussian, got {posterior.n_components}."
        )
    return posterior
