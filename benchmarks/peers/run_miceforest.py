"""miceforest: chained equations with LightGBM and predictive mean matching; each data set is a draw."""

import miceforest
import numpy as np
import pandas as pd
from exchange import N_DRAWS, Answer, average, run

ITERATIONS = 3


def frame(task, codes):
    table = pd.DataFrame(codes, columns=[f"c{j}" for j in range(codes.shape[1])])
    for j in task.levelled:
        levels = pd.CategoricalDtype(range(task.n_levels[j]))
        table[f"c{j}"] = table[f"c{j}"].astype("Int64").astype(levels)
    return table


def codes_of(task, table):
    columns = []
    for j, name in enumerate(table.columns):
        coded = j in task.levelled
        columns.append(table[name].cat.codes.to_numpy(float) if coded else table[name].to_numpy(float))
    return np.stack(columns, axis=1)


def mice(task):
    kernel = miceforest.ImputationKernel(
        frame(task, task.train), num_datasets=N_DRAWS, random_state=task.seed, save_all_iterations_data=True
    )
    kernel.mice(ITERATIONS, n_jobs=1)
    train = np.stack([codes_of(task, kernel.complete_data(dataset=i)) for i in range(N_DRAWS)])
    new = kernel.impute_new_data(frame(task, task.test), random_state=task.seed)
    # the last iteration must be named: by default, new data come back as they were filled at the start
    completed = [new.complete_data(dataset=i, iteration=ITERATIONS) for i in range(N_DRAWS)]
    test = np.stack([codes_of(task, table) for table in completed])
    return Answer(average(train, task.n_levels), average(test, task.n_levels), train, test)


run({"miceforest": mice})
