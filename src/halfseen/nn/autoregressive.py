r"""MADE: masked networks whose outputs are the conditional distributions of an autoregressive density."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen.nn.sparsity import count_factor, sn_mask

Normalisation = Literal["mask", "causal", "input"]
NORMALISATIONS: tuple[Normalisation | None, ...] = (None, "mask", "causal", "input")


def draw_degrees(n_features: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns the place of each feature in a random ordering (D), and the degrees of hidden units (W).

    A hidden unit of degree m is connected to the features at the places 0, ..., m, and to later outputs.
    """
    places = torch.randperm(n_features, generator=generator)
    return places, torch.randint(max(1, n_features - 1), (width,), generator=generator)


def connect(places: Tensor, degrees: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the connections of a hidden layer to features (W, D), and of outputs to hidden units (D, W).

    .. math:: M_{kd} = [\pi_d \leq m_k], \qquad M'_{dk} = [m_k < \pi_d]

    so that the output of a feature depends on earlier features only.

    Examples
    --------
    >>> inputs, outputs = connect(torch.tensor([1, 0, 2]), torch.tensor([0, 1]))
    >>> (outputs.int() @ inputs.int()) > 0  # which output depends on which feature
    tensor([[False,  True, False],
            [False, False, False],
            [ True,  True, False]])
    """
    return places <= degrees[:, None], degrees < places[:, None]


class MaskedAutoregression(nn.Module):
    r"""Creates a masked autoencoder for distribution estimation (MADE) of binary rows.

    .. math:: \log p(x) = \log \frac{1}{E} \sum_e \prod_d p_e(x_d \mid x_{\pi_e < \pi_e(d)}), \qquad
              \mathrm{logit}\, p_e = (M'_e \odot V) \, \sigma\big((M_e \odot W) x + b\big) + c

    where the masks of each of :math:`E` orderings prevent an output from depending on its own feature and
    later ones. The densities of the orderings are averaged, so the result is a density; an average of logits
    would not be one.

    Parameters
    ----------
    places : Tensor of shape (E, D)
        The place of each feature in each ordering.
    degrees : Tensor of shape (E, W)
        The degrees of the hidden units under each ordering.
    normalisation : {None, "mask", "causal", "input"}
        ``"mask"`` scales the connections of each unit to the mean number of connections (`sn_mask`);
        ``"causal"`` divides the input of a hidden unit by the number of ones among the features it is
        connected to, relative to the mean in training; ``"input"`` is the published normalisation of all
        inputs by the number of ones, with which outputs depend on their own feature: the result is not
        a density.

    Shapes
    ------
    x : :math:`(N, D)` of zeros and ones; output : :math:`(N)`

    References
    ----------
    Germain, Gregor, Murray & Larochelle (2015), MADE. Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero
    imputation?, section on MADE (``"mask"`` and ``"input"``).

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> places, degrees = draw_degrees(3, 8, generator)
    >>> network = MaskedAutoregression(places[None], degrees[None]).double()
    >>> network.reset_parameters(generator)
    >>> rows = torch.cartesian_prod(*[torch.arange(2)] * 3)
    >>> round(network(rows).exp().sum().item(), 6)
    1.0
    """

    places: Tensor
    degrees: Tensor
    into_hidden: Tensor
    into_output: Tensor
    mean_counts: Tensor

    def __init__(self, places: Tensor, degrees: Tensor, normalisation: str | None = None) -> None:
        super().__init__()
        n_features, width = places.shape[1], degrees.shape[1]
        self.normalisation = normalisation
        self.register_buffer("places", places)
        self.register_buffer("degrees", degrees)
        masks = [connect(*pair) for pair in zip(places, degrees, strict=True)]
        if normalisation == "mask":
            masks = [(sn_mask(first), sn_mask(second)) for first, second in masks]
        dtype = torch.get_default_dtype()
        for name, parts in zip(("into_hidden", "into_output"), zip(*masks, strict=True), strict=True):
            self.register_buffer(name, torch.stack([part.to(dtype) for part in parts]), persistent=False)
        units = width if normalisation == "causal" else 1
        self.register_buffer("mean_counts", torch.ones(len(places), units))  # (E, W) or (E, 1)
        self.weight = nn.Parameter(torch.zeros(width, n_features))
        self.bias = nn.Parameter(torch.zeros(width))
        self.output_weight = nn.Parameter(torch.zeros(n_features, width))
        self.output_bias = nn.Parameter(torch.zeros(n_features))

    @property
    def n_orderings(self) -> int:
        """The number E of orderings."""
        return len(self.places)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draws weights from the uniform distribution of ``torch.nn.Linear``; biases are zero."""
        for weight in (self.weight, self.output_weight):
            bound = 1 / math.sqrt(weight.shape[1])
            weight.uniform_(-bound, bound, generator=generator)

    @torch.no_grad()
    def fit(self, x: Tensor) -> "MaskedAutoregression":
        """Sets the mean counts of ones, and initialises the outputs to the frequencies of ones (N, D)."""
        means = x.to(self.weight.dtype).mean(dim=0)  # (D,)
        if self.normalisation == "causal":
            self.mean_counts.copy_((self.into_hidden @ means).clamp(min=1e-12))
        elif self.normalisation == "input":
            self.mean_counts.fill_(max(float(means.sum()), 1e-12))
        frequency = (means * len(x) + 0.5) / (len(x) + 1)
        self.output_bias.copy_(frequency.logit())
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Returns the log probability (N) of each row, over all orderings."""
        each = torch.stack([self.log_prob(x, ordering) for ordering in range(self.n_orderings)])
        return each.logsumexp(dim=0) - math.log(self.n_orderings)

    def log_prob(self, x: Tensor, ordering: int) -> Tensor:
        """Returns the log probability (N) of each row under one ordering."""
        target = x.to(self.weight.dtype)
        logits = self.logits(x, ordering)
        return -functional.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(dim=1)

    def logits(self, x: Tensor, ordering: int) -> Tensor:
        """Returns the logit (N, D) of each feature given the features before it."""
        rows = x.to(self.weight.dtype)
        mask = self.into_hidden[ordering]
        total = functional.linear(rows, mask * self.weight)
        if self.normalisation in ("causal", "input"):
            seen = functional.linear(rows, mask) if self.normalisation == "causal" else rows.sum(1, True)
            total = total * count_factor(seen, self.mean_counts[ordering], 1.0)
        hidden = functional.relu(total + self.bias)
        return functional.linear(hidden, self.into_output[ordering] * self.output_weight, self.output_bias)

    @torch.no_grad()
    def sample(self, n_rows: int, ordering: int, generator: torch.Generator) -> Tensor:
        """Returns rows (n_rows, D) drawn feature by feature in one ordering."""
        uniform = torch.rand(n_rows, self.places.shape[1], generator=generator, dtype=torch.float64)
        rows = torch.zeros(uniform.shape, dtype=torch.uint8)
        for feature in self.places[ordering].argsort().tolist():
            probability = self.logits(rows, ordering)[:, feature].sigmoid()
            rows[:, feature] = uniform[:, feature] < probability
        return rows
