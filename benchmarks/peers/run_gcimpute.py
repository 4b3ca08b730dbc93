"""gcimpute: the Gaussian copula. It has no unordered levels, so the codes of levels count as ordered."""

import numpy as np
from exchange import N_DRAWS, Answer, run
from gcimpute.gaussian_copula import GaussianCopula


def copula(task):
    levelled = task.levelled.tolist()
    numbers = [j for j in range(task.train.shape[1]) if j not in levelled]
    model = GaussianCopula(random_state=task.seed, verbose=0)
    model.fit(task.train, continuous=numbers, ordinal=levelled or None)
    train, test = (model.transform(x) for x in (task.train, task.test))

    def draw(x, n_draws):
        return np.moveaxis(model.sample_imputation(x, num=n_draws), -1, 0)

    return Answer(train, test, *(draw(x, N_DRAWS) for x in (task.train, task.test)), draw)


run({"gcimpute": copula})
