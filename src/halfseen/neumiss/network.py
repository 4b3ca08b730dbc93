"""The published NeuMiss networks: a truncated Neumann series with the mask as its non-linearity.

As modules, and as estimators that are trained end to end on the targets alone.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from sklearn.base import ClassifierMixin
from torch import Tensor, nn

from halfseen.base.network import MODULE, NETWORK_DESCRIPTIONS, NetworkBase
from halfseen.base.parameters import Descriptions, check_whole, documented_by
from halfseen.base.predictor import ScaledTargetRegressor
from halfseen.base.targets import WithClasses
from halfseen.data.incomplete import Incomplete
from halfseen.nn.residual import ResidualMLP
from halfseen.training.supervised import CrossEntropy, SquaredError


class NeuMissLayers(nn.Module):
    r"""The layers of the NeuMiss network of 2020, without its linear output.

    With :math:`\bar m` the indicator of observed and :math:`m` of missing features, :math:`d` the depth,
    and :math:`r = \bar m \odot (x - \mu)`:

    .. math::
        h_1 = \bar m \odot (W_0 r), \qquad
        h_{k+1} = \bar m \odot (W_k h_k) \; [+ \, r], \qquad
        \hat x = \bar m \odot x + m \odot (\mu + W_{mix} h_d)

    At depth 0, :math:`h_0 = r`. The output is the row whose missing values are replaced by the output of the
    last layer :math:`W_{mix}`; any network can be put on top of it.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    depth : int
        The number of Neumann layers :math:`d`; they share no weights.
    residual : bool
        Whether to add :math:`r` after each layer but the first. The published results do not.

    Shapes
    ------
    batch : :math:`(*, D)`; entries of `x` where `observed` is False are never read.
    output : :math:`(*, D)`

    Examples
    --------
    >>> layers = NeuMissLayers(n_features=2, depth=1)
    >>> layers(Incomplete(torch.tensor([[3.0, 5.0]]), torch.tensor([[True, False]]))).detach()
    tensor([[3., 0.]])
    """

    def __init__(self, n_features: int, depth: int, residual: bool = False) -> None:
        super().__init__()
        _check_sizes(n_features, depth)
        self.n_features = n_features
        self.depth = depth
        self.residual = residual

        self.layers = nn.Parameter(torch.zeros(depth, n_features, n_features))  # (depth, D, D)
        self.mix = nn.Parameter(torch.zeros(n_features, n_features))  # (D, D)
        self.loc = nn.Parameter(torch.zeros(n_features))  # (D,)

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return f"n_features={self.n_features}, depth={self.depth}, residual={self.residual}"

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the completed rows."""
        return self.complete(batch)

    def complete(self, batch: Incomplete) -> Tensor:
        """Returns the rows (*, D) with missing values replaced by the output of the last layer."""
        return batch.filled(self.loc + self.hidden(batch) @ self.mix.mT)

    def hidden(self, batch: Incomplete) -> Tensor:
        """Returns the last hidden layer (*, D): the Neumann series, zero where nothing was observed."""
        residual = batch.filled(self.loc) - self.loc
        h = residual
        for index, layer in enumerate(self.layers):
            h = torch.where(batch.observed, h @ layer.mT, 0.0)
            if self.residual and index > 0:
                h = h + residual

        return h

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        r"""Draws matrices from :math:`\mathcal{N}(0, 1 / D)` and all else from :math:`\mathcal{N}(0, 1)`."""
        for parameter in self.parameters():
            parameter.normal_(generator=generator)
        for matrix in (self.layers, self.mix):
            matrix.div_(math.sqrt(self.n_features))


