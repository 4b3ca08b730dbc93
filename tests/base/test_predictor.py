"""The one order of steps in which predictors are fitted."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from halfseen import BoostingRegressor, GaussianRegressor
from halfseen.base.predictor import Steps, fit_predictor
from halfseen.base.table import TableEstimator
from halfseen.training.supervised import Labelled

X = np.arange(120.0).reshape(60, 2)
Y = np.arange(60.0)


class Means(TableEstimator):
    """Records what each step receives; predicts the mean of the targets."""

    def __init__(self, held_out=0.0, refit=False, broken=False, schema=None, random_state=0):
        self.held_out, self.refit, self.broken = held_out, refit, broken
        self.schema, self.random_state = schema, random_state

    def fit(self, X, y, sample_weight=None):
        steps = Steps(
            features=lambda codes, target, weights: (
                Labelled(codes, target, weights),
                {"seen_": codes.x[:, 0]},
            ),
            plan=lambda codes, rows, generator: len(rows),
            held_out=self.held_out,
            learn=self._learn,
            calibrate=lambda train, held, generator: {"tested_": self.mean_ - (held or train).target},
            refit=self.refit,
        )
        return fit_predictor(self, steps, X, y, sample_weight)

    def _read_target(self, y, n_rows, weights):
        return torch.as_tensor(y)[weights > 0], {"n_rows_": n_rows}

    def _learn(self, train, held, plan, generator):
        if self.broken:
            raise ValueError("a step failed")
        return {"mean_": float(train.target.mean()), "plan_": plan, "n_train_": len(train)}


def test_rows_without_weight_reach_no_step():
    model = Means().fit(X, Y, np.r_[np.zeros(20), np.ones(40)])
    assert (model.n_rows_, model.plan_, model.n_train_) == (60, 40, 40)
    assert model.seen_.min() == 40.0
    assert model.mean_ == Y[20:].mean()


def test_a_model_is_calibrated_on_rows_that_it_was_not_fitted_to_and_then_fitted_to_all():
    apart, again = Means(held_out=0.25).fit(X, Y), Means(held_out=0.25, refit=True).fit(X, Y)
    assert apart.n_train_ == 45
    assert len(apart.tested_) == 15
    torch.testing.assert_close(again.tested_, apart.tested_, rtol=0, atol=0)
    assert (again.n_train_, again.mean_) == (60, Y.mean())


def test_a_failed_step_leaves_the_estimator_as_it_was():
    model = Means().fit(X, Y)
    before = dict(vars(model))
    model.broken = True
    with pytest.raises(ValueError, match="a step failed"):
        model.fit(X[:50], Y[:50])
    assert vars(model) == before | {"broken": True}


def test_a_table_without_columns_to_model_is_refused_if_there_must_be_one():
    with pytest.raises(ValueError, match="Means needs a column that varies"):
        Means().fit(np.ones((60, 2)), Y)


@pytest.mark.parametrize(
    "dates",
    [
        np.arange(60).astype("datetime64[D]"),
        np.arange(60).astype("timedelta64[h]"),
        pd.Series(pd.date_range("2024-01-01", periods=60)),
        pd.Series(pd.date_range("2024-01-01", periods=60, tz="Europe/Zurich")),
        pl.Series(np.arange(60).astype("datetime64[D]")),
    ],
    ids=lambda dates: f"{type(dates).__module__}-{dates.dtype}",
)
@pytest.mark.parametrize("regressor", [GaussianRegressor(), BoostingRegressor(max_iter=2)])
def test_dates_are_no_target_of_a_regressor(regressor, dates):
    with pytest.raises(ValueError, match=r"y has the type (datetime64|timedelta64)\[.*predicts numbers"):
        regressor.fit(X, dates)
