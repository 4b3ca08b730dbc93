"""Likelihoods of pixels: black or white, or one of a number of evenly spaced shades."""

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.distributions.leaves import TEMPERATURE, Leaf, NumericLeaf, open_uniforms

MIN_LOG_SCALE = -7.0  # in units of half the range of shades


class BernoulliLeaf(Leaf):
    r"""Creates columns that take one of two values, with the log odds of the high one from the network.

    .. math:: \log p(x_j) = v_j a_j - \log(1 + e^{a_j}), \qquad v_j = \frac{x_j - l}{h - l}

    for network outputs :math:`a`. With ``low=-1`` a missing pixel filled by 0 is neither black nor white. The
    relaxed draw is :math:`v = \mathrm{sigmoid}((a + \mathrm{logit}\, u) / T)` with temperature :math:`T`.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`, and of parameters.
    low, high : float
        The two values :math:`l` and :math:`h`.

    References
    ----------
    Maddison, Mnih & Teh (2017), The concrete distribution (the relaxed draw).

    Examples
    --------
    >>> leaf = BernoulliLeaf(n_columns=1, low=-1.0)
    >>> leaf.mean(torch.zeros(1))
    tensor([0.])
    """

    is_density = False
    temperature = TEMPERATURE

    def __init__(self, n_columns: int, low: float = 0.0, high: float = 1.0) -> None:
        super().__init__(n_columns, n_parameters=n_columns, width=n_columns, n_noise=n_columns)
        _check_range(low, high)
        self.low = low
        self.high = high

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J)."""
        share = (x - self.low) / (self.high - self.low)
        return share * parameters - functional.softplus(parameters)

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected values (*, J)."""
        return self._values(parameters.sigmoid())

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J)."""
        return (self.high - self.low) ** 2 * parameters.sigmoid() * (-parameters).sigmoid()

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the more probable of the two values (*, J)."""
        return self._values((parameters > 0).to(parameters.dtype))

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns relaxed draws (*, J), between the values."""
        odds = parameters + torch.logit(open_uniforms(noise, parameters.dtype))
        return self._values(torch.sigmoid(odds / self.temperature))

    @torch.no_grad()
    def sample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns exact draws (*, J)."""
        odds = parameters + torch.logit(open_uniforms(noise, parameters.dtype))
        return self._values((odds > 0).to(odds.dtype))

    def neutral_parameters(self) -> Tensor:
        """Returns even odds (J)."""
        return torch.zeros(self.n_parameters, dtype=torch.float64)

    def filler(self) -> Tensor:
        """Returns the low value (J)."""
        return torch.full((self.width,), self.low, dtype=torch.float64)

    def _values(self, share: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * share


class DiscretisedLogisticLeaf(NumericLeaf):
    r"""Creates columns of evenly spaced values, such as 256 shades, by rounding a logistic variable.

    With the values :math:`v` mapped to :math:`[-1, 1]`, and :math:`\delta` half their distance there,

    .. math:: P(v) = \mathrm{sigmoid}\!\left(\frac{v + \delta - \mu_j}{s_j}\right) -
              \mathrm{sigmoid}\!\left(\frac{v - \delta - \mu_j}{s_j}\right), \qquad
              \log s_j = -7 + \log(1 + e^{b_j + 7})

    for network outputs :math:`(\mu, b)`; the lowest and the highest value take the whole tail. Draws are
    rounded; their gradient passes as if they were not, and vanishes in the tails.

    Parameters
    ----------
    n_columns : int
        The number of columns :math:`J`; there are :math:`2J` parameters.
    low, high : float
        The least and the greatest value.
    n_bins : int
        The number of values.

    References
    ----------
    Salimans et al. (2017), PixelCNN++, eq. 2 with a single component.

    Examples
    --------
    >>> leaf = DiscretisedLogisticLeaf(n_columns=1, low=0.0, high=1.0, n_bins=2)
    >>> leaf.log_prob(torch.zeros(2), torch.tensor([1.0])).exp()
    tensor([0.5000])
    """

    is_density = False

    def __init__(self, n_columns: int, low: float, high: float, n_bins: int = 256) -> None:
        super().__init__(n_columns, n_parameters=2 * n_columns, n_noise=n_columns)
        _check_range(low, high)
        if n_bins < 2:
            raise ValueError(f"n_bins must be at least 2, got {n_bins!r}.")
        self.low = low
        self.high = high
        self.n_bins = n_bins

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the log probability (*, J) of the nearest of the values."""
        loc, scale = self._split(parameters)
        bins = self._bins(x)
        upper, lower = (self._edge(bins) - loc) / scale, (self._edge(bins - 1) - loc) / scale
        below, above = functional.logsigmoid(upper), functional.logsigmoid(-lower)
        # sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 - exp(a - b)), which never cancels.
        between = torch.log(-torch.expm1(-2 / (self.n_bins - 1) / scale))
        tail = torch.where(bins == 0, below, above)
        return torch.where((bins == 0) | (bins == self.n_bins - 1), tail, below + above + between)

    def mean(self, parameters: Tensor) -> Tensor:
        """Returns the expected values (*, J), a sum over all of them."""
        return self.low + self._step * self._moments(parameters)[0]

    def variance(self, parameters: Tensor) -> Tensor:
        """Returns the variance (*, J), a sum over all values."""
        first, second = self._moments(parameters)
        return self._step**2 * (second - first.square())

    def mode(self, parameters: Tensor) -> Tensor:
        """Returns the most probable value (*, J): the nearest to the location, or an end."""
        loc, _ = self._split(parameters)
        nearest = self.low + self._step * ((loc + 1) * (self.n_bins - 1) / 2).round().clamp(
            0, self.n_bins - 1
        )
        values = torch.stack([nearest, *(torch.full_like(loc, end) for end in (self.low, self.high))])
        best = self.log_prob(parameters, values).argmax(dim=0, keepdim=True)
        return values.gather(0, best).squeeze(0)

    def rsample(self, parameters: Tensor, noise: Tensor) -> Tensor:
        """Returns exact draws (*, J) with the gradient of the logistic variable before rounding."""
        loc, scale = self._split(parameters)
        logistic = loc + scale * torch.logit(open_uniforms(noise, loc.dtype))
        position = ((logistic + 1) * (self.n_bins - 1) / 2).clamp(0, self.n_bins - 1)
        return self.low + self._step * (position.detach().round() + (position - position.detach()))

    def cdf(self, parameters: Tensor, x: Tensor) -> Tensor:
        """Returns the probability (*, J) of a value not above `x`."""
        loc, scale = self._split(parameters)
        position = ((x - self.low) / self._step + 1e-3).floor()  # what rounding may have taken
        inside = torch.sigmoid((self._edge(position) - loc) / scale)
        return torch.where(position < 0, 0.0, torch.where(position >= self.n_bins - 1, 1.0, inside))

    def neutral_parameters(self) -> Tensor:
        """Returns the outputs (2J) of a wide distribution around the middle."""
        loc = torch.zeros(self.n_columns, dtype=torch.float64)
        return torch.cat([loc, loc - 1])  # a standard deviation of two thirds of half the range

    def filler(self) -> Tensor:
        """Returns the low value (J)."""
        return torch.full((self.width,), self.low, dtype=torch.float64)

    @property
    def _step(self) -> float:
        return (self.high - self.low) / (self.n_bins - 1)

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        loc, raw_scale = parameters.chunk(2, dim=-1)
        return loc, (MIN_LOG_SCALE + functional.softplus(raw_scale - MIN_LOG_SCALE)).exp()

    def _bins(self, x: Tensor) -> Tensor:
        return ((x - self.low) / self._step).round().clamp(0, self.n_bins - 1)

    def _edge(self, bins: Tensor) -> Tensor:
        """Returns the upper edge of a bin, on the scale from -1 to 1."""
        return (2 * bins + 1) / (self.n_bins - 1) - 1

    def _moments(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the first two moments (*, J) of the number of the bin, from its upper tails."""
        loc, scale = self._split(parameters)
        first = second = torch.zeros_like(loc)
        for number in range(1, self.n_bins):  # an axis of bins would not fit in memory for images
            edge = (2 * number - 1) / (self.n_bins - 1) - 1
            tail = torch.sigmoid((loc - edge) / scale)
            first, second = first + tail, second + (2 * number - 1) * tail
        return first, second


def _check_range(low: float, high: float) -> None:
    if not low < high:
        raise ValueError(f"low must be less than high, got {low!r} and {high!r}.")
