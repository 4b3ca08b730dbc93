"""The effect of depth: trained NeuMiss networks and the series that they unroll, with 20 features.

Figure 3 (left) of the NeuMiss paper, MCAR (figure 5 is in `papers.neumiss.capacity`): networks of each depth,
with and without residuals, perceptrons of several widths, and the truncated series of the true covariance;
beside it the steps of better solvers of the same system. Networks are trained by our recipe and stopped on
the paper's validation rows.
The paper's numbers for the series are corrected: its figure takes the score of order 100 for the Bayes
rate.

The claims were written when the series of six seeds and some trained networks of one seed had been seen.
At the scale "small" there are three seeds, and ten of the models of the claims that compare networks and
series with each other (`MORE_SEEDS`): the spread of three seeds said that ten would decide them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from halfseen.neumiss.likelihood import NeuMissRegressor
from papers.claims import AtLeast, Better, Published, Setting
from papers.neumiss.linear import NEUMISS, WIDTHS, score
from papers.neumiss.networks import TrainedNeuMiss
from papers.neumiss.published import published_analytic, published_depth, published_width
from papers.neumiss.rivals import MaskMLP, TruncatedSolve
from papers.neumiss.task import GAP, make_task
from papers.spec import Budget, Experiment

DEPTHS = range(10)
BLOCK_DEPTHS = (1, 3, 9, 20)
ORDERS = (0, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 100)
SHORT_ORDERS = (1, 2, 3, 4, 5, 10, 15, 20)

EXACT = "GaussianBlock, exact"


def network(depth: int, residual: bool = False) -> str:
    """Returns the name of a trained network."""
    return f"NeuMiss 2020{' with residuals' if residual else ''}, depth {depth}"


def block(depth: int) -> str:
    """Returns the name of a trained block."""
    return f"NeuMiss 2021, depth {depth}"


def perceptron(factor: int) -> str:
    """Returns the name of a perceptron."""
    return f"MLP, width {factor} d"


def series(solver: str, order: int) -> str:
    """Returns the name of a truncated solver of the true system."""
    return f"true {solver}, order {order}"


MODELS: dict[str, Callable[[], Any]] = {
    NEUMISS: partial(NeuMissRegressor, random_state=0),
    EXACT: partial(TrainedNeuMiss, "ours", 0, solver="cholesky"),
    **{network(k): partial(TrainedNeuMiss, "2020", k) for k in DEPTHS},
    **{network(k, residual=True): partial(TrainedNeuMiss, "2020", k, residual=True) for k in DEPTHS},
    **{block(k): partial(TrainedNeuMiss, "2021", k) for k in BLOCK_DEPTHS},
    **{perceptron(q): partial(MaskMLP, q) for q in WIDTHS},
    **{series("neumann", k): partial(TruncatedSolve, "neumann", k) for k in ORDERS},
    **{series("chebyshev", k): partial(TruncatedSolve, "chebyshev", k) for k in ORDERS},
    **{series("cg", k): partial(TruncatedSolve, "cg", k) for k in SHORT_ORDERS},
}

NUMBERS: dict[str, Callable[[int], Published | None]] = {
    **{network(k): partial(published_depth, depth=k) for k in DEPTHS},
    **{network(k, residual=True): partial(published_depth, depth=k, residual=True) for k in DEPTHS},
    **{perceptron(q): partial(published_width, factor=q) for q in WIDTHS},
    **{series("neumann", k): partial(published_analytic, order=k) for k in ORDERS},
}


def published(setting: Setting, model: str, metric: str) -> Published | None:
    """Returns the paper's number for the counterpart of a model."""
    return NUMBERS[model](setting["n"]) if model in NUMBERS else None


def _budget(n: int, n_seeds: int, models: Sequence[str] | None = None) -> Budget:
    return Budget.grid(n_seeds, models=models, mechanism=["mcar"], n=[n], d=[20])


_SMOKE = (
    NEUMISS,
    EXACT,
    *map(network, (0, 1, 3)),
    network(3, residual=True),
    block(9),
    *map(perceptron, (1, 10)),
    *(series("neumann", order) for order in (0, 3, 10, 20, 100)),
    *(series("chebyshev", order) for order in (10, 50, 100)),
    *(series("cg", order) for order in (3, 5, 10, 15)),
)
MORE_SEEDS = (
    *map(network, (0, 3)),
    perceptron(10),
    *(series("neumann", order) for order in (3, 20, 100)),
    series("cg", 5),
    series("chebyshev", 100),
)
_WIDE = tuple(map(perceptron, (3, 4, 15, 30, 40, 100)))  # the paper scale alone waits for these

EXPERIMENT = Experiment(
    name="neumiss-depth",
    question="How much does the depth of a NeuMiss network help, compared with an exact solution?",
    paper="Le Morvan, Josse, Moreau, Scornet & Varoquaux (2020), NeuMiss networks",
    make_data=make_task,
    models=MODELS,
    score=score,
    metrics={GAP: "higher"},
    budgets={
        "smoke": _budget(10_000, 1, _SMOKE),
        "small": _budget(20_000, 3, [name for name in MODELS if name not in (*_WIDE, *MORE_SEEDS)])
        + _budget(20_000, 10, MORE_SEEDS),
        "paper": _budget(100_000, 20),
    },
    claims=[
        Better(network(3), series("neumann", 3), on=GAP),
        Better(network(3), network(0), on=GAP, where={"n": (20_000, 100_000)}),
        Better(network(3), perceptron(10), on=GAP, where={"n": (20_000, 100_000)}),
        Better(EXACT, network(3), on=GAP),
        Better(series("cg", 5), series("neumann", 20), on=GAP),
        Better(series("chebyshev", 100), series("neumann", 100), on=GAP),
        AtLeast(series("cg", 15), on=GAP, bound=-0.001),
        AtLeast(NEUMISS, on=GAP, bound=-0.003),
    ],
    numbers=published,
)
