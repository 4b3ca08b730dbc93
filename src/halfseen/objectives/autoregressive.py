"""The likelihood of autoregressive networks with several orderings."""

import torch
from torch import Tensor

from halfseen.nn.autoregressive import MaskedAutoregression


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
