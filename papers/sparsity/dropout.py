"""Dropout that divides by the exact number of kept units, beside dropout that divides by the expected one.

A network with four hidden layers of 256 units predicts the target of three tables. Both forms see the same
splits, the same start and the same masks of dropped units, batch for batch. A tenth of the rows is for the
test, a fifth of the others chooses the epoch. Inputs are scaled to [0, 1] by the training rows, targets are
standardised; the error is in the units of the target. The learning rate is ten times the paper's, with fewer
epochs than its experiments probably had: the number is not published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from halfseen._random import torch_generator
from halfseen.datasets import describe_dataset, load
from halfseen.nn.residual import empty_linear, reset_layers
from halfseen.nn.sparsity import sn_dropout
from halfseen.training.loop import TrainingSettings, fit_module
from halfseen.training.supervised import Labelled, SquaredError, WithDropout
from papers.claims import Better, Setting
from papers.spec import Budget, Experiment

EXPECTED, EXACT = "expected count", "exact count"
RMSE = "RMSE"
WIDTHS = (256, 256, 256, 256)
FILES = {"boston": "boston_housing", "diabetes": "diabetes", "california": "california_housing"}
EPOCHS = {"boston": 200, "diabetes": 200, "california": 40}


@dataclass(frozen=True)
class Task:
    """Scaled rows with standardised targets in three parts, the unit of the target, and how to train."""

    train: Labelled[Tensor]
    held: Labelled[Tensor]
    test: Labelled[Tensor]
    unit: float
    rate: float
    epochs: int
    seed: int


class DropoutMLP(nn.Module):
    """Creates a rectified network whose dropout rescales by the expected or the exact number of kept units.

    Shapes
    ------
    x : :math:`(N, D)`; kept : boolean :math:`(N, W)` for each hidden layer; output : :math:`(N, 1)`
    """

    def __init__(self, n_features: int, rate: float, *, exact: bool, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.rate, self.exact = rate, exact
        self.layers = nn.ModuleList(empty_linear(a, b) for a, b in pairwise([n_features, *widths, 1]))

    def forward(self, x: Tensor, kept: Sequence[Tensor] = ()) -> Tensor:
        """Returns the prediction; units that are not kept are dropped, if `kept` is given."""
        hidden = x
        for place, layer in enumerate(self.layers[:-1]):
            hidden = functional.relu(layer(hidden))
            if kept and self.exact:
                hidden = sn_dropout(hidden, kept[place])
            elif kept:
                hidden = torch.where(kept[place], hidden, 0.0) / (1 - self.rate)
        output: Tensor = self.layers[-1](hidden)
        return output


def make_task(setting: Setting, seed: int) -> Task:
    """Returns a random split of a table."""
    name = FILES[setting["table"]]
    frame = load(name, backend="pandas")
    (target,) = describe_dataset(name).target
    X = frame.drop(columns=target).to_numpy(np.float64)
    y = frame[target].to_numpy(np.float64)
    order = np.random.default_rng(seed).permutation(len(y))
    n_test = len(y) // 10
    n_held = (len(y) - n_test) // 5
    test, held, train = np.split(order, [n_test, n_test + n_held])
    low, high = X[train].min(axis=0), X[train].max(axis=0)
    X = (X - low) / np.where(high > low, high - low, 1.0)
    unit = float(y[train].std())
    scaled = (y - y[train].mean()) / unit

    def part(rows: Any) -> Labelled[Tensor]:
        weights = torch.ones(len(rows))
        return Labelled(torch.tensor(X[rows]).float(), torch.tensor(scaled[rows, None]).float(), weights)

    epochs = EPOCHS[setting["table"]]
    return Task(part(train), part(held), part(test), unit, setting["rate"], epochs, seed)


def score(exact: bool, task: Task) -> dict[str, Any]:
    """Trains a network and returns the error of the test rows."""
    generator = torch_generator(task.seed)
    module = DropoutMLP(task.train.rows.shape[1], task.rate, exact=exact)
    reset_layers(module, generator)
    fit_module(
        module,
        WithDropout(SquaredError(), task.rate, WIDTHS),
        task.train,
        generator=generator,
        validation=task.held,
        settings=TrainingSettings(
            max_epochs=task.epochs, batch_size=128, learning_rate=1e-3, patience=50, compile=False
        ),
    )
    with torch.no_grad():
        errors = module(task.test.rows) - task.test.target
    return {RMSE: task.unit * float(errors.square().mean().sqrt())}


EXPERIMENT = Experiment(
    name="sparsity-dropout",
    question="Is dropout better if it divides by the exact number of kept units?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, figure 4",
    make_data=make_task,
    models={EXPECTED: lambda: False, EXACT: lambda: True},
    score=score,
    metrics={RMSE: "lower"},
    budgets={
        "smoke": Budget.grid(n_seeds=1, table=["diabetes"], rate=[0.5]),
        "small": Budget.grid(n_seeds=5, table=["boston", "diabetes"], rate=[0.5, 0.9])
        + Budget.grid(n_seeds=5, table=["california"], rate=[0.9]),
        "paper": Budget.grid(n_seeds=5, table=list(FILES), rate=[0.1, 0.3, 0.5, 0.7, 0.9, 0.95]),
    },
    claims=[Better(EXACT, EXPECTED, on=RMSE, where={"table": table, "rate": 0.9}) for table in FILES],
    data_sets=lambda setting: (FILES[setting["table"]],),
)
