"""Imputation by a mixture whose components are independent over features.

Every marginal and conditional distribution is exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.base.capabilities import Capabilities
from halfseen.base.density import NegativeLogLikelihood, TabularDensity
from halfseen.base.imputer import BaseImputer
from halfseen.base.parameters import (
    IMPUTER_ATTRIBUTES,
    TrainingParameters,
    check_level,
    check_training,
    check_whole,
    documented_by,
)
from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete, Standardizer
from halfseen.data.margin_choice import bounded_margin
from halfseen.data.margins import inverse_softplus
from halfseen.data.schema import Column
from halfseen.distributions.leaves import choose_by_cdf
from halfseen.nn.weights import load_module
from halfseen.training.loop import TrainingSettings, fit_module, split_rows

MIN_SCALE = 0.05
"""No component is narrower, in units of a standardised feature: ties cannot make a likelihood unbounded."""

LEVEL_SMOOTHING = 1e-3
"""The share of each block's probability that is spread evenly over its levels: no level is impossible."""

_BISECTIONS = 50  # the bracket shrinks by 2 ** 50, below rounding errors
_NUMBERS_AT_ONCE = 2**17  # size of a chunk of the quantile search, small enough for the cache
_CENTRE_CANDIDATES = 2000
_CENTRE_REACH = 3.0  # in standard deviations; outliers are not used as centres
_CENTRE_JITTER = 0.05  # equal centres would always receive equal gradients


