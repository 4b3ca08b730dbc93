"""Draws of missing cells by importance resampling, followed by Markov chains."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from halfseen._random import Keys
from halfseen.data.incomplete import Incomplete
from halfseen.models.latent.model import LatentModel
from halfseen.samplers.gibbs import GibbsSampler, Kernel, uniforms_of_rows
from halfseen.samplers.importance import ImportanceSampler


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
