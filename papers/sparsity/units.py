"""How many hidden units AutoRec with Sparsity Normalization needs: figure 6 and table 2 of the paper.

All rows are in each step, Adam has the rate 0.001, and held-out ratings choose the penalty of each case, as
in ``sparsity-tuned``. Figure 6 has no numbers; table 2 has the error of rows of items with 1,000 units, over
five random splits, which is what seeds change here too.

The claims are the paper's: 500 units are too few with normalisation, 600 are enough on MovieLens 100K and 900
on MovieLens 1M. They were written before any run of this experiment; without tuning 1,000 units had given no
smaller error than 500 (``sparsity``).
"""

from functools import partial

from papers.claims import AsPublished, Better, Published, Setting
from papers.sparsity.ratings import FILES, LARGE, SMALL, TABLE_2, make_task
from papers.sparsity.tuned import TunedAutoRec, score_tuned
from papers.spec import Budget, Experiment

UNITS = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)


def with_units(n_units: int) -> str:
    """Returns the name of a network."""
    return f"AutoRec + SN, {n_units} units"


def _numbers(setting: Setting, model: str, metric: str) -> Published | None:
    found = TABLE_2.get(setting["data"]) if (model, metric) == (with_units(1000), "RMSE") else None
    return None if found is None else Published(found, label="table 2")


EXPERIMENT = Experiment(
    name="sparsity-units",
    question="How many units does AutoRec with Sparsity Normalization need?",
    paper="Yi, Lee, Kim, Hwang & Yang (2020), Why not to use zero imputation?, figure 6 and table 2",
    make_data=make_task,
    models={with_units(n): partial(TunedAutoRec, sparsity_norm=True, n_hidden=n) for n in UNITS},
    score=score_tuned,
    metrics={"RMSE": "lower", "absolute slope": "lower"},
    budgets={
        "smoke": Budget.grid(1, models=[], data=[SMALL], rows=["item"]),
        "small": Budget.grid(
            3, models=[*map(with_units, (100, 500, 600, 1000))], data=[SMALL], rows=["item"]
        ),
        "paper": Budget.grid(5, data=[SMALL, LARGE], rows=["item"]),
    },
    claims=[
        Better(with_units(600), with_units(100), on="RMSE", where={"data": SMALL}),
        Better(with_units(1000), with_units(500), on="RMSE", where={"data": SMALL}),
        Better(with_units(900), with_units(500), on="RMSE", where={"data": LARGE}),
        *(
            AsPublished(with_units(1000), on="RMSE", by=0.003, where={"data": data})
            for data in (SMALL, LARGE)
        ),
    ],
    numbers=_numbers,
    data_sets=lambda setting: FILES[setting["data"]],
)
