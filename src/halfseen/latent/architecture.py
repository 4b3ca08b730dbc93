"""The architecture of latent-variable models over the columns of a mixed table, or over pixels.

With a model and a sampler, it completes tables and images.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import Keys, torch_generator
from halfseen.base.completion import PixelModel
from halfseen.base.density import FeatureAdapter
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.observation_model import ObservationModel, RealFamily, pixel_observation_model
from halfseen.gaussian.distribution import Gaussian
from halfseen.latent.convolutional import ConvDecoder, ConvEncoder, PixelMask
from halfseen.latent.mask_models import Ignorable, LinearMask, MaskLayout, MaskModel, NonlinearMask
from halfseen.latent.model import LatentModel, LearnedFill, PreimputedFill, RowEncoding, ZeroFill
from halfseen.latent.self_masking import FlexibleSelfMask, LinearSelfMask, MonotoneMask, SharedSlopeMask
from halfseen.nn.residual import LinearWithNetwork, NetworkFactory, ResidualMLP, empty_linear, reset_layers
from halfseen.nn.weights import load_module
from halfseen.words import Missingness


class SetEncoder(nn.Module):
    r"""Creates an encoder that sums codes of the observed features, so that missing cells have no influence.

    .. math:: f(x_o) = g\Big(\sum_{j \in o} \operatorname{relu}(U e_j + w x_j + b)\Big)

    where :math:`e_j` is the learned embedding of feature :math:`j` and :math:`U, w, b` are shared, so that
    the output is invariant to a permutation of the features together with their embeddings.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    network : ResidualMLP
        The network :math:`g`, from `code_size` inputs to the outputs.
    embedding_size : int
        The size of the embeddings :math:`e_j`.
    code_size : int
        The size of the codes; that of `network`'s inputs.

    Notes
    -----
    Shapes: from :math:`(*, 2D)`, as `encoder_input` returns it, to the outputs of `network`; values of
    missing cells are never read.

    References
    ----------
    Ma et al. (2019), EDDI: efficient dynamic discovery of high-value information with partial VAE, section
    3.2 (the pointnet encoder); Ipsen, Mattei & Frellsen (2021), not-MIWAE, for recommendation.

    Examples
    --------
    >>> encoder = SetEncoder(3, ResidualMLP(20, 2))
    >>> seen = torch.tensor([1.0, 0.0, 1.0])
    >>> one, two = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([0.5, 9.0, 2.0])
    >>> torch.equal(encoder(torch.cat([one, seen])), encoder(torch.cat([two, seen])))
    True
    """

    def __init__(
        self, n_features: int, network: ResidualMLP, *, embedding_size: int = 20, code_size: int = 20
    ) -> None:
        super().__init__()
        if network.n_inputs != code_size:
            raise ValueError(f"network must have code_size = {code_size} inputs, got {network.n_inputs}.")
        self.n_features = n_features
        self.embedding = nn.Parameter(torch.empty(n_features, embedding_size))  # (D, E)
        # As in a linear layer on (e_j, x_j); the weights of the value are its last column.
        self.code = empty_linear(embedding_size + 1, code_size)
        self.network = network
        self.reset_parameters(torch_generator(0))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws the embeddings from the standard normal distribution, and redraws all layers."""
        self.embedding.normal_(generator=generator)
        reset_layers(self, generator)

    def forward(self, inputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Returns the outputs of the network; the generator is for dropout in training."""
        x, seen = inputs.split(self.n_features, dim=-1)  # (*, D)
        observed = seen.unsqueeze(-1) > 0.5  # (*, D, 1)
        x = torch.where(observed, x.unsqueeze(-1), 0.0)
        of_value = self.code.weight[:, -1]  # (code,)
        of_feature = self.embedding @ self.code.weight[:, :-1].mT + self.code.bias  # (D, code)
        codes = torch.relu(torch.addcmul(of_feature, x, of_value))  # (*, D, code)
        total = torch.where(observed, codes, 0.0).sum(dim=-2)  # (*, code)

        output: Tensor = self.network(total, generator)
        return output


OFFERED = tuple(word for word in Missingness if word not in (Missingness.PROBIT, Missingness.GAUSSIAN))
"""The assumptions about missingness for which latent-variable models have a mask model."""

MAPS = 4  # units of `width` that stand for one map of a convolutional network
PATCHES = 8  # side by side, about
MASK_MAPS = 8
CODE_SIZE = 64  # of a set of observed features


@dataclass(frozen=True)
class LatentArchitecture:
    """The description of a latent-variable model of a table without its weights, as plain data to be saved.

    Parameters
    ----------
    n_latent, n_components : int
        The number of latent variables, and of components of the posterior.
    width, n_blocks : int
        The width and number of the residual blocks of both networks.
    encoder : {"preimputed", "zero", "learned", "set"}
        The input of the encoder: missing values replaced by linear predictions, zeros or learned constants,
        together with the mask; or the set of observed values.
    linear_decoder : bool
        Whether the decoder is one linear layer.
    numeric : {"gaussian", "shared-gaussian", "student-t"}
        The family of columns of numbers.
    missingness : str
        The mask model, by its word in `Missingness`.
    signs : tuple of int, optional
        The direction of each modelled column, for logistic and monotone mask models.
    hidden : tuple of int, optional
        The modelled columns that had missing cells in training: the mask of the others is not modelled.
    likelihoods : dict of str to str, optional
        The family of columns, by name, that differs from `numeric` or from the default for levels.
    image_shape : tuple of int, optional
        The shape (C, H, W) of rows that are images: then networks are convolutional, see `build_for_images`.
    """

    n_latent: int
    n_components: int = 1
    width: int = 128
    n_blocks: int = 2
    encoder: Literal["preimputed", "zero", "learned", "set"] = "preimputed"
    linear_decoder: bool = False
    numeric: RealFamily = "student-t"
    missingness: str = Missingness.MAR
    signs: tuple[int, ...] | None = None
    hidden: tuple[int, ...] | None = None
    likelihoods: Mapping[str, str] | None = None
    image_shape: tuple[int, int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "LatentArchitecture":
        """Reads what `to_dict` wrote."""
        values = dict(content)
        for name in ("signs", "hidden", "image_shape"):
            values[name] = None if values.get(name) is None else tuple(values[name])
        return cls(**values)

    def build(
        self,
        columns: Sequence[Column],
        features: FeatureMap,
        batch: Incomplete | None = None,
        known: MaskModel | None = None,
        networks: Mapping[str, NetworkFactory] | None = None,
    ) -> LatentModel:
        """Returns the model, not yet trained.

        `known` takes the place of the mask model, and factories under "encoder" and "decoder" those of the
        networks.
        """
        if self.image_shape is not None:
            return self.build_for_images(columns, self.image_shape, known)
        observation = ObservationModel.for_table(
            columns, features, batch, numeric=self.numeric, likelihoods=self.likelihoods
        )
        body: dict[str, Any] = {
            "width": self.width,
            "n_blocks": self.n_blocks,
            "activation": "relu",
            "linear_skip": True,
        }
        n_outputs = LatentModel.n_outputs(self.n_latent, self.n_components)
        networks = networks or {}
        encoder: nn.Module
        if "encoder" in networks:
            encoder = LinearWithNetwork(networks["encoder"], 2 * features.n_features, n_outputs, "encoder")
        elif self.encoder == "set":
            encoder = SetEncoder(
                features.n_features, ResidualMLP(CODE_SIZE, n_outputs, **body), code_size=CODE_SIZE
            )
        else:
            encoder = ResidualMLP(2 * features.n_features, n_outputs, **body)
        if self.linear_decoder:
            body = {"width": 0, "n_blocks": 0}
        decoder: nn.Module = ResidualMLP(self.n_latent, observation.n_parameters, **body)
        if "decoder" in networks:
            decoder = LinearWithNetwork(
                networks["decoder"], self.n_latent, observation.n_parameters, "decoder"
            )
        return LatentModel(
            encoder,
            decoder,
            observation,
            self.n_latent,
            self.n_components,
            mask_model=self._mask_model(observation) if known is None else known,
            fill=self._fill(features.n_features),
        )

    def restore(
        self, columns: Sequence[Column], features: FeatureMap, state: Mapping[str, Tensor], dtype: torch.dtype
    ) -> LatentModel:
        """Returns the trained model, from what `module_state` returned."""
        return load_module(self.build(columns, features).to(dtype), state)

    def _fill(self, n_features: int) -> PreimputedFill | LearnedFill | ZeroFill:
        if self.encoder == "preimputed":
            return PreimputedFill()
        return LearnedFill(n_features) if self.encoder == "learned" else ZeroFill()

    def build_for_images(
        self, columns: Sequence[Column], shape: tuple[int, int, int], known: MaskModel | None = None
    ) -> LatentModel:
        """Returns the model of images, whose columns are pixels of one kind.

        The networks process squares of pixels, whose size is such that about eight of them are side by side,
        and have a quarter of `width` maps. In the input of the encoder, missing values are zero, which is the
        middle of the range of the pixels.
        """
        observation = pixel_observation_model(columns, self.numeric)
        body: dict[str, Any] = {
            "widths": (max(1, self.width // MAPS),),
            "patch": max(1, round(min(shape[1:]) / PATCHES)),
            "n_blocks": max(1, self.n_blocks),
        }
        n_outputs = LatentModel.n_outputs(self.n_latent, self.n_components)
        n_parameters = observation.n_parameters // observation.n_features
        return LatentModel(
            ConvEncoder(shape, n_outputs, pooled=False, **body),
            ResidualMLP(self.n_latent, observation.n_parameters, width=0, n_blocks=0)
            if self.linear_decoder
            else ConvDecoder(self.n_latent, shape, n_parameters=n_parameters, position_bias=True, **body),
            observation,
            self.n_latent,
            self.n_components,
            mask_model=self._pixel_mask(shape) if known is None else known,
            mask_term="sample",  # nodes for every pixel would not fit in memory
        )

    def layout(self, observation: ObservationModel) -> MaskLayout:
        """Returns the column of each feature, and the columns whose mask is modelled."""
        return MaskLayout(observation.columns_of_features.tolist(), self.hidden, observation.n_columns)

    def _mask_model(self, observation: ObservationModel) -> MaskModel:
        layout = self.layout(observation)
        signs = None if self.signs is None else list(self.signs)
        makers: dict[str, Callable[[], MaskModel]] = {
            Missingness.MAR: lambda: Ignorable(layout),
            Missingness.LOGISTIC: lambda: LinearSelfMask(layout, signs),
            Missingness.MONOTONE: lambda: MonotoneMask(layout, 1 if signs is None else signs),
            Missingness.SHARED_SLOPE: lambda: SharedSlopeMask(layout),
            Missingness.FLEXIBLE: lambda: FlexibleSelfMask(layout),
            Missingness.LINEAR: lambda: LinearMask(layout),
            Missingness.NONLINEAR: lambda: NonlinearMask(layout),
        }
        return makers[self.missingness]()

    def _pixel_mask(self, shape: tuple[int, int, int]) -> MaskModel:
        """Returns a mask model with a bias for each position and a filter shared by all positions."""
        layout = MaskLayout(range(math.prod(shape)))
        sign = None if self.signs is None else self.signs[0]
        makers: dict[str, Callable[[], MaskModel]] = {
            Missingness.MAR: lambda: Ignorable(layout),
            Missingness.LOGISTIC: lambda: PixelMask(shape) if sign is None else SharedSlopeMask(layout, sign),
            Missingness.MONOTONE: lambda: SharedSlopeMask(layout, sign or 1),
            Missingness.SHARED_SLOPE: lambda: SharedSlopeMask(layout),
            Missingness.FLEXIBLE: lambda: PixelMask(shape, hidden=MASK_MAPS),
            Missingness.LINEAR: lambda: PixelMask(shape, kernel_size=3),
            Missingness.NONLINEAR: lambda: PixelMask(shape, kernel_size=3, hidden=MASK_MAPS),
        }
        return makers[self.missingness]()


class LatentSampler(Protocol):
    """The interface of samplers of missing features."""

    def mean(self, batch: Incomplete) -> Tensor:
        """Returns rows (N, D) with expected features."""
        ...

    def quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> Tensor:
        """Returns quantiles (Q, N, n_numeric)."""
        ...

    def mean_and_quantiles(self, batch: Incomplete, probabilities: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both, from latents that are decoded once."""
        ...

    def draws(self, batch: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns rows (S, N, D) with missing features drawn."""
        ...

    def log_prob(self, batch: Incomplete) -> Tensor:
        """Returns a log density (N) of the observed features, or a bound."""
        ...


@dataclass(frozen=True)
class TabularLatent(FeatureAdapter):
    """A latent-variable model over the codes of a table; log densities are lower bounds."""

    # A Gaussian of the features; its conditional means replace missing values in the input of the encoder.
    preimputer: Gaussian
    sampler: LatentSampler  # of missing features

    def _rows(self, codes: Incomplete) -> Incomplete:
        return RowEncoding(self.features, self.preimputer).rows(codes)

    def _mean(self, rows: Incomplete) -> Tensor:
        return self.sampler.mean(rows)

    def _mean_and_quantiles(self, rows: Incomplete, levels: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Returns both; quantiles are those of numbers, which come first, with zeros after them."""
        mean, found = self.sampler.mean_and_quantiles(rows, levels)
        return mean, functional.pad(found, (0, self.features.n_features - found.shape[-1]))

    def _drawn(self, rows: Incomplete, keys: Keys, n_draws: int) -> Iterator[Tensor]:
        yield from self.sampler.draws(rows, keys, n_draws)

    def _log_prob(self, rows: Incomplete) -> Tensor:
        return torch.where(rows.observed.any(dim=1), self.sampler.log_prob(rows), 0.0)


@dataclass(frozen=True)
class ImageLatent(PixelModel):
    """A latent-variable model over the codes of pixels; results are computed by importance sampling.

    Networks compute in single precision, in which convolutions are fast.
    """

    sampler: LatentSampler  # answers for rows of features
    # Whether pixels are real numbers, which have densities; shades and binary pixels have probabilities.
    is_density: bool

    def draws(self, codes: Incomplete, keys: Keys, n_draws: int) -> Tensor:
        """Returns completed codes (S, N, D) drawn jointly."""
        return self._completed(codes, self.sampler.draws(self._rows(codes), keys, n_draws))

    def log_prob(self, codes: Incomplete) -> Tensor:
        """Returns a lower bound (N) of the log probability of the observed pixels; of numbers, density."""
        total = self.sampler.log_prob(self._rows(codes)).double()
        if self.is_density:
            total = total + self.features.log_jacobian(codes)
        return torch.where(codes.observed.any(dim=1), total, 0.0)

    def _mean(self, codes: Incomplete) -> Tensor:
        return self.sampler.mean(self._rows(codes))

    def _feature_quantiles(self, codes: Incomplete, probabilities: Sequence[float]) -> Tensor:
        return self.sampler.quantiles(self._rows(codes), probabilities)

    def _rows(self, codes: Incomplete) -> Incomplete:
        return RowEncoding(self.features).rows(codes)