class DiagonalMixture(nn.Module):
    r"""Creates a mixture of independent Gaussian and categorical features over incomplete vectors.

    A feature is Gaussian, or belongs to a *block*: the one-hot code of a categorical column, observed or
    missing as a whole. Missing features are marginalised exactly:

    .. math:: p(x_o) = \sum_{k=1}^K \pi_k \prod_{d \in o} \mathcal{N}(x_d \mid \mu_{kd}, \sigma_{kd}^2)
              \prod_{b \in o} \theta_{kb,x_b}

    where :math:`o` are the observed Gaussian features and the observed blocks. Given these, the missing
    features have a mixture distribution again, with weights :math:`w_k \propto \pi_k \, p(x_o \mid k)`.
    Valid under MAR; under MNAR it is biased.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`, blocks included.
    n_components : int
        The number of components :math:`K`.
    blocks : sequence of (int, int)
        The half-open range of features of each block; every other feature is Gaussian.

    Notes
    -----
    Shapes: ``batch`` holds :math:`(*, D)` and the output is :math:`(*)`; what ``batch.x`` holds where
    ``batch.observed`` is False is never read. Gaussian features are meant to be standardised, as
    :math:`\sigma \geq` ``MIN_SCALE``. The square in the Gaussian is expanded, so that the log joint is three
    matrix products and no array :math:`(N, K, D)` arises; the expansion cancels, so it is computed in
    float64 whatever the type of the parameters.

    References
    ----------
    Ghahramani & Jordan (1994), Supervised learning from incomplete data via an EM approach, section 3. We
    write :math:`w_k` where the paper writes :math:`h_{ij}`; they maximise by EM, here a gradient does.

    Examples
    --------
    >>> model = DiagonalMixture(n_features=3, n_components=2, blocks=[(1, 3)])  # a number, a binary
    >>> x = torch.tensor([[0.5, 0.0, 1.0], [0.0, 0.0, 1.0]])
    >>> observed = torch.tensor([[True, True, True], [False, True, True]])
    >>> model(Incomplete(x, observed)).exp()
    tensor([0.1760, 0.5000], grad_fn=<ExpBackward0>)
    """

    gaussian: Tensor
    order: Tensor
    block_of: Tensor

    def __init__(self, n_features: int, n_components: int, blocks: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        _check_layout(n_features, n_components, blocks)
        self.n_features = n_features
        self.n_components = n_components
        self.blocks = tuple((int(start), int(stop)) for start, stop in blocks)

        in_blocks = [feature for start, stop in self.blocks for feature in range(start, stop)]
        gaussian = sorted(set(range(n_features)) - set(in_blocks))
        sizes = [stop - start for start, stop in self.blocks]
        block_of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
        self.register_buffer("gaussian", torch.tensor(gaussian, dtype=torch.long), persistent=False)
        self.register_buffer("order", torch.tensor(gaussian + in_blocks).argsort(), persistent=False)
        self.register_buffer("block_of", block_of, persistent=False)

        self.logits = nn.Parameter(torch.zeros(n_components))  # (K,)
        self.loc = nn.Parameter(torch.zeros(n_components, len(gaussian)))  # (K, G)
        self.raw_scale = nn.Parameter(_raw_scale(torch.ones(n_components, len(gaussian))))  # (K, G)
        self.level_logits = nn.Parameter(torch.zeros(n_components, len(in_blocks)))  # (K, C)

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return f"n_features={self.n_features}, n_components={self.n_components}, blocks={list(self.blocks)}"

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the Gaussian features, with shape :math:`(K, G)`."""
        return MIN_SCALE + functional.softplus(self.raw_scale)

    @property
    def level_probs(self) -> Tensor:
        """The probabilities of the levels, block after block, with shape :math:`(K, C)`; never zero."""
        n_blocks = len(self.blocks)
        if n_blocks == 0:
            return self.level_logits

        index = self.block_of.expand_as(self.level_logits)
        lowest = self.level_logits.new_full((self.n_components, n_blocks), -math.inf)
        shift = lowest.scatter_reduce(1, index, self.level_logits.detach(), "amax")  # (K, B)
        odds = (self.level_logits - shift[:, self.block_of]).exp()  # (K, C)
        # Sums over blocks by a product with indicators: its gradient needs no scattered additions either.
        member = functional.one_hot(self.block_of, n_blocks).to(odds.dtype)  # (C, B)
        totals = odds @ member @ member.mT  # (K, C)
        evenly = (member @ member.sum(dim=0)).reciprocal()  # (C,)

        return torch.lerp(odds / totals, evenly, LEVEL_SMOOTHING)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the log density of the observed cells."""
        return self.log_joint(batch).logsumexp(dim=-1).to(batch.x.dtype)

    def log_joint(self, batch: Incomplete) -> Tensor:
        r"""Returns :math:`\log \pi_k p(x_o \mid k)` in float64, with shape :math:`(*, K)`."""
        # Missing values are filled first: 0 * nan is nan, in value and in gradient.
        x = batch.filled(0.0).double()  # (*, D)
        seen = batch.observed.double()
        loc, scale = self.loc.double(), self.scale.double()  # (K, G)
        precision = scale.square().reciprocal()
        log_levels = self.level_probs.double().log()  # (K, C)

        nothing = torch.zeros_like(log_levels)
        quadratic = self._in_order(-0.5 * precision, nothing)  # (K, D)
        linear = self._in_order(loc * precision, log_levels)
        constant = -0.5 * loc.square() * precision - scale.log() - 0.5 * math.log(2.0 * math.pi)
        constant = self._in_order(constant, nothing)

        log_probs = x.square() @ quadratic.mT + x @ linear.mT + seen @ constant.mT  # (*, K)
        return self.logits.double().log_softmax(dim=-1) + log_probs

    def conditional_mean(self, batch: Incomplete) -> Tensor:
        """Returns the mean of every cell given the observed ones; for a block, its probabilities."""
        weights = self.log_joint(batch).softmax(dim=-1)  # (*, K)
        mean = weights @ self._in_order(self.loc, self.level_probs).double()  # (*, D)

        return torch.where(batch.observed, batch.x, mean.to(batch.x.dtype))

    @torch.no_grad()
    def conditional_quantile(self, batch: Incomplete, level: float) -> Tensor:
        """Returns the `level` quantile of each cell separately, given the observed ones.

        It is exact, by bisection on the distribution function of the mixture. In a block it is the quantile
        of each indicator: 1 where the probability exceeds ``1 - level``.
        """
        check_level(level)
        weights = self.log_joint(batch).softmax(dim=-1).reshape(-1, self.n_components)  # (N, K)
        loc, scale = self.loc.double().mT, self.scale.double().mT  # (G, K)

        numbers = weights.new_zeros(len(weights), len(self.gaussian))  # (N, G)
        missing = ~batch.observed.reshape(-1, self.n_features)[:, self.gaussian]
        cells = missing.nonzero()  # (M, 2): only missing values are searched
        for piece in cells.split(max(1, _NUMBERS_AT_ONCE // self.n_components)) if len(cells) else ():
            rows, columns = piece.unbind(dim=1)
            numbers[rows, columns] = _mixture_quantile(weights[rows], loc[columns], scale[columns], level)

        indicators = (weights @ self.level_probs.double() > 1.0 - level).double()  # (N, C)
        quantile = self._in_order(numbers, indicators).reshape(batch.x.shape)
        return torch.where(batch.observed, batch.x, quantile.to(batch.x.dtype))

    @property
    def n_noise(self) -> int:
        """The number of uniforms that a draw of a row takes: a component, the numbers, the levels."""
        return 1 + len(self.gaussian) + len(self.blocks)

    def conditional_draw(self, batch: Incomplete, noise: Tensor) -> Tensor:
        """Returns the rows with a joint draw of their missing cells, given the observed ones.

        Parameters
        ----------
        batch : Incomplete
            The rows, of shape :math:`(*, D)`.
        noise : Tensor
            Uniforms of shape (*, `n_noise`): the first chooses the component, then come those of the Gaussian
            features, then those that choose the level of each block.
        """
        of_component, of_numbers, of_levels = noise.split([1, len(self.gaussian), len(self.blocks)], dim=-1)
        weights = self.log_joint(batch).softmax(dim=-1)
        component = choose_by_cdf(weights, of_component).squeeze(-1)  # (*)
        normals = torch.special.ndtri(of_numbers.double()).to(self.loc.dtype)  # (*, G)
        numbers = self.loc[component] + self.scale[component] * normals

        levels = [numbers.new_zeros(*component.shape, 0)]
        for block, probs in enumerate(self._split_blocks(self.level_probs)):
            level = choose_by_cdf(probs[component], of_levels[..., block : block + 1]).squeeze(-1)  # (*)
            levels.append(functional.one_hot(level, probs.shape[-1]).to(numbers.dtype))

        draw = self._in_order(numbers, torch.cat(levels, dim=-1))  # (*, D)
        return torch.where(batch.observed, batch.x, draw.to(batch.x.dtype))

    @torch.no_grad()
    def reset_parameters(self, batch: Incomplete, generator: torch.Generator) -> None:
        """Initialises the parameters from data: distant rows as centres, scales and frequencies of all rows.

        Raises
        ------
        ValueError
            If a block of `batch`, of shape :math:`(N, D)`, is partly observed or not one-hot.
        """
        if batch.x.ndim != 2 or batch.n_features != self.n_features or len(batch) == 0:
            raise ValueError(
                f"batch must have shape (N, {self.n_features}) with N > 0, got {tuple(batch.x.shape)}."
            )
        for start, stop in self.blocks:
            _check_block(batch, start, stop)
        moments = Standardizer.fit(batch.to(torch.float64))
        mean, spread = moments.loc, moments.scale  # (D,)
        candidates = torch.randperm(len(batch), generator=generator)[:_CENTRE_CANDIDATES]
        filled = batch[candidates].filled(mean.to(batch.x.dtype)).double()
        filled = filled.clamp(mean - _CENTRE_REACH * spread, mean + _CENTRE_REACH * spread)
        centres = filled[_distant_rows(filled / spread, self.n_components, generator)]  # (K, D)

        jitter = (
            _CENTRE_JITTER * spread * torch.randn(centres.shape, generator=generator, dtype=torch.float64)
        )
        in_blocks = self.order.argsort()[len(self.gaussian) :]
        self.logits.zero_()
        self.loc.copy_((centres + jitter)[:, self.gaussian])
        self.raw_scale.copy_(_raw_scale(spread[self.gaussian]).expand_as(self.raw_scale))
        # Half the centre's own level and half the frequency of all rows; never the logarithm of zero.
        self.level_logits.copy_((0.5 * (centres + mean)[:, in_blocks] + LEVEL_SMOOTHING).log())

    def _in_order(self, numbers: Tensor, levels: Tensor) -> Tensor:
        """Returns results for Gaussian features (*, G) and for levels (*, C) in the order of features."""
        return torch.cat([numbers, levels], dim=-1).index_select(-1, self.order)

    def _split_blocks(self, levels: Tensor) -> Sequence[Tensor]:
        return levels.split([stop - start for start, stop in self.blocks], dim=-1) if self.blocks else ()


def _check_layout(n_features: int, n_components: int, blocks: Sequence[tuple[int, int]]) -> None:
    for name, count in (("n_features", n_features), ("n_components", n_components)):
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count!r}.")
    end = 0
    for start, stop in sorted(blocks):
        if not 0 <= start < stop <= n_features:
            raise ValueError(f"A block must lie within 0 and {n_features}, got {(start, stop)}.")
        if start < end:
            raise ValueError(f"Blocks must not overlap, but {(start, stop)} begins before {end}.")
        end = stop


def _check_block(batch: Incomplete, start: int, stop: int) -> None:
    observed = batch.observed[:, start:stop]
    if (observed != observed[:, :1]).any():
        raise ValueError(f"The block {(start, stop)} must be observed or missing as a whole in each row.")
    code = batch.x[:, start:stop][observed[:, 0]]
    if not (((code == 0) | (code == 1)).all() and (code.sum(dim=-1) == 1).all()):
        raise ValueError(f"The block {(start, stop)} must be one-hot: a single 1 among zeros.")


def _raw_scale(scale: Tensor) -> Tensor:
    """The inverse of ``MIN_SCALE + softplus``; what lies below twice the minimum is raised to it."""
    above = (scale - MIN_SCALE).clamp(min=MIN_SCALE)
    return inverse_softplus(above)


def _distant_rows(rows: Tensor, n_rows: int, generator: torch.Generator) -> Tensor:
    """Chooses distant rows, each with probability proportional to its squared distance to earlier ones."""
    chosen = [torch.randint(len(rows), (), generator=generator)]
    distance = (rows - rows[chosen[0]]).square().sum(dim=-1)
    while len(chosen) < n_rows:
        chances = distance if distance.sum() > 0 else torch.ones_like(distance)
        chosen.append(torch.multinomial(chances, 1, generator=generator).squeeze(0))
        distance = distance.minimum((rows - rows[chosen[-1]]).square().sum(dim=-1))
    return torch.stack(chosen)


def _mixture_quantile(weights: Tensor, loc: Tensor, scale: Tensor, level: float) -> Tensor:
    """Solves sum_k w_k Phi((t - loc_k) / scale_k) = level for each of M mixtures, given as (M, K)."""
    ends = loc + scale * torch.special.ndtri(loc.new_tensor(level))
    low, high = ends.amin(dim=-1), ends.amax(dim=-1)  # the mixture's quantile lies between its components'
    # Phi(z) = erfc(-z / sqrt 2) / 2, six times faster than ndtr; its argument is linear in t.
    slope = -1.0 / (math.sqrt(2.0) * scale)
    shift = -loc * slope
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        tails = torch.erfc(torch.addcmul(shift, middle.unsqueeze(-1), slope))  # (M, K)
        above = 0.5 * (weights * tails).sum(dim=-1) > level
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    quantile: Tensor = 0.5 * (low + high)
    return quantile


@dataclass(frozen=True)
class TabularMixture(TabularDensity[DiagonalMixture]):
    """A mixture of independent columns over the codes of a table; valid under MAR, with exact conditionals.

    The `module` is the fitted mixture.
    """

    @classmethod
    def create(cls, columns: Sequence[Column], features: FeatureMap, n_components: int) -> "TabularMixture":
        """Returns a model that is not yet trained."""
        blocks = [(block.start, block.stop) for block in features.blocks]
        module = DiagonalMixture(features.n_features, n_components, blocks).double()
        return cls(columns, features, module)

    @classmethod
    def from_state(cls, columns: Sequence[Column], state: Mapping[str, Tensor]) -> "TabularMixture":
        """Rebuilds the model from its columns and what `state` returned."""
        features = FeatureMap.from_state(columns, state, all_indicators=True)
        model = cls.create(columns, features, n_components=len(state["module.logits"]))
        load_module(model.module, state)
        return model


@documented_by(
    {
        "n_components": "The number of components K; at most half the number of rows is used.",
        "learning_rate": "Initial learning rate.",
    },
    IMPUTER_ATTRIBUTES,
)
@dataclass(eq=False, repr=False)
class MixtureImputer(TrainingParameters, BaseImputer):
    r"""Imputation by a mixture model whose components have independent columns.

    .. math:: p(x_o) = \sum_{k=1}^K \pi_k \prod_{d \in o} p_{kd}(x_d)

    Use it for tables that consist of groups of rows. Within a component, numbers are Gaussian and levels are
    categorical; the components capture clusters, skewed columns and the dependence between categories.
    Marginal and conditional distributions are exact. The model is trained by gradients, with early stopping
    on held-out rows. Values are assumed to be missing at random (MAR).

    In tables of a few hundred rows the default number of components fits the rows too closely, so that
    intervals are too narrow and contain less than they should; use fewer components there.

    No component is narrower than a twentieth of a standard deviation. Columns that are nearly copies of each
    other, with a correlation above 0.995, are therefore imputed from each other by a linear relation, with
    its residuals; see ``near_copies_``. Densities of rows do not know the relation.

    Attributes
    ----------
    model_ : TabularMixture
        The fitted model.
    history_ : History
        The mean loss of each epoch, and why training stopped.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat([[0.0, 0.0], [5.0, 9.0]], 50, axis=0) + rng.normal(size=(100, 2))
    >>> X[0, 1] = X[99, 1] = np.nan
    >>> filled = MixtureImputer(n_components=2, random_state=0).fit_transform(X)
    >>> bool(abs(filled[0, 1] - 0) < 1.5), bool(abs(filled[99, 1] - 9) < 1.5)
    (True, True)
    """

    n_components: int = 20
    _: KW_ONLY
    max_epochs: int = 500
    batch_size: int = 1024
    learning_rate: float = 0.05

    @property
    def capabilities(self) -> Capabilities:
        """What the imputer can do with the parameters that it has."""
        return replace(
            super().capabilities, holds_out_rows=True, trains_in_epochs=True, draws_one_by_one=True
        )

    def _fit_model(self, codes: Incomplete) -> TabularMixture:
        for name, lowest in {"n_components": 1, "batch_size": 1, "max_epochs": 0}.items():
            check_whole(name, getattr(self, name), lowest)
        check_training(self)
        generator = torch_generator(self.seed_)
        features = FeatureMap.fit(self._modelled, codes, all_indicators=True, choose=bounded_margin)
        n_components = min(self.n_components, max(1, len(codes) // 2))
        model = TabularMixture.create(self._modelled, features, n_components)
        train, validation = split_rows(features.encode(codes), self.validation_fraction, generator)
        model.module.reset_parameters(train, generator)
        self.history_ = fit_module(
            model.module,
            NegativeLogLikelihood(),
            train,
            generator=generator,
            validation=validation,
            settings=TrainingSettings.of(self),
            callback=self.callback,
        )
        model.module.requires_grad_(False)
        return model

    def _model_from_state(self, state: Mapping[str, Tensor]) -> TabularMixture:
        return TabularMixture.from_state(self._modelled, state)
