r"""Blocks of numbers that are drawn together: one regression of several columns with correlated residuals.

.. math:: y = B^T z + \varepsilon, \qquad \varepsilon \sim \mathcal{N}(0, \Sigma)

Here y are the scores of the columns of a block in a row, and z are inputs of the other columns. A visit draws
B and Σ from their posterior given the rows in which a column of the block is observed, with the missing
scores of these rows as they were drawn last. Then it draws the missing scores of each row together, given its
observed ones. A block of all columns is data augmentation for a joint Gaussian.

Shapes everywhere: ``S`` chains, ``N`` rows, ``P`` inputs including the constant, ``B`` columns of a block.

References
----------
Schafer (1997), Analysis of Incomplete Multivariate Data, chapter 5; van Buuren (2018), Flexible Imputation of
Missing Data, section 4.7.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from halfseen.chained.inputs import Role
from halfseen.chained.regressions import FLAT, PRIOR_FREEDOM, PRIOR_VARIANCE, Noise, are_few
from halfseen.data.schema import Column


@dataclass(frozen=True)
class BlockDraw:
    """Coefficients (S, P, B), and the covariance matrices (S, B, B) of the residuals."""

    coefficients: Tensor
    covariance: Tensor


def read_blocks(blocks: Any, columns: Sequence[Column], roles: Sequence[Role]) -> list[tuple[int, ...]]:
    """Returns the positions of the columns of each block with at least two; raises a ValueError.

    Parameters
    ----------
    blocks : list of list of str, or None
        What the user passed.
    columns : sequence of Column
        The modelled columns.
    roles : sequence of Role
        How they are regressed.
    """
    if blocks is None:
        return []
    if isinstance(blocks, str) or not isinstance(blocks, Sequence):
        raise ValueError(f"blocks must be a list of lists of column names, got {blocks!r}.")
    places = {column.name: c for c, column in enumerate(columns)}
    found, taken = list[tuple[int, ...]](), set[str]()
    for names in blocks:
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise ValueError(f"Each of the blocks must be a list of column names, got {names!r}.")
        for name in names:
            if name not in places:
                raise ValueError(f"blocks refers to column {name!r}, which is not a modelled column.")
            if name in taken:
                raise ValueError(f"blocks names column {name!r} twice.")
            taken.add(name)
            if roles[places[name]] != Role.NUMBER:
                raise ValueError(
                    f"Column {name!r} of a block has levels, or few values: blocks are for numbers."
                )
            if columns[places[name]].derived is not None:
                raise ValueError(f"Column {name!r} is derived from others, so it cannot belong to a block.")
        if len(names) > 1:  # a single column has its regression
            found.append(tuple(sorted(places[name] for name in names)))
    return found


def limit_predictors(
    blocks: Sequence[tuple[int, ...]], limits: dict[int, npt.NDArray[np.int64]], n_columns: int
) -> None:
    """Removes the columns of a block from the predictors of each other."""
    for block in blocks:
        for c in block:
            allowed = limits.get(c, np.arange(n_columns))
            limits[c] = allowed[~np.isin(allowed, block)]


def led_blocks(blocks: Sequence[tuple[int, ...]], order: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Returns each block by the one of its columns that comes first in the order of a cycle."""
    return {min(block, key=order.index): block for block in blocks}


def followers(blocks: Mapping[int, tuple[int, ...]]) -> set[int]:
    """Returns the columns that are drawn with another one that comes before them."""
    return {c for leader, block in blocks.items() for c in block if c != leader}


