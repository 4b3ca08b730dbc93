"""Initialisation and training of the networks of latent imputers.

The linear paths of the networks start from a factor analysis.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import scipy.sparse
import scipy.sparse.linalg
import torch
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.nn import functional

from halfseen.data.incomplete import Incomplete
from halfseen.data.margins import inverse_softplus
from halfseen.distributions.leaves import GaussianLeaf, Leaf, SharedGaussianLeaf, StudentTLeaf
from halfseen.distributions.observation_model import ObservationModel
from halfseen.gaussian.distribution import Gaussian
from halfseen.gaussian.em import EMSettings, choose_shrinkage, fit_gaussian
from halfseen.gaussian.em_self_masked import fit_masked_gaussian
from halfseen.gaussian.low_rank import LowRankGaussian
from halfseen.gaussian.mask_factors import ProbitMaskFactor
from halfseen.gaussian.self_masked import SelfMaskedGaussian
from halfseen.latent.bounds import LatentObjective, Support
from halfseen.latent.completions import CompletedRows, Completions
from halfseen.latent.decomposed import DecomposedObjective
from halfseen.latent.model import LatentModel, Preimputed
from halfseen.latent.self_masking import FlexibleSelfMask, SelfMaskModel, SharedSlopeMask
from halfseen.nn.residual import LinearWithNetwork, ResidualMLP
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.progress import History, Progress
from halfseen.words import Missingness

MIN_UNIQUENESS = 0.01  # relative to the variance of a feature; avoids a singular likelihood
MIN_GAIN = 0.1  # minimum loading of a factor, so that every latent variable is used
N_EM_STEPS = 100
DAMPING = 4e-3  # limits how much parameters change to change a mean, for rare levels
MASK_RIDGE = 1.0
LOGISTIC = 1.702  # the slope at which a logistic curve is closest to the normal one
STEEP = 20.0  # log odds per standard deviation, so steep that the curve is nearly a step
SPREAD = 0.5  # spread of the means of mixture components, in posterior standard deviations
FIRST_SCALE = 0.1  # initial scale of posteriors of images; that of the prior is 1


@dataclass(frozen=True)
class Factors:
    r"""A factor analysis :math:`x = \mu + W z + \epsilon`, with :math:`\epsilon \sim \mathcal{N}(0, \Psi)`.

    Shapes
    ------
    loc, uniqueness : :math:`(D)`, :math:`\mu` and the diagonal of :math:`\Psi`
    loadings : :math:`(D, L)`, :math:`W`
    """

    loc: Tensor
    loadings: Tensor
    uniqueness: Tensor

    @classmethod
    def of(cls, gaussian: Gaussian, n_factors: int) -> "Factors":
        r"""Maximises the likelihood of a covariance, by alternation.

        Given :math:`\Psi`, :math:`W = \Psi^{1/2} U (\Lambda - I)^{1/2}` from the leading eigenvectors of
        :math:`\Psi^{-1/2} \Sigma \Psi^{-1/2}`; given :math:`W`, :math:`\Psi = \mathrm{diag}(\Sigma - W W^T)`.

        References
        ----------
        Jöreskog (1967), Some contributions to maximum likelihood factor analysis.
        """
        if isinstance(gaussian, LowRankGaussian):
            return cls._of_low_rank(gaussian, n_factors)
        variance = gaussian.variance
        lowest = MIN_UNIQUENESS * variance + torch.finfo(variance.dtype).tiny
        uniqueness = torch.maximum(0.5 * variance, lowest)
        for _ in range(N_EM_STEPS):
            root = uniqueness.sqrt()
            values, vectors = torch.linalg.eigh(gaussian.covariance / (root[:, None] * root))
            leading = slice(max(0, len(root) - n_factors), None)
            gains = (values[leading] - 1.0).clamp(min=MIN_GAIN**2).sqrt()
            loadings = root[:, None] * vectors[:, leading] * gains
            uniqueness = torch.maximum(variance - loadings.square().sum(dim=1), lowest)
        missing = n_factors - loadings.shape[1]
        return cls(gaussian.loc, functional.pad(loadings, (0, max(0, missing))), uniqueness)

    @classmethod
    def _of_low_rank(cls, gaussian: LowRankGaussian, n_factors: int) -> "Factors":
        r"""Returns the leading factors of a covariance that is of low rank plus a diagonal.

        The alternation is the same, with :math:`I + \Psi^{-1/2} W W^T \Psi^{-1/2}` in place of
        :math:`\Psi^{-1/2} \Sigma \Psi^{-1/2}`, so no D x D matrix is created. The result is the same
        if the factors are no fewer than those of the covariance. Further factors have the smallest loadings.
        """
        variance, rank = gaussian.variance, gaussian.loadings.shape[1]
        lowest = MIN_UNIQUENESS * variance + torch.finfo(variance.dtype).tiny
        uniqueness = torch.maximum(gaussian.noise, lowest)
        kept = slice(max(0, rank - n_factors), None)
        for _ in range(N_EM_STEPS if n_factors < rank else 1):
            scaled = gaussian.loadings / uniqueness.sqrt()[:, None]
            values, rotation = torch.linalg.eigh(scaled.T @ scaled)
            loadings = gaussian.loadings @ rotation[:, kept]
            weak = MIN_GAIN**2 / values[kept].clamp(min=torch.finfo(values.dtype).tiny)
            loadings = loadings * weak.clamp(min=1.0).sqrt()
            uniqueness = torch.maximum(variance - loadings.square().sum(dim=1), lowest)
        root, n_more = uniqueness.sqrt(), min(n_factors, len(variance)) - loadings.shape[1]
        axes = torch.eye(len(variance), max(0, n_more), dtype=variance.dtype)
        basis = torch.linalg.qr(torch.cat([loadings / root[:, None], axes], dim=1)).Q
        loadings = torch.cat([loadings, MIN_GAIN * root[:, None] * basis[:, loadings.shape[1] :]], dim=1)
        return cls(
            gaussian.loc, functional.pad(loadings, (0, n_factors - loadings.shape[1])), uniqueness
        )  # fmt: skip

    def precision(self, observed: Tensor) -> Tensor:
        r"""Returns the posterior precision :math:`I + W_o^T \Psi_o^{-1} W_o` (N, L, L) of rows (N, D)."""
        scaled = torch.where(observed[..., None], self.loadings / self.uniqueness[:, None], 0.0)  # (N, D, L)
        return torch.eye(self.loadings.shape[1], dtype=self.loc.dtype) + self.loadings.mT @ scaled

    def posterior_map(self) -> Tensor:
        """Returns B (L, D), the posterior mean of complete rows as a map of their deviation."""
        everything = torch.ones(1, len(self.loc), dtype=torch.bool)
        right = (self.loadings / self.uniqueness[:, None]).mT
        solution: Tensor = torch.linalg.solve(self.precision(everything)[0], right)
        return solution


@torch.no_grad()
def start_from_factors(
    model: LatentModel, factors: Factors, observed: Tensor, generator: torch.Generator
) -> None:
    """Sets the linear paths of both networks to a factor analysis; exact if rows have a preimputation.

    Parameters
    ----------
    model : LatentModel
        Its networks are residual with linear paths, or linear; an encoder of another kind is left as it is.
    factors : Factors
        Of the features.
    observed : Tensor
        Some masks (N, D) of rows, on which the dependence of the posterior's scale on the mask is fitted.
    generator : torch.Generator
        Spreads the components of a mixture.
    """
    assert isinstance(model.decoder, ResidualMLP | LinearWithNetwork)
    if isinstance(model.encoder, ResidualMLP | LinearWithNetwork):
        weakened = _weakened_for_levels(model, factors)
        model.encoder.set_linear(*_encoder_map(model, weakened, observed, generator))
    model.decoder.set_linear(*_decoder_map(model.observation, factors))


def _weakened_for_levels(model: LatentModel, factors: Factors) -> Factors:
    r"""Returns factors whose indicators carry only as much information about latents as levels do.

    A logit of slope :math:`w / p(1 - p)` has the information :math:`w^2 / p(1 - p)`: in place of the
    uniqueness stands the whole variance.
    """
    owners = model.observation.columns_of_features
    is_number = torch.isin(owners, torch.tensor(model.observation.numeric, dtype=owners.dtype))
    variance = factors.uniqueness + factors.loadings.square().sum(dim=1)
    return replace(factors, uniqueness=torch.where(is_number, factors.uniqueness, variance))


def _encoder_map(
    model: LatentModel, factors: Factors, observed: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns weight and bias from preimputed rows and masks to the posterior's outputs."""
    n_components, n_latent, n_features = model.n_components, model.n_latent, len(factors.loc)
    means = factors.posterior_map()  # (L, D)
    spread = factors.precision(observed).inverse().diagonal(dim1=-2, dim2=-1).sqrt()  # (N, L)
    slopes, level = _ridge_regression(observed.to(spread.dtype), inverse_softplus(spread))  # (L, D), (L)

    weight = torch.zeros(model.n_outputs(n_latent, n_components), 2 * n_features, dtype=torch.float64)
    bias = torch.zeros(len(weight), dtype=torch.float64)
    offsets = torch.randn(n_components, n_latent, generator=generator, dtype=torch.float64)
    offsets = SPREAD * spread.mean(dim=0) * offsets * (n_components > 1)
    for k in range(n_components):
        at = slice(k * n_latent, (k + 1) * n_latent)
        weight[at, :n_features] = means
        bias[at] = offsets[k] - means @ factors.loc
        at = slice((n_components + k) * n_latent, (n_components + k + 1) * n_latent)
        weight[at, n_features:] = slopes
        bias[at] = level
    return weight, bias


