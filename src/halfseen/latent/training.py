"""Initialisation and training of the networks of latent imputers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from halfseen.data.incomplete import Incomplete
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.mask_factors import ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from halfseen.latent.bounds import LatentObjective, Support
from halfseen.latent.completions import CompletedRows, Completions
from halfseen.latent.decomposed import DecomposedObjective
from halfseen.latent.initialisation import (
    Factors,
    start_from_edges,
    start_from_factors,
    start_from_probit,
)
from halfseen.latent.model import LatentModel, Preimputed
from halfseen.latent.self_masking import SelfMaskModel
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import History, Progress

MASKS = 1000  # from which the encoder learns how the posterior widens with missing values
N_STEPS = 2500  # of training, if the number of epochs is left to the imputer
LARGEST_BATCH, LARGEST_IMAGE_BATCH = 512, 128
GRADIENT_CLIP = 5.0


def initialise(
    model: LatentModel,
    start: Gaussian | SelfMaskedGaussian,
    rows: Preimputed,
    generator: torch.Generator,
    *,
    steep: bool,
) -> None:
    """Sets the weights so that the model equals the Gaussian, with its probit mask model if it has one.

    With `steep`, the mask model is initialised as if all values beyond the observed range were missing.
    """
    for network in (model.encoder, model.decoder):
        network.reset_parameters(generator)  # type: ignore[operator]
    observed = model.observation.observed_columns(rows.observed)
    model.mask_model.reset_parameters(generator, observed.double().mean(dim=0))
    gaussian = start if isinstance(start, Gaussian) else start.gaussian
    some = torch.randperm(len(rows), generator=generator)[:MASKS]
    start_from_factors(model, Factors.of(gaussian, model.n_latent), rows.observed[some], generator)
    if isinstance(start, SelfMaskedGaussian) and isinstance(start.mask, ProbitMaskFactor):
        assert isinstance(model.mask_model, SelfMaskModel)
        of_columns = model.mask_model.feature
        coefficients, active = start.mask.coefficients[of_columns], start.mask.active[of_columns]
        start_from_probit(model.mask_model, coefficients, active)
        if steep:
            start_from_edges(model.mask_model, rows, active)


@dataclass(frozen=True)
class LatentTraining:
    """The training of a latent-variable model: its objective and its settings.

    Parameters
    ----------
    posterior, sampling, bound, gradient, n_draws, batch_size, max_epochs, learning_rate, patience, imputation
        As in `halfseen.LatentImputer`.
    largest_batch : int
        The largest batch size that ``batch_size="auto"`` chooses.
    holds_decoder : bool
        Whether the distribution of values is left as it was learned from the observed values when the mask
        model is trained. If the mask may depend on all columns and the decoder on latents in any way, the
        likelihood of the mask is greatest for missing values that are far from all observed ones: nothing
        observed speaks against them.
    bounds_values : bool
        Whether missing values have a prior on how far from the observed range they are (`Support`), where
        the mask is modelled.
    device : str
        Where gradients are computed.
    callback : callable, optional
        Called with the progress of training.
    """

    posterior: str
    sampling: Any
    bound: Any
    gradient: Any
    n_draws: int
    batch_size: Any
    max_epochs: Any
    learning_rate: float
    patience: int
    largest_batch: int = LARGEST_BATCH
    holds_decoder: bool = False
    bounds_values: bool = False
    imputation: Any = "lair"
    device: str = "cpu"
    callback: Callable[[Progress], None] | None = None

    def run(
        self,
        model: LatentModel,
        split: tuple[Incomplete, Incomplete | None],
        generator: torch.Generator,
        starts_ignorant: bool,
    ) -> tuple[float, History]:
        """Trains a model; returns the loss by which initialisations are compared, and the history.

        If the mask model has no initial estimate (`starts_ignorant`), a first phase trains as if values were
        missing at random. The loss is that of the last phase.
        """
        train, validation = split
        settings = self.settings(len(train), n_kinds=1 if starts_ignorant else 2)
        history = History()
        if self.posterior == "imputations":
            history = self._train_on_imputations(model, train, validation, settings, generator)
        phases = [(1.0, settings)]
        if starts_ignorant and not model.mask_model.is_ignorable:
            phases.insert(0, (0.0, replace(settings, max_epochs=math.ceil(settings.max_epochs / 3))))
        stratified = self.sampling == "stratified"
        loss = math.inf
        for mask_weight, phase in phases:
            if mask_weight and self.holds_decoder:
                _freeze_values(model)
            objective = LatentObjective.for_model(
                model,
                bound=self.bound,
                sampling=self.sampling,
                gradient=self.gradient,
                n_draws=math.ceil(self.n_draws / (model.n_components if stratified else 1)),
                mask_weight=mask_weight,
                support=Support.of(train) if self.bounds_values and mask_weight else None,
            )
            history = fit_module(
                model,
                objective,
                train,
                generator=generator,
                validation=validation,
                settings=phase,
                callback=self.callback,
            )
            if mask_weight:
                loss = min(history.monitored, default=math.inf)
        model.requires_grad_(False)
        return loss, history

    def _train_on_imputations(
        self,
        model: LatentModel,
        train: Incomplete,
        validation: Incomplete | None,
        settings: TrainingSettings,
        generator: torch.Generator,
    ) -> History:
        """Trains on completed rows, whose imputations are updated during training; then freezes the decoder.

        The training that follows changes the encoder alone, so that it can read incomplete rows.
        """

        def completed(rows: Incomplete, *, held_out: bool) -> CompletedRows:
            n_latent = model.n_latent if self.imputation == "mwg" else 0
            copies = Completions.start(
                rows, model.observation, self.n_draws, generator, donors=train, n_latent=n_latent
            )
            return CompletedRows.of(rows, copies, held_out=held_out)

        history = fit_module(
            model,
            DecomposedObjective.for_model(model, imputer=self.imputation),
            completed(train, held_out=False),
            generator=generator,
            validation=None if validation is None else completed(validation, held_out=True),
            settings=settings,
            callback=self.callback,
        )
        _freeze_values(model)
        return history

    def settings(self, n_rows: int, n_kinds: int) -> TrainingSettings:
        """Returns the settings of the training loop; on large tables, all initialisations share its steps."""
        batch_size = self.batch_size
        if batch_size == "auto":
            batch_size = min(self.largest_batch, max(32, 2 ** round(math.log2(max(1, n_rows) / 16))))
        max_epochs = self.max_epochs
        if max_epochs == "auto":
            n_steps = N_STEPS // n_kinds if batch_size == LARGEST_BATCH else N_STEPS
            max_epochs = math.ceil(n_steps / math.ceil(n_rows / batch_size))
        return TrainingSettings(
            max_epochs=max_epochs,
            batch_size=batch_size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            gradient_clip=GRADIENT_CLIP,
            patience=self.patience,
            compile=False,
            device=self.device,
        )


def _freeze_values(model: LatentModel) -> None:
    """Ends the training of the distribution of values given latents."""
    for part in (model.decoder, model.observation):
        part.requires_grad_(False)
