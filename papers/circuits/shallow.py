"""Shallow and deep circuits of digits with missing pixels: CP-CAC beside HT-CAC, of figure 4 of the paper.

Both have leaves that are clusters of patches and are trained in the same way. The shallow one (a CP
decomposition) has 800 channels, as in the paper, and the deep one (hierarchical Tucker) the default numbers.
The paper has curves and no numbers. Its deep circuit is above the shallow one at all rates; this is the
claim, which was written before any run of this experiment.
"""

from functools import partial
from typing import Any

import numpy as np

from halfseen.circuits.convac import ConvACClassifier
from papers.circuits.figure3 import DATA_SET, RATES, Task, make_task, rate_metric
from papers.claims import Better
from papers.spec import Budget, Experiment

DEEP, SHALLOW = "HT-CAC", "CP-CAC, 800 channels"


def score(model: ConvACClassifier, task: Task) -> dict[str, Any]:
    """Trains a circuit on complete images and returns its accuracies."""
    model.set_params(max_epochs=task.epochs, patience=task.epochs).fit(task.train, task.train_digits)
    return {
        metric: float(np.mean(model.predict(images) == task.test_digits))
        for metric, images in task.test.items()
    }


EXPERIMENT = Experiment(
    name="convac-shallow",
    question="Is a deep circuit better than a shallow one if pixels are missing?",
    paper="Sharir, Tamari, Cohen & Shashua (2018), Tensorial mixture models, figure 4",
    make_data=make_task,
    data_sets=lambda setting: (DATA_SET,),
    models={
        DEEP: partial(ConvACClassifier, random_state=0),
        SHALLOW: partial(ConvACClassifier, n_channels=800, structure="shallow", random_state=0),
    },
    score=score,
    metrics=dict.fromkeys(map(rate_metric, RATES), "higher"),
    budgets={
        "smoke": Budget.grid(1, models=[SHALLOW], images=[200], epochs=[1]),
        "small": Budget.grid(3, images=[10_000], epochs=[4]),
        "paper": Budget.grid(3, images=[60_000], epochs=[60]),
    },
    claims=[
        Better(DEEP, SHALLOW, on=rate_metric(rate), where={"images": (10_000, 60_000)}) for rate in RATES
    ],
)