def draw_regression(
    gram: Tensor, design: Tensor, places: Tensor, scores: Tensor, rows: Tensor, prior: Tensor, noise: Noise
) -> BlockDraw:
    r"""Draws from the posterior of a regression of several columns.

    .. math::
        A = Z^T Z + \operatorname{diag}(\lambda), \quad \hat B = A^{-1} Z^T Y, \quad
        \Sigma \sim \mathcal{W}^{-1}(R, \nu), \quad B \mid \Sigma \sim \mathcal{MN}(\hat B, A^{-1}, \Sigma)

    with :math:`R = (Y - Z \hat B)^T (Y - Z \hat B) + \hat B^T \operatorname{diag}(\lambda) \hat B` and the
    degrees of freedom of `draw_linear`, of which this is the generalisation. The prior of Σ is Jeffreys'; if
    there are few rows it is proper, an inverse Wishart distribution in which each variance has the prior that
    it has in `draw_linear`.

    Shapes
    ------
    gram : (S, P, P), :math:`Z^T Z` of the rows of the regression.
    design : (S, N, D), of which the regression uses some columns.
    places : (P), the positions of these columns.
    scores : (S, N, B)
    rows : (N), which rows belong to the regression.
    prior : (P), :math:`\lambda`, in rows.
    """
    inputs, y = design[:, rows][..., places], scores[:, rows]
    factor = torch.linalg.cholesky(gram + torch.diag(prior))
    fitted = torch.cholesky_solve(inputs.mT @ y, factor)
    residual = y - inputs @ fitted
    squares = residual.mT @ residual + fitted.mT @ (prior[:, None] * fitted)
    n_columns, freedom = y.shape[-1], float(y.shape[1] - int((prior <= FLAT).sum()))
    if are_few(y.shape[1], len(places) + n_columns - 1):
        squares = squares + PRIOR_FREEDOM * PRIOR_VARIANCE * torch.eye(n_columns, dtype=torch.float64)
        freedom += PRIOR_FREEDOM + n_columns - 1
    root = _draw_covariance_root(squares, freedom, noise)
    normals = noise.normals(len(places), n_columns)
    step = torch.linalg.solve_triangular(factor.mT, normals, upper=True) @ root.mT
    covariance = root @ root.mT
    return BlockDraw(fitted + step, (covariance + covariance.mT) / 2)  # symmetric to the last digit


def _draw_covariance_root(squares: Tensor, freedom: float, noise: Noise) -> Tensor:
    """Returns roots (S, B, B) of draws from inverse Wishart distributions (Bartlett's decomposition)."""
    n_chains, size = squares.shape[:2]
    lower = noise.normals(size, size).tril(diagonal=-1)
    for i in range(size):
        lower[:, i, i] = noise.chi_squared(torch.full((n_chains,), freedom - i)).sqrt()
    scale = torch.linalg.cholesky(squares)
    root: Tensor = torch.linalg.solve_triangular(lower, scale.mT, upper=False).mT
    return root


def draw_missing(
    mean: Tensor, covariance: Tensor, scores: Tensor, known: Tensor, normals: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws the scores of a block that are not known, given those that are.

    Parameters
    ----------
    mean : Tensor
        (S, R, B), the means given the other columns of the table.
    covariance : Tensor
        (S, B, B)
    scores : Tensor
        (S, R, B), arbitrary where they are not known.
    known : Tensor
        (R, B)
    normals : Tensor
        (S, R, B), the source of noise.

    Returns
    -------
    scores, mean, deviation
        (S, R, B): what is known and what was drawn, and the distribution of each unknown score given the
        known ones; arbitrary where a score is known.
    """
    precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    found, centre, deviation = scores.clone(), mean.clone(), torch.zeros_like(mean)
    patterns, of_row = torch.unique(known, dim=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows, missing, given = of_row == number, (~pattern).nonzero()[:, 0], pattern.nonzero()[:, 0]
        at = (rows.nonzero(), missing)
        factor = torch.linalg.cholesky(precision[:, missing][:, :, missing])
        away = (scores - mean)[:, rows][..., given] @ precision[:, given][:, :, missing]
        centre[:, *at] = mean[:, *at] - torch.cholesky_solve(away.mT, factor).mT
        step = torch.linalg.solve_triangular(factor.mT, normals[:, *at].mT, upper=True).mT
        found[:, *at] = centre[:, *at] + step
        spread = torch.cholesky_inverse(factor).diagonal(dim1=1, dim2=2).sqrt()
        deviation[:, *at] = spread.unsqueeze(1).expand(-1, int(rows.sum()), -1)
    return found, centre, deviation


def given_others(mean: Tensor, covariance: Tensor, scores: Tensor, j: int) -> tuple[Tensor, Tensor]:
    """Returns the mean (S, N) and the deviation (S) of column j of a block given its other columns."""
    precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    away, own = scores - mean, precision[:, j, j]
    away[..., j] = 0.0
    centre = mean[..., j] - (away @ precision[:, :, j, None]).squeeze(-1) / own[:, None]
    return centre, own.rsqrt()


def check_covariance(covariance: Tensor | None, n_chains: int, size: int, name: str) -> None:
    """Raises a ValueError unless a stored tensor is a covariance matrix for each chain."""
    fits = covariance is not None and covariance.shape == (n_chains, size, size)
    if fits and covariance is not None:
        fits = covariance.dtype == torch.float64 and bool(covariance.isfinite().all())
        fits = fits and bool((covariance == covariance.mT).all())
        fits = fits and not bool(torch.linalg.cholesky_ex(covariance).info.any())
    if not fits:
        raise ValueError(f"The covariances of the block of column {name!r} do not fit the model.")
