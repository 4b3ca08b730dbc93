"""MissForest from the package of that name, with its default learners."""

import numpy as np
import pandas as pd
from exchange import Answer, run
from missforest import MissForest


def forest(task):
    names = [f"c{j}" for j in range(task.train.shape[1])]
    imputer = MissForest(categorical=[names[j] for j in task.levelled] or None, verbose=0)
    train = imputer.fit_transform(pd.DataFrame(task.train, columns=names))
    test = imputer.transform(pd.DataFrame(task.test, columns=names))
    return Answer(*(np.asarray(table[names], dtype=float) for table in (train, test)))


run({"MissForest": forest})
