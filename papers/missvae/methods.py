"""The methods of the study of mixture posteriors: which networks, which bound, how they are trained."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel
from halfseen.latent.bounds import BoundName, LatentObjective, Sampling
from halfseen.latent.completions import CompletedRows, Completions
from halfseen.latent.decomposed import DecomposedObjective, Imputer, Variant
from halfseen.latent.model import LatentModel
from halfseen.nn.residual import ResidualMLP
from halfseen.training.loop import TrainingSettings, fit_module
from papers.missvae.latent_diagnostics import gradient_snr, mixture_usage
from papers.missvae.latent_likelihood import estimate_iwelbo, refit_encoder

N_PASSES = 15  # latents that are decoded for each row in a step
SNR_STEPS = 50
NOISE_SEED = 1_000  # and more: the noise of diagnostics is not that of training
ENCODER_SNR, DECODER_SNR = "encoder gradient SNR", "decoder gradient SNR"


@dataclass(frozen=True)
class NetworkPlan:
    """How much data there is, how large the networks are, and how they are trained."""

    n_rows: int | None
    n_test: int
    n_blocks: int
    width: int
    training: TrainingSettings
    n_latent: int = 2


def course(epochs: int, batch: int, rate: float) -> TrainingSettings:
    """Returns settings under which the rate falls to zero and no run stops before that."""
    return TrainingSettings(
        max_epochs=epochs,
        batch_size=batch,
        learning_rate=rate,
        schedule="cosine",
        gradient_clip=5.0,
        patience=max(1, epochs),
        min_improvement=0.0,
        compile=False,
    )


@dataclass(frozen=True)
class LatentMethod:
    """A posterior and a bound by which to train.

    Parameters
    ----------
    posterior : {"gaussian", "mixture", "imputations"}
        One Gaussian; a mixture of as many components as there are passes; one Gaussian for each of several
        imputations.
    bound : {"elbo", "iwelbo", "siwelbo-loose"}
        The bound, for posteriors that are not of imputations.
    sampling : {"ancestral", "stratified"}
        Whether draws are of the whole posterior, or one of each component.
    variant : {"decomposed", "decomposed-iw", "cvi", "mvb"}
        Which objective trains which network, for posteriors of imputations.
    imputer : {"lair", "pseudo-gibbs", "mwg"}
        How imputations are drawn anew in each step.
    n_each : int
        Latents of each imputation.
    n_passes : int
        Latents of each row in a step.
    """

    posterior: Literal["gaussian", "mixture", "imputations"] = "gaussian"
    bound: BoundName = "elbo"
    sampling: Sampling = "ancestral"
    variant: Variant = "decomposed"
    imputer: Imputer = "lair"
    n_each: int = 1
    n_passes: int = N_PASSES

    @property
    def n_components(self) -> int:
        """The number of components that the encoder gives."""
        return self.n_passes if self.posterior == "mixture" else 1

    def objective(self, model: LatentModel) -> LatentObjective | DecomposedObjective:
        """Returns the loss, with `n_passes` latents of each row."""
        if self.posterior == "imputations":
            return DecomposedObjective.for_model(
                model, variant=self.variant, imputer=self.imputer, n_draws=self.n_each
            )
        n_draws = 1 if self.sampling == "stratified" else self.n_passes
        return LatentObjective.for_model(
            model, bound=self.bound, sampling=self.sampling, gradient="stl", n_draws=n_draws
        )


@dataclass(frozen=True)
class Fitted:
    """A trained model, its objective, the rows as the objective takes them, and the loss of each epoch."""

    model: LatentModel
    objective: Any
    rows: Any
    losses: tuple[float, ...]

    def noise(self, batch_size: int, seed: int) -> dict[str, float]:
        """Returns the mean ratio of signal to noise of the gradients, at the weights where training ended."""
        found = gradient_snr(
            self.model,
            self.objective,
            self.rows,
            n_steps=SNR_STEPS,
            batch_size=batch_size,
            generator=torch_generator(NOISE_SEED + seed),
        )
        return {
            f"{name} gradient SNR": part.snr / max(1, part.n_parameters - part.n_dropped)
            for name, part in found.items()
        }

    def usage(self, batch: Incomplete) -> dict[str, float]:
        """Returns how many components of mixtures are used, and how far from its nearest each one is."""
        if self.model.n_components == 1:
            return {}
        found = mixture_usage(self.model, batch)
        counts = torch.arange(len(found.components_per_row), dtype=torch.float64)
        apart = found.distances + torch.diag(torch.full_like(found.mean_weights, torch.inf))
        return {
            "components in use in a row": float(found.components_per_row @ counts),
            "components in use in no row": float(found.n_dead),
            "distance to the nearest component": float(apart.amin(dim=1).mean()),
        }


def train(method: LatentMethod, data: Incomplete, plan: NetworkPlan, seed: int) -> Fitted:
    """Trains networks from a random start, for all epochs of a plan."""
    generator = torch_generator(seed)
    model = build(method, data.n_features, plan, generator)
    objective: Any = method.objective(model)
    rows = rows_of(method, data, model, generator)
    history = fit_module(model, objective, rows, generator=generator, settings=plan.training)
    return Fitted(model, objective, rows, history.train_loss)


def bound_of_complete(
    model: LatentModel, test: Incomplete, refit: TrainingSettings, n_passes: int, n_draws: int, seed: int
) -> Tensor:
    """Returns a bound (N) of the log-likelihood of complete rows, by an encoder refitted to them."""
    generator = torch_generator(NOISE_SEED + seed)
    refitted = refit_encoder(model, test, n_draws=n_passes, generator=generator, settings=refit)
    return estimate_iwelbo(refitted, test, n_draws, generator=generator).log_prob


def build(
    method: LatentMethod, n_features: int, plan: NetworkPlan, generator: torch.Generator
) -> LatentModel:
    """Returns a model of Gaussian cells with random weights; the encoder reads zeros and the mask."""
    observation = ObservationModel.for_pixels(n_features, "gaussian")
    n_outputs = LatentModel.n_outputs(plan.n_latent, method.n_components)
    encoder = ResidualMLP(2 * n_features, n_outputs, n_blocks=plan.n_blocks, width=plan.width)
    decoder = ResidualMLP(plan.n_latent, observation.n_parameters, n_blocks=plan.n_blocks, width=plan.width)
    decoder.reset_parameters(generator)  # first, to be the same for all methods
    encoder.reset_parameters(generator)
    return LatentModel(encoder, decoder, observation, plan.n_latent, method.n_components)


def rows_of(method: LatentMethod, data: Incomplete, model: LatentModel, generator: torch.Generator) -> Any:
    """Returns the rows as the objective of a method takes them: with imputations, if it needs them."""
    if method.posterior != "imputations":
        return data
    n_completions = method.n_passes // method.n_each
    return CompletedRows.of(data, Completions.start(data, model.observation, n_completions, generator))
