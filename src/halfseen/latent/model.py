r"""Deep latent-variable models with a mixture posterior, and their importance weights."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.mixture import GaussianMixture
from halfseen.distributions.observation_model import ObservationModel
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.mask_models import Ignorable, MaskModel
from halfseen.latent.self_masking import SelfMaskModel, integrated_log_prob, is_integrable

LARGEST_FEATURE = 1e100  # in standard deviations; squares of larger values might overflow


@dataclass(frozen=True)
class Preimputed(Incomplete):
    r"""Incomplete values, and a preimputation of the whole row, made from the observed cells alone.

    If it is the conditional mean of a Gaussian, the posterior mean of a linear-Gaussian latent model is a
    linear function of it for every pattern of missing values, :math:`\mathrm{E}[z \mid x_o] =
    \mathrm{E}[\mathrm{E}[z \mid x] \mid x_o] = B (\mathrm{E}[x \mid x_o] - \mu)`; zeros for missing values
    have no such property.

    Shapes
    ------
    preimputation : :math:`(N, D)`, as ``x``

    Examples
    --------
    >>> rows = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> gaussian = Gaussian(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    >>> Preimputed.by(gaussian, rows).preimputation
    tensor([[1.0000, 0.5000]])
    """

    preimputation: Tensor

    @classmethod
    def by(cls, gaussian: Gaussian, rows: Incomplete) -> "Preimputed":
        """Returns the rows with the conditional means of a Gaussian."""
        return cls(rows.x, rows.observed, gaussian.conditional_mean(rows))

    def to(self, dtype: torch.dtype) -> "Preimputed":
        """Returns the rows with values and preimputations in another floating type."""
        return Preimputed(self.x.to(dtype), self.observed, self.preimputation.to(dtype))

    def __getitem__(self, rows: slice | Tensor) -> "Preimputed":
        return Preimputed(self.x[rows], self.observed[rows], self.preimputation[rows])


class PreimputedFill(nn.Module):
    """Creates the layer that fills missing values with the preimputation of the rows."""

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        if not isinstance(batch, Preimputed):
            raise TypeError("The rows bring no preimputation: make them with Preimputed.by.")
        return torch.where(batch.observed, batch.x, batch.preimputation)


@dataclass(frozen=True)
class RowEncoding:
    """From the codes of a table to the rows that a latent-variable model reads.

    Parameters
    ----------
    features : FeatureMap
        From codes (N, C) to features (N, D), with all indicators.
    preimputer : Gaussian, optional
        Of the features; its conditional means are what the encoder sees for missing values. Without it, as
        for images, rows are in single precision, in which convolutions are fast.
    """

    features: FeatureMap
    preimputer: Gaussian | None = None

    def rows(self, codes: Incomplete) -> Incomplete:
        """Returns the features of codes; with a preimputer, none is farther out than `LARGEST_FEATURE`."""
        features = self.features.encode(codes)
        if self.preimputer is None:
            return features.to(torch.float32)
        near = Incomplete(features.x.clamp(-LARGEST_FEATURE, LARGEST_FEATURE), features.observed)
        return Preimputed.by(self.preimputer, near)

    @property
    def dtype(self) -> torch.dtype:
        """The floating type of rows and of the model that reads them."""
        return torch.float32 if self.preimputer is None else torch.float64

    def state(self) -> dict[str, Tensor]:
        """Returns every learned tensor."""
        if self.preimputer is None:
            return self.features.state()
        gaussian = {
            "preimputer.loc": self.preimputer.loc,
            "preimputer.covariance": self.preimputer.covariance,
        }
        return self.features.state() | gaussian

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "RowEncoding":
        """Rebuilds the encoding from the columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        if "preimputer.loc" not in state:
            return cls(features)
        return cls(features, Gaussian.checked(state["preimputer.loc"], state["preimputer.covariance"]))


class ZeroFill(nn.Module):
    r"""Creates the fill with zeros, which is the mean if features are standardised.

    .. math:: x^\text{in}_j = x_j \text{ if observed, else } 0

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> ZeroFill()(batch)
    tensor([[1., 0.]])
    """

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        return torch.where(batch.observed, batch.x, 0.0)


class LearnedFill(nn.Module):
    r"""Creates the fill with one learned constant for each feature, initially 0.

    .. math:: x^\text{in}_j = x_j \text{ if observed, else } c_j

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[1.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> LearnedFill(2)(batch)
    tensor([[1., 0.]], grad_fn=<WhereBackward0>)
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(n_features))  # (D,)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the filled values, with the shape of the batch."""
        return torch.where(batch.observed, batch.x, self.value)


def encoder_input(batch: Incomplete, fill: nn.Module) -> Tensor:
    r"""Returns the input of encoders: the filled values, followed by the mask of observed values as 0 and 1.

    The mask distinguishes an observed zero from a missing value; the input is :math:`(*, 2D)`.

    Examples
    --------
    >>> batch = Incomplete(torch.tensor([[3.0, torch.nan]]), torch.tensor([[True, False]]))
    >>> encoder_input(batch, ZeroFill())
    tensor([[3., 0., 1., 0.]])
    """
    filled: Tensor = fill(batch)
    return torch.cat([filled, batch.observed.to(filled.dtype)], dim=-1)


Gradient = Literal["full", "stl"]
MaskTerm = Literal["auto", "sample", "integrated"]

POSTERIOR_FLOOR = 1e-5
"""No standard deviation of a posterior component is smaller."""


class LatentNoise(NamedTuple):
    r"""The noise of one evaluation of log weights; noise that is not needed is empty.

    Noise of :math:`K` strata gives *stratified* draws, the same number from each component. Noise of a single
    stratum gives *ancestral* draws from the mixture. An axis of length 1 in place of N is shared by all rows.
    Some objectives need noise of other shapes, which their `draw_noise` describes.

    Shapes
    ------
    normals : :math:`(S, N, K, L)` or :math:`(S, N, 1, L)`, standard normals
    uniforms : :math:`(S, N)`, which component ancestral draws are of
    cells : :math:`(S, N, K, M)` or :math:`(S, N, 1, M)`, uniforms that fill the missing cells
    """

    normals: Tensor
    uniforms: Tensor
    cells: Tensor


@dataclass(frozen=True)
class WeightedLatents:
    r"""Latent draws with their log weights.

    Shapes
    ------
    log_w : :math:`(S, N, K)`, with :math:`K = 1` for ancestral draws
    log_strata : :math:`(N, K)`, the log of how much each stratum counts
    parameters : :math:`(S, N, K, P)`, the decoder's output for the cells
    completed : :math:`(S, N, K, D)`, rows whose missing cells were drawn; None where none were
    """

    log_w: Tensor
    log_strata: Tensor
    parameters: Tensor
    completed: Tensor | None


class LatentModel(nn.Module):
    r"""Creates a latent-variable model of incomplete rows.

    .. math:: p(x_o, o) = \int p(z) \prod_{j \in o} p(x_j \mid z) \, p(o \mid x_o, z) \, dz, \qquad
              z \sim \mathcal{N}(0, I_L)

    The posterior :math:`q(z \mid x_o)` is a mixture of :math:`K` diagonal Gaussians; for a row without
    observed cells it is the prior. Missing cells of :math:`p(x \mid z)` are left out of the product. The
    `mask_model` describes how the mask depends on missing cells; with the default, an ignorable model, it
    does not.

    Parameters
    ----------
    encoder : nn.Module
        From what `fill` makes of a row, and the mask, to :math:`2KL + K` outputs (:math:`2L` if
        :math:`K = 1`): means, scales before the softplus, and logits of the components.
    decoder : nn.Module
        From latents :math:`(*, L)` to the outputs :math:`(*, P)` of `observation`.
    observation : ObservationModel
        The likelihood of cells.
    n_latent, n_components : int
        :math:`L` and :math:`K`.
    mask_model : MaskModel, optional
        The probability of masks.
    mask_term : {"auto", "sample", "integrated"}
        How missing cells enter the mask model: as one reparametrised draw with each latent, or integrated out
        by quadrature, for self-masking models with Gaussian, Student-t and level columns. ``"auto"``
        integrates where it can.
    fill : nn.Module, optional
        The values that replace missing values in the input of the encoder; zeros by default.

    References
    ----------
    Those of `LatentImputer`, which fits the model.

    Examples
    --------
    >>> from halfseen.nn.residual import ResidualMLP
    >>> observation = ObservationModel.for_pixels(3, "gaussian")
    >>> model = LatentModel(ResidualMLP(6, 4), ResidualMLP(2, 6), observation, 2)
    >>> x = torch.tensor([[0.5, torch.nan, 1.0]])
    >>> noise = LatentNoise(torch.zeros(5, 1, 1, 2), torch.empty(0), torch.empty(0))
    >>> model.log_weights(Incomplete(x, ~x.isnan()), noise).log_w.shape
    torch.Size([5, 1, 1])
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        observation: ObservationModel,
        n_latent: int,
        n_components: int = 1,
        *,
        mask_model: MaskModel | None = None,
        mask_term: MaskTerm = "auto",
        fill: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if n_latent < 1 or n_components < 1:
            raise ValueError(
                f"n_latent and n_components must be at least 1, got {n_latent} and {n_components}."
            )
        self.encoder = encoder
        self.decoder = decoder
        self.observation = observation
        self.n_latent = n_latent
        self.n_components = n_components
        self.mask_model = Ignorable(observation.n_features) if mask_model is None else mask_model
        self.mask_term = self._choose_mask_term(mask_term)
        self.fill = ZeroFill() if fill is None else fill

    @staticmethod
    def n_outputs(n_latent: int, n_components: int) -> int:
        """Returns how many outputs the encoder must have."""
        return 2 * n_components * n_latent + (n_components if n_components > 1 else 0)

    @property
    def n_cells(self) -> int:
        """How many uniforms a latent draw needs to fill missing cells."""
        return self.observation.n_noise if self.mask_term == "sample" else 0

    def posterior(self, batch: Incomplete) -> GaussianMixture:
        """Returns the posterior of each row; the prior for rows without observed cells."""
        outputs = self.encoder(encoder_input(batch, self.fill))
        shape = (*outputs.shape[:-1], self.n_components, self.n_latent)
        size = self.n_components * self.n_latent
        loc, raw_scale, logits = outputs.split([size, size, outputs.shape[-1] - 2 * size], dim=-1)
        loc, scale = loc.reshape(shape), functional.softplus(raw_scale).reshape(shape) + POSTERIOR_FLOOR
        logits = logits if self.n_components > 1 else loc.new_zeros(shape[:-1])

        shows = batch.observed.any(dim=-1)[..., None]  # (N, 1)
        return GaussianMixture(
            torch.where(shows, logits, 0.0),
            torch.where(shows[..., None], loc, 0.0),
            torch.where(shows[..., None], scale, 1.0),
        )

    def log_weights(
        self,
        batch: Incomplete,
        noise: LatentNoise,
        *,
        gradient: Gradient = "full",
        mask_weight: float = 1.0,
        exact: bool = False,
    ) -> WeightedLatents:
        r"""Returns latent draws with their log weights, from which all bounds and imputations are computed.

        .. math:: \log w = \sum_{j \in o} \log p(x_j \mid z) + \log p(z) - \log q(z \mid x_o) +
                  \lambda \log p(o \mid x_o, x_m)

        Parameters
        ----------
        batch : Incomplete
            Rows (N, D).
        noise : LatentNoise
            Makes the draws.
        gradient : {"full", "stl"}
            The gradient of the posterior: the full one, or only that through the draws (sticking the
            landing).
        mask_weight : float
            The weight :math:`\lambda` of the mask term; 0 to fit as if the mask were ignorable.
        exact : bool
            Whether missing levels are drawn whole, or relaxed so that they have a gradient.
        """
        posterior = self.posterior(batch)
        z = self.draw(posterior, noise)  # (S, N, K, L)
        density = posterior if gradient == "full" else posterior.detach()
        weighted = self.weigh(batch, density, z, noise.cells, mask_weight=mask_weight, exact=exact)
        if z.shape[-2] != self.n_components:  # ancestral
            return weighted
        return replace(weighted, log_strata=posterior.log_weights)

    def draw(self, posterior: GaussianMixture, noise: LatentNoise) -> Tensor:
        """Returns latents (S, N, K, L), ancestral or stratified by the shape of the noise."""
        if noise.normals.shape[-2] == self.n_components:
            return posterior.stratified(noise.normals)
        return posterior.ancestral(noise.uniforms, noise.normals.squeeze(-2)).unsqueeze(-2)

    def weigh(
        self,
        batch: Incomplete,
        density: GaussianMixture,
        z: Tensor,
        cells: Tensor,
        *,
        mask_weight: float = 1.0,
        exact: bool = False,
    ) -> WeightedLatents:
        """Returns the log weights of given latents under a given posterior; strata have equal weights."""
        weighted = self.log_joint(batch, z, cells, mask_weight=mask_weight, exact=exact)
        if z.shape[-2] == self.n_components:
            log_q = density.log_prob_strata(z)
        else:
            log_q = density.log_prob(z.squeeze(-2)).unsqueeze(-1)
        return replace(weighted, log_w=weighted.log_w - log_q)

    def log_joint(
        self, batch: Incomplete, z: Tensor, cells: Tensor, *, mask_weight: float = 1.0, exact: bool = False
    ) -> WeightedLatents:
        """Returns the joint log density of given latents and the observed cells, in place of log weights."""
        parameters: Tensor = self.decoder(z)  # (S, N, K, P)
        observed = self.observation.observed_columns(batch.observed).unsqueeze(-2)  # (N, 1, C)
        x = batch.filled(self.observation.filler()).unsqueeze(-2)  # (N, 1, D)
        log_p = torch.where(observed, self.observation.log_prob(parameters, x), 0.0).sum(dim=-1)
        log_w = log_p - 0.5 * (z.square().sum(dim=-1) + self.n_latent * math.log(2.0 * math.pi))  # (S, N, K)

        completed = None
        if self.mask_term == "integrated" and mask_weight != 0.0:
            mask_model = cast(SelfMaskModel, self.mask_model)
            log_mask = integrated_log_prob(self.observation, mask_model, parameters, x, observed)
            log_w = log_w + mask_weight * log_mask
        elif self.mask_term == "sample" and mask_weight != 0.0:
            completed = self.completed(batch, parameters, cells, exact=exact)
            log_w = log_w + mask_weight * self.mask_model.log_prob(completed, observed)
        return WeightedLatents(log_w, log_w.new_zeros(log_w.shape[1:]), parameters, completed)

    def completed(self, batch: Incomplete, parameters: Tensor, cells: Tensor, *, exact: bool) -> Tensor:
        """Returns rows (S, N, K, D) with missing cells drawn: exactly, or relaxed with a gradient."""
        draw = self.observation.sample if exact else self.observation.rsample
        drawn = draw(parameters, cells.expand(*parameters.shape[:-1], -1))
        x, observed = batch.filled().unsqueeze(-2), batch.observed.unsqueeze(-2)  # (N, 1, D)
        return torch.where(observed, x, drawn)

    def with_mask_term(self, mask_term: MaskTerm) -> "LatentModel":
        """Returns a model that shares all parameters and treats missing cells in another way."""
        other = copy(self)
        other.mask_term = self._choose_mask_term(mask_term)
        return other

    def _choose_mask_term(self, mask_term: MaskTerm) -> Literal["none", "sample", "integrated"]:
        if mask_term not in ("auto", "sample", "integrated"):
            raise ValueError(f"mask_term must be 'auto', 'sample' or 'integrated', got {mask_term!r}.")
        if self.mask_model.is_ignorable:
            return "none"
        possible = is_integrable(self.observation, self.mask_model)
        if mask_term == "integrated" and not possible:
            raise ValueError(
                "mask_term='integrated' needs a self-masking model, and columns that are Gaussian, Student-t "
                "or have levels; use mask_term='sample'."
            )
        return "integrated" if possible and mask_term != "sample" else "sample"
