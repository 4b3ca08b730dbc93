"""The base class of latent-variable imputers: fitting, whatever their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle
from math import inf
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import TrainingParameters, check_training, check_whole
from halfseen.data.columns import Column
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.margin_choice import bounded_margin
from halfseen.data.margins import Margin
from halfseen.data.pixels import pixel_features
from halfseen.data.schema import Schema
from halfseen.distributions.observation_model import FAMILIES_OF_VALUES, KINDS_OF_FAMILY
from halfseen.errors import warn_user
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.architecture import OFFERED, ImageLatent, LatentArchitecture, TabularLatent
from halfseen.latent.decomposed import IMPUTERS
from halfseen.latent.gibbs import ChainedSampler
from halfseen.latent.importance import ImportanceSampler, hide_cells
from halfseen.latent.mask_models import KnownMask, MaskModel
from halfseen.latent.model import LatentModel, Preimputed, RowEncoding
from halfseen.latent.training import (
    LARGEST_BATCH,
    LARGEST_IMAGE_BATCH,
    LatentTraining,
    fit_start,
    initialise,
    start_images,
)
from halfseen.latent.weights import MIN_DRAWS
from halfseen.nn.residual import NetworkFactory
from halfseen.nn.weights import module_state
from halfseen.training.loop import RowsT, split_rows
from halfseen.training.progress import History
from halfseen.words import Missingness, check_missingness

SIGNED = (Missingness.LOGISTIC, Missingness.MONOTONE)
AGNOSTIC = (Missingness.LINEAR, Missingness.NONLINEAR)
SELF_MASKING = (*SIGNED, Missingness.SHARED_SLOPE, Missingness.FLEXIBLE)
CHOICES: dict[str, tuple[str, ...]] = {
    "posterior": ("gaussian", "mixture", "imputations"),
    "sampling": ("ancestral", "stratified"),
    "bound": ("elbo", "iwelbo", "siwelbo-loose"),
    "gradient": ("full", "stl", "dreg"),
    "numeric": ("student-t", "gaussian", "shared-gaussian"),
    "encoder": ("preimputed", "zero", "learned", "set"),
    "decoder": ("residual", "linear"),
    "chain_kernel": ("mwg", "pseudo-gibbs", "ac-mwg"),
    "imputation": IMPUTERS,
}
MOST_DRAWS = 100_000
"""Latent draws, and steps of chains, for each row: a guess, a hundred times the default."""
NETWORKS = ("encoder", "decoder")  # parameters that are modules or functions that create them


def check_mechanism(probability: Callable[[Tensor], Any], row: Tensor) -> None:
    """Raises a ValueError if a known mechanism does not take rows, or has parameters that are not trained."""
    shape = tuple(row.shape)
    try:
        with torch.enable_grad():
            value = probability(row.detach())
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"missingness must map a tensor of rows of shape {shape} to probabilities of shape {shape}, but "
            f"it raised {type(error).__name__}: {error}"
        ) from error
    if not isinstance(value, Tensor) or tuple(value.shape) != shape:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"missingness must map a tensor of rows of shape {shape} to a torch tensor of probabilities of "
            f"shape {shape}, got {found}."
        )
    if value.requires_grad:
        raise ValueError(
            "missingness is a function with parameters that require gradients, which are not trained. Freeze "
            "them, for instance by module.requires_grad_(False), if they are known; to learn how cells are "
            f"missing choose one of {', '.join(map(repr, map(str, OFFERED)))}."
        )


def check_likelihoods(likelihoods: Any, schema: Schema) -> dict[str, str]:
    """Returns likelihoods by column name; raises a ValueError if they do not fit the table.

    Whether a likelihood suits the kind of its column is checked when the model is built.
    """
    if likelihoods is None:
        return {}
    if not isinstance(likelihoods, Mapping):
        raise ValueError(f"likelihoods must be a mapping from columns to families, got {likelihoods!r}.")
    columns = {column.name: column for column in schema}
    for name, family in likelihoods.items():
        if str(name) not in columns:
            raise ValueError(f"likelihoods refers to column {str(name)!r}, which is not in the table.")
        if family not in KINDS_OF_FAMILY:
            raise ValueError(
                f"The likelihood of column {str(name)!r} must be one of {', '.join(KINDS_OF_FAMILY)}, "
                f"got {family!r}."
            )
        if family in FAMILIES_OF_VALUES and columns[str(name)].firm_bounds()[1] < inf:
            raise ValueError(
                f"The likelihood {family!r} of column {str(name)!r} is not bounded above: remove the maximum "
                "of this column from the schema, or choose another likelihood."
            )
    return {str(name): str(family) for name, family in likelihoods.items()}


def check_choices(imputer: Any) -> None:
    """Raises a ValueError if a parameter of a latent imputer has an invalid value."""
    for name, choices in CHOICES.items():
        value = getattr(imputer, name)
        if value not in choices and not (name in NETWORKS and callable(value)):
            besides = " or a function that makes a network" if name in NETWORKS else ""
            raise ValueError(f"{name} must be one of {choices}{besides}, got {value!r}.")
    if not callable(getattr(imputer.missingness, "probability", imputer.missingness)):
        check_missingness(imputer.missingness, OFFERED, besides=", a mechanism or a function")
    if imputer.signs is not None and imputer.missingness not in SIGNED:
        raise ValueError(
            f"signs is available for missingness={' and '.join(repr(str(word)) for word in SIGNED)} only, "
            f"got missingness={imputer.missingness!r}."
        )
    if imputer.posterior == "imputations" and imputer.missingness != Missingness.MAR:
        raise ValueError(f"posterior='imputations' needs missingness='mar', got {imputer.missingness!r}.")
    lowest = {"n_components": 1, "n_starts": 1, "n_draws": 1, "width": 0, "n_blocks": 0}
    lowest |= {"n_imputation_draws": 1, "n_chain_steps": 0}
    for name, bound in lowest.items():
        check_whole(name, getattr(imputer, name), bound)
    for name in ("n_imputation_draws", "n_chain_steps"):
        if getattr(imputer, name) > MOST_DRAWS:
            raise ValueError(f"{name} must be at most {MOST_DRAWS:,}, got {getattr(imputer, name)!r}.")
    for name, bound in {"n_latent": 1, "batch_size": 1, "max_epochs": 0}.items():
        check_whole(name, getattr(imputer, name), bound, auto=True)
    check_training(imputer)
    if imputer.image_shape is not None and imputer.encoder != "preimputed":
        raise ValueError(
            f"Images have an encoder of their own: encoder must be 'preimputed', got {imputer.encoder!r}."
        )
    if imputer.n_chain_steps and (imputer.posterior == "mixture" or imputer.image_shape is not None):
        raise ValueError("n_chain_steps must be 0 for images and with posterior='mixture'.")
    if imputer.image_shape is not None and callable(imputer.decoder):
        raise ValueError("Images have convolutional networks: decoder must be 'residual' or 'linear'.")
    if imputer.image_shape is not None and imputer.likelihoods:
        raise ValueError("All pixels of images have one likelihood: likelihoods must be None.")
    if imputer.chain_kernel == "ac-mwg" and imputer.missingness != Missingness.MAR:
        raise ValueError(f"chain_kernel='ac-mwg' needs missingness='mar', got {imputer.missingness!r}.")
    if imputer.image_shape is not None and imputer.width == 0:
        raise ValueError("width must be at least 1 for images, got 0.")


def modelled_signs(
    signs: Any, missingness: Any, schema: Schema, is_image: bool = False
) -> tuple[int, ...] | None:
    """Returns the sign of each modelled column, from one for all, a sequence or a mapping by name."""
    if missingness not in SIGNED or (signs is None and missingness == Missingness.LOGISTIC):
        return None
    every = list(schema)
    if isinstance(signs, Mapping):
        unknown = set(map(str, signs)) - {column.name for column in every}
        if unknown:
            raise ValueError(f"signs refers to column {sorted(unknown)[0]!r}, which is not in the table.")
        given = [signs.get(column.name, 1) for column in every]
    else:
        value: Any = 1 if signs is None else signs
        given = [value] * len(every) if np.ndim(value) == 0 else list(value)
    if len(given) != len(every) or not all(sign in (-1, 1) for sign in given):
        raise ValueError(f"signs must be +1 or -1, one for all or one for each column, got {signs!r}.")
    if is_image and len(set(given)) > 1:
        raise ValueError("signs must be the same for all pixels of an image.")
    return tuple(int(sign) for sign, column in zip(given, every, strict=True) if column.modelled)


def known_mask(missingness: Any, schema: Schema, features: FeatureMap) -> MaskModel:
    """Returns the model of a known mechanism, a function or a fitted mechanism, in the units of the table."""
    if features.blocks or not all(column.modelled for column in schema):
        raise ValueError(
            "A known mechanism (missingness) needs a table of numeric columns, none of them constant."
        )
    if any(column.levels not in (None, (0.0, 1.0)) for column in schema):
        raise ValueError("A known mechanism (missingness) for binary pixels needs the values 0 and 1.")
    probability = getattr(missingness, "probability", missingness)
    check_mechanism(probability, features.numbers(torch.zeros(1, features.n_features).double()))

    def missing(x: Tensor) -> Tensor:
        value: Tensor = probability(features.numbers(x.cpu().double()))  # also for rows on another device
        return value.to(x)

    return KnownMask(missing, features.n_features)


CHECKED_ROWS = 200  # incomplete rows whose importance weights are computed
ENOUGH_ROWS = 30  # fewer incomplete rows give no reason to warn
POOR_SHARE = 0.25  # effective sample sizes below this share of the draws are poor
UNRELIABLE = 0.7  # the Pareto shape above which importance weights are unreliable


def check_importance_weights(sampler: ImportanceSampler, rows: Incomplete) -> dict[str, float]:
    """Returns a summary of the importance weights of some incomplete rows; warns if they are poor."""
    some = rows[(~rows.observed).any(dim=1)][:CHECKED_ROWS]
    if len(some) == 0 or sampler.n_draws < MIN_DRAWS:
        return {}
    weight_diagnostics = sampler.weight_diagnostics(some)
    share = float((weight_diagnostics.pareto_k > UNRELIABLE).double().mean())
    ess = float(weight_diagnostics.ess.median())
    if share > 0.5 and ess < POOR_SHARE * sampler.n_draws and len(some) >= ENOUGH_ROWS:
        warn_user(
            f"The importance weights of {share:.0%} of the rows have heavy tails (Pareto k above "
            f"{UNRELIABLE}), and the median effective sample size is {ess:.0f} of {sampler.n_draws} draws. "
            "Means may still be accurate, but intervals and draws are too narrow: raise n_imputation_draws, "
            "lower n_latent, or use posterior='mixture'."
        )
    return {"median_ess": ess, "unreliable": share}


MOST_LATENTS, MOST_IMAGE_LATENTS = 16, 32
CALIBRATION_ROWS = 200  # rows in which observed values are hidden to calibrate intervals

Attempt: TypeAlias = tuple[float, History, LatentModel]  # loss, history and model of a training run


@dataclass(eq=False, repr=False, kw_only=True)
class BaseLatentImputer(TrainingParameters, BaseImputer):
    """The base class of latent-variable imputers, with the parameters that all of them have.

    What a published method prescribes is an attribute of its class, and what it leaves open is a field.
    """

    _saved = ("architecture_", "weight_diagnostics_", "interval_inflation_")

    # Not annotated, because these are no parameters of the published methods, or not of all.
    posterior = "gaussian"
    n_components = 1
    sampling = "ancestral"
    bound = "iwelbo"
    gradient = "stl"
    missingness = cast(Any, Missingness.MAR.value)
    signs = cast(Any, None)
    n_starts = 1
    encoder = cast(Any, "preimputed")
    n_chain_steps = 0
    chain_kernel = cast(Any, "mwg")
    imputation = "lair"
    likelihoods = cast(Any, None)

    n_draws: int = 5
    n_latent: int | str = "auto"
    numeric: str = "student-t"
    decoder: Any = "residual"
    width: int = 128
    n_blocks: int = 2
    batch_size: int | str = "auto"
    max_epochs: int | str = "auto"
    patience: int = 50
    n_imputation_draws: int = 200
    image_shape: Any = None

    model_: LatentModel | None = field(init=False)
    sampler_: ImportanceSampler | ChainedSampler | None = field(init=False)
    _encoding: RowEncoding = field(init=False)

    @property
    def _is_known(self) -> bool:
        """Whether the mechanism is given as a function."""
        return not isinstance(self.missingness, str)

    @property
    def _networks(self) -> dict[str, NetworkFactory]:
        """The networks that are given as factories."""
        return {name: getattr(self, name) for name in NETWORKS if callable(getattr(self, name))}

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
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        images = self.image_shape is not None
        return replace(
            super().capabilities,
            images=images,
            models_missingness=self.missingness != Missingness.MAR,
            holds_out_rows=True,
            trains_in_epochs=True,
            reports_rows=True,
            relates_near_copies=not images,
        )

    def _fit_codes(self, codes: Incomplete) -> None:
        self.model_ = self.sampler_ = None
        if not self._modelled:
            return
        check_choices(self)
        self.interval_inflation_: list[float] = []
        fit = self._fit_images if self.capabilities.images else self._fit_table
        rows, held_out = fit(codes, torch_generator(self.seed_))
        sampler = self._importance_sampler()
        if not self.capabilities.images:
            sampler = self._calibrated(sampler, held_out)
        self.weight_diagnostics_ = check_importance_weights(sampler, rows)
        self.sampler_ = self._chained(sampler)

    @property
    def _fitted_model(self) -> TabularLatent | ImageLatent | None:
        if self.model_ is None or self.sampler_ is None:
            return None
        if self.capabilities.images:
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

    @property
    def _holds_decoder(self) -> bool:
        """Whether a mask that depends on all columns does not change the distribution of values of a table.

        A linear decoder is trained with it: what it has learned from observed values also holds elsewhere.
        """
        agnostic = isinstance(self.missingness, str) and self.missingness in AGNOSTIC
        return agnostic and self.decoder != "linear" and not self.capabilities.images

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
            largest_batch=LARGEST_IMAGE_BATCH if self.capabilities.images else LARGEST_BATCH,
            holds_decoder=self._holds_decoder,
            imputation=self.imputation,
            bounds_values=not self.capabilities.images and self.missingness != Missingness.MAR,
            device=self.device,
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
        if self._encoding.preimputer is None and not self.capabilities.images:
            raise ValueError("there is no Gaussian that fills the input of the encoder")
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
        n_latent = min(columns - 1, most) if self.n_latent == "auto" else int(self.n_latent)
        hidden = (~codes.observed).any(dim=0).nonzero().squeeze(1).tolist()
        return LatentArchitecture(
            n_latent=max(1, n_latent),
            n_components=self.n_components if self.posterior == "mixture" else 1,
            width=self.width,
            n_blocks=self.n_blocks if self.width else 0,
            encoder="preimputed" if callable(self.encoder) else self.encoder,
            linear_decoder=self.decoder == "linear",
            numeric=cast(Any, self.numeric),  # `check_choices` has checked it
            missingness=Missingness.MAR.value if self._is_known or not hidden else self.missingness,
            signs=modelled_signs(self.signs, self.missingness, self.schema_, self.capabilities.images),
            hidden=tuple(hidden) or None,
            likelihoods=check_likelihoods(self.likelihoods, self.schema_) or None,
            image_shape=self.image_planes_ if self.capabilities.images else None,
        )
