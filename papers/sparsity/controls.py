"""Controls of Sparsity Normalization in AutoRec: other changes of the encoder, which the paper lacks."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from halfseen.ratings.autorec import AutoRec, SparseAutoencoder
from halfseen.ratings.network import sparse_linear
from halfseen.ratings.table import SparseRows
from halfseen.training.loop import TrainingSettings


class ScaledAutoencoder(SparseAutoencoder):
    """Multiplies the sum of a row by one constant: the mean factor of the normalisation in training."""

    factor = 1.0

    def reset_parameters(self, rows: SparseRows, generator: torch.Generator) -> None:
        """Draws small weights and computes the constant."""
        super().reset_parameters(rows, generator)
        counts = rows.counts[rows.counts > 0].double()
        self.factor = float((counts.mean() / counts).mean())

    def preactivation(self, rows: SparseRows) -> Tensor:
        """Returns the sum of a row times the constant."""
        return self.factor * super().preactivation(rows)


class MaskAutoencoder(SparseAutoencoder):
    """Adds a vector for each observed column, as if the mask were concatenated to the row."""

    def __init__(self, n_columns: int, n_hidden: int, **options: Any) -> None:
        super().__init__(n_columns, n_hidden, **options)
        self.mask_encoder = nn.Parameter(torch.zeros(n_columns, n_hidden))

    def preactivation(self, rows: SparseRows) -> Tensor:
        """Returns the sums of the row and of its mask."""
        ones = torch.ones_like(rows.values)
        return super().preactivation(rows) + sparse_linear(rows, self.mask_encoder, ones)


class LayerNormAutoencoder(SparseAutoencoder):
    """Standardises the hidden units of a row before their bias."""

    def preactivation(self, rows: SparseRows) -> Tensor:
        """Returns the sum of the row with mean 0 and variance 1 over hidden units."""
        total = super().preactivation(rows)
        return nn.functional.layer_norm(total, total.shape[1:])


class ControlledAutoRec(AutoRec):
    """AutoRec without the normalisation, with another network.

    Parameters
    ----------
    network : type
        One of the networks of this module.
    centre : bool
        As of AutoRec.
    """

    def __init__(
        self, network: type[SparseAutoencoder], rows: str = "item", *, centre: bool, random_state: Any = None
    ) -> None:
        super().__init__(
            rows, sparsity_norm=False, centre=centre, subsets=False, shrink=False, random_state=random_state
        )
        self.network = network

    def _build(self, rows: SparseRows) -> SparseAutoencoder:
        centre = float(rows.values.double().mean()) if self.centre else 0.0
        return self.network(rows.n_columns, self.n_hidden, centre=centre)

    def _settings(self, train: SparseRows) -> TrainingSettings:
        settings = super()._settings(train)
        if self.network is MaskAutoencoder:
            of_mask = {"mask_encoder": settings.penalties["encoder"]}
            settings = replace(settings, penalties={**settings.penalties, **of_mask})
        return settings
