r"""Random effects of groups in the regressions of chained equations, drawn by Gibbs steps.

Rows of one group, such as the visits of a person or the pupils of a school, share effects b of the constant
and, optionally, of the time of the row:

.. math:: y_{ij} = z_{ij}^T \beta + w_{ij}^T b_j + e_{ij}, \qquad
    b_j \sim \mathcal{N}(0, \Omega), \quad e_{ij} \sim \mathcal{N}(0, \sigma^2)

A sweep draws coefficients and effects together given both variances, and then the variances. Levels have a
sequence of such regressions with latent scores (Albert & Chib, 1993): the score of regression k is positive
if the level is k, and negative if it is a later one.

Shapes everywhere: ``S`` chains, ``N`` rows, ``P`` inputs including the constant, ``G`` groups, ``Q`` effects
of a group, ``J`` regressions of a column (one, or levels minus one).

References
----------
Schafer & Yucel (2002), Computational strategies for multivariate linear mixed-effects models with missing
values; Albert & Chib (1993), Bayesian analysis of binary and polychotomous response data; Tutz (1991), for
sequential regressions of levels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.special import ndtr

from halfseen.chained.regressions import (
    EDGE,
    PRIOR_FREEDOM,
    PRIOR_VARIANCE,
    SMALLEST_MASS,
    Noise,
    are_few,
    draw_between,
    expected,
)
from halfseen.data.incomplete import Incomplete

FIRST_SWEEPS = 50  # of a column, from values that do not know the data; a guess, several times the usual need
SWEEPS = 10  # of a column in a later cycle; variances of effects need more than the cells that changed
EFFECT_VARIANCE = 0.1  # scale of the prior of the variance of effects, of a column of unit variance; a guess
EXTRA_FREEDOM = 1  # degrees of freedom of that prior beyond the number of effects, the fewest that are proper
FEWEST_GROUPS = 5  # with two observed values, from which on a column can be seen to be constant; a guess
PROBIT_PER_LOGIT = 0.625  # coefficients of a probit regression, in those of a logistic one


@dataclass(frozen=True)
class GroupedRows:
    """Which rows belong together, and the inputs that have effects of groups.

    Shapes
    ------
    group : (N), from 0.
    inputs : (N, Q), 1 and, with slopes, the standardised time.
    """

    group: Tensor
    n_groups: int
    inputs: Tensor

    def sums(self, values: Tensor) -> Tensor:
        """Returns the sums (S, G, *) of values (S, N, *) over the rows of groups."""
        found = values.new_zeros(values.shape[0], self.n_groups, *values.shape[2:])
        return found.index_add(1, self.group, values)

    def offsets(self, effects: Tensor) -> Tensor:
        """Returns what effects (S, G, Q) add to each row (S, N)."""
        return (effects[:, self.group] * self.inputs).sum(dim=-1)

    def means(self, values: Tensor) -> Tensor:
        """Returns the means (S, G, *) of values (S, N, *) over the rows of groups, 0 where there are none."""
        sizes = torch.bincount(self.group, minlength=self.n_groups).clamp(min=1)
        return self.sums(values) / sizes.reshape(-1, *[1] * (values.ndim - 2))


@dataclass(frozen=True)
class RowGroups:
    """The groups of the rows of a table, and its columns that are constant within groups.

    Attributes
    ----------
    rows : GroupedRows
        The group of each row.
    table : Incomplete
        (G, C), the code of each group: means of numbers that vary within groups, otherwise the least code.
    upper : frozenset of int
        The positions of columns that are constant within groups. They have one regression over groups.
    """

    rows: GroupedRows
    table: Incomplete
    upper: frozenset[int]

    @classmethod
    def of(cls, codes: Incomplete, rows: GroupedRows, numbers: Sequence[int]) -> "RowGroups":
        """Describes the groups of a table (N, C), in which the columns `numbers` have means."""
        place = rows.group[:, None].expand(-1, codes.n_features)
        counts = rows.sums(codes.observed[None].to(torch.float64))[0]  # (G, C)
        ends = []
        for way, beyond in (("amin", torch.inf), ("amax", -torch.inf)):
            found = torch.full_like(counts, beyond)
            ends.append(found.scatter_reduce(0, place, codes.filled(beyond), way))
        several = counts >= 2
        constant = ((ends[0] == ends[1]) | ~several).all(dim=0)
        upper = frozenset(
            c
            for c in range(codes.n_features)
            if constant[c]
            and int(several[:, c].sum()) >= FEWEST_GROUPS
            and len(ends[0][several[:, c], c].unique()) > 1
        )
        x, known = torch.where(counts > 0, ends[0], 0.0), counts > 0
        means = rows.sums(codes.filled()[None])[0] / counts.clamp(min=1.0)
        varying = [c for c in numbers if c not in upper]
        x[:, varying] = means[:, varying]
        return cls(rows, Incomplete(x, known), upper)


@dataclass(frozen=True)
class EffectDraw:
    """Effects of groups in every chain.

    Shapes
    ------
    values : (S, J, G, Q)
    covariance : (S, J, Q, Q), of the effects of a new group.
    """

    values: Tensor
    covariance: Tensor

    @classmethod
    def joined(cls, parts: Sequence["EffectDraw"]) -> "EffectDraw":
        """Returns the effects of several groups of chains together."""
        return cls(*(torch.cat([getattr(one, name) for one in parts]) for name in ("values", "covariance")))

    def fits(self, n_chains: int, n_parts: int) -> bool:
        """Returns whether the tensors are those of this number of chains and regressions."""
        values, covariance = self.values, self.covariance
        n_effects = values.shape[-1] if values.ndim else 0
        return (
            values.ndim == 4
            and values.shape[:2] == (n_chains, n_parts)
            and covariance.shape == (n_chains, n_parts, n_effects, n_effects)
            and values.dtype == covariance.dtype == torch.float64
            and bool((torch.linalg.cholesky_ex(covariance)[1] == 0).all())
        )

    def of(self, which: Tensor) -> "EffectDraw":
        """Returns the effects of some chains."""
        return EffectDraw(self.values[which], self.covariance[which])

    def offsets(self, group: Tensor, inputs: Tensor, normals: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns what effects add to rows, and the variance of it that is left: two tensors (S, R, J).

        Rows of groups that are not known have effects drawn from their distribution by `normals` or, without
        them, of mean zero and with a variance.

        Shapes
        ------
        group : (R), -1 for a group that is not known.
        inputs : (S, R, Q)
        normals : (S, R, J, Q)
        """
        known = (group >= 0)[:, None]
        own = self.values[:, :, group.clamp(min=0)].movedim(1, 2)  # (S, R, J, Q)
        mean = (own * inputs.unsqueeze(2)).sum(dim=-1)
        if normals is None:
            spread = torch.einsum("srq,sjqp,srp->srj", inputs, self.covariance, inputs)
            return torch.where(known, mean, 0.0), torch.where(known, 0.0, spread)
        factor = torch.linalg.cholesky(self.covariance)
        drawn = torch.einsum("sjqp,srjp,srq->srj", factor, normals, inputs)
        return torch.where(known, mean, drawn), torch.zeros_like(mean)


