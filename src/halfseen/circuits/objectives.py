r"""Losses of circuits: for the class or target given the inputs, and for the inputs themselves."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from halfseen.base.density import DensityModel
from halfseen.circuits.images import seen_through
from halfseen.data.incomplete import Incomplete
from halfseen.training.supervised import Labelled

LabelledRows = Labelled[Incomplete]

UNKNOWN = -1
"""The class of a row whose label is missing."""


class ClassModel(Protocol):
    """A joint model of classes and inputs, such as a circuit."""

    def class_scores(self, batch: Incomplete) -> tuple[Tensor, Tensor]:
        """Returns scores (N, K) and a shift (N) that add to the log of p(x_o, y)."""
        ...

    def squared_weights(self) -> Tensor:
        """Returns the sum of the squares of all sum weights."""
        ...


class HybridLikelihood:
    r"""Computes the loss of the class given the inputs, plus a share of that of the inputs.

    .. math:: \ell = w \left(-\log p(y \mid x_o) - \frac{\beta}{D} \log p(x_o)\right)
              + \lambda \sum_i \omega_i^2

    where :math:`\omega` are the sum weights, so that :math:`\lambda` pulls them towards equal weights. (The
    authors' code squares the exponentials of the free logits, which are not normalised.) A row without a
    label has no first term. In training, inputs are left out at random: each row at a
    rate of its own, uniform between 0 and `max_dropped`. Removed inputs are marginalised, so that the model
    learns to predict from any subset of the inputs.

    Parameters
    ----------
    beta : float
        The weight :math:`\beta` of the inputs' likelihood, per column.
    owners : Tensor
        The column (D) of each feature; a column is left out as a whole.
    max_dropped : float
        The greatest rate at which columns are left out.
    blocks : Tensor, optional
        A region (D) of each feature; in every second row, whole regions are left out instead of columns.
    grids : Tensor, optional
        Shifted frames (S, E) of the features, as `shifted_grids` returns them. One of them is drawn at random
        for each batch.
    decay : float
        The weight :math:`\lambda` of the squares of the sum weights.
    jitter : Tensor, optional
        The standard deviation (D) of noise that is added to each feature.
    """

    def __init__(
        self,
        beta: float,
        owners: Tensor,
        max_dropped: float = 0.0,
        blocks: Tensor | None = None,
        grids: Tensor | None = None,
        decay: float = 0.0,
        jitter: Tensor | None = None,
    ) -> None:
        self.beta = beta
        self.decay = decay
        self.owners = owners
        self.max_dropped = max_dropped
        self.n_columns = int(owners.max()) + 1
        self.blocks = blocks
        self.grids = grids
        self.jitter = jitter

    def draw_noise(self, batch: LabelledRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which features (N, D) are kept, noise (N, D) to add, and the frame (E) of the features.

        Of these, only what the loss uses.
        """
        noise = self._draw_kept(batch, generator)
        if self.jitter is not None:
            noise = (*noise, self.jitter * torch.randn(batch.rows.x.shape, generator=generator))
        if self.grids is None:
            return noise
        chosen = torch.randint(len(self.grids), (), generator=generator)
        return (*noise, self.grids[chosen])

    def _draw_kept(self, batch: LabelledRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which features (N, D) are kept; nothing if all are."""
        if self.max_dropped == 0.0:
            return ()
        rates = self.max_dropped * torch.rand(len(batch), 1, generator=generator)
        kept = (torch.rand(len(batch), self.n_columns, generator=generator) >= rates)[:, self.owners]
        if self.blocks is not None:
            n_blocks = int(self.blocks.max()) + 1
            coarse = torch.rand(len(batch), n_blocks, generator=generator) >= rates
            by_block = torch.rand(len(batch), 1, generator=generator) < 0.5
            kept = torch.where(by_block, coarse[:, self.blocks], kept)
        return (kept,)

    def __call__(self, module: ClassModel, batch: LabelledRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        rows = self.disturbed(batch.rows, noise)
        if self.grids is not None:
            rows = seen_through(rows, noise[-1] if noise else self.grids[0].to(rows.x.device))
        scores, shift = module.class_scores(rows)
        known = batch.target != UNKNOWN
        target = torch.where(known, batch.target, 0)
        of_class = functional.cross_entropy(scores, target, reduction="none")
        of_inputs = -(scores.logsumexp(dim=-1) + shift) / self.n_columns
        loss = batch.weight * (torch.where(known, of_class, 0.0) + self.beta * of_inputs).to(scores.dtype)
        return loss + self.decay * module.squared_weights() if self.decay else loss

    def disturbed(self, rows: Incomplete, noise: tuple[Tensor, ...]) -> Incomplete:
        """Returns rows with features left out and with noise, as `draw_noise` drew them."""
        if self.max_dropped > 0.0 and noise:
            rows, noise = Incomplete(rows.x, rows.observed & noise[0]), noise[1:]
        if self.jitter is not None and noise:
            rows = Incomplete(rows.x + noise[0], rows.observed)
        return rows


class ConditionalLikelihood:
    r"""Computes the loss of numeric targets given the inputs, plus a share of that of the inputs.

    .. math:: \ell = w \left(-\log p(y_o \mid x_o) - \frac{\beta}{D} \log p(x_o)\right)

    Targets are the last columns of the rows, one feature each; a missing target does not count. Inputs are
    left out at random as in `HybridLikelihood`.

    Parameters
    ----------
    beta : float
        The weight of the inputs' likelihood, per column.
    owners : Tensor
        The column (D) of each feature, targets included.
    n_targets : int
        The number of targets.
    max_dropped : float
        The greatest rate at which inputs are left out.
    """

    def __init__(self, beta: float, owners: Tensor, n_targets: int, max_dropped: float = 0.0) -> None:
        self.beta = beta
        self.n_targets = n_targets
        self.inputs = HybridLikelihood(beta, owners[: len(owners) - n_targets], max_dropped)

    def draw_noise(self, batch: LabelledRows, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Returns which features (N, D) of inputs are kept."""
        return self.inputs.draw_noise(batch, generator)

    def __call__(self, module: DensityModel, batch: LabelledRows, noise: tuple[Tensor, ...]) -> Tensor:
        """Returns the weighted loss (N) of each row."""
        rows, n_inputs = batch.rows, len(self.inputs.owners)
        observed = rows.observed
        if noise:
            observed = torch.cat([observed[:, :n_inputs] & noise[0], observed[:, n_inputs:]], dim=1)
        inputs = observed.clone()
        inputs[:, n_inputs:] = False
        both = module(Incomplete(rows.x, observed))
        alone = module(Incomplete(rows.x, inputs))
        return batch.weight * ((alone - both) - self.beta / self.inputs.n_columns * alone)
