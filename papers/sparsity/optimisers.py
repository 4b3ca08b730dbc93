"""Optimisers of AutoRec with and without Sparsity Normalization: the paper's table 4, with controls.

The original AutoRec is trained by RProp and the paper by Adam, both with all rows in each step. In the paper
Adam has the larger errors for rows of users on MovieLens 1M and 10M, so part of what it gains by the
normalisation there may make up for the optimiser. The paper has no RProp with the normalisation; here all
four combinations see the same splits and start at the same weights. Rows are not centred, as published.

All have the loss, the penalty and the held-out ratings of `AutoRec`. Adam has the paper's rate of 0.001, and
the steps of RProp start at it. There are at most 1,000 steps; every tenth the error of the held-out ratings
is looked at, and the best weights are kept; training stops after 200 steps without an improvement. These
numbers are not published, and were not tuned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from halfseen.ratings.autorec import AutoRec, SparseAutoencoder
from halfseen.ratings.recommender import RatedRows, RatingError
from halfseen.ratings.table import SparseRows
from papers.claims import Better, Published, Setting
from papers.sparsity.ratings import FILES, LARGE, SMALL, make_task, score
from papers.spec import Budget, Experiment

ADAM, RPROP, ADAM_SN, RPROP_SN = "Adam", "RProp", "Adam + SN", "RProp + SN"
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    ADAM: torch.optim.Adam,
    RPROP: torch.optim.Rprop,
}
RATE = 1e-3
N_STEPS, LOOK_EVERY, PATIENCE = 1000, 10, 200
TABLE_4 = {  # the paper's errors, by data and rows
    (SMALL, "item"): {RPROP: 0.8861, ADAM: 0.8831},
    (SMALL, "user"): {RPROP: 0.9437, ADAM: 0.9343},
    (LARGE, "item"): {RPROP: 0.8358, ADAM: 0.8306},
    (LARGE, "user"): {RPROP: 0.8804, ADAM: 0.8832},
}


class FullBatchAutoRec(AutoRec):
    """AutoRec without centring whose steps are made by a given optimiser, with all rows in each.

    Parameters
    ----------
    optimiser : {"Adam", "RProp"}
        Which optimiser.
    rows, sparsity_norm, n_hidden, random_state
        As of AutoRec.
    """

    def __init__(
        self,
        optimiser: str,
        rows: str = "item",
        *,
        sparsity_norm: bool = False,
        n_hidden: int = 500,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            rows,
            sparsity_norm=sparsity_norm,
            centre=False,
            shrink=False,
            n_hidden=n_hidden,
            random_state=random_state,
        )
        self.optimiser = optimiser

    def _descend(
        self, module: Any, train: SparseRows, held: SparseRows | None, generator: torch.Generator
    ) -> None:
        optimiser = OPTIMISERS[self.optimiser](module.parameters(), lr=RATE)
        seen, looked_at = RatedRows(train, train), RatedRows(train, train if held is None else held)
        descend(
            module, optimiser, seen, looked_at, self._penalty(train),
            n_steps=N_STEPS, look_every=LOOK_EVERY, patience=PATIENCE,
        )  # fmt: skip


@dataclass
class Best:
    """The smallest sum of squared errors of held-out ratings so far, and the step and weights that had it."""

    error: float
    step: int
    weights: dict[str, Tensor]


def descend(
    module: SparseAutoencoder,
    optimiser: torch.optim.Optimizer,
    train: RatedRows,
    held: RatedRows,
    penalty: float,
    *,
    n_steps: int,
    look_every: int,
    patience: int,
) -> Best:
    """Trains a network with all rows in each step; gives it the best weights of the steps looked at."""
    best = Best(float("inf"), 0, {})
    for step in range(1, n_steps + 1):
        optimiser.zero_grad()
        squares = module.encoder.square().sum() + module.decoder.square().sum()
        loss: Tensor = RatingError()(module, train, ()).sum() + penalty / 2 * squares
        loss.backward()
        optimiser.step()
        if step % look_every:
            continue
        with torch.no_grad():
            error = float(RatingError()(module, held, ()).sum())
        if error < best.error:
            best = Best(error, step, {name: value.clone() for name, value in module.state_dict().items()})
        elif step - best.step >= patience:
            break
    module.load_state_dict(best.weights)
    return best


def _numbers(setting: Setting, model: str, metric: str) -> Published | None:
    found = TABLE_4[setting["data"], setting["rows"]].get(model) if metric == "RMSE" else None
    return None if found is None else Published(found, label="table 4", other="penalty tuned for each case")


_ROWS = ["item", "user"]

EXPERIMENT = Experiment(
    name="sparsity-optimisers",
    question="Does the gain by Sparsity Normalization depend on the optimiser of AutoRec?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, table 4",
    make_data=make_task,
    models={
        RPROP: partial(FullBatchAutoRec, RPROP),
        ADAM: partial(FullBatchAutoRec, ADAM),
        RPROP_SN: partial(FullBatchAutoRec, RPROP, sparsity_norm=True),
        ADAM_SN: partial(FullBatchAutoRec, ADAM, sparsity_norm=True),
    },
    score=score,
    metrics={"RMSE": "lower", "absolute slope": "lower"},
    budgets={
        "smoke": Budget.grid(1, models=[RPROP], data=[SMALL], rows=["item"]),
        "small": Budget.grid(2, data=[SMALL], rows=_ROWS),
        "paper": Budget.grid(5, data=[SMALL, LARGE], rows=_ROWS),
    },
    claims=[
        Better(ADAM, RPROP, on="RMSE", where={"data": SMALL}),
        Better(ADAM, RPROP, on="RMSE", where={"data": LARGE, "rows": "item"}),
        Better(RPROP, ADAM, on="RMSE", where={"data": LARGE, "rows": "user"}),
        Better(ADAM_SN, ADAM, on="RMSE", where={"data": SMALL, "rows": "user"}),
        Better(RPROP_SN, RPROP, on="RMSE", where={"data": SMALL, "rows": "user"}),
    ],
    numbers=_numbers,
    data_sets=lambda setting: FILES[setting["data"]],
)