@dataclass(frozen=True)
class MixedProducts:
    """Cross-products of a mixed regression over the rows that it is fitted to.

    Shapes
    ------
    inputs : (S, P, P), of the inputs.
    mixed : (S, G, Q, P), of the inputs with effects and the inputs, by group.
    groups : (S or 1, G, Q, Q), of the inputs with effects, by group.
    """

    inputs: Tensor
    mixed: Tensor
    groups: Tensor


def cross_products(
    gram: Tensor, design: Tensor, places: Tensor, grouping: GroupedRows, rows: Tensor
) -> MixedProducts:
    """Returns the cross-products over rows (S or 1, N) of a design (S, N, D), of which `places` are used."""
    inputs = torch.where(rows.unsqueeze(-1), grouping.inputs, 0.0)  # (S or 1, N, Q)
    each = [grouping.sums(design * one.unsqueeze(-1))[..., places] for one in inputs.unbind(-1)]
    pairs = inputs.unsqueeze(-1) * inputs.unsqueeze(-2)
    return MixedProducts(gram, torch.stack(each, dim=2), grouping.sums(pairs))


def draw_coefficients(
    products: MixedProducts,
    with_target: tuple[Tensor, Tensor],
    prior: Tensor,
    variance: Tensor,
    covariance: Tensor,
    noise: Noise,
) -> tuple[Tensor, Tensor]:
    r"""Draws coefficients (S, P) and effects (S, G, Q) together, given both variances.

    .. math::
        M_j = W_j^T W_j / \sigma^2 + \Omega^{-1}, \quad
        A = \Bigl(Z^T Z - \sum_j Z_j^T W_j M_j^{-1} W_j^T Z_j / \sigma^2\Bigr) / \sigma^2
            + \operatorname{diag}(\lambda)

    The coefficients have the precision A with effects integrated out; then each effect is drawn given the
    coefficients, with the precision :math:`M_j`.

    Shapes
    ------
    with_target : (S, P) and (S, G, Q), cross-products of the target with inputs, and by group.
    prior : (S, P), :math:`\lambda`.
    variance : (S), :math:`\sigma^2`.
    covariance : (S, Q, Q), :math:`\Omega`.
    """
    of_inputs, of_groups = with_target
    v = variance[:, None, None]
    inverse = torch.linalg.inv(covariance).unsqueeze(1)
    factor = torch.linalg.cholesky(products.groups / v.unsqueeze(-1) + inverse)  # (S, G, Q, Q)
    both = torch.cat([products.mixed, of_groups.unsqueeze(-1)], dim=-1)
    half = torch.linalg.solve_triangular(factor, both, upper=False).flatten(1, 2)  # (S, G Q, P + 1)
    explained = half[..., :-1].mT @ half / v
    precision = (products.inputs - explained[..., :-1]) / v + torch.diag_embed(prior)
    right = (of_inputs.unsqueeze(-1) - explained[..., -1:]) / v
    root = torch.linalg.cholesky(precision)
    step = torch.linalg.solve_triangular(root.mT, noise.normals(root.shape[-1], 1), upper=True)
    coefficients = torch.cholesky_solve(right, root) + step  # (S, P, 1)
    left = (of_groups.unsqueeze(-1) - products.mixed @ coefficients.unsqueeze(1)) / v.unsqueeze(-1)
    own = torch.linalg.solve_triangular(factor.mT, noise.normals(*left.shape[1:]), upper=True)
    effects = torch.cholesky_solve(left, factor) + own
    return coefficients.squeeze(-1), effects.squeeze(-1)


