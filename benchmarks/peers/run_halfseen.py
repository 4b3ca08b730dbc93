"""The imputers of halfseen; one line adds another."""

import warnings

import numpy as np
from exchange import N_DRAWS, Answer, run

import halfseen

CLASSES = {
    "GaussianImputer": "GaussianImputer",
    "MixtureImputer": "MixtureImputer",
    "CircuitImputer": "CircuitImputer",
    "TreeImputer": "TreeImputer",
    "AutoImputer": "AutoImputer",
}


def imputer(name):
    def impute(task):
        schema = {}
        for j, (kind, n) in enumerate(zip(task.kinds, task.n_levels, strict=True)):
            schema[j] = {"kind": kind} | ({"levels": list(range(n))} if n else {})
        warnings.simplefilter("ignore")
        model = getattr(halfseen, name)(schema=schema, random_state=task.seed).fit(task.train)
        points = [model.transform(x) for x in (task.train, task.test)]

        def draw(x, n_draws):
            return np.asarray(model.sample(x, n_draws=n_draws))

        return Answer(*points, *(draw(x, N_DRAWS) for x in (task.train, task.test)), draw)

    return impute


run({label: imputer(name) for label, name in CLASSES.items()})
