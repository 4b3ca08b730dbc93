r"""Inflation of predictive scales, learned from observed cells of held-out rows that are hidden for it.

Networks that were fitted to few rows are too sure of themselves, and so are importance weights of few draws.
The scales of missing numbers are then inflated by the smallest factor for which central intervals cover what
was hidden of held-out rows. Weights, means and probabilities of levels stay as they are.
"""

import torch
from torch import Tensor

from halfseen.config import memory_budget
from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation_model import ObservationModel

LEVEL = 0.9
MIN_INFLATION, MAX_INFLATION = 0.5, 4.0
MIN_CELLS = 100  # with fewer, no factor is estimated
BISECTIONS = 12
SHARE_OF_BUDGET = 32  # parameters of some rows are this part of the memory budget


def hide_cells(rows: Incomplete, owners: Tensor, generator: torch.Generator) -> Tensor:
    """Returns which observed features (N, D) to hide: about the share that rows miss, at least a tenth.

    Parameters
    ----------
    rows : Incomplete
        Features.
    owners : Tensor
        The column (D) of each feature; features of a column are hidden together.
    generator : torch.Generator
        Of the choice.
    """
    share = max(0.1, float((~rows.observed).double().mean()))
    n_columns = int(owners.max()) + 1
    chosen = torch.rand(len(rows), n_columns, generator=generator) < share
    return chosen[:, owners] & rows.observed


def choose_inflation(
    observation: ObservationModel,
    parameters: Tensor,
    weights: Tensor,
    truth: Tensor,
    hidden: Tensor,
    half: Tensor,
) -> tuple[float, ...]:
    r"""Returns for each column the factor of scales at which 90% intervals cover 90% of the hidden numbers.

    With half a step :math:`h` of the column, 0 for numbers that are not whole, a cell is within an interval
    with rounded ends if :math:`\sum_a \alpha_a F_s(x + h \mid z_a) \ge 0.05` and that of :math:`x - h` is at
    most 0.95. There is one factor for whole numbers, which may be below 1, since rounding widens intervals,
    and one of at least 1 for others. Where fewer than 100 numbers were hidden it is 1.

    Shapes
    ------
    parameters : :math:`(A, N, P)`
    weights : :math:`(A, N)`, which sum to 1
    truth, hidden : :math:`(N, J)`, of the columns `observation.numeric`
    half : :math:`(J)`
    """
    size = max(1, memory_budget() // (SHARE_OF_BUDGET * 8 * parameters[:, :1].numel()))
    parts = torch.arange(len(truth)).split(size)

    def is_inside(rows: Tensor, inflation: float) -> Tensor:
        wider = observation.inflated(parameters[:, rows], [inflation] * len(half))
        above = torch.einsum("an,anj->nj", weights[:, rows], observation.cdf(wider, truth[rows] + half))
        below = torch.einsum("an,anj->nj", weights[:, rows], observation.cdf(wider, truth[rows] - half))
        return (above >= (1 - LEVEL) / 2) & (below <= (1 + LEVEL) / 2)

    def coverage(inflation: float, columns: Tensor) -> float:
        inside = torch.cat([is_inside(rows, inflation) for rows in parts])
        return float(inside[hidden & columns].double().mean())

    found = torch.ones(len(half))
    for columns, low in ((half == 0, 1.0), (half > 0, MIN_INFLATION)):
        if int((hidden & columns).sum()) < MIN_CELLS:
            continue
        high = low
        if coverage(low, columns) < LEVEL:
            high = MAX_INFLATION
            for _ in range(BISECTIONS):
                middle = (low * high) ** 0.5
                low, high = (low, middle) if coverage(middle, columns) >= LEVEL else (middle, high)
        found[columns] = high
    return tuple(found.tolist())
