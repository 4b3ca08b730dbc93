"""The objective of latent-variable models: a lower bound computed from log weights."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.models.latent.model import LatentModel, LatentNoise
from halfseen.objectives.bounds import BOUNDS, doubly_reparametrised

Sampling = Literal["ancestral", "stratified"]
BoundName = Literal["elbo", "iwelbo", "siwelbo-loose"]
GradientMode = Literal["full", "stl", "dreg"]


@dataclass(frozen=True)
class LatentObjective:
    r"""Scores a latent-variable model by a lower bound of :math:`\log p(x_o)`, or of :math:`\log p(x_o, o)`.

    ======================  ==========  =================  ========
    method                  components  sampling           bound
    ======================  ==========  =================  ========
    MVAE                    1           any                elbo
    MIWAE, not-MIWAE        1           any                iwelbo
    MissVAE                 K           ancestral          elbo
    MissSVAE                K           stratified         elbo
    MissIWAE                K           ancestral          iwelbo
    MissSIWAE               K           stratified         iwelbo, looser
    ======================  ==========  =================  ========

    Parameters
    ----------
    n_latent, n_components, n_cells : int
        Sizes of the model's noise, see `for_model`.
    bound : {"elbo", "iwelbo", "siwelbo-loose"}
        The bound; the last needs stratified draws to differ from the second.
    sampling : {"ancestral", "stratified"}
        Draws of the mixture, or the same number of each component.
    gradient : {"full", "stl", "dreg"}
        The estimator of the posterior's gradient: whole; through the draws only (unbiased for the ELBO,
        biased but steadier for the others); doubly reparametrised (for the IWELBO of ancestral draws).
    n_draws : int
        Draws :math:`S`, of each component if stratified.
    mask_weight : float
        The weight of the mask term; 0 fits as if the mask were ignorable.

    References
    ----------
    Simkus & Gutmann (2024), Improving variational autoencoder estimation from incomplete data with mixture
    variational families, table 1.

    Examples
    --------
    >>> from halfseen.distributions.observation_model import ObservationModel
    >>> from halfseen.nn.residual import ResidualMLP
    >>> observation = ObservationModel.for_pixels(3, "gaussian")
    >>> model = LatentModel(ResidualMLP(6, 4), ResidualMLP(2, 6), observation, 2)
    >>> objective = LatentObjective.for_model(model, bound="iwelbo", n_draws=5)
    >>> batch = Incomplete(torch.zeros(7, 3), torch.ones(7, 3, dtype=torch.bool))
    >>> noise = objective.draw_noise(batch, torch.Generator().manual_seed(0))
    >>> objective(model, batch, noise).shape
    torch.Size([7])
    """

    n_latent: int
    n_components: int = 1
    n_cells: int = 0
    bound: BoundName = "iwelbo"
    sampling: Sampling = "ancestral"
    gradient: GradientMode = "full"
    n_draws: int = 5
    mask_weight: float = 1.0

    def __post_init__(self) -> None:
        allowed = {"bound": tuple(BOUNDS), "sampling": ("ancestral", "stratified")}
        allowed["gradient"] = ("full", "stl", "dreg")
        for name, choices in allowed.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}.")
        if self.n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, got {self.n_draws!r}.")
        stratified = self.sampling == "stratified" and self.n_components > 1
        if self.gradient == "dreg" and (self.bound != "iwelbo" or stratified):
            raise ValueError(
                "gradient='dreg' needs bound='iwelbo' and ancestral draws, got "
                f"bound={self.bound!r} and sampling={self.sampling!r}."
            )

    @classmethod
    def for_model(
        cls,
        model: LatentModel,
        *,
        bound: BoundName = "iwelbo",
        sampling: Sampling = "ancestral",
        gradient: GradientMode = "full",
        n_draws: int = 5,
        mask_weight: float = 1.0,
    ) -> "LatentObjective":
        """Returns the objective whose noise fits a model."""
        sizes = model.n_latent, model.n_components, model.n_cells if mask_weight != 0.0 else 0
        return cls(*sizes, bound, sampling, gradient, n_draws, mask_weight)

    def draw_noise(self, batch: Incomplete, generator: torch.Generator) -> LatentNoise:
        """Returns the noise for one evaluation; a single component needs, and takes, no uniforms."""
        dtype = batch.x.dtype
        stratified = self.sampling == "stratified" or self.n_components == 1
        n_strata = self.n_components if stratified else 1
        shape = (self.n_draws, len(batch), n_strata)
        return LatentNoise(
            torch.randn(*shape, self.n_latent, generator=generator, dtype=dtype),
            torch.rand(*(shape[:2] if not stratified else (0,)), generator=generator, dtype=dtype),
            torch.rand(*(shape if self.n_cells else (0,)), self.n_cells, generator=generator, dtype=dtype),
        )

    def __call__(self, module: LatentModel, batch: Incomplete, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns minus the bound of each row."""
        given = LatentNoise(*noise)
        if self.gradient == "dreg":
            return -BOUNDS[self.bound](*self._doubly_reparametrised(module, batch, given))
        weighted = module.log_weights(batch, given, gradient=self.gradient, mask_weight=self.mask_weight)
        return -BOUNDS[self.bound](weighted.log_w, weighted.log_strata)

    def _doubly_reparametrised(
        self, module: LatentModel, batch: Incomplete, noise: LatentNoise
    ) -> tuple[Tensor, Tensor]:
        posterior = module.posterior(batch)
        density = posterior.detach()

        def log_weights(z: Tensor) -> Tensor:
            latents = z.unsqueeze(-2)
            return module.weigh(batch, density, latents, noise.cells, mask_weight=self.mask_weight).log_w

        log_w = doubly_reparametrised(log_weights, module.draw(posterior, noise).squeeze(-2))
        return log_w, log_w.new_zeros(log_w.shape[1:])
