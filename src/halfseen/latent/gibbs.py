r"""Markov chains over missing cells, for models with a posterior given complete rows."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from halfseen._random import Keys, row_uniforms
from halfseen.base.density import CompleteDataModel
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.leaves import normals
from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.completions import Limits, posterior_of
from halfseen.latent.decomposed import log_standard_normal
from halfseen.latent.importance import ImportanceSampler
from halfseen.latent.mask_models import MaskModel
from halfseen.latent.model import LatentModel
from halfseen.latent.self_masking import modelled_columns

Kernel = Literal["pseudo-gibbs", "mwg", "ac-mwg"]

LATENTS, ACCEPT, CELLS, MASK, PAST, START = range(6)
"""The purposes of noise, which are kept apart."""

FIRST_STREAM = 1024

Uniforms = Callable[[int, int, int, int], Tensor]
"""Where chains get their noise from: from a step, a purpose, K chains and V values to uniforms (N, K, V)."""


def uniforms_of_rows(keys: Keys, dtype: torch.dtype = torch.float64) -> Uniforms:
    """Returns noise determined by the rows, so that the chains of a row do not depend on other rows.

    Streams below `FIRST_STREAM` are reserved for other draws by the same keys.
    """

    def uniforms(step: int, purpose: int, n_chains: int, n_values: int) -> Tensor:
        flat = row_uniforms(keys, step, n_chains * n_values, stream=FIRST_STREAM + purpose)
        return torch.from_numpy(flat).to(dtype).view(-1, n_chains, n_values)

    return uniforms


@dataclass(frozen=True)
class ChainState:
    r"""The current state of K chains of each row.

    Shapes
    ------
    x : :math:`(N, K, D)`, completed rows
    z : :math:`(N, K, L)`
    parameters : :math:`(N, K, P)`, the decoder's output for cells given :math:`z`
    """

    x: Tensor
    z: Tensor
    parameters: Tensor


@dataclass(frozen=True)
class _Past:
    """Completions (T, N, K, D) of each chain, and how many (N, K) of them its proposals may use."""

    x: Tensor
    available: Tensor


@dataclass(frozen=True)
class GibbsSampler:
    r"""Draws missing cells by chains that alternate between latents and cells.

    *Pseudo-Gibbs* draws :math:`z \sim q(z \mid x_o, x_m)` and :math:`x_m \sim p(x_m \mid z)`; it is exact if
    the posterior is. *Metropolis within Gibbs* takes the first draw as a proposal :math:`z'`, accepted with
    probability

    .. math:: \min\Bigl(1, \frac{p(x, z') \, q(z \mid x)}{p(x, z) \, q(z' \mid x)}\Bigr),

    which is exact for any posterior but may reject proposals for long. *Adaptive collapsed Metropolis within
    Gibbs* leaves missing cells out of the target, :math:`p(x_o, z)` instead of :math:`p(x, z)`, and proposes
    from :math:`(1 - \epsilon) \, q(z' \mid x_o, \tilde x_m) + \epsilon \, p(z')`, where :math:`\tilde x_m` is
    a completion of the chain before it accepted its current latent; all of them are kept in memory.

    If the mask is informative about missing cells, a draw of them is accepted with probability :math:`\min(1,
    p(o \mid x') / p(o \mid x))`; column by column if each column is self-masking.

    Parameters
    ----------
    model : CompleteDataModel
        Trained.
    kernel : {"mwg", "pseudo-gibbs", "ac-mwg"}
        The kind of chain.
    n_steps : int
        The length of the chains.
    n_warm_up : int
        Steps of pseudo-Gibbs before.
    prior_share : float
        The share :math:`\epsilon` of the prior in proposals of ``"ac-mwg"``.
    mask_model : MaskModel, optional
        The probability of masks, given complete rows; not for ``"ac-mwg"``.
    limits : Limits, optional
        Cells are not moved beyond these limits; the chains are then those of the truncated model.

    References
    ----------
    Rezende, Mohamed & Wierstra (2014), Stochastic backpropagation and approximate inference in deep
    generative models (pseudo-Gibbs). Mattei & Frellsen (2018), Leveraging the exact likelihood of deep
    latent variable models (Metropolis within Gibbs). Simkus & Gutmann (2023), Conditional sampling of
    variational autoencoders via iterated approximate ancestral sampling (adaptive collapsed).

    Examples
    --------
    >>> from halfseen._random import row_keys
    >>> from halfseen.distributions.observation_model import ObservationModel
    >>> from halfseen.latent.model import LatentModel
    >>> from halfseen.nn.residual import ResidualMLP
    >>> observation = ObservationModel.for_pixels(3, "gaussian")
    >>> model = LatentModel(ResidualMLP(6, 4), ResidualMLP(2, 6), observation, 2)
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan, 0.5]]), torch.tensor([[True, False, True]]))
    >>> start = torch.tensor([[[1.0, 0.0, 0.5]]]).expand(1, 4, 3)  # four chains
    >>> noise = uniforms_of_rows(row_keys(batch.to_array(), seed=0), torch.float32)
    >>> GibbsSampler(model, n_steps=5).run(batch, start, noise).shape
    torch.Size([1, 4, 3])
    """

    model: CompleteDataModel
    kernel: Kernel = "mwg"
    n_steps: int = 100
    n_warm_up: int = 10
    prior_share: float = 0.05
    mask_model: MaskModel | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if self.kernel not in ("mwg", "pseudo-gibbs", "ac-mwg"):
            raise ValueError(f"kernel must be 'mwg', 'pseudo-gibbs' or 'ac-mwg', got {self.kernel!r}.")
        if self.n_steps < 0 or self.n_warm_up < 0:
            raise ValueError(
                f"n_steps and n_warm_up must not be negative, got {self.n_steps} and {self.n_warm_up}."
            )
        if not 0.0 <= self.prior_share <= 1.0:
            raise ValueError(f"prior_share must be from 0 to 1, got {self.prior_share!r}.")
        if self.kernel == "ac-mwg" and not self._is_ignorable:
            raise ValueError("kernel='ac-mwg' leaves missing cells out, so it cannot have a mask model.")

    def run(self, batch: Incomplete, start: Tensor, noise: Uniforms, z: Tensor | None = None) -> Tensor:
        """Returns the last completions (N, K, D) of chains; see `states`."""
        return deque(self.states(batch, start, noise, z), maxlen=1)[0].x

    @torch.no_grad()
    def states(
        self, batch: Incomplete, start: Tensor, noise: Uniforms, z: Tensor | None = None
    ) -> Iterator[ChainState]:
        """Yields the initial states of the chains, and the states after each step beyond the warm-up.

        Parameters
        ----------
        batch : Incomplete
            Rows (N, D).
        start : Tensor
            Completed rows (N, K, D); their cells are read where those of `batch` are missing.
        noise : Uniforms
            Of these rows.
        z : Tensor, optional
            Latents (N, K, L) to begin with; drawn from the posterior if not given.
        """
        x = torch.where(batch.observed.unsqueeze(1), batch.x.unsqueeze(1), start)
        if z is None:
            z = _draw(posterior_of(self.model, x), self._normals(noise, 0, START, x))
        state = ChainState(x, z, self.model.decoder(z))
        for step in range(self.n_warm_up):
            state = self._pseudo_gibbs(batch, state, noise, step)
        yield state
        past = _Past(state.x.new_empty(0), state.x.new_empty(0))
        if self.kernel == "ac-mwg":
            history = state.x.new_empty(self.n_steps + 1, *state.x.shape)
            history[0] = state.x
            past = _Past(history, torch.ones(state.x.shape[:2], dtype=torch.long))
        for step in range(self.n_warm_up, self.n_warm_up + self.n_steps):
            if self.kernel == "pseudo-gibbs":
                state = self._pseudo_gibbs(batch, state, noise, step)
            elif self.kernel == "mwg":
                state = self._metropolis(batch, state, noise, step)
            else:
                state, past = self._collapsed(batch, state, past, noise, step)
            yield state

    def _pseudo_gibbs(self, batch: Incomplete, state: ChainState, noise: Uniforms, step: int) -> ChainState:
        z = _draw(posterior_of(self.model, state.x), self._normals(noise, step, LATENTS, state.x))
        parameters = self.model.decoder(z)
        return ChainState(self._draw_cells(batch, state.x, parameters, noise, step), z, parameters)

    def _metropolis(self, batch: Incomplete, state: ChainState, noise: Uniforms, step: int) -> ChainState:
        posterior = posterior_of(self.model, state.x)
        proposal = _draw(posterior, self._normals(noise, step, LATENTS, state.x))
        both = torch.stack([state.z, proposal])  # (2, N, K, L)
        decoded = torch.stack([state.parameters, self.model.decoder(proposal)])
        log_p = self.model.observation.log_prob(decoded, state.x).sum(dim=-1)
        log_w = log_p + log_standard_normal(both) - posterior.log_prob(both)  # (2, N, K)
        accepted = _accepted(log_w[1] - log_w[0], noise, step, ACCEPT).unsqueeze(-1)
        z, parameters = (torch.where(accepted, part[1], part[0]) for part in (both, decoded))
        return ChainState(self._draw_cells(batch, state.x, parameters, noise, step), z, parameters)

    def _collapsed(
        self, batch: Incomplete, state: ChainState, past: _Past, noise: Uniforms, step: int
    ) -> tuple[ChainState, _Past]:
        n_chains = state.x.shape[1]
        which, side = noise(step, PAST, n_chains, 2).unbind(dim=-1)
        index = (which * past.available).long().minimum(past.available - 1)
        posterior = posterior_of(self.model, past.x.take_along_dim(index[None, ..., None], dim=0)[0])
        e = self._normals(noise, step, LATENTS, state.x)
        proposal = torch.where((side < self.prior_share).unsqueeze(-1), e, _draw(posterior, e))

        both = torch.stack([state.z, proposal])  # (2, N, K, L)
        decoded = torch.stack([state.parameters, self.model.decoder(proposal)])
        observed = self.model.observation.observed_columns(batch.observed).unsqueeze(-2)
        terms = self.model.observation.log_prob(decoded, state.x)
        share, log_prior = state.x.new_tensor(self.prior_share), log_standard_normal(both)
        log_q = torch.logaddexp((1 - share).log() + posterior.log_prob(both), share.log() + log_prior)
        log_w = torch.where(observed, terms, 0.0).sum(dim=-1) + log_prior - log_q  # (2, N, K)
        accepted = _accepted(log_w[1] - log_w[0], noise, step, ACCEPT)
        z, parameters = (torch.where(accepted.unsqueeze(-1), p[1], p[0]) for p in (both, decoded))

        x = self._draw_cells(batch, state.x, parameters, noise, step)
        taken = step - self.n_warm_up + 1
        past.x[taken] = x
        # Cells drawn from a latent may serve as proposals only after that latent was replaced.
        available = torch.where(accepted, taken, past.available)
        return ChainState(x, z, parameters), replace(past, available=available)

    def _normals(self, noise: Uniforms, step: int, purpose: int, x: Tensor) -> Tensor:
        return normals(noise(step, purpose, x.shape[1], self.model.n_latent), x.dtype)

    def _draw_cells(
        self, batch: Incomplete, x: Tensor, parameters: Tensor, noise: Uniforms, step: int
    ) -> Tensor:
        """Returns completions (N, K, D) after a draw of the missing cells, where it is taken."""
        observation = self.model.observation
        drawn = observation.sample(parameters, noise(step, CELLS, x.shape[1], observation.n_noise))
        taken = ~batch.observed.unsqueeze(1) & drawn.isfinite()
        if self.limits is not None:
            taken = taken & self.limits.allow(drawn)
        proposal = torch.where(taken, drawn, x)
        if self.mask_model is None or self._is_ignorable:
            return proposal
        observed = observation.observed_columns(batch.observed).unsqueeze(-2)  # (N, 1, C)
        ratio = log_mask(self.mask_model, proposal, observed) - log_mask(
            self.mask_model, x, observed
        )  # (N, K, C or 1)
        accepted = ratio.exp() > noise(step, MASK, x.shape[1], ratio.shape[-1])
        if ratio.shape[-1] > 1:
            accepted = accepted[..., observation.columns_of_features]
        return torch.where(accepted, proposal, x)

    @property
    def _is_ignorable(self) -> bool:
        return self.mask_model is None or self.mask_model.is_ignorable


def log_mask(mask_model: MaskModel, x: Tensor, observed: Tensor) -> Tensor:
    """Returns the log probability of masks: (*, C) by columns if each is self-masking, else (*, 1) of all."""
    if not mask_model.is_self_masking:
        return mask_model.log_prob(x, observed).unsqueeze(-1)
    logits = mask_model.logits(x)
    terms = functional.logsigmoid(torch.where(observed, logits, -logits))
    return torch.where(modelled_columns(mask_model), terms, 0.0)


def _draw(posterior: GaussianMixture, e: Tensor) -> Tensor:
    """Returns latents (N, K, L) of as many single Gaussians, from normals."""
    return posterior.stratified(e.unsqueeze(-2)).squeeze(-2)


def _accepted(log_ratio: Tensor, noise: Uniforms, step: int, purpose: int) -> Tensor:
    """Returns which proposals (N, K) are accepted; never one whose ratio is not a number."""
    uniforms = noise(step, purpose, log_ratio.shape[1], 1).squeeze(-1)
    return log_ratio.exp() > uniforms


@dataclass(frozen=True)
class ChainedSampler:
    r"""Updates draws of importance resampling by Markov chains, by default Metropolis within Gibbs.

    If few importance weights dominate, resampling repeats the same draws. Each step of a chain proposes
    :math:`z' \sim q(z \mid x_o, x_m)` given the completed row, and then redraws the missing cells. This
    leaves the distribution of the model invariant (pseudo-Gibbs does so only approximately). Expectations,
    quantiles and bounds are those of importance sampling.

    Parameters
    ----------
    importance : ImportanceSampler
        The sampler from which chains start; its model must have a posterior with one component.
    n_steps : int
        The length of the chains.
    kernel : {"mwg", "pseudo-gibbs", "ac-mwg"}
        The transitions of the chains, see `GibbsSampler`.
    """

    importance: ImportanceSampler
    n_steps: int
    kernel: Kernel = "mwg"

    @property
    def model(self) -> LatentModel:
        """The trained model."""
        return self.importance.model

    def mean(self, batch: Incomplete) -> Tensor:
        """Returns rows (N, D) with expected features."""
        return self.importance.mean(batch)

    def quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric)."""
        return self.importance.quantiles(batch, probabilities)

    def mean_and_quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both, from latents that are decoded once."""
        return self.importance.mean_and_quantiles(batch, probabilities)

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns a bound of the log density (N) of the observed features."""
        return self.importance.log_prob(batch)

    @torch.no_grad()
    def draws(self, batch: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns rows (M, N, D) with missing cells drawn jointly: a chain for each draw."""
        mask_model = self.model.mask_model
        chains = GibbsSampler(self.model, self.kernel, self.n_steps, n_warm_up=0, mask_model=mask_model)

        def moved(rows: Incomplete, index: Tensor) -> Tensor:
            own = keys[index.numpy()]
            start = self.importance.draws(rows, own, n_draws).transpose(0, 1)  # (N, M, D)
            noise = uniforms_of_rows(own, dtype=start.dtype)
            return chains.run(rows, start, noise).transpose(0, 1)

        return self.importance.by_rows(batch, moved, dim=1)