def draw_covariance(effects: Tensor, used: Tensor, noise: Noise) -> Tensor:
    r"""Draws the covariance (S, Q, Q) of effects (S, G, Q); only the groups `used` (S or 1, G) count.

    .. math:: \Omega \sim \text{inverse Wishart}\Bigl(s I + \sum_j b_j b_j^T, \; \nu + n\Bigr)

    with `EFFECT_VARIANCE` for s, and :math:`\nu` that is `EXTRA_FREEDOM` plus the number of effects.
    """
    own = torch.where(used.unsqueeze(-1), effects, 0.0)
    n_effects = own.shape[-1]
    freedom = used.sum(dim=1).expand(len(own)) + n_effects + EXTRA_FREEDOM
    scale = own.mT @ own + EFFECT_VARIANCE * torch.eye(n_effects, dtype=own.dtype)
    drawn = own.new_zeros(len(own), n_effects, n_effects)  # Bartlett's factor of a Wishart matrix
    for k in range(n_effects):
        drawn[:, k, k] = noise.chi_squared((freedom - k).to(own.dtype)).sqrt()
        if k:
            drawn[:, k, :k] = noise.normals(k)
    # Ω⁻¹ = L⁻ᵀ B Bᵀ L⁻¹ with scale = L Lᵀ, so that Ω = R Rᵀ with R = L B⁻ᵀ
    root = torch.linalg.solve_triangular(drawn, torch.linalg.cholesky(scale).mT, upper=False).mT
    found: Tensor = root @ root.mT
    return found