def _ridge_regression(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Returns slopes (L, D) and intercepts (L) of outputs (N, L) on inputs (N, D)."""
    centre, middle = inputs.mean(dim=0), outputs.mean(dim=0)
    slopes = _damped_solution(inputs - centre, outputs - middle, MASK_RIDGE).mT
    return slopes, middle - slopes @ centre


def _damped_solution(left: Tensor, right: Tensor, damping: float) -> Tensor:
    r"""Returns :math:`(A^T A + \delta I)^{-1} A^T B` for A (N, D) and B (N, L), by the smaller system."""
    if len(left) < left.shape[1]:
        inner = left @ left.mT + damping * torch.eye(len(left), dtype=left.dtype)
        solution: Tensor = left.mT @ torch.linalg.solve(inner, right)
        return solution
    inner = left.mT @ left + damping * torch.eye(left.shape[1], dtype=left.dtype)
    solution = torch.linalg.solve(inner, left.mT @ right)
    return solution


def _decoder_map(observation: ObservationModel, factors: Factors) -> tuple[Tensor, Tensor]:
    r"""Returns weight and bias from latents to parameters whose means change as the factors predict.

    With :math:`J` the Jacobian of the means at the neutral parameters, the damped least squares
    :math:`(J^T J + \delta I)^{-1} J^T W`; so too for the step from the neutral means to :math:`\mu`.
    """
    neutral = _with_uniqueness(observation, factors.uniqueness)
    slopes = scipy.sparse.csr_array(_mean_slopes(observation, neutral).numpy())  # a mean has few parameters
    step = (factors.loc - observation.mean(neutral))[:, None]
    inner = (slopes @ slopes.T + DAMPING * scipy.sparse.eye_array(len(step))).tocsc()
    found = scipy.sparse.linalg.splu(inner).solve(torch.cat([factors.loadings, step], dim=1).numpy())
    solution = torch.from_numpy(slopes.T @ found)
    return solution[:, :-1], neutral + solution[:, -1]


def _mean_slopes(observation: ObservationModel, parameters: Tensor) -> Tensor:
    """Returns the Jacobian (D, P) of the means; that of `torch.func` would load torch's compiler."""
    slopes: Tensor = jacobian(observation.mean, parameters, vectorize=True)
    return slopes


def _with_uniqueness(observation: ObservationModel, uniqueness: Tensor) -> Tensor:
    """Returns the neutral parameters (P), with the scales of real numbers set to the uniqueness."""
    of_parameters = _mean_slopes(observation, observation.neutral_parameters()).abs()
    positions = observation.split(torch.arange(observation.n_parameters))
    pieces = []
    for leaf, part in zip(observation.leaves, positions, strict=True):
        assert isinstance(leaf, Leaf)
        neutral = leaf.neutral_parameters().clone()
        if isinstance(leaf, GaussianLeaf | StudentTLeaf | SharedGaussianLeaf):
            features = of_parameters[:, part[: leaf.n_columns]].argmax(dim=0)
            spread = uniqueness[features].sqrt()
            if isinstance(leaf, SharedGaussianLeaf):
                leaf.log_std.fill_(spread.square().mean().sqrt().log())
            else:
                at = slice(leaf.n_columns, 2 * leaf.n_columns)
                floor = leaf.std_floor if isinstance(leaf, GaussianLeaf) else leaf.scale_floor
                unit = functional.softplus(neutral[at])  # of unit variance
                neutral[at] = inverse_softplus((spread * unit).clamp(min=2 * floor))
        pieces.append(neutral)
    return torch.cat(pieces)


@torch.no_grad()
def start_from_probit(mask_model: SelfMaskModel, coefficients: Tensor, active: Tensor) -> None:
    r"""Sets the curves of a self-masking model to probits :math:`\Phi(\lambda x - c)` of being missing.

    A logistic curve of slope :math:`1.7 \lambda` is almost the same. If the known direction of a column
    differs from that of the probit, its curve is not changed.

    Parameters
    ----------
    mask_model : SelfMaskModel
        Changed in place.
    coefficients : Tensor
        (C, 2), the slope :math:`\lambda` and :math:`-c` of each column that is a number.
    active : Tensor
        (C), the columns that have one.
    """
    slope, bias = LOGISTIC * coefficients[:, 0], -LOGISTIC * coefficients[:, 1]
    signs = getattr(mask_model, "signs", torch.zeros(len(slope)))
    active = active & mask_model.is_number & ((signs == 0) | (signs * slope > 0)) & (slope != 0)
    raw = torch.where(signs == 0, slope, inverse_softplus(slope.abs().clamp(min=1e-3)))
    name = "slope" if isinstance(mask_model, FlexibleSelfMask) else "raw_slope"
    before: Tensor = getattr(mask_model, name)
    if isinstance(mask_model, SharedSlopeMask):
        before.copy_(raw[active].mean() if active.any() else before)
    else:
        before.copy_(torch.where(active, raw, before))
    mask_model.bias.copy_(torch.where(active, bias, mask_model.bias))


@torch.no_grad()
def start_from_edges(mask_model: SelfMaskModel, rows: Incomplete, active: Tensor) -> None:
    r"""Sets the curves of a self-masking model to steps: values beyond the observed range are missing.

    .. math:: \ell_c(x) = w (e_c - s_c x_c), \qquad e_c = \max_{i : o_{ic}} s_c x_{ic}

    If values are censored, this is close to the truth, whereas training from a flatter curve would take long
    to become as steep, or would end in a local optimum that fits a Gaussian. The direction :math:`s_c` is
    the known one, or that of the current slope; steeper slopes are not changed.

    Parameters
    ----------
    mask_model : SelfMaskModel
        Changed in place; starts from probits, see `start_from_probit`.
    rows : Incomplete
        Features (N, D).
    active : Tensor
        (C), the columns to change.
    """
    name = "slope" if isinstance(mask_model, FlexibleSelfMask) else "raw_slope"
    before: Tensor = getattr(mask_model, name)
    signs = getattr(mask_model, "signs", torch.zeros(mask_model.n_columns))
    directions = torch.where(signs == 0, before.sign(), signs)  # (C)
    slope = torch.where(signs == 0, before.abs(), functional.softplus(before)).clamp(min=STEEP)
    raw = torch.where(signs == 0, directions * slope, inverse_softplus(slope))
    values = rows.x[:, mask_model.feature] * directions
    edges = torch.where(rows.observed[:, mask_model.feature], values, -torch.inf).amax(dim=0)
    active = active & mask_model.is_number & edges.isfinite() & (directions != 0)
    if isinstance(mask_model, SharedSlopeMask):
        slope = slope[:1]
        before.copy_(raw[:1])
    else:
        before.copy_(torch.where(active, raw, before))
    mask_model.bias.copy_(torch.where(active, slope * edges, mask_model.bias))


@torch.no_grad()
def start_images(model: LatentModel, rows: Incomplete, generator: torch.Generator) -> None:
    """Draws new weights for a model of images; its decoder is initialised near the mean of the pixels.

    Posteriors are initialised to be narrow. If they were wide, the latent variables would initially carry so
    little information that a bound without importance weights improves fastest by ignoring them, and only
    the mean of the pixels would be learned.

    Parameters
    ----------
    model : LatentModel
        As `LatentArchitecture.build_for_images` returns it; changed in place.
    rows : Incomplete
        The training rows (N, D).
    generator : torch.Generator
        Makes the weights.
    """
    networks: Any = (model.encoder, model.decoder)
    for network in networks:
        network.reset_parameters(generator)
    size = model.n_components * model.n_latent
    raw_scale = inverse_softplus(torch.tensor(FIRST_SCALE, dtype=torch.float64))
    networks[0].output.bias[size : 2 * size] = raw_scale  # means are before scales
    model.mask_model.reset_parameters(generator, rows.observed.double().mean(dim=0))
    mean = rows.filled().sum(dim=0) / (rows.observed.sum(dim=0) + 2.0)  # (D), with a pixel of each sign
    start = model.observation.neutral_parameters()  # (P), locations first
    start[: len(mean)] = mean if model.observation.numeric else 2.0 * torch.atanh(mean)  # or log odds
    decoder: Any = model.decoder.output if isinstance(model.decoder, ResidualMLP) else model.decoder
    decoder.bias.copy_(start)


MOST_ROWS = 5000


def fit_start(
    batch: Incomplete, may_hide: Tensor | None, generator: torch.Generator
) -> Gaussian | SelfMaskedGaussian:
    """Returns a Gaussian of features by EM, on at most 5,000 rows.

    Parameters
    ----------
    batch : Incomplete
        Features (N, D).
    may_hide : Tensor, optional
        Features (D) that may be missing because of their value; a probit of it is then fitted as well.
    generator : torch.Generator
        Chooses rows, and those that choose the ridge.
    """
    some = batch[torch.randperm(len(batch), generator=generator)[:MOST_ROWS]]
    settings = EMSettings(max_iterations=100, tolerance=1e-4)
    settings = choose_shrinkage(some, settings, generator=generator)
    if may_hide is None:
        return fit_gaussian(some, settings, generator=generator).gaussian
    return fit_masked_gaussian(some, Missingness.PROBIT, may_hide, settings, generator=generator).model


MASKS = 1000  # masked copies of rows by which the encoder learns how missing values widen the posterior
N_STEPS = 2500  # training steps if max_epochs is not given
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
