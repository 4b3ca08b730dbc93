"""The imputers of scikit-learn."""

import numpy as np
from exchange import N_DRAWS, Answer, Indicators, run
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer


def mean(task):
    return point(task, SimpleImputer(keep_empty_features=True), drop_first=False)


def knn(task):
    return point(task, KNNImputer(keep_empty_features=True), drop_first=False)


def point(task, imputer, drop_first):
    space = Indicators(task, drop_first)
    imputer.fit(space.encode(task.train))
    answers = (space.decode(imputer.transform(space.encode(x)), x) for x in (task.train, task.test))
    return Answer(*answers)


def iterative(task):
    """One fit for single values, and one that draws from the posterior predictive distribution."""
    space = Indicators(task, drop_first=True)
    single = point(task, IterativeImputer(keep_empty_features=True, random_state=task.seed), drop_first=True)
    sampler = IterativeImputer(sample_posterior=True, keep_empty_features=True, random_state=task.seed)
    sampler.fit(space.encode(task.train))

    def draw(x, n_draws):
        return np.stack([space.decode(sampler.transform(space.encode(x)), x) for _ in range(n_draws)])

    return Answer(single.train, single.test, *(draw(x, N_DRAWS) for x in (task.train, task.test)), draw)


run({"mean": mean, "KNNImputer": knn, "IterativeImputer": iterative})
