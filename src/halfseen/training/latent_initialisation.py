"""The Gaussian from which latent-variable models of tables start."""

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.gaussian import Gaussian
from halfseen.distributions.self_masked import SelfMaskedGaussian
from halfseen.training.em import EMSettings, choose_shrinkage, fit_gaussian
from halfseen.training.em_self_masked import fit_masked_gaussian
from halfseen.vocabulary import Missingness

MOST_ROWS = 5000


def fit_start(
    batch: Incomplete, may_hide: Tensor | None, generator: torch.Generator
) -> Gaussian | SelfMaskedGaussian:
    """Returns a Gaussian of features by EM, on at most 5,000 rows.

    Parameters
    ----------
    batch : Incomplete
        Features (N, D).
    may_hide : Tensor, optional
        Features (D) that may be missing because of their value; a probit of it is then fitted as well.
    generator : torch.Generator
        Chooses rows, and those that choose the ridge.
    """
    some = batch[torch.randperm(len(batch), generator=generator)[:MOST_ROWS]]
    settings = EMSettings(max_iterations=100, tolerance=1e-4)
    settings = choose_shrinkage(some, settings, generator=generator)
    if may_hide is None:
        return fit_gaussian(some, settings, generator=generator).gaussian
    return fit_masked_gaussian(some, Missingness.PROBIT, may_hide, settings, generator=generator).model
