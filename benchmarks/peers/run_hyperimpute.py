"""HyperImpute. Its flagship has no fit: new rows are fitted on their own when they are imputed."""

import numpy as np
import pandas as pd
from exchange import Answer, run
from hyperimpute.plugins.imputers import Imputers


def impute(task):
    np.random.seed(task.seed)  # noqa: NPY002 - the tool draws from the global generator
    names = [f"c{j}" for j in range(task.train.shape[1])]
    model = Imputers().get("hyperimpute")
    train = model.fit_transform(pd.DataFrame(task.train, columns=names))
    test = model.transform(pd.DataFrame(task.test, columns=names))
    return Answer(*(np.asarray(table, dtype=float) for table in (train, test)))


run({"HyperImpute": impute})
