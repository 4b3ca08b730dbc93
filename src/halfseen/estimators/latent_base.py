"""The base class of latent-variable imputers: fitting, whatever their parameters."""

from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.data.columns import Column
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import bounded_margin
from halfseen.data.margins import Margin
from halfseen.data.pixels import pixel_features
from halfseen.distributions.families import FAMILIES_OF_VALUES
from halfseen.distributions.gaussian import Gaussian
from halfseen.estimators._base import BaseImputer
from halfseen.estimators._holdout import RowsT, split_rows
from halfseen.estimators.latent_choices import (
    SELF_MASKING,
    check_choices,
    check_likelihoods,
    known_mask,
    modelled_signs,
)
from halfseen.estimators.latent_training import LARGEST_BATCH, LARGEST_IMAGE_BATCH, LatentTraining, initialise
from halfseen.estimators.latent_weights import check_importance_weights
from halfseen.models.latent.architecture import LatentArchitecture
from halfseen.models.latent.initialisation import start_images
from halfseen.models.latent.model import LatentModel
from halfseen.models.latent.rows import Preimputed, RowEncoding
from halfseen.nn.residual import NetworkFactory
from halfseen.nn.weights import module_state
from halfseen.samplers.calibration import hide_cells
from halfseen.samplers.chained import ChainedSampler
from halfseen.samplers.importance import ImportanceSampler
from halfseen.samplers.latent_tables import ImageLatent, TabularLatent
from halfseen.training.latent_initialisation import fit_start
from halfseen.training.progress import History, Progress
from halfseen.vocabulary import Missingness

MOST_LATENTS, MOST_IMAGE_LATENTS = 16, 32
CALIBRATION_ROWS = 200  # of which observed values are held out to calibrate intervals

Attempt: TypeAlias = tuple[float, History, LatentModel]  # a training, and the loss by which it is judged


