r"""How much wider missing cells are than a model says, learned from known cells of held-out rows.

Networks that were fitted to few rows are too sure of themselves, and so are importance weights of few draws.
The scales of missing numbers are then stretched by one factor, the smallest of at least 1 for which central
intervals cover what was hidden of held-out rows. Weights, means and probabilities of levels stay as they are.
"""

import torch
from torch import Tensor

from halfseen.data.incomplete import Incomplete
from halfseen.distributions.observation import Observation

LEVEL = 0.9
MAX_STRETCH = 4.0
MIN_CELLS = 100  # fewer tell too little
BISECTIONS = 12


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


def choose_stretch(
    observation: Observation, parameters: Tensor, weights: Tensor, truth: Tensor, hidden: Tensor
) -> float:
    r"""Returns the factor of scales at which central 90% intervals cover 90% of the hidden numbers.

    A cell is covered if :math:`|\sum_a \alpha_a F_s(x \mid z_a) - \tfrac12| \le 0.45`. The factor is 1 where
    this needs none, or where fewer than 100 numbers were hidden.

    Shapes
    ------
    parameters : :math:`(A, N, P)`
    weights : :math:`(A, N)`, which sum to 1
    truth, hidden : :math:`(N, J)`, of the columns `observation.numeric`
    """
    if int(hidden.sum()) < MIN_CELLS:
        return 1.0

    def covers(stretch: float) -> bool:
        below = observation.cdf(observation.stretched(parameters, stretch), truth)
        below = torch.einsum("an,anj->nj", weights, below)
        return float(((below - 0.5).abs() <= LEVEL / 2)[hidden].double().mean()) >= LEVEL

    if covers(1.0):
        return 1.0
    low, high = 1.0, MAX_STRETCH
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high