class NeuMissNetwork(NeuMissLayers):
    r"""The NeuMiss network of 2020: one weight matrix for each term of the Neumann series.

    With :math:`\bar m` the indicator of observed and :math:`m` of missing features, :math:`d` the depth,
    and :math:`r = \bar m \odot (x - \mu)`:

    .. math::
        h_1 = \bar m \odot (W_0 r), \qquad
        h_{k+1} = \bar m \odot (W_k h_k) \; [+ \, r], \qquad
        \hat y = b + \langle \beta,\; \bar m \odot x + m \odot (\mu + W_{mix} h_d) \rangle

    At depth 0, :math:`h_0 = r`. With residual connections, :math:`W_0 = I`, :math:`W_k = I - \Sigma` and
    :math:`W_{mix} = \Sigma` it is the Bayes predictor of a Gaussian under MAR, with :math:`\Sigma_{oo}^{-1}`
    replaced by the Neumann series of order :math:`d - 1`. Trained weights also serve some MNAR mechanisms.

    Parameters
    ----------
    n_features, depth, residual : int, int, bool
        As of `NeuMissLayers`.

    Shapes
    ------
    batch : :math:`(*, D)`; entries of `x` where `observed` is False are never read.
    output : :math:`(*)`

    Notes
    -----
    All parameters are zero until `reset_parameters` draws them. Nothing bounds the spectral radius of the
    layers, so training may diverge; `GaussianBlock` cannot.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks: differentiable programming for
    supervised learning with missing values, equation 7 and figure 1. We write :math:`h_k` for the hidden
    layers. The depth counts as in their result tables; their figure 1 adds one for :math:`W_{mix}`.

    Examples
    --------
    >>> network = NeuMissNetwork(n_features=3, depth=2)
    >>> network.reset_parameters(torch.Generator().manual_seed(0))
    >>> network(Incomplete(torch.zeros(1, 3), torch.tensor([[True, False, True]]))).shape
    torch.Size([1])
    """

    def __init__(self, n_features: int, depth: int, residual: bool = False) -> None:
        super().__init__(n_features, depth, residual)
        self.coef = nn.Parameter(torch.zeros(n_features))  # (D,)
        self.intercept = nn.Parameter(torch.zeros(()))

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the prediction of each row."""
        return self.complete(batch) @ self.coef + self.intercept


class NeuMissBlock(nn.Module):
    r"""The NeuMiss block of 2021: one weight matrix shared by all terms of the Neumann series.

    With :math:`\bar m` the indicator of observed features and :math:`r = \bar m \odot (x - \mu)`:

    .. math:: h_0 = r, \qquad h_{k+1} = \bar m \odot (W h_k) + r

    With :math:`W = I - \Sigma` and a spectral radius of :math:`\Sigma` below 2 the output tends to
    :math:`\Sigma_{oo}^{-1} (x_o - \mu_o)` and is zero where nothing was observed: under MAR a linear layer on
    top of it can be the Bayes predictor of a linear response to a Gaussian, for every pattern at once.

    Parameters
    ----------
    n_features : int
        The number of features :math:`D`.
    depth : int
        The number of steps; at 0 the output is :math:`r`.

    Shapes
    ------
    batch : :math:`(*, D)`; entries of `x` where `observed` is False are never read.
    output : :math:`(*, D)`

    Notes
    -----
    All parameters are zero until `reset_parameters` draws them.

    References
    ----------
    Le Morvan, Josse, Scornet & Varoquaux (2021), What's a good imputation to predict with missing values?,
    section 5. We write :math:`r` for the centred input.

    Examples
    --------
    >>> block = NeuMissBlock(n_features=2, depth=1)
    >>> block(Incomplete(torch.tensor([[3.0, 5.0]]), torch.tensor([[True, False]])))
    tensor([[3., 0.]], grad_fn=<AddBackward0>)
    """

    def __init__(self, n_features: int, depth: int) -> None:
        super().__init__()
        _check_sizes(n_features, depth)
        self.n_features = n_features
        self.depth = depth

        self.weight = nn.Parameter(torch.zeros(n_features, n_features))  # (D, D)
        self.loc = nn.Parameter(torch.zeros(n_features))  # (D,)

    def extra_repr(self) -> str:
        """Returns the arguments of the constructor."""
        return f"n_features={self.n_features}, depth={self.depth}"

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the truncated series, zero where nothing was observed."""
        residual = batch.filled(self.loc) - self.loc
        h = residual
        for _ in range(self.depth):
            h = torch.where(batch.observed, h @ self.weight.mT, 0.0) + residual

        return h

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        r"""Draws the weights evenly within :math:`\pm \sqrt{3 / D} / 2`, and the location as a normal.

        The spectral radius is then about a half, and the series contracts before it is trained.
        """
        bound = 0.5 * math.sqrt(3.0 / self.n_features)
        self.weight.uniform_(-bound, bound, generator=generator)
        self.loc.normal_(generator=generator)


