r"""Smooth, strictly increasing maps between the values of a column and the real line."""

from dataclasses import dataclass
from math import inf
from typing import Literal, get_args

import torch
from torch import Tensor

LinkKind = Literal["identity", "log", "yeo-johnson", "above", "below", "between", "power"]
LINKS: tuple[str, ...] = get_args(LinkKind)
NEAREST = 1e-12  # minimum distance from a bound, relative to the scale
LARGEST_RATIO = 1e100  # squares of larger ratios might overflow
LARGEST_LOG = 709.0  # logarithm of the largest number that a float can represent
EXACT_POWER = 1e-8  # a Yeo-Johnson power nearer to 0 or 2 than this is the logarithm


@dataclass(frozen=True)
class Link:
    r"""One map and its parameters.

    ``identity``: :math:`u = x`; ``log``: :math:`u = \log x`; ``yeo-johnson``: of
    :math:`(x - \text{first}) / \text{second}` with the power `third` between 0 and 2, where it covers the
    real line; ``above`` and ``below`` a bound `first`: the inverse of a softplus with the scale `second`,
    which is the identity far from the bound; ``between`` `first` and `second`: the logit; ``power`` (Box-Cox)
    of :math:`x / \text{second}` with the positive exponent `third`, for positive values.

    Examples
    --------
    >>> link = Link("between", 0.0, 100.0)
    >>> link.inverse(link.forward(torch.tensor([1.0, 50.0, 99.0]))).round().tolist()
    [1.0, 50.0, 99.0]
    """

    kind: LinkKind = "identity"
    first: float = 0.0
    second: float = 1.0
    third: float = 1.0

    def check(self) -> None:
        """Raises a ValueError unless the parameters are those of an increasing map."""
        holds = abs(self.first) < inf and abs(self.second) < inf
        match self.kind:
            case "yeo-johnson":
                holds = holds and self.second > 0 and 0 <= self.third <= 2
            case "power":
                holds = holds and self.second > 0 and 0 < self.third < inf
            case "above" | "below":
                holds = holds and self.second > 0
            case "between":
                holds = holds and self.first < self.second
        if not holds:
            raise ValueError(f"The link function {self} of a margin is not an increasing map.")

    def forward(self, x: Tensor) -> Tensor:
        """Returns the images of values on the real line; values beyond a bound are moved next to it."""
        match self.kind:
            case "identity":
                return x
            case "log":
                return x.clamp(min=torch.finfo(x.dtype).tiny).log()
            case "yeo-johnson":
                return _yeo_johnson(
                    ((x - self.first) / self.second).clamp(-LARGEST_RATIO, LARGEST_RATIO), self.third
                )
            case "above":
                return _inverse_softplus((x - self.first) / self.second)
            case "below":
                return -_inverse_softplus((self.first - x) / self.second)
            case "power":
                return ((x / self.second).clamp(0.0, LARGEST_RATIO) ** self.third - 1) / self.third
        return torch.logit(((x - self.first) / (self.second - self.first)).clamp(NEAREST, 1 - NEAREST))

    def inverse(self, u: Tensor) -> Tensor:
        """Returns the values whose images on the real line are given."""
        match self.kind:
            case "identity":
                return u
            case "log":
                return u.clamp(max=LARGEST_LOG).exp()
            case "yeo-johnson":
                x = _undo_yeo_johnson(u, self.third) * self.second + self.first
                return x.nan_to_num(posinf=torch.finfo(u.dtype).max, neginf=torch.finfo(u.dtype).min)
            case "above":
                return self.first + self.second * torch.nn.functional.softplus(u)
            case "below":
                return self.first - self.second * torch.nn.functional.softplus(-u)
            case "power":
                x = self.second * (1 + self.third * u).clamp(min=0.0) ** (1 / self.third)
                return x.clamp(max=torch.finfo(u.dtype).max)
        return self.first + (self.second - self.first) * torch.sigmoid(u)

    def log_slope(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\log du / dx`."""
        match self.kind:
            case "identity":
                return torch.zeros_like(x)
            case "log":
                return -self.forward(x)
            case "yeo-johnson":
                y = ((x - self.first) / self.second).clamp(-LARGEST_RATIO, LARGEST_RATIO)
                power = torch.where(y >= 0, self.third - 1, 1 - self.third)
                return power * y.abs().log1p() - _log(self.second)
            case "above":
                return -_log_sigmoid_of_softplus((x - self.first) / self.second) - _log(self.second)
            case "below":
                return -_log_sigmoid_of_softplus((self.first - x) / self.second) - _log(self.second)
            case "power":
                y = (x / self.second).clamp(torch.finfo(x.dtype).tiny, LARGEST_RATIO)
                return (self.third - 1) * y.log() - _log(self.second)
        share = ((x - self.first) / (self.second - self.first)).clamp(NEAREST, 1 - NEAREST)
        return -share.log() - (-share).log1p() - _log(self.second - self.first)


def _log(number: float) -> float:
    return float(torch.tensor(number, dtype=torch.float64).log())


def inverse_softplus(y: Tensor) -> Tensor:
    """Returns the t with log(1 + exp(t)) = y, for y > 0.

    Examples
    --------
    >>> inverse_softplus(torch.nn.functional.softplus(torch.tensor([-3.0, 0.5, 40.0])))
    tensor([-3.0000,  0.5000, 40.0000])
    """
    return y + torch.log(-torch.expm1(-y))


def _inverse_softplus(t: Tensor) -> Tensor:
    return inverse_softplus(t.clamp(min=NEAREST))


def _log_sigmoid_of_softplus(t: Tensor) -> Tensor:
    r"""Returns :math:`\log dt/du` where t is the softplus of u: :math:`\log(1 - e^{-t})`."""
    return (-torch.expm1(-t.clamp(min=NEAREST))).log()


def _yeo_johnson(y: Tensor, power: float) -> Tensor:
    return torch.where(y >= 0, _box_cox(y.clamp(min=0), power), -_box_cox((-y).clamp(min=0), 2 - power))


def _undo_yeo_johnson(u: Tensor, power: float) -> Tensor:
    up, down = u.clamp(min=0), (-u).clamp(min=0)
    return torch.where(u >= 0, _undo_box_cox(up, power), -_undo_box_cox(down, 2 - power))


def _box_cox(y: Tensor, power: float) -> Tensor:
    """Returns ((1 + y)^power - 1) / power for y of at least 0, without loss of digits for small y."""
    if power < EXACT_POWER:
        return y.log1p()
    return torch.expm1(power * y.log1p()) / power


def _undo_box_cox(u: Tensor, power: float) -> Tensor:
    if power < EXACT_POWER:
        return torch.expm1(u.clamp(max=LARGEST_LOG))
    return torch.expm1((power * u).log1p() / power)
