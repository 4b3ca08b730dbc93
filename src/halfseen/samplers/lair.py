r"""Latent-adaptive importance resampling: chains of a row that learn from each other where latents are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import normals
from halfseen.distributions.mixture import GaussianMixture
from halfseen.models.latent.completions import Limits, posterior_of
from halfseen.models.protocols import CompleteDataModel
from halfseen.nn.mask_models import MaskModel
from halfseen.objectives.decomposed import choose, log_standard_normal
from halfseen.samplers.gibbs import ChainNoise

CANDIDATES, INDEX, CELLS, LAST_INDEX, LAST_CELLS = range(
    16, 21
)  # purposes of noise, apart from other chains'


@dataclass(frozen=True)
class Round:
    r"""The A candidates of each row.

    Shapes
    ------
    log_w : :math:`(N, A)`; the mean of the weights estimates :math:`p(x_o)`, or :math:`p(x_o, o)`
    kept : :math:`(N, A, P)`, parameters of cells; with a mask model :math:`(N, A, D)`, completed rows
    """

    log_w: Tensor
    kept: Tensor

    @classmethod
    def pool(cls, rounds: Sequence["Round"]) -> "Round":
        """Joins the candidates of several iterations."""
        log_w, kept = ([getattr(found, name) for found in rounds] for name in ("log_w", "kept"))
        return cls(torch.cat(log_w, dim=1), torch.cat(kept, dim=1))


@dataclass(frozen=True)
class LairSampler:
    r"""Draws missing cells by resampling latents that K completions of a row propose together.

    Each iteration draws one latent from every :math:`q(z \mid x_o, x_m^k)` and R latents from the prior,
    gives all of them the weights

    .. math:: w(z) = \frac{p(x_o, z)}{\frac{1}{K + R} \bigl(\sum_{k=1}^K q(z \mid x_o, x_m^k) + R \, p(z)
              \bigr)},

    chooses K by these weights, and draws :math:`x_m \sim p(x_m \mid z)` for each. The draws approach those of
    :math:`p(x_m \mid x_o)` as K grows. In the end the latents of all iterations may be resampled once more.

    Parameters
    ----------
    model : CompleteDataModel
        Trained.
    n_steps : int
        Iterations.
    n_prior : int
        Latents R of the prior in each.
    final_resample : bool
        Whether the result is chosen among the latents of all iterations.
    mask_model : MaskModel, optional
        The probability of masks, given complete rows. Cells are then drawn with every candidate, and the
        weights times :math:`p(o \mid x)`.
    limits : Limits, optional
        Cells stay where they are rather than go beyond.

    References
    ----------
    Simkus & Gutmann (2023), Conditional sampling of variational autoencoders via iterated approximate
    ancestral sampling, algorithm 3. The mask's part is ours.

    Examples
    --------
    >>> from halfseen.distributions.observation import Observation
    >>> from halfseen.models.latent.model import LatentModel
    >>> from halfseen.nn.residual import ResidualMLP
    >>> from halfseen.samplers.gibbs import GeneratorNoise
    >>> model = LatentModel(ResidualMLP(6, 4), ResidualMLP(2, 6), Observation.for_pixels(3, "gaussian"), 2)
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan, 0.5]]), torch.tensor([[True, False, True]]))
    >>> start = torch.tensor([[[1.0, 0.0, 0.5]]]).expand(1, 4, 3)
    >>> noise = GeneratorNoise(1, torch.Generator().manual_seed(0), torch.float32)
    >>> LairSampler(model, n_steps=5, n_prior=1).run(batch, start, noise).shape
    torch.Size([1, 4, 3])
    """

    model: CompleteDataModel
    n_steps: int = 10
    n_prior: int = 1
    final_resample: bool = False
    mask_model: MaskModel | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if self.n_steps < 1 or self.n_prior < 0:
            raise ValueError(
                f"n_steps must be at least 1 and n_prior at least 0, got {self.n_steps} and {self.n_prior}."
            )

    @torch.no_grad()
    def run(self, batch: Incomplete, start: Tensor, noise: ChainNoise) -> Tensor:
        """Returns completions (N, K, D) after all iterations from those of `start`."""
        x = torch.where(batch.observed.unsqueeze(1), batch.x.unsqueeze(1), start)
        rounds = []
        for step in range(self.n_steps):
            found = self.candidates(batch, x, noise, step)
            x = self._resampled(batch, x, found, noise, step)
            if self.final_resample:
                rounds.append(found)
        if not self.final_resample:
            return x
        return self._resampled(batch, x, Round.pool(rounds), noise, self.n_steps)

    @torch.no_grad()
    def candidates(self, batch: Incomplete, x: Tensor, noise: ChainNoise, step: int) -> Round:
        """Returns K + R candidates of each row with their weights."""
        n_candidates = x.shape[1] + self.n_prior
        mixture = self._proposals(x)
        uniforms = noise.uniforms(step, CANDIDATES, n_candidates, self.model.n_latent)
        e = normals(uniforms, x.dtype)  # (N, K + R, L)
        n_chains = x.shape[1]
        moved = mixture.loc[:, :n_chains] + mixture.scale[:, :n_chains] * e[:, :n_chains]
        z = torch.cat([moved, e[:, n_chains:]], dim=1)

        parameters = self.model.decoder(z)  # (N, K + R, P)
        observation = self.model.observation
        seen = observation.seen_columns(batch.observed).unsqueeze(-2)  # (N, 1, C)
        terms = observation.log_prob(parameters, batch.filled(observation.filler()).unsqueeze(-2))
        log_q = mixture.log_prob(z.movedim(1, 0)).movedim(0, 1)
        log_w = torch.where(seen, terms, 0.0).sum(dim=-1) + log_standard_normal(z) - log_q
        if self.mask_model is None or self.mask_model.is_ignorable:
            return Round(log_w, parameters)
        cells = observation.sample(parameters, noise.uniforms(step, CELLS, n_candidates, observation.n_noise))
        rows = torch.where(batch.observed.unsqueeze(1), batch.x.unsqueeze(1), cells)
        return Round(log_w + self.mask_model.log_prob(rows, seen), rows)

    def _proposals(self, x: Tensor) -> GaussianMixture:
        """Returns the mixture of the posteriors of K completions and, as one component, R times the prior."""
        posterior = posterior_of(self.model, x)
        loc, scale = posterior.loc.squeeze(-2), posterior.scale.squeeze(-2)
        logits = loc.new_zeros(loc.shape[:-1])
        if self.n_prior:
            loc = torch.cat([loc, torch.zeros_like(loc[:, :1])], dim=1)
            scale = torch.cat([scale, torch.ones_like(scale[:, :1])], dim=1)
            logits = torch.cat([logits, torch.full_like(logits[:, :1], math.log(self.n_prior))], dim=1)
        return GaussianMixture(logits, loc, scale)

    def _resampled(self, batch: Incomplete, x: Tensor, found: Round, noise: ChainNoise, step: int) -> Tensor:
        """Returns completions (N, K, D) of candidates chosen by their weights."""
        n_chains, observation = x.shape[1], self.model.observation
        index = choose(found.log_w, noise.uniforms(step, INDEX, n_chains, 1).squeeze(-1))
        drawn = found.kept.take_along_dim(index.unsqueeze(-1), dim=1)
        if self.mask_model is None or self.mask_model.is_ignorable:
            cells = noise.uniforms(step, CELLS, n_chains, observation.n_noise)
            drawn = observation.sample(drawn, cells)
        taken = ~batch.observed.unsqueeze(1) & drawn.isfinite()
        if self.limits is not None:
            taken = taken & self.limits.allow(drawn)
        return torch.where(taken, drawn, x)