class NeuMissPredictor(nn.Module):
    r"""NeuMiss layers below a feed-forward head with any number of outputs, to be trained end to end.

    .. math:: f(x_o, m) = g(h(x_o, m))

    where :math:`h` is a `NeuMissBlock` (one matrix shared by all steps) or `NeuMissLayers` (a matrix for each
    step) and :math:`g` is linear, or a network with hidden layers and a linear path.

    Parameters
    ----------
    n_features, n_outputs : int
        The number of features and of outputs.
    depth : int
        The number of Neumann steps.
    shared_weights : bool
        Whether all steps share one matrix, as in the block of 2021.
    residual : bool
        Whether separate steps have residual connections; the shared block always has them.
    width : int
        Units of each hidden layer of the head; 0 for a linear head.
    n_blocks : int
        Residual blocks of the head after its first hidden layer.

    Shapes
    ------
    batch : :math:`(*, D)`; entries of `x` where `observed` is False are never read.
    output : :math:`(*, T)`

    References
    ----------
    Le Morvan, Josse, Scornet & Varoquaux (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> module = NeuMissPredictor(n_features=3, n_outputs=2, depth=4)
    >>> module.reset_parameters(torch.Generator().manual_seed(0))
    >>> module(Incomplete(torch.zeros(5, 3), torch.ones(5, 3, dtype=torch.bool))).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        depth: int,
        *,
        shared_weights: bool = True,
        residual: bool = False,
        width: int = 0,
        n_blocks: int = 0,
    ) -> None:
        super().__init__()
        self.body: NeuMissBlock | NeuMissLayers
        self.body = (
            NeuMissBlock(n_features, depth) if shared_weights else NeuMissLayers(n_features, depth, residual)
        )
        self.head = ResidualMLP(n_features, n_outputs, width=width, n_blocks=n_blocks, linear_skip=True)

    def forward(self, batch: Incomplete) -> Tensor:
        """Returns the outputs (*, T) of each row."""
        output: Tensor = self.head(self.body(batch))
        return output

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws the parameters of the layers and of the head."""
        self.body.reset_parameters(generator)
        self.head.reset_parameters(generator)


def _check_sizes(n_features: int, depth: int) -> None:
    if n_features < 1:
        raise ValueError(f"n_features must be at least 1, got {n_features!r}.")
    if depth < 0:
        raise ValueError(f"depth must not be negative, got {depth!r}.")


DESCRIPTIONS: Descriptions = NETWORK_DESCRIPTIONS | {
    "depth": "The number of Neumann steps.",
    "shared_weights": (
        "Whether all steps share one matrix (the network of 2021), or each step has its own (that of 2020)."
    ),
    "residual": (
        "Whether steps with matrices of their own have residual connections; steps with a shared matrix "
        "always have them."
    ),
    "width": "Units of each hidden layer of the head; 0 for a linear head.",
    "n_blocks": "Residual blocks of the head after its first hidden layer.",
}
documented = documented_by(DESCRIPTIONS, MODULE)