class MixedRegression:
    """A regression with effects of groups in every chain: its current parameters, and sweeps of Gibbs steps.

    Parameters
    ----------
    grouping : GroupedRows
        Of all rows.
    rows : Tensor
        (S or 1, N), the rows to which the regression is fitted.
    prior : Tensor
        (P), precisions of the coefficients; in rows if rows are few for them, as in `draw_linear`.
    n_chains : int
        The number of chains S.
    latent : bool
        Whether the target is a latent score with unit residual variance.
    """

    def __init__(
        self, grouping: GroupedRows, rows: Tensor, prior: Tensor, n_chains: int, *, latent: bool
    ) -> None:
        self.grouping, self.prior, self.latent = grouping, prior, latent
        self.fit_to(rows)
        n_effects = grouping.inputs.shape[1]
        self.variance = torch.ones(n_chains, dtype=torch.float64)
        self.covariance = 0.5 * torch.eye(n_effects, dtype=torch.float64).repeat(n_chains, 1, 1)
        self.coefficients = torch.zeros(n_chains, len(prior), dtype=torch.float64)
        self.effects = torch.zeros(n_chains, grouping.n_groups, n_effects, dtype=torch.float64)

    def fit_to(self, rows: Tensor) -> None:
        """Sets the rows (S or 1, N) to which the regression is fitted."""
        self.rows, self.used = rows, self.grouping.sums(rows.to(torch.float64)) > 0

    def mean(self, design: Tensor, places: Tensor) -> Tensor:
        """Returns the expected target (S, N) of all rows."""
        return expected(design, places, self.coefficients) + self.grouping.offsets(self.effects)

    def sweep(
        self, products: MixedProducts, design: Tensor, places: Tensor, target: Tensor, noise: Noise
    ) -> None:
        """Draws all parameters once, given a target (S, N)."""
        y = torch.where(self.rows, target, 0.0)
        of_groups = self.grouping.sums(y.unsqueeze(-1) * self.grouping.inputs)
        of_inputs = (y.unsqueeze(1) @ design)[:, 0, places]
        n_rows, width = int(self.rows[0].sum()), len(self.prior)  # in every chain, unless scores are latent
        few = are_few(n_rows, width) and not self.latent
        prior = self.prior / self.variance[:, None] if few else self.prior.expand(len(y), -1)
        self.coefficients, self.effects = draw_coefficients(
            products, (of_inputs, of_groups), prior, self.variance, self.covariance, noise
        )
        self.covariance = draw_covariance(self.effects, self.used, noise)
        if self.latent:
            return
        residual = torch.where(self.rows, y - self.mean(design, places), 0.0)
        squares, freedom = residual.square().sum(dim=1), n_rows
        if few:
            squares = squares + self.coefficients.square() @ self.prior + PRIOR_FREEDOM * PRIOR_VARIANCE
            freedom = n_rows + width - 1 + int(PRIOR_FREEDOM)
        drawn = noise.chi_squared(torch.full_like(squares, freedom))
        self.variance = (squares / drawn).clamp(min=SMALLEST_MASS)


class LevelRegressions:
    """The sequence of latent regressions of a column with K levels: level k against later ones.

    Parameters
    ----------
    grouping : GroupedRows
        Of all rows.
    n_levels : int
        The number of levels K.
    prior : Tensor
        (P), precisions of the coefficients of a logistic regression.
    n_chains : int
        The number of chains S.
    """

    def __init__(self, grouping: GroupedRows, n_levels: int, prior: Tensor, n_chains: int) -> None:
        precision, none = prior / PROBIT_PER_LOGIT**2, torch.zeros(1, len(grouping.group), dtype=torch.bool)
        self.parts = [
            MixedRegression(grouping, none, precision, n_chains, latent=True) for _ in range(n_levels - 1)
        ]

    def sweep(self, levels: Tensor, design: Tensor, places: Tensor, n_sweeps: int, noise: Noise) -> None:
        """Draws latent scores and all parameters several times.

        Parameters
        ----------
        levels : Tensor
            (S or 1, N), the level of each row, -1 where it is missing.
        design, places : Tensor
            (S, N, D) and (P), the inputs and which of them are used.
        n_sweeps : int
            How often.
        noise : Noise
            The random numbers of each chain.
        """
        own, infinite = design[..., places], torch.tensor(torch.inf, dtype=torch.float64)
        for k, part in enumerate(self.parts):
            part.fit_to(levels >= k)
            some = torch.where(part.rows.unsqueeze(-1), own, 0.0)
            products = cross_products(some.mT @ some, design, places, part.grouping, part.rows)
            low = torch.where(levels == k, 0.0, -infinite)
            high = torch.where(levels == k, infinite, 0.0)
            for _ in range(n_sweeps):
                at = part.mean(design, places)
                uniforms = noise.uniforms(at.shape[1]).clamp(EDGE, 1 - EDGE)
                scores = draw_between(at, torch.ones_like(at), low, high, uniforms)
                part.sweep(products, design, places, scores, noise)

    def drawn(self) -> tuple[Tensor, EffectDraw]:
        """Returns coefficients (S, J P), regression by regression, and effects."""
        coefficients = torch.cat([part.coefficients for part in self.parts], dim=1)
        effects = torch.stack([part.effects for part in self.parts], dim=1)
        return coefficients, EffectDraw(effects, torch.stack([p.covariance for p in self.parts], dim=1))


def sequential(index: Tensor) -> Tensor:
    """Returns the probabilities (*, K) of levels, from the means (*, K - 1) of latent scores.

    Examples
    --------
    >>> sequential(torch.zeros(2, dtype=torch.float64))
    tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    goes_on = torch.nn.functional.pad(ndtr(-index).cumprod(dim=-1), (1, 0), value=1.0)
    stops = torch.nn.functional.pad(ndtr(index), (0, 1), value=1.0)
    shares: Tensor = goes_on * stops
    return shares.clamp(min=SMALLEST_MASS)
