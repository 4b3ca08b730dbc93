"""The inputs of the networks of latent-variable models, computed from the codes of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halfseen.data.features import FeatureMap
from halfseen.data.incomplete import Incomplete
from halfseen.data.schema import Column
from halfseen.distributions.gaussian import Gaussian

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