@dataclass(frozen=True)
class NeuMissArchitecture:
    """A NeuMiss network with a feed-forward head."""

    depth: int
    shared_weights: bool
    residual: bool
    width: int
    n_blocks: int

    def check(self) -> None:
        """Raises a ValueError if a parameter is out of range."""
        for name in ("depth", "width", "n_blocks"):
            check_whole(name, getattr(self, name), 0)

    def build(self, n_features: int, n_outputs: int) -> NeuMissPredictor:
        """Returns the network, with weights that are not drawn yet."""
        return NeuMissPredictor(
            n_features,
            n_outputs,
            self.depth,
            shared_weights=self.shared_weights,
            residual=self.residual,
            width=self.width,
            n_blocks=self.n_blocks if self.width else 0,
        )

    def n_weights(self, n_features: int, n_outputs: int) -> int:
        """Returns the fewest weights that the largest layer of a saved network must have."""
        return max(self.width, n_outputs) * max(self.width, n_features)

    def initialise(self, module: NeuMissPredictor, rows: Incomplete, generator: torch.Generator) -> None:
        """Draws the weights."""
        module.reset_parameters(generator)

    def objective(self, loss: SquaredError | CrossEntropy) -> SquaredError | CrossEntropy:
        """Returns the objective of the training, which is the loss."""
        return loss


@dataclass(eq=False, repr=False)
class NeuMissNetworkBase(NetworkBase):
    """The parameters of the regressor and the classifier with a published NeuMiss network."""

    _architecture = NeuMissArchitecture

    depth: int = 5
    _: KW_ONLY
    shared_weights: bool = True
    residual: bool = False
    width: int = 64
    n_blocks: int = 1


@documented
class NeuMissNetworkRegressor(ScaledTargetRegressor, NeuMissNetworkBase):
    r"""Regression with missing inputs by a NeuMiss network, trained end to end as published.

    .. math:: \hat y = g(h_d), \qquad h_0 = r, \quad h_{k+1} = \bar m \odot (W h_k) + r, \quad
              r = \bar m \odot (x - \mu)

    where :math:`\bar m` is 1 for observed features and :math:`g` is a network with a linear path. The network
    learns from the targets alone how they depend on the observed values and on the mask, so it makes no
    assumption about the missingness. It needs more rows than `NeuMissRegressor`, which fits the same kind of
    predictor by likelihood and is the better choice for most tables.

    References
    ----------
    Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks. Le Morvan, Josse, Scornet &
    Varoquaux (2021), What's a good imputation to predict with missing values?

    Examples
    --------
    >>> from halfseen.datasets import load_penguins
    >>> penguins = load_penguins("pandas").dropna(subset=["body_mass_g"])
    >>> inputs, mass = penguins[["bill_length_mm", "flipper_length_mm", "sex"]], penguins["body_mass_g"]
    >>> model = NeuMissNetworkRegressor(max_epochs=30, random_state=0).fit(inputs, mass)
    >>> bool(model.score(inputs, mass) > 0.7)
    True
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class NeuMissNetworkClassifier(WithClasses, ClassifierMixin, NeuMissNetworkBase):
    r"""Classification with missing inputs by a NeuMiss network, trained end to end as published.

    The network is that of `NeuMissNetworkRegressor` with one logit per class, trained by the log-loss. It
    makes no assumption about the missingness. Its probabilities are not calibrated; `NeuMissClassifier`,
    which fits by likelihood and calibrates on held-out rows, is the better choice for most tables.

    Examples
    --------
    >>> from halfseen.datasets import load_penguins
    >>> penguins = load_penguins("pandas")
    >>> inputs = penguins[["bill_length_mm", "bill_depth_mm", "flipper_length_mm"]]
    >>> model = NeuMissNetworkClassifier(max_epochs=30, random_state=0).fit(inputs, penguins["species"])
    >>> bool(model.score(inputs, penguins["species"]) > 0.9)
    True
    """

    class_weight: Any = None
