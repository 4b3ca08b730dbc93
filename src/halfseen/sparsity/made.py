"""MADE: an autoregressive density of binary rows and images."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import seed_from, torch_generator
from halfseen._threads import task_threads
from halfseen.base.model_file import Saveable
from halfseen.base.parameters import (
    Descriptions,
    TrainingParameters,
    all_or_nothing,
    check_training,
    check_whole,
    documented_by,
)
from halfseen.base.table import rows_at_once
from halfseen.data.incomplete import check_not_masked
from halfseen.errors import warn_user
from halfseen.nn.sparsity import count_factor, sn_mask
from halfseen.nn.weights import load_module, module_state
from halfseen.training.loop import TrainingSettings, fit_module, split_rows

Normalisation = Literal["mask", "causal", "input", "all"]
NORMALISATIONS: tuple[Normalisation | None, ...] = (None, "mask", "causal", "input", "all")
LEAKY = ("input", "all")  # with which each output sees its own feature


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
    normalisation : {None, "mask", "causal", "input", "all"}
        ``"mask"`` scales the connections of each unit to the mean number of connections (`sn_mask`);
        ``"causal"`` divides the input of a hidden unit by the number of ones among the features it is
        connected to, relative to the mean in training; ``"input"`` is the published normalisation of all
        inputs by the number of ones, with which outputs depend on their own feature: the result is not
        a density; ``"all"`` is that of inputs and connections, not a density either.

    Shapes
    ------
    x : :math:`(N, D)` of zeros and ones; output : :math:`(N)`

    References
    ----------
    Germain, Gregor, Murray & Larochelle (2015), MADE. Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero
    imputation?, appendix F (``"input"`` is "w/ SN" there, and ``"all"`` "w/ SN (all)").

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
        if normalisation in ("mask", "all"):
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
        elif self.normalisation in LEAKY:
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
        if self.normalisation in ("causal", *LEAKY):
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


class OrderedLikelihood:
    r"""Computes the negative log-likelihood of rows: of one ordering in training, of their mean otherwise.

    .. math:: \ell = -\log p_e(x), \quad e \sim \mathrm{uniform}\{1, \dots, E\}

    In training each batch has one ordering, drawn at random. Held-out rows are judged by the density that is
    used in the end, the mean over all orderings.
    """

    def draw_noise(self, batch: Tensor, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns a number in [0, 1) that chooses the ordering."""
        return (torch.rand((), generator=generator),)

    def __call__(self, module: MaskedAutoregression, batch: Tensor, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the loss (N) of each row."""
        if not module.training:
            loss: Tensor = -module(batch)
            return loss
        return -module.log_prob(batch, int(noise[0] * module.n_orderings))


DESCRIPTIONS: Descriptions = {
    "width": "The number of hidden units.",
    "n_orderings": (
        "The number of random orderings of the features. The density is the mean of the densities of all "
        "orderings, which share their weights; its cost grows with their number."
    ),
    "normalisation": (
        '{None, "mask", "causal", "input", "all"}',
        'Sparsity Normalization: of the connections (``"mask"``), or of what each hidden unit receives, by '
        'the number of ones that it sees (``"causal"``). ``"input"`` is the published normalisation by the '
        'number of all ones, and ``"all"`` that together with ``"mask"``; with them scores are not '
        "log-likelihoods and nothing can be sampled, and `fit` warns.",
    ),
}


@documented_by(DESCRIPTIONS)
@dataclass(eq=False, repr=False)
class MADE(TrainingParameters, Saveable, DensityMixin, BaseEstimator):
    r"""Density of binary rows or images by a masked autoregressive network.

    .. math:: p(x) = \frac{1}{E} \sum_e \prod_d p_e(x_d \mid x_{\pi_e < \pi_e(d)})

    A network with one hidden layer returns the probability of each feature given those before it in an
    ordering. Rows must be complete, so no assumption about the missingness is made; for rows with missing
    values use `ConvAC` or `MixtureImputer`, whose ``score_samples`` integrate missing values out exactly.

    Attributes
    ----------
    module_ : MaskedAutoregression
        The trained torch module.
    history_ : History
        The mean negative log-likelihood of a row after each epoch, and why training stopped.

    References
    ----------
    Germain, Gregor, Murray & Larochelle (2015), MADE: masked autoencoder for distribution estimation. Yi,
    Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, section on MADE.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.repeat(rng.integers(2, size=(300, 2)), 2, axis=1)  # features in equal pairs
    >>> model = MADE(16, max_epochs=30, learning_rate=0.05, random_state=0).fit(X)
    >>> bool(model.score(X) > 3 * np.log(0.5))  # better than independent coins, which have 4 log 0.5
    True
    >>> model.sample(3, random_state=0).shape
    (3, 4)
    """

    _saved: ClassVar[tuple[str, ...]] = ("shape_",)

    width: int = 500
    _: KW_ONLY
    n_orderings: int = 1
    normalisation: str | None = None
    max_epochs: int = 30
    batch_size: int = 100
    learning_rate: float = 0.005
    patience: int = 5
    random_state: Any = None

    @all_or_nothing
    @task_threads()
    def fit(self, X: Any, y: Any = None) -> "MADE":
        """Trains the network; held-out rows choose the epoch whose weights are kept.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, height, width)
            Zeros and ones, or booleans.
        y : Ignored
        """
        self._check_parameters()
        rows, self.shape_ = _read_binary(X)
        self.n_features_in_, self.seed_ = rows.shape[1], seed_from(self.random_state)
        generator = torch_generator(self.seed_)
        train, held = split_rows(rows, self.validation_fraction, generator)
        pairs = [draw_degrees(rows.shape[1], self.width, generator) for _ in range(self.n_orderings)]
        places, degrees = (torch.stack(parts) for parts in zip(*pairs, strict=True))
        module = MaskedAutoregression(places, degrees, self.normalisation)
        module.reset_parameters(generator)
        module.fit(train)
        self.history_ = fit_module(
            module,
            OrderedLikelihood(),
            train,
            generator=generator,
            validation=held,
            settings=TrainingSettings.of(
                self,
                schedule="cosine",
                compile=False,  # an ordering is chosen by a number, which a compiled graph would fix
            ),
            callback=self.callback,
        )
        self.module_ = module.double().requires_grad_(False)
        if self.normalisation in LEAKY:
            warn_user(
                f"With normalisation={self.normalisation!r} each output sees its own feature: the scores are "
                "not log-likelihoods. Use 'causal' or 'mask' for a density."
            )
        return self

    @task_threads()
    @torch.no_grad()
    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """Returns the log-likelihood of each row, in nats."""
        check_is_fitted(self)
        rows, _ = _read_binary(X, tuple(self.shape_))
        size = rows_at_once(self.n_features_in_, 3 * (self.width + self.n_features_in_))
        starts = range(0, max(1, len(rows)), size)
        scores: npt.NDArray[np.float64] = torch.cat(
            [self.module_(rows[start : start + size]) for start in starts]
        ).numpy()
        return scores

    def score(self, X: Any, y: Any = None) -> float:
        """Returns the mean log-likelihood of the rows, in nats."""
        return float(np.mean(self.score_samples(X)))

    @task_threads()
    def sample(self, n_samples: int = 1, random_state: Any = None) -> npt.NDArray[np.uint8]:
        """Returns rows, or images, that are drawn from the density."""
        check_is_fitted(self)
        check_whole("n_samples", n_samples, 1)
        if self.normalisation in LEAKY:
            raise ValueError(
                f"A model with normalisation={self.normalisation!r} is not a density: nothing can be sampled."
            )
        generator = torch_generator(seed_from(random_state))
        chosen = torch.randint(self.n_orderings, (n_samples,), generator=generator)
        rows = torch.zeros(n_samples, self.n_features_in_, dtype=torch.uint8)
        for ordering in chosen.unique().tolist():
            mine = chosen == ordering
            rows[mine] = self.module_.sample(int(mine.sum()), ordering, generator)
        drawn: npt.NDArray[np.uint8] = rows.numpy().reshape(n_samples, *self.shape_)
        return drawn

    def _check_parameters(self) -> None:
        for name in ("width", "n_orderings", "batch_size"):
            check_whole(name, getattr(self, name), 1)
        check_whole("max_epochs", self.max_epochs, 0)
        check_training(self)
        if self.normalisation not in NORMALISATIONS:
            names = ", ".join(map(repr, NORMALISATIONS))
            raise ValueError(f"normalisation must be one of {names}, got {self.normalisation!r}.")

    def _state(self) -> dict[str, Tensor]:
        return module_state(self.module_)

    def _restore(self, state: Mapping[str, Tensor]) -> None:
        self._check_parameters()
        places, degrees = state["module.places"], state["module.degrees"]
        shapes = (self.n_orderings, self.n_features_in_), (self.n_orderings, self.width)
        if (places.shape, degrees.shape) != shapes or math.prod(self.shape_) != self.n_features_in_:
            raise ValueError(
                f"orderings of shape {tuple(places.shape)} do not fit {self.n_features_in_} features"
            )
        self.module_ = load_module(MaskedAutoregression(places, degrees, self.normalisation).double(), state)


def _read_binary(X: Any, shape: tuple[int, ...] | None = None) -> tuple[Tensor, list[int]]:
    """Returns rows (N, D) of zeros and ones and the shape of one; raises an error for other values."""
    array = np.asarray(check_not_masked(X, "X"))
    if array.dtype.kind not in "biufO" or array.ndim not in (2, 3):
        raise ValueError(
            "X must hold numbers and have the shape (n_samples, n_features) or (n_samples, height, width), "
            f"got the shape {array.shape} and dtype {array.dtype}."
        )
    if shape is None and 0 in array.shape:
        raise ValueError(f"X must have at least one row and feature, got the shape {array.shape}.")
    if shape is not None and array.shape[1:] != shape:
        raise ValueError(f"X has features of shape {array.shape[1:]}, but MADE was fitted to {shape}.")
    rows = array.reshape(len(array), math.prod(array.shape[1:])).astype(np.float64)
    wrong = np.argwhere((rows != 0) & (rows != 1))
    if len(wrong):
        i, j = wrong[0].tolist()
        raise ValueError(
            "X must hold zeros and ones, finite and none missing: row "
            f"{i} has {float(rows[i, j])!r} in feature {j}. For incomplete or other data use MixtureImputer."
        )
    return torch.from_numpy(rows.astype(np.uint8)), list(array.shape[1:])
