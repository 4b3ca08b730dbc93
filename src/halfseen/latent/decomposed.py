r"""The decomposed objective of DeMissVAE, with separate bounds for the decoder and the encoder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from halfseen.base.density import CompleteDataModel
from halfseen.distributions.leaves import choose_by_cdf
from halfseen.distributions.mixture import GaussianMixture
from halfseen.latent.bounds import Bound, elbo, iwelbo, looser_siwelbo
from halfseen.latent.completions import CompletedRows, posterior_of
from halfseen.latent.model import LatentNoise

Variant = Literal["decomposed", "decomposed-iw", "cvi", "mvb"]
Imputer = Literal["lair", "pseudo-gibbs", "mwg"]
IMPUTERS: tuple[Imputer, ...] = ("lair", "pseudo-gibbs", "mwg")
"""The algorithms by the names under which users choose them."""
Target = Literal["observed", "completed"]


class _Parts(NamedTuple):
    """Which bound of which log weights each network is trained by."""

    decoder: tuple[Bound, Target]
    encoder: tuple[Bound, Target]


VARIANTS: Mapping[str, _Parts] = {
    "decomposed": _Parts((elbo, "observed"), (elbo, "completed")),
    "decomposed-iw": _Parts((iwelbo, "observed"), (looser_siwelbo, "completed")),
    "cvi": _Parts((elbo, "observed"), (elbo, "observed")),
    "mvb": _Parts((elbo, "completed"), (elbo, "completed")),
}
"""The variants by the names under which users choose them."""


@dataclass(frozen=True)
class Pass:
    r"""The outputs of one pass through both networks for K completions of each row.

    The latents `z` are connected to the encoder. Everything after them depends on `leaf`, a detached copy,
    and on a posterior without gradients.

    Shapes
    ------
    posterior : of :math:`(N)` rows, a mixture of :math:`K` equal parts
    z, leaf : :math:`(S, N, K, L)`
    parameters : :math:`(S, N, K, P)`
    log_w : each :math:`(S, N, K)`
    """

    posterior: GaussianMixture
    z: Tensor
    leaf: Tensor
    parameters: Tensor
    log_w: Mapping[Target, Tensor]

    @property
    def log_strata(self) -> Tensor:
        """The log (N, K) of how much each completion counts."""
        return self.posterior.log_weights.detach()


@dataclass(frozen=True)
class DecomposedObjective:
    r"""Scores a latent-variable model on rows with K imputations each (DeMissVAE).

    Cells must be missing at random. The posterior of an incomplete row is the mixture :math:`q(z \mid x_o) =
    \frac{1}{K} \sum_k q(z \mid x_o, x_m^k)`. The decoder, and with it the likelihood of cells, is trained by
    a bound that leaves missing cells out, so that bad imputations do little harm. The encoder is trained by
    the bound of completed rows, whose optimum is :math:`q(z \mid x) = p(z \mid x)` for any imputations:

    .. math::
        L(\theta) &= \frac{1}{K} \sum_k \mathrm{E}_{q(z \mid x_o, x_m^k)} \bigl[\log p_\theta(x_o, z)\bigr] \\
        L(\phi) &= \frac{1}{K} \sum_k \mathrm{E}_{q_\phi(z \mid x_o, x_m^k)}
                   \bigl[\log p(x_o, x_m^k, z) - \log q_\phi(z \mid x_o, x_m^k)\bigr]

    One pass computes both, and gradients reach only the respective parameters. In training, it also draws the
    next imputations. The *value* of the loss is neither of them, but minus the importance weighted bound

    .. math:: \log \frac{1}{SK} \sum_{s,k} \frac{p(x_o, z_{sk})}{\frac{1}{K} \sum_j q(z_{sk} \mid x_o, x_m^j)}
              \le \log p(x_o) \text{ on average.}

    The step changes the completions and computes gradients itself, so it cannot be compiled: train with
    ``compile=False``. A checkpoint does not contain the completions.

    Parameters
    ----------
    n_latent, n_noise : int
        Sizes of the model's noise, see `for_model`.
    variant : {"decomposed", "decomposed-iw", "cvi", "mvb"}
        As above; both by importance weighted bounds, which takes several draws; and the controls. By
        ``"cvi"`` both networks follow the first bound (and the entropy of the mixture), so that the encoder
        may ignore imputations; by ``"mvb"`` both the second, so that the decoder fits their errors.
    imputer : {"lair", "pseudo-gibbs", "mwg"}
        New imputations are of latents resampled by their weights; of the latent that each led to; or of that
        latent if it is accepted, and otherwise of the latent before (Metropolis within Gibbs as in
        `GibbsSampler`; the completions must keep latents).
    gradient : {"stl", "full"}
        Of the posterior: through the draws only (sticking the landing; biased for ``"decomposed-iw"``), or
        the whole.
    n_draws : int
        Latents S of each completion.
    n_skipped : int
        The number of initial visits of each row in which its imputations are not updated.
    n_rounds : int
        How often the imputations of held-out rows are improved before each evaluation. They start from the
        same completions with the same noise every time, so the loss is a function of the weights.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, section 4.2 and algorithm 1. The variants are their appendix's; they publish no
    results of the importance weighted one.

    Examples
    --------
    >>> from halfseen.data.incomplete import Incomplete
    >>> from halfseen.distributions.observation_model import ObservationModel
    >>> from halfseen.latent.completions import Completions
    >>> from halfseen.latent.model import LatentModel
    >>> from halfseen.nn.residual import ResidualMLP
    >>> observation = ObservationModel.for_pixels(3, "gaussian")
    >>> model = LatentModel(ResidualMLP(6, 4), ResidualMLP(2, 6), observation, 2)
    >>> generator = torch.Generator().manual_seed(0)
    >>> batch = Incomplete(torch.zeros(7, 3), torch.rand(7, 3, generator=generator) < 0.5)
    >>> completions = Completions.start(batch, model.observation, 5, generator)
    >>> objective, rows = DecomposedObjective.for_model(model), CompletedRows.of(batch, completions)
    >>> objective(model, rows, objective.draw_noise(rows, generator)).shape
    torch.Size([7])
    """

    resumable: ClassVar[bool] = False

    n_latent: int
    n_noise: int
    variant: Variant = "decomposed"
    imputer: Imputer = "lair"
    gradient: Literal["stl", "full"] = "stl"
    n_draws: int = 1
    n_skipped: int = 1
    n_rounds: int = 5

    def __post_init__(self) -> None:
        allowed = {
            "variant": tuple(VARIANTS),
            "imputer": IMPUTERS,
            "gradient": ("stl", "full"),
        }
        for name, choices in allowed.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        for name, lowest in {"n_draws": 1, "n_skipped": 0, "n_rounds": 0}.items():
            if getattr(self, name) < lowest:
                raise ValueError(f"{name} must be at least {lowest}, got {getattr(self, name)!r}.")

    @classmethod
    def for_model(
        cls,
        model: CompleteDataModel,
        *,
        variant: Variant = "decomposed",
        imputer: Imputer = "lair",
        gradient: Literal["stl", "full"] = "stl",
        n_draws: int = 1,
        n_skipped: int = 1,
        n_rounds: int = 5,
    ) -> "DecomposedObjective":
        """Returns the objective whose noise fits a model."""
        sizes = model.n_latent, model.observation.n_noise
        return cls(*sizes, variant, imputer, gradient, n_draws, n_skipped, n_rounds)

    def draw_noise(self, batch: CompletedRows, generator: torch.Generator) -> LatentNoise:
        r"""Returns the noise for one evaluation: the last of R + 1 rounds is for the loss.

        The others improve the imputations of held-out rows first.

        Shapes
        ------
        normals : :math:`(R + 1, S, N, K, L)`, standard normals that make latents
        uniforms : :math:`(R + 1, N, K)`, which latent a new imputation is of
        cells : :math:`(R + 1, N, K, M)`, uniforms that make cells
        """
        rounds = 1 + (self.n_rounds if batch.held_out else 0)
        dtype, rows = batch.batch.x.dtype, (len(batch), batch.completions.n_completions)
        return LatentNoise(
            torch.randn(rounds, self.n_draws, *rows, self.n_latent, generator=generator, dtype=dtype),
            torch.rand(rounds, *rows, generator=generator, dtype=dtype),
            torch.rand(rounds, *rows, self.n_noise, generator=generator, dtype=dtype),
        )

    def __call__(self, module: CompleteDataModel, batch: CompletedRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss of each row; in training, gives the rows new completions too."""
        *earlier, last = zip(*noise, strict=True)
        completed, z = batch.completed, batch.latents
        with torch.no_grad():
            for given in earlier:
                found = self.evaluate(module, batch, completed, given[0])
                drawn, z = self._advance(module, found, completed, z, *given[1:])
                kept = batch.batch.observed.unsqueeze(1) | ~batch.allowed(drawn)
                completed = torch.where(kept, completed, drawn)

        found = self.evaluate(module, batch, completed, last[0])
        value = -iwelbo(found.log_w["observed"].detach(), found.log_strata)
        if torch.is_grad_enabled():
            surrogate = self._surrogate(found)
            value = value + (surrogate - surrogate.detach())
        if module.training and not batch.held_out:
            drawn, z = self._advance(module, found, completed, z, *last[1:])
            batch.update(drawn, z, self.n_skipped)
        return value

    def evaluate(
        self, module: CompleteDataModel, batch: CompletedRows, completed: Tensor, normals: Tensor
    ) -> Pass:
        """Returns one pass through both networks for completions (N, K, D) and normals (S, N, K, L)."""
        own = posterior_of(module, completed)  # (N, K) Gaussians
        mixture = GaussianMixture.uniform(own.loc.squeeze(-2), own.scale.squeeze(-2))
        z = mixture.stratified(normals)
        leaf = z.detach().requires_grad_(torch.is_grad_enabled())
        parameters = module.decoder(leaf)

        terms = module.observation.log_prob(parameters, completed)  # (S, N, K, C)
        observed = module.observation.observed_columns(batch.batch.observed).unsqueeze(-2)  # (N, 1, C)
        log_prior = log_standard_normal(leaf)
        log_observed = torch.where(observed, terms, 0.0).sum(dim=-1) + log_prior
        log_w: dict[Target, Tensor] = {
            "observed": log_observed - mixture.detach().log_prob_strata(leaf),
            "completed": terms.sum(dim=-1) + log_prior - own.detach().log_prob(leaf),
        }
        return Pass(mixture, z, leaf, parameters, log_w)

    @torch.no_grad()
    def impute(self, module: CompleteDataModel, found: Pass, uniforms: Tensor, cells: Tensor) -> Tensor:
        """Returns draws (N, K, D) of all cells, given latents that were decoded already."""
        if self.imputer != "lair":
            return module.observation.sample(found.parameters[0], cells)
        log_w = found.log_w["observed"].movedim(0, 1).flatten(1)  # (N, S K)
        index = choose_by_cdf(log_w.softmax(dim=-1), uniforms).unsqueeze(-1)  # (N, K, 1)
        parameters = found.parameters.movedim(0, 1).flatten(1, 2).take_along_dim(index, dim=1)
        return module.observation.sample(parameters, cells)

    @torch.no_grad()
    def _advance(
        self,
        module: CompleteDataModel,
        found: Pass,
        completed: Tensor,
        z: Tensor,
        uniforms: Tensor,
        cells: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Returns draws (N, K, D) of all cells, and the latents (N, K, L) that chains are at after them."""
        if self.imputer != "mwg":
            return self.impute(module, found, uniforms, cells), z
        proposal, parameters = found.z[0].detach(), found.parameters[0]
        known = ~z.isnan().any(dim=-1, keepdim=True)  # (N, K, 1)
        current = torch.where(known, z, proposal)
        decoded = module.decoder(current)
        log_p = module.observation.log_prob(decoded, completed).sum(dim=-1) + log_standard_normal(current)
        log_current = log_p - _log_own(found.posterior, current.unsqueeze(0)).squeeze(0)
        log_ratio = found.log_w["completed"][0].detach() - log_current
        taken = (uniforms.log() < log_ratio).unsqueeze(-1) | ~known
        drawn = module.observation.sample(torch.where(taken, parameters, decoded), cells)
        return drawn, torch.where(taken, proposal, current)

    def _surrogate(self, found: Pass) -> Tensor:
        r"""Returns a surrogate (N) whose gradients are those of minus both objectives.

        The encoder's is :math:`\langle g, z \rangle` with :math:`g` the gradient of its objective at the
        latents, which takes no gradients of the decoder's weights.
        """
        (decoder_bound, decoder_target), (encoder_bound, encoder_target) = VARIANTS[self.variant]
        of_encoder = encoder_bound(found.log_w[encoder_target], found.log_strata)
        (slope,) = torch.autograd.grad(of_encoder.sum(), found.leaf, retain_graph=True)
        total = (slope * found.z).sum(dim=(0, 2, 3)) + decoder_bound(
            found.log_w[decoder_target], found.log_strata
        )
        if self.gradient == "full":
            direct = found.log_w[encoder_target].detach() - self._log_q_change(found, encoder_target)
            total = total + encoder_bound(direct, found.log_strata)
        return -total

    def _log_q_change(self, found: Pass, target: Target) -> Tensor:
        """Returns zeros (S, N, K) with the gradient of the log posterior of fixed latents."""
        z, mixture = found.z.detach(), found.posterior
        if target == "observed":
            log_q = mixture.log_prob_strata(z)
        else:
            log_q = _log_own(mixture, z)
        return log_q - log_q.detach()


def _log_own(mixture: GaussianMixture, z: Tensor) -> Tensor:
    """Returns the log density (S, N, K) of latents (S, N, K, L) under the posterior of each completion."""
    return GaussianMixture.uniform(mixture.loc.unsqueeze(-2), mixture.scale.unsqueeze(-2)).log_prob(z)


def log_standard_normal(z: Tensor) -> Tensor:
    """Returns the log density (*) of the prior at latents (*, L)."""
    return -0.5 * (z.square().sum(dim=-1) + z.shape[-1] * math.log(2.0 * math.pi))