class BaseLatentImputer(BaseImputer):
    """The base class of latent-variable imputers, which defines everything except the parameters.

    Choices that a published method prescribes are attributes of its class.
    """

    _reports_rows = True
    _saved = ("architecture_", "weight_diagnostics_", "interval_inflation_")

    posterior: Any = "gaussian"
    n_components: Any = 1
    sampling: Any = "ancestral"
    bound: Any = "iwelbo"
    gradient: Any = "stl"
    missingness: Any = Missingness.MAR.value
    signs: Any = None
    n_starts: Any = 1
    image_shape: Any = None
    encoder: Any = "preimputed"
    n_chain_steps: Any = 0
    chain_kernel: Any = "mwg"
    likelihoods: Any = None

    n_latent: Any
    n_draws: int
    numeric: Any
    decoder: Any
    width: int
    n_blocks: int
    learning_rate: float
    batch_size: Any
    max_epochs: Any
    patience: int
    validation_fraction: float
    n_imputation_draws: int
    callback: Callable[[Progress], None] | None

    model_: LatentModel | None
    sampler_: ImportanceSampler | ChainedSampler | None
    _encoding: RowEncoding

    @property
    def _is_known(self) -> bool:
        """Whether the mechanism is given as a function."""
        return not isinstance(self.missingness, str)

    @property
    def _networks(self) -> dict[str, NetworkFactory]:
        """The networks that are given as factories."""
        return {name: getattr(self, name) for name in ("encoder", "decoder") if callable(getattr(self, name))}

    def save(self, path: Any) -> None:
        """Writes the fitted imputer to one file; not possible if the mechanism is given as a function."""
        self._check_saveable()
        super().save(path)

    def _check_saveable(self) -> None:
        if self._is_known:
            raise ValueError("An imputer whose missingness is a user-defined function cannot be saved.")
        if self._networks:
            raise ValueError(
                f"An imputer whose {' and '.join(self._networks)} is a user-defined network cannot be saved: "
                "save the weights of model_ instead."
            )

    @torch.no_grad()
    def mask_probabilities(self, column: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Returns the learned probabilities that values of a column are missing.

        If the probability depends on other columns, these are set to their means. The probability is 0 for a
        column without missing values in `fit`.

        Parameters
        ----------
        column : str
            The name of a numeric column; in arrays, columns are named ``"x0"``, ``"x1"`` and so on.
        values : array-like of shape (n_values,)
            Values of the column, in the units of the table.

        Returns
        -------
        array of shape (n_values,)
        """
        check_is_fitted(self)
        mask_model = None if self.model_ is None else self.model_.mask_model
        if mask_model is None or mask_model.is_ignorable:
            raise ValueError(
                "The model assumes values missing at random, so it has no probabilities of missing values."
            )
        features = self._encoding.features
        modelled = self._modelled
        position = next((c for c in features.numeric if modelled[c].name == str(column)), None)
        if position is None:
            raise ValueError(f"Column {column!r} is not a numeric column that is modelled.")
        given = torch.from_numpy(np.array(values, dtype=np.float64)).reshape(-1)
        x = torch.zeros(len(given), features.n_features, dtype=torch.float64)
        if mask_model.layout.columns is not None and position not in mask_model.layout.columns:
            return x[:, 0].numpy()
        place = features.numeric.index(position)
        x[:, place] = features.score(place, given)
        return torch.sigmoid(-mask_model.logits(x)[:, position]).numpy()

    @property
    def _takes_images(self) -> bool:
        return self.image_shape is not None

    def _fit_codes(self, codes: Incomplete) -> None:
        self.model_ = self.sampler_ = None
        if not self._modelled:
            return
        check_choices(self)
        self.interval_inflation_: list[float] = []
        fit = self._fit_images if self._takes_images else self._fit_table
        rows, held_out = fit(codes, torch_generator(self.seed_))
        sampler = self._importance_sampler()
        if not self._takes_images:
            sampler = self._calibrated(sampler, held_out)
        self.weight_diagnostics_ = check_importance_weights(sampler, rows)
        self.sampler_ = self._chained(sampler)

    @property
    def _answers(self) -> TabularLatent | ImageLatent | None:
        if self.model_ is None or self.sampler_ is None:
            return None
        if self._takes_images:
            is_density = bool(self.model_.observation.is_density.any())
            return ImageLatent(self._modelled, self._encoding.features, self.sampler_, is_density)
        assert self._encoding.preimputer is not None
        return TabularLatent(
            self._modelled, self._encoding.features, self._encoding.preimputer, self.sampler_
        )

    def _fit_images(
        self, codes: Incomplete, generator: torch.Generator
    ) -> tuple[Incomplete, Incomplete | None]:
        """Trains from random weights: a Gaussian of all pixels would be slow to fit and would not help.

        Returns the rows, and those that were held out.
        """
        features = pixel_features(self._modelled, codes)
        self._encoding = RowEncoding(features)
        rows = self._encoding.rows(codes)
        if self.missingness == Missingness.MAR:
            rows = rows[rows.observed.any(dim=1)]
        architecture = self._architecture(features, codes)
        known = known_mask(self.missingness, self.schema_, features) if self._is_known else None
        training, split = self._training(), self._split(rows)

        def attempt() -> Attempt:
            model = architecture.build(self._modelled, features, known=known)
            start_images(model, rows, generator)
            return *training.run(model, split, generator, True), model

        self.model_ = self._best_of_starts(attempt)
        self.architecture_ = architecture.to_dict()
        return rows, split[1]

    def _training(self) -> LatentTraining:
        return LatentTraining(
            self.posterior,
            self.sampling,
            self.bound,
            self.gradient,
            self.n_draws,
            self.batch_size,
            self.max_epochs,
            self.learning_rate,
            self.patience,
            largest_batch=LARGEST_IMAGE_BATCH if self._takes_images else LARGEST_BATCH,
            callback=self.callback,
        )

    def _best_of_starts(self, attempt: Callable[[], Attempt], n_kinds: int = 1) -> LatentModel:
        """Returns the trained model with the best held-out bound, and keeps its history."""
        best: tuple[float, LatentModel] | None = None
        for _ in range(n_kinds * self.n_starts):
            loss, history, model = attempt()
            if best is None or loss < best[0]:
                best, self.history_ = (loss, model), history
        assert best is not None
        return best[1]

    def _fit_table(
        self, codes: Incomplete, generator: torch.Generator
    ) -> tuple[Incomplete, Incomplete | None]:
        """Trains from a Gaussian initialisation; returns the rows, and those that were held out."""
        likelihoods = check_likelihoods(self.likelihoods, self.schema_)

        def margin(column: Column, values: Any) -> Margin | None:
            is_of_values = likelihoods.get(column.name) in FAMILIES_OF_VALUES
            return None if is_of_values else bounded_margin(column, values)

        features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=margin)
        batch = features.encode(codes)
        if self.missingness == Missingness.MAR:
            batch = batch[batch.observed.any(dim=1)]
        architecture = self._architecture(features, codes)
        known = known_mask(self.missingness, self.schema_, features) if self._is_known else None
        start = fit_start(batch, self._may_hide(features, architecture), generator)
        preimputer = start if isinstance(start, Gaussian) else start.gaussian
        rows = Preimputed.by(preimputer, batch)
        kinds = (False,) if isinstance(start, Gaussian) else (False, True)
        turns = cycle(kinds)
        training = self._training()
        train, held_out = self._split(rows)
        split = train.to(torch.float32), None if held_out is None else held_out.to(torch.float32)

        def attempt() -> Attempt:
            model = architecture.build(self._modelled, features, batch, known, self._networks)
            initialise(model, start, rows, generator, steep=next(turns))
            return *training.run(model, split, generator, isinstance(start, Gaussian)), model

        self.model_ = self._best_of_starts(attempt, len(kinds)).double()
        self._encoding = RowEncoding(features, preimputer)
        self.architecture_ = architecture.to_dict()
        return rows, held_out

    @staticmethod
    def _may_hide(features: FeatureMap, architecture: LatentArchitecture) -> Tensor | None:
        """Returns which features (D) may be self-masked; None unless self-masking is modelled."""
        if architecture.missingness not in SELF_MASKING:
            return None
        hidden = [features.numeric.index(c) for c in architecture.hidden or () if c in features.numeric]
        return torch.zeros(features.n_features, dtype=torch.bool).index_fill(
            0, torch.tensor(hidden, dtype=torch.long), True
        )

    def _split(self, rows: RowsT) -> tuple[RowsT, RowsT | None]:
        """Returns training rows and held-out rows, the same for all initialisations and for calibration."""
        return split_rows(rows, self.validation_fraction, torch_generator(self.seed_))

    def _calibrated(self, sampler: ImportanceSampler, held_out: Incomplete | None) -> ImportanceSampler:
        """Returns a sampler whose intervals are calibrated on numbers removed from the held-out rows."""
        observation, features = sampler.model.observation, self._encoding.features
        preimputer = self._encoding.preimputer
        if held_out is None or preimputer is None or not observation.numeric:
            return sampler
        some = held_out[:CALIBRATION_ROWS]
        owners = observation.columns_of_features
        hidden = hide_cells(some, owners, torch_generator(self.seed_))
        partly = Preimputed.by(preimputer, Incomplete(some.x, some.observed & ~hidden))
        numbers = [int((owners == column).nonzero()[0, 0]) for column in observation.numeric]
        modelled = self._modelled
        steps = [modelled[column].code_step or 0.0 for column in features.numeric]
        half = features.half_widths(torch.tensor(steps, dtype=torch.float64))
        sampler = sampler.calibrated(partly, some.x[:, numbers], hidden[:, numbers], half)
        self.interval_inflation_ = list(sampler.interval_inflation)
        return sampler

    def _state(self) -> dict[str, Tensor]:
        return {} if self.model_ is None else self._encoding.state() | module_state(self.model_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        check_choices(self)
        self.model_ = self.sampler_ = None
        if not self._modelled:
            return
        self._encoding = RowEncoding.from_state(self._modelled, state)
        architecture = LatentArchitecture.from_dict(self.architecture_)
        self.model_ = architecture.restore(
            self._modelled, self._encoding.features, state, self._encoding.dtype
        )
        n_numbers, factors = len(self.model_.observation.numeric), self.interval_inflation_
        if len(factors) not in (0, n_numbers):
            raise ValueError(f"there are {len(factors)} factors of intervals for {n_numbers} numeric columns")
        self.sampler_ = self._chained(self._importance_sampler())

    def _chained(self, sampler: ImportanceSampler) -> ImportanceSampler | ChainedSampler:
        """Returns the sampler, followed by Markov chains that start from its draws if these are requested."""
        return (
            ChainedSampler(sampler, self.n_chain_steps, self.chain_kernel) if self.n_chain_steps else sampler
        )

    def _importance_sampler(self) -> ImportanceSampler:
        assert self.model_ is not None
        # Curvatures of convolutional networks cost too much, and networks of users may have none.
        adapts = self.image_shape is None and "decoder" not in self._networks
        return ImportanceSampler(
            self.model_,
            self.n_imputation_draws,
            self.seed_ % 2**31,
            adapts=adapts,
            interval_inflation=tuple(self.interval_inflation_),
        )

    def _architecture(self, features: FeatureMap, codes: Incomplete) -> LatentArchitecture:
        columns = len(self._modelled)
        most = MOST_LATENTS if self.image_shape is None else MOST_IMAGE_LATENTS
        n_latent = min(columns - 1, most) if self.n_latent == "auto" else self.n_latent
        hidden = (~codes.observed).any(dim=0).nonzero().squeeze(1).tolist()
        return LatentArchitecture(
            n_latent=max(1, n_latent),
            n_components=self.n_components if self.posterior == "mixture" else 1,
            width=self.width,
            n_blocks=self.n_blocks if self.width else 0,
            encoder="preimputed" if callable(self.encoder) else self.encoder,
            linear_decoder=self.decoder == "linear",
            numeric=self.numeric,
            missingness=Missingness.MAR.value if self._is_known or not hidden else self.missingness,
            signs=modelled_signs(self.signs, self.missingness, self.schema_, self._takes_images),
            hidden=tuple(hidden) or None,
            likelihoods=check_likelihoods(self.likelihoods, self.schema_) or None,
            image_shape=self.image_planes_ if self._takes_images else None,
        )
